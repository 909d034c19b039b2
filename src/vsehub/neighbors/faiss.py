"""Inner-product search with a flat FAISS index, on the GPU if the vectors are there and FAISS supports it."""

import contextlib
import logging
from types import ModuleType

import torch
from torch import Tensor

from vsehub.checks import fail, matrix
from vsehub.neighbors.exact import check_query

# Below this many queries FAISS scans vector by vector instead of calling BLAS: 14 times slower on 128 queries.
BLAS_FROM_QUERIES = 20


def load_faiss() -> ModuleType | None:
    """The faiss module with its torch bridge, or None if it is not installed.

    torch must be imported first (at the top of this file): otherwise the process gets two OpenMP pools.
    """
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    try:
        import faiss
        import faiss.contrib.torch_utils
    except ImportError:
        return None
    faiss.cvar.distance_compute_blas_threshold = BLAS_FROM_QUERIES
    return faiss


def required_faiss(what: str, instead: str) -> ModuleType:
    """The faiss module. Raises InputError if it is missing: `what` needs it; `instead`: what else to do."""
    faiss = load_faiss()
    if faiss is None:
        fail(f"{what} needs FAISS, which is not installed: install vsehub[cpu] or vsehub[gpu], or {instead}")
    return faiss


def on_gpu(faiss: ModuleType) -> bool:
    """Whether this build of FAISS has GPU indexes and sees a GPU."""
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


class FaissIndex:
    """A flat inner-product index over (M, D) float32 vectors.

    CUDA vectors go into a GPU index if FAISS has one; tensors are passed by pointer, without a copy. Raises
    InputError if FAISS is missing.
    """

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        faiss = required_faiss("the faiss backend", "choose the exact backend")
        self.gpu = vectors.is_cuda and on_gpu(faiss)
        self._device = vectors.device
        if self.gpu:
            self._resources = faiss.StandardGpuResources()
            config = faiss.GpuIndexFlatConfig()
            config.device = vectors.device.index or 0
            self._index = faiss.GpuIndexFlatIP(self._resources, vectors.shape[1], config)
        else:
            self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(self._ready(vectors))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        The answer is on the vectors' device. Raises InputError if dimensions differ or k exceeds the vectors.
        """
        check_query(queries, self._index.d, k, len(self))
        with torch.cuda.device(self._device) if self.gpu else contextlib.nullcontext():
            similarities, positions = self._index.search(self._ready(queries), k)
        return similarities.to(self._device), positions.to(self._device)

    def _ready(self, vectors: Tensor) -> Tensor:
        vectors = vectors.detach().float().contiguous()
        return vectors if self.gpu else vectors.cpu()
