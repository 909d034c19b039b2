"""The GPU indexes of FAISS for pretended tensors: FAISS's own bridge to torch, with its library stood in for.

`installed` gives this machine's FAISS the classes of a build for GPUs that `vsehub.neighbors.faiss` uses, under their
names and with their arguments, and torch the streams that the bridge asks for. Tensors go through
`faiss.contrib.torch_utils` as on a GPU, which refuses other types, strides and dimensions; the index behind it lies in
main memory. What a GPU would do wrong is an error here: tensors of another device, resources that are none, a current
device that is not the index's, and more neighbours than FAISS finds on a GPU.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import faiss
import pytest
import torch
from pretended_device import Pretended, device, moved
from torch import Tensor

MOST_NEIGHBORS = 2048
# Of the two GPUs that FAISS seems to see, torch works on the other one until it is told.
GPUS, ELSEWHERE, STREAM = 2, 1, 4711
_CURRENT: list[int] = []


class StandardGpuResources:
    """Memory and streams of the GPUs."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self._streams: dict[int, int] = {}

    def setTempMemory(self, size: int) -> None:
        self.bytes["scratch"] = size

    def setPinnedMemory(self, size: int) -> None:
        self.bytes["pinned"] = size

    def getDefaultStream(self, device: int) -> int:
        return self._streams.get(device, 0)

    def setDefaultStream(self, device: int, stream: int) -> None:
        self._streams[device] = stream


class GpuIndexFlatConfig:
    """Settings of a flat index; a misspelt one is an error."""

    __slots__ = ("device", "useFloat16", "use_cuvs")

    def __init__(self) -> None:
        self.device, self.useFloat16, self.use_cuvs = 0, False, False


class GpuIndexFlatIP(faiss.IndexFlatIP):
    """A flat index of inner products."""

    resources = StandardGpuResources()  # declared, since FAISS's classes refuse attributes that they do not have
    gpu = 0

    def __init__(self, *args: Any) -> None:
        provider, dims, config = args
        if not isinstance(provider, StandardGpuResources) or type(dims) is not int:
            raise TypeError(f"got {provider!r} and {dims!r}; expected StandardGpuResources and a whole number")
        if type(config) is not GpuIndexFlatConfig or type(config.device) is not int:
            raise TypeError(f"got {config!r}; expected a GpuIndexFlatConfig, whose device is a whole number")
        if "faiss.contrib.torch_utils" not in sys.modules:
            raise RuntimeError("FAISS takes arrays alone until its bridge to torch is imported")
        if not 0 <= config.device < GPUS:
            raise RuntimeError(f"Invalid GPU device {config.device}")
        super().__init__(dims)
        self.resources, self.gpu = provider, config.device

    def getDevice(self) -> int:
        return self.gpu

    def getResources(self) -> StandardGpuResources:
        return self.resources

    def add(self, x: Tensor, numeric_type: int = faiss.Float32) -> None:
        """The bridge's `add`, with the tensor's data in main memory."""
        with _seen_as_cuda():
            super().add(self._inner(x), numeric_type)

    def search(
        self,
        x: Tensor,
        k: int,
        D: Tensor | None = None,
        I: Tensor | None = None,  # noqa: E741
        numeric_type: int = faiss.Float32,
    ) -> tuple[Tensor, Tensor]:
        """The bridge's `search`, with the tensor's data in main memory."""
        with _seen_as_cuda():
            given = (None if one is None else self._inner(one) for one in (D, I))
            return tuple(moved(one) for one in super().search(self._inner(x), k, *given, numeric_type))

    # The bridge replaces the methods of all indexes that it finds, but for those that bear its own names.
    add.__name__, search.__name__ = "torch_replacement_add", "torch_replacement_search"

    def add_ex(self, *arguments: Any) -> None:
        """What the bridge calls in the library: n, x, type of its numbers."""
        self._require_stream()
        super().add_ex(*arguments)

    def search_ex(self, *arguments: Any) -> None:
        """What the bridge calls in the library: n, x, type of its numbers, k, distances, labels."""
        self._require_stream()
        k = arguments[3]
        if k > MOST_NEIGHBORS:
            raise RuntimeError(f"GPU index only supports min/max-K selection up to {MOST_NEIGHBORS}, requested {k}")
        super().search_ex(*arguments)

    def _inner(self, x: Tensor) -> Tensor:
        if not isinstance(x, Pretended) or x.device.index != self.gpu:
            raise RuntimeError(f"got a tensor of {x.device}; the index is on GPU {self.gpu}")
        return x.inner

    def _require_stream(self) -> None:
        if self.resources.getDefaultStream(self.gpu) != STREAM:
            raise RuntimeError(f"GPU {self.gpu} works on another stream than torch; enter torch.cuda.device first")


@contextmanager
def _seen_as_cuda() -> Iterator[None]:
    """The bridge asks a tensor whether it is on a GPU, and refuses subclasses of tensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "is_cuda", True)
        yield


class _CudaDevice:
    """`torch.cuda.device` for the pretended device."""

    def __init__(self, where: torch.device):
        if where != device():
            raise ValueError(f"Expected {device()}, got {where}")
        self._index = where.index

    def __enter__(self) -> None:
        _CURRENT.append(self._index)

    def __exit__(self, *_: Any) -> None:
        _CURRENT.pop()


@contextmanager
def installed() -> Iterator[ModuleType]:
    """FAISS as a build for GPUs, on the pretended device."""
    with pytest.MonkeyPatch.context() as patch:
        for one in (StandardGpuResources, GpuIndexFlatConfig, GpuIndexFlatIP):
            patch.setattr(faiss, one.__name__, one, raising=False)
        patch.setattr(faiss, "get_num_gpus", lambda: GPUS)
        patch.setattr(faiss, "cast_integer_to_cudastream_t", lambda number: number, raising=False)
        patch.setattr("vsehub.neighbors.faiss._RESOURCES", {})
        patch.setattr(torch.cuda, "device", _CudaDevice)
        patch.setattr(torch.cuda, "current_device", lambda: _CURRENT[-1] if _CURRENT else ELSEWHERE)
        patch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=STREAM))
        yield faiss
