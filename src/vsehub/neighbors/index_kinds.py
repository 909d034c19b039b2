"""The FAISS indexes that can serve a ranking: exact, by inverted lists, by a graph of neighbours."""

import math
from types import ModuleType
from typing import Any

from vsehub.checks import one_of

KINDS = ("flat", "ivf", "hnsw")

# Lists: 4 a square root of the items; k-means wants at least 39 vectors a list, and more than 64 change little.
LISTS_A_ROOT, LEAST_A_LIST, TRAINED_A_LIST = 4, 39, 64
# Of so many lists one is searched, and at least these.
LISTS_A_PROBE, LEAST_PROBES = 16, 16
# Links of an item, candidates among which they are chosen, candidates of a query. With more to choose from FAISS, which
# prunes by inner product, keeps fewer links: recall fell (100,000 hubby items: 0.99 with 40, 0.96 with 80).
LINKS, CANDIDATES_BUILDING, CANDIDATES_SEARCHING = 32, 40, 128


def empty_index(faiss: ModuleType, kind: str, dimensions: int, items: int, seed: int) -> Any:
    """An inner-product index without vectors, with memory for all where vectors lie in one stretch."""
    one_of("index", kind, KINDS)
    if kind == "ivf":
        lists = max(1, min(round(LISTS_A_ROOT * math.sqrt(items)), items // LEAST_A_LIST))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed, index.cp.min_points_per_centroid = seed, 1
        index.nprobe = min(lists, max(LEAST_PROBES, lists // LISTS_A_PROBE))
        return index
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = CANDIDATES_BUILDING, CANDIDATES_SEARCHING
        _reserve(faiss.downcast_index(index.storage), items)
        return index
    index = faiss.IndexFlatIP(dimensions)
    _reserve(index, items)
    return index


def training_vectors(index: Any) -> int:
    """How many vectors the index is to be trained on: 0 where it needs no training."""
    return 0 if index.is_trained else TRAINED_A_LIST * index.nlist


def effort(kind: str, index: Any) -> int | None:
    """What trades time for recall: the lists searched (ivf), the candidates (hnsw), None for an exact index."""
    return {"flat": lambda: None, "ivf": lambda: index.nprobe, "hnsw": lambda: index.hnsw.efSearch}[kind]()


def _reserve(flat: Any, items: int) -> None:
    """Memory for all items at once: growing it as they come holds them twice at times."""
    flat.codes.resize(items * flat.code_size)
    flat.codes.resize(0)
