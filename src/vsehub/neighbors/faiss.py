"""Inner-product search with a flat FAISS index, on the GPU if the vectors are there and FAISS supports it."""

import contextlib
import logging
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require
from vsehub.neighbors.exact import check_query

# Below this many queries FAISS scans vector by vector instead of calling BLAS: 14 times slower on 128 queries.
BLAS_FROM_QUERIES = 20
GPU_DEPTH = 2048  # the most neighbours that FAISS finds on a GPU
GPU_ROWS = 65_536  # FAISS adds more vectors than these to a GPU by another path, without reserving their memory first
GPU_SCRATCH, GPU_PINNED = 256 * 2**20, 64 * 2**20  # bytes, of its own memory on a GPU and of main memory beside it
_RESOURCES: dict[int, Any] = {}  # of each GPU, shared by all indexes there: by default each would take 1.5 GB


def loaded_faiss() -> tuple[ModuleType | None, str]:
    """The faiss module, or None and the reason, such as "is not installed".

    torch must be imported first (at the top of this file): otherwise the process gets two OpenMP pools.
    """
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    try:
        import faiss
    except ModuleNotFoundError:
        return None, "is not installed"
    except (ImportError, RuntimeError, OSError) as error:  # such as a GPU build without CUDA's libraries
        return None, f"cannot be loaded ({' '.join(str(error).split())})"
    faiss.cvar.distance_compute_blas_threshold = BLAS_FROM_QUERIES
    return faiss, ""


def required_faiss(what: str, instead: str) -> ModuleType:
    """The faiss module. Raises InputError if it is missing: `what` needs it; `instead`: what else to do."""
    faiss, reason = loaded_faiss()
    if faiss is None:
        fail(f"{what} needs FAISS, which {reason}: pip install 'vsehub[cpu]' or 'vsehub[gpu]', or {instead}")
    return faiss


def on_gpu(faiss: ModuleType) -> bool:
    """Return True if this build of FAISS has GPU indexes and sees a GPU."""
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


def gpu_resources(faiss: ModuleType, device: int) -> Any:
    """The FAISS resources of a GPU, created once with bounded memory."""
    if device not in _RESOURCES:
        made = faiss.StandardGpuResources()
        made.setTempMemory(GPU_SCRATCH)
        made.setPinnedMemory(GPU_PINNED)
        _RESOURCES[device] = made
    return _RESOURCES[device]


class FaissIndex:
    """A flat inner-product index over (M, D) float32 vectors.

    CUDA vectors go into a GPU index if FAISS has one, which finds at most `GPU_DEPTH` neighbours; tensors are passed by
    pointer, without a copy. Raises InputError if FAISS is missing.
    """

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        faiss = required_faiss("the faiss backend", "choose the exact backend")
        self.gpu = vectors.is_cuda and on_gpu(faiss)
        self._device = vectors.device
        if self.gpu:
            # Only here: it changes all of FAISS's indexes, which then refuse what other libraries ask of them.
            import faiss.contrib.torch_utils

            config = faiss.GpuIndexFlatConfig()
            config.device = vectors.device.index or 0
            self._index = faiss.GpuIndexFlatIP(gpu_resources(faiss, config.device), vectors.shape[1], config)
        else:
            self._index = faiss.IndexFlatIP(vectors.shape[1])
        with self._on_device():
            self._index.add(self._ready(vectors))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        The answer is on the vectors' device. Raises InputError if dimensions differ or k exceeds the vectors, or
        `GPU_DEPTH` on a GPU.
        """
        check_query(queries, self._index.d, k, len(self))
        require(
            not self.gpu or k <= GPU_DEPTH,
            f"k is {k}; FAISS finds at most {GPU_DEPTH} neighbours on a GPU, choose the exact backend",
        )
        with self._on_device():
            similarities, positions = self._index.search(self._ready(queries), k)
        return torch.as_tensor(similarities).to(self._device), torch.as_tensor(positions).to(self._device)

    def _on_device(self) -> contextlib.AbstractContextManager[Any]:
        """FAISS works on the stream of torch's current device."""
        return torch.cuda.device(self._device) if self.gpu else contextlib.nullcontext()

    def _ready(self, vectors: Tensor) -> Any:
        """The vectors as FAISS takes them: on a GPU its bridge to torch, which reads tensors, on a CPU numpy."""
        vectors = vectors.detach().float().contiguous()
        return vectors if self.gpu else vectors.cpu().numpy()
