"""A FAISS index and the facts about it in one file: creating the empty index, writing it, and reading it safely.

FAISS reads its own part and stops, so `faiss.read_index` can open the file too. The facts follow as JSON, then their
length in 8 bytes and the name of the format in 8 bytes. FAISS trusts the contents of a file: open only files whose
origin you trust.
"""

import json
import math
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from vsehub.checks import InputError, existing, one_of, regular
from vsehub.io.files import atomic
from vsehub.io.versions import require_version

KINDS = ("flat", "ivf", "hnsw", "ivfpq")
# Lists: 4 a square root of the items; k-means wants at least 39 vectors per list, and more than 64 change little.
LISTS_A_ROOT, LEAST_A_LIST, TRAINED_A_LIST = 4, 39, 64
# One in so many lists is searched, and at least these many.
LISTS_A_PROBE, LEAST_PROBES = 16, 16
# Links per item, candidates from which they are chosen, candidates of a query. With more candidates FAISS, which prunes
# by inner product, keeps fewer links, and recall falls (100,000 items with many hubs: 0.99 with 40, 0.96 with 80).
LINKS, CANDIDATES_BUILDING, CANDIDATES_SEARCHING = 32, 40, 128
# ivfpq stores a byte for each group of so many dimensions. The bias has a group to itself: among dimensions that vary
# more its values would hardly be told apart.
GROUP, CODES = 2, 256
_NAME, _VERSION = b"vsehub-", b"4"
MARK = _NAME + _VERSION
_LENGTH = 8
_END = _LENGTH + len(MARK)
_AGAIN = "write it again with `ServedIndex.save`, or `vsehub rerank index=...`"


def bias_at(kind: str, dim: int) -> int:
    """Where the index of vectors (M, dim) has their last component."""
    return -(-dim // GROUP) * GROUP if kind == "ivfpq" else dim


def width(kind: str, dim: int) -> int:
    """The dimension of the index of vectors (M, dim)."""
    return bias_at(kind, dim) + (GROUP if kind == "ivfpq" else 1)


def empty_index(faiss: ModuleType, kind: str, dimensions: int, items: int, seed: int) -> Any:
    """An empty inner-product index, with memory for all vectors if its kind keeps them in one block."""
    one_of("index", kind, KINDS)
    if kind in ("ivf", "ivfpq"):
        lists = max(1, min(round(LISTS_A_ROOT * math.sqrt(items)), items // LEAST_A_LIST))
        quantizer = faiss.IndexFlatIP(dimensions)
        if kind == "ivf":
            index = faiss.IndexIVFFlat(quantizer, dimensions, lists, faiss.METRIC_INNER_PRODUCT)
        else:
            groups, bits = dimensions // GROUP, CODES.bit_length() - 1
            index = faiss.IndexIVFPQ(quantizer, dimensions, lists, groups, bits, faiss.METRIC_INNER_PRODUCT)
            index.pq.cp.seed, index.pq.cp.min_points_per_centroid = seed, 1
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
    """The number of vectors on which to train the index: 0 if it needs no training."""
    return 0 if index.is_trained else TRAINED_A_LIST * index.nlist


def effort(kind: str, index: Any) -> int | None:
    """What trades time for recall: lists searched (ivf, ivfpq), candidates (hnsw), None for an exact index."""
    if kind == "flat":
        return None
    return int(index.hnsw.efSearch if kind == "hnsw" else index.nprobe)


def _reserve(flat: Any, items: int) -> None:
    """Reserve memory for all items at once: growing it step by step needs twice the memory at times."""
    flat.codes.resize(items * flat.code_size)
    flat.codes.resize(0)


def write_index(faiss: ModuleType, index: Any, facts: dict[str, Any], path: str | Path) -> None:
    """Write an index and its facts atomically."""
    with atomic(path) as handle:
        faiss.write_index(index, faiss.PyCallbackIOWriter(handle.write))
        content = json.dumps(facts).encode()
        handle.write(content + len(content).to_bytes(_LENGTH, "little") + MARK)


def read_index(faiss: ModuleType, path: str | Path) -> tuple[Any, dict[str, Any]]:
    """The index and its facts.

    Raises InputError if the file is cut short, damaged or not an index of vsehub.
    """
    path = regular(existing("index", path, "Give the file that `ServedIndex.save` or `vsehub rerank index=...` wrote"))
    with path.open("rb") as handle:
        handle.seek(max(0, os.path.getsize(path) - _END))
        length, mark = handle.read(_LENGTH), handle.read()
        if mark.startswith(_NAME):
            version = mark.removeprefix(_NAME).decode(errors="replace")
            require_version(f"index: {path}", version, _VERSION.decode(), f"Or {_AGAIN}")
        try:
            if mark != MARK:
                raise ValueError("its last bytes are wrong")
            handle.seek(-_END - int.from_bytes(length, "little"), os.SEEK_END)
            facts = json.loads(handle.read(int.from_bytes(length, "little")))
            index = faiss.read_index(str(path))
        except (OSError, OverflowError, ValueError, RecursionError, RuntimeError, MemoryError) as error:
            raise InputError(f"index: {path} is damaged or not an index of vsehub ({error}); {_AGAIN}") from error
    return index, facts
