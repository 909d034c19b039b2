"""A device that torch only pretends to have, for tests of device handling on a machine without a GPU.

Tensors on it hold data of the CPU, report the device `npu:0`, and raise where tensors of both devices meet in one
operation. `moved` puts tensors and modules there; within `pretended()` so do torch's factory functions and `.to`.
A tensor there says `is_cuda`, so that code takes the ways of a GPU.

Torch's `_setup_privateuseone_for_python_backend` is experimental; where it is missing the tests are skipped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from vsehub.sets import Sets

NAME = "npu"
_MOVES = ("_to_copy", "copy_", "to")
# Operations in which CUDA too takes an index, a mask or a number from the CPU.
_TAKES_CPU_INDEX = ("index", "index_put_", "index_put", "_index_put_impl_")
# Lengths of sequences, which CUDA too takes from the CPU.
_TAKES_CPU_LENGTHS = ("_pack_padded_sequence", "_pack_padded_sequence_backward", "_pad_packed_sequence")


def device() -> torch.device:
    """The pretended device, registered on the first call."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        backend_registration._setup_privateuseone_for_python_backend(NAME)
        module = getattr(torch, NAME)
        module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
        module.get_rng_state, module.set_rng_state = lambda _: torch.get_rng_state(), lambda state, _: None
    return torch.device(f"{NAME}:0")


class Pretended(Tensor):
    """A tensor on the pretended device; `inner` is the tensor of the CPU that holds its data."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Pretended":
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device(),
            requires_grad=inner.requires_grad,
        )
        made.inner = inner
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Pretended({self.inner})"

    @property
    def is_cuda(self) -> bool:
        """True, as on a GPU."""
        return True

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Stored as the tensor of the CPU that `map_location="cpu"` makes of one on a GPU."""
        return self.inner.__reduce_ex__(protocol)

    def new_tensor(self, *args: Any, **kwargs: Any) -> Any:
        """A tensor of Python numbers beside this one."""
        return _there(self.inner.new_tensor(*args, **kwargs))

    def tolist(self) -> Any:
        """As a list; torch refuses it for subclasses, CUDA copies to the CPU."""
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, dict(kwargs or {}))


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    tensors = [one for one in _leaves((args, kwargs)) if isinstance(one, Tensor)]
    indices = args[1] if name in _TAKES_CPU_INDEX else []
    mixed = [
        tuple(one.shape)
        for one in tensors
        if not isinstance(one, Pretended) and one.dim() > 0 and not any(one is index for index in indices)
    ]
    if mixed and name not in (*_MOVES, *_TAKES_CPU_LENGTHS):
        raise RuntimeError(f"{func} got tensors of the CPU, of shapes {mixed}, and others of {device()}")
    if name == "mm" and func._overloadname.startswith("dtype"):  # only CUDA multiplies into another type
        func = torch.ops.aten.mm.out if "out" in kwargs else torch.ops.aten.mm.default
        args = [one.to(args[2]) for one in args[:2]]
    targets = [one for one in (*args, torch.device(kwargs.get("device") or NAME)) if isinstance(one, torch.device)]
    away = any(target.type == "cpu" for target in targets)
    result = func(*_on_cpu(args), **_on_cpu(kwargs))
    if name == "copy_":
        return args[0]
    if away or name in ("_local_scalar_dense", "item", "is_nonzero"):
        return result
    if name in _TAKES_CPU_LENGTHS:
        return tree_map(lambda one: _there(one) if isinstance(one, Tensor) and one.is_floating_point() else one, result)
    known = {id(one.inner): one for one in tensors if isinstance(one, Pretended)}  # changed in place
    return tree_map(lambda one: _there(one, known), result)


def _leaves(value: Any) -> Iterator[Any]:
    """What nested lists, tuples and dictionaries hold; torch's own way through them takes most of a test's time."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        yield value
        return
    for one in value:
        yield from _leaves(one)


def _on_cpu(value: Any) -> Any:
    """The arguments of an operation, with the data of the CPU and its device."""
    if isinstance(value, Pretended):
        return value.inner
    if isinstance(value, list | tuple):
        return [_on_cpu(one) for one in value]
    if isinstance(value, dict):
        return {name: torch.device("cpu") if name == "device" else _on_cpu(one) for name, one in value.items()}
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Pretended) else value


def _there(value: Any, known: dict[int, Pretended] | None = None) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, Pretended):
        return value
    own = (known or {}).get(id(value))
    return Pretended(value) if own is None else own


class _Factories(TorchDispatchMode):
    """Lets `torch.zeros(..., device="npu")` and `tensor.to("npu")` give pretended tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if target is None or torch.device(target).type != NAME or any(issubclass(one, Pretended) for one in types):
            return func(*args, **kwargs)
        return tree_map(_there, func(*args, **{**kwargs, "device": "cpu"}))


def _made(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor` or `as_tensor`, which torch computes below its dispatcher."""

    def made(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.get("device")
        if target is None or torch.device(target).type != NAME:
            return make(*args, **kwargs)
        return _there(make(*args, **{**kwargs, "device": "cpu"}))

    return made


def _matmul(matmul: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.matmul`, which would resize the memory that it is given, the wrapper alone."""

    def multiplied(*args: Any, out: Tensor | None = None, **named: Any) -> Tensor:
        return out.copy_(matmul(*args, **named)) if isinstance(out, Pretended) else matmul(*args, out=out, **named)

    return multiplied


class _Across(torch.autograd.Function):
    """A tensor, and backwards its gradient, on the other device."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Any:
        return _turned(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _turned(gradients[0])


def _turned(tensor: Tensor) -> Tensor:
    return tensor.inner.detach() if isinstance(tensor, Pretended) else Pretended(tensor.detach())


def _recurrent(kind: type[nn.RNNBase]) -> Any:
    """The forward pass of a recurrent network, whose cells torch computes on real devices alone."""
    original = kind.forward

    def forward(self: nn.RNNBase, inputs: Any, state: Any = None) -> Any:
        rows = inputs.data if isinstance(inputs, PackedSequence) else inputs
        if not isinstance(rows, Pretended):
            return original(self, inputs, state)
        if not all(isinstance(one, Pretended) for one in self.parameters()):
            raise RuntimeError(f"the weights of {self} are on the CPU, its inputs on {device()}")
        on_cpu = kind(
            *(getattr(self, name) for name in ("input_size", "hidden_size", "num_layers", "bias")),
            batch_first=self.batch_first,
            bidirectional=self.bidirectional,
        )
        across: Any = _Across.apply
        weights = {name: across(one) for name, one in self.named_parameters()}
        given = across(rows)
        if isinstance(inputs, PackedSequence):
            order = (back(one) for one in (inputs.sorted_indices, inputs.unsorted_indices))
            given = PackedSequence(given, inputs.batch_sizes, *order)
        states, last = functional_call(on_cpu, weights, (given,))
        if isinstance(states, PackedSequence):
            states = PackedSequence(across(states.data), *inputs[1:])
        else:
            states = across(states)
        return states, tree_map(across, last)

    return forward


@contextmanager
def pretended() -> Iterator[torch.device]:
    """The device; within the block tensors can be made on it and moved to it."""
    found = device()
    with pytest.MonkeyPatch.context() as patch, _Factories():
        for kind in (nn.GRU, nn.LSTM):
            patch.setattr(kind, "forward", _recurrent(kind))
        for make in (torch.tensor, torch.as_tensor):
            patch.setattr(torch, make.__name__, _made(make))
        patch.setattr(torch, "matmul", _matmul(torch.matmul))
        yield found


def moved(value: Any) -> Any:
    """Tensors and `Sets`, in nested lists, tuples and dictionaries too, or a module, whose parameters are replaced."""
    if isinstance(value, Sets):
        return Sets(moved(value.vectors), moved(value.lengths))
    if not isinstance(value, nn.Module):
        device()
        return tree_map(_there, value)
    for part in value.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and not isinstance(parameter, Pretended):
                part._parameters[name] = nn.Parameter(_there(parameter.detach()), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            part._buffers[name] = _there(buffer)
    return value


def back(value: Any) -> Any:
    """Tensors or `Sets` on the CPU."""
    if isinstance(value, Sets):
        return Sets(back(value.vectors), back(value.lengths))
    return tree_map(_inner, value)
