"""A device that torch only pretends to have, for tests of device handling on a machine without a GPU.

Tensors on it hold data of the CPU, report the device `npu:0`, and raise where tensors of both devices meet in one
operation. `moved` puts tensors and modules there; within `pretended()` so do torch's factory functions and `.to`.
`Traffic` counts what a GPU would have to wait for: copies to the CPU and numbers read from tensors.

Torch's `_setup_privateuseone_for_python_backend` is experimental; where it is missing the tests are skipped.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "npu"
_MOVES = ("_to_copy", "copy_", "to")
# Operations in which CUDA too takes an index, a mask or a number from the CPU.
_TAKES_CPU_INDEX = ("index", "index_put_", "index_put", "_index_put_impl_")
# Lengths of sequences, which CUDA too takes from the CPU.
_TAKES_CPU_LENGTHS = ("_pack_padded_sequence", "_pack_padded_sequence_backward", "_pad_packed_sequence")
SOURCE = Path(__file__).parents[1] / "src"


def device() -> torch.device:
    """The pretended device, registered on the first call."""
    register = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if register is None:
        pytest.skip("this torch cannot pretend a device")
    if torch._C._get_privateuse1_backend_name() != NAME:
        register(NAME)
        getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    return torch.device(f"{NAME}:0")


class Traffic:
    """Counts of what a GPU waits for: copies "to_cpu" and "from_cpu", "scalar" reads, "nonzero" searches.

    A copy to the CPU of two or more dimensions is a "matrix_to_cpu".

    places: the same by the file of vsehub from which each came.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: Counter[str] = Counter()

    def note(self, kind: str) -> None:
        """Count one, with the innermost file of vsehub on the stack."""
        self.counts[kind] += 1
        own = [frame for frame in traceback.extract_stack() if frame.filename.startswith(str(SOURCE))]
        if own:
            self.places[f"{kind} {Path(own[-1].filename).relative_to(SOURCE / 'vsehub').as_posix()}"] += 1


_TRAFFIC: list[Traffic] = []


def _note(kind: str, moved: Tensor | None = None) -> None:
    if moved is not None and moved.ndim > 1:
        kind = f"matrix_{kind}"
    for one in _TRAFFIC:
        one.note(kind)


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Count what happens within the block."""
    counted = Traffic()
    _TRAFFIC.append(counted)
    try:
        yield counted
    finally:
        _TRAFFIC.remove(counted)


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

    def tolist(self) -> Any:
        """As a list; torch refuses it for subclasses, CUDA copies to the CPU."""
        _note("to_cpu", self.inner)
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, dict(kwargs or {}))


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
    of_cpu = [one for one in tensors if not isinstance(one, Pretended) and one.dim() > 0]
    if of_cpu and name not in (*_MOVES, *_TAKES_CPU_LENGTHS):
        indices = tree_flatten(args[1])[0] if name in _TAKES_CPU_INDEX else []
        mixed = [one for one in of_cpu if not any(one is index for index in indices)]
        shapes = [tuple(one.shape) for one in mixed]
        if mixed:
            raise RuntimeError(f"{func} got tensors of the CPU, of shapes {shapes}, and others of {device()}")
    if name == "nonzero" or (name == "index" and any(one is not None and one.dtype == torch.bool for one in args[1])):
        _note("nonzero")  # the size of the result is known only once it is computed
    target = kwargs.get("device")
    away = target is not None and torch.device(target).type == "cpu"
    if target is not None:
        kwargs["device"] = "cpu"
    result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if name == "_local_scalar_dense":
        _note("scalar")
        return result
    if name == "copy_":
        if not all(isinstance(one, Pretended) for one in tensors):
            there = isinstance(args[0], Pretended)
            _note("from_cpu" if there else "to_cpu", None if there else args[0])
        return args[0]
    if away:
        _note("to_cpu", result)
        return result
    if name in _TAKES_CPU_LENGTHS:
        return tree_map(lambda one: _there(one) if isinstance(one, Tensor) and one.is_floating_point() else one, result)
    known = {id(one.inner): one for one in tensors if isinstance(one, Pretended)}  # changed in place
    return tree_map(lambda one: _there(one, known), result)


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
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        there = any(issubclass(one, Pretended) for one in types)
        if there or target is None or torch.device(target).type != NAME:
            return func(*args, **kwargs)
        if func.overloadpacket.__name__ in _MOVES:
            _note("from_cpu")
        return tree_map(_there, func(*args, **{**kwargs, "device": "cpu"}))


class _Functions(TorchFunctionMode):
    """What torch computes below its dispatcher: tensors of Python numbers, and the cells of recurrent networks."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and target is not None and torch.device(target).type == NAME:
            _note("from_cpu")
            return _there(func(*args, **{**kwargs, "device": "cpu"}))
        if func is Tensor.new_tensor and isinstance(args[0], Pretended):
            _note("from_cpu")
            return _there(args[0].inner.new_tensor(*args[1:], **kwargs))
        if func is torch.matmul and isinstance(kwargs.get("out"), Pretended):  # it would resize the wrapper alone
            return kwargs["out"].copy_(func(*args))
        return func(*args, **kwargs)


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
        with traffic_unseen():
            weights = {name: one.to("cpu") for name, one in self.named_parameters()}
            given = rows.to("cpu")
            if isinstance(inputs, PackedSequence):
                order = (
                    None if one is None else one.to("cpu") for one in (inputs.sorted_indices, inputs.unsorted_indices)
                )
                given = PackedSequence(given, inputs.batch_sizes, *order)
            states, last = functional_call(on_cpu, weights, (given,))
            if isinstance(states, PackedSequence):
                states = PackedSequence(states.data.to(device()), *inputs[1:])
            else:
                states = states.to(device())
            return states, tree_map(lambda one: one.to(device()), last)

    return forward


@contextmanager
def traffic_unseen() -> Iterator[None]:
    """Count nothing within the block."""
    counting, _TRAFFIC[:] = list(_TRAFFIC), []
    try:
        yield
    finally:
        _TRAFFIC[:] = counting


@contextmanager
def pretended() -> Iterator[torch.device]:
    """The device; within the block tensors can be made on it and moved to it."""
    found = device()
    with pytest.MonkeyPatch.context() as patch, _Functions(), _Factories():
        for kind in (nn.GRU, nn.LSTM):
            patch.setattr(kind, "forward", _recurrent(kind))
        yield found


def moved(value: Any) -> Any:
    """Tensors, in nested lists, tuples and dictionaries too, or a module, whose parameters and buffers are replaced."""
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
    """The tensors on the CPU, uncounted."""
    return tree_map(_inner, value)
