"""Inner-product search with a flat FAISS index in main memory."""

import logging
from types import ModuleType

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require

# Below this many queries FAISS scans vector by vector instead of calling BLAS: 14 times slower on 128 queries.
BLAS_FROM_QUERIES = 20


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


class FaissIndex:
    """A flat inner-product index over (M, D) float32 vectors. Raises InputError if FAISS is missing."""

    name = "faiss"

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        faiss = required_faiss("the faiss backend", "choose the exact backend")
        self._index, self._device = faiss.IndexFlatIP(vectors.shape[1]), vectors.device
        self._index.add(vectors.detach().float().contiguous().cpu().numpy())

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        The answer is on the vectors' device. Raises InputError if k exceeds the vectors.
        """
        require(k <= len(self), f"k is {k}; expected at most {len(self)}, the number of vectors in the index")
        similarities, positions = self._index.search(queries.detach().float().contiguous().cpu().numpy(), k)
        return torch.from_numpy(similarities).to(self._device), torch.from_numpy(positions).to(self._device)
