"""Inner-product search with a flat FAISS index, on the GPU if the vectors are there and this build of FAISS sees it."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require

# Below this many queries FAISS scans vector by vector instead of calling BLAS: 14 times slower on 128 queries.
BLAS_FROM_QUERIES = 20
GPU_DEPTH = 2048  # the most neighbours that FAISS finds on a GPU
GPU_SCRATCH = 256 * 2**20  # bytes of FAISS's temporary memory on a GPU, 1.5 GB by default


def loaded_faiss() -> tuple[ModuleType | None, str]:
    """The faiss module, or None and the reason, such as "is not installed".

    torch must be imported first (at the top of this file): otherwise the process gets two OpenMP pools.
    """
    try:
        import faiss
    except ModuleNotFoundError:
        return None, "is not installed"
    except (ImportError, RuntimeError, OSError) as error:  # such as a GPU build without CUDA's libraries
        return None, f"cannot be loaded ({' '.join(str(error).split())})"
    faiss.cvar.distance_compute_blas_threshold = BLAS_FROM_QUERIES
    return faiss, ""


def required_faiss(what: str, instead: str) -> ModuleType:
    """The faiss module. Raises InputError if it is missing. what: name of what needs FAISS. instead: another way."""
    faiss, reason = loaded_faiss()
    if faiss is None:
        fail(f"{what} needs FAISS, which {reason}: pip install 'vsehub[cpu]' or 'vsehub[gpu]', or {instead}")
    return faiss


def faiss_searches(vectors: Tensor) -> bool:
    """Return True if FAISS is installed and can search on the vectors' device: a CPU, or a GPU that it sees."""
    faiss = loaded_faiss()[0]
    return faiss is not None and (vectors.device.type == "cpu" or (vectors.is_cuda and _on_gpu(faiss)))


def _on_gpu(faiss: ModuleType) -> bool:
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


class FaissIndex:
    """A flat inner-product index over (M, D) float32 vectors. Raises InputError if FAISS is missing.

    CUDA vectors go into a GPU index if FAISS has one, which finds at most `GPU_DEPTH` neighbours.
    """

    name = "faiss"

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        faiss = required_faiss("the faiss backend", "choose the exact backend")
        self._index, self._device = faiss.IndexFlatIP(vectors.shape[1]), vectors.device
        self.gpu = vectors.is_cuda and _on_gpu(faiss)
        if self.gpu:
            import faiss.contrib.torch_utils  # from here on all of FAISS's indexes take torch's tensors

            self.name = "faiss on the GPU"
            self._resources = faiss.StandardGpuResources()
            self._resources.setTempMemory(GPU_SCRATCH)
            self._index = faiss.index_cpu_to_gpu(self._resources, vectors.device.index or 0, self._index)
        self._index.add(self._ready(vectors))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        The answer is on the vectors' device. Raises InputError if k exceeds the vectors, or D differs.
        """
        matrix("queries", queries, columns=self._index.d)
        require(k <= len(self), f"k is {k}; expected at most {len(self)}, the number of vectors in the index")
        similarities, positions = self._index.search(self._ready(queries), k)
        return torch.as_tensor(similarities).to(self._device), torch.as_tensor(positions).to(self._device)

    def _ready(self, vectors: Tensor) -> Any:
        """The vectors as FAISS takes them: tensors on a GPU, numpy's arrays on a CPU."""
        vectors = vectors.detach().float().contiguous()
        return vectors if self.gpu else vectors.cpu().numpy()
