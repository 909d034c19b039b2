"""A FAISS index and the facts about it in one file: creating the empty index, writing it, and reading it safely.

FAISS reads its own part and stops, so `faiss.read_index` can open the file too. The facts follow as JSON, then a seal
of all other bytes (`io.seal`, 32 bytes), the length of the facts in 8 bytes and the name of the format in 8 bytes.

FAISS trusts the contents of a file: sizes for which it allocates memory, numbers that it uses as positions, indexes
nested in indexes. `read_index` therefore opens only files that this user's vsehub wrote, unless others are trusted.
"""

import hmac
import json
import logging
import math
import os
import secrets
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from vsehub.checks import InputError, existing, fail, one_of, regular, require
from vsehub.io import seal
from vsehub.io.files import atomic
from vsehub.io.versions import require_version

log = logging.getLogger(__name__)

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
_NAME, _VERSION = b"vsehub-", b"3"
MARK = _NAME + _VERSION
_LENGTH = 8
_END = _LENGTH + len(MARK)
_CHUNK = 16 << 20
_MOST_FACTS = 1 << 20
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
    """Write an index and its facts atomically, sealed with the user's key.

    Without a key, as in a home that cannot be written, a warning says that the index will have to be trusted.
    """
    try:
        key = seal.user_key()
    except InputError as error:
        log.warning("%s is not sealed, so that `load_index` will ask for trust=True: %s", path, error)
        key = secrets.token_bytes(seal.SIZE)
    own, size, checksum = seal.new_seal(key), 0, 0
    with atomic(path) as handle:

        def write(part: bytes) -> None:
            nonlocal size, checksum
            size, checksum = size + len(part), zlib.crc32(part, checksum)
            own.update(part)
            handle.write(part)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write))
        content = json.dumps(facts | {"bytes": size, "crc32": checksum}).encode()
        end = len(content).to_bytes(_LENGTH, "little") + MARK
        own.update(content + end)
        handle.write(content + own.digest() + end)


def read_index(faiss: ModuleType, path: str | Path, trust: bool = False) -> tuple[Any, dict[str, Any]]:
    """The index and its facts.

    trust: also read an index that another user's vsehub wrote, or this user's with another key. Raises InputError if
    the file is cut short, damaged, not an index of vsehub, or, unless `trust`, not sealed with the user's key.
    """
    path = existing("index", path, "Give the file that `ServedIndex.save` or `vsehub rerank index=...` wrote")
    facts = _facts(regular(path))
    _require_seal(path, facts, trust)
    try:
        return faiss.read_index(str(path)), facts
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"index: FAISS {faiss.__version__} cannot read {path} ({error}); {_AGAIN}") from error


def _facts(path: Path) -> dict[str, Any]:
    """The facts, which follow the index in the file."""
    size = os.path.getsize(path)
    with path.open("rb") as handle:
        handle.seek(max(0, size - _END))
        end = handle.read()
        length = int.from_bytes(end[:_LENGTH], "little")
        mark = end[_LENGTH:]
        if mark.startswith(_NAME):
            version = mark.removeprefix(_NAME).decode(errors="replace")
            require_version(f"index: {path}", version, _VERSION.decode(), f"Or {_AGAIN}")
        start = size - _END - seal.SIZE - length
        require(
            mark == MARK and length <= _MOST_FACTS and start >= 0,
            f"index: {path} is not an index of vsehub, or it is cut short (its last bytes are wrong); {_AGAIN}",
        )
        handle.seek(start)
        try:
            facts = json.loads(handle.read(length))
        except (ValueError, RecursionError):
            facts = None
    if not isinstance(facts, dict) or facts.get("bytes") != start or "crc32" not in facts:
        fail(f"index: {path} is damaged: the facts at its end are not those of its size. Copy it again, or {_AGAIN}")
    return facts


def _require_seal(path: Path, facts: dict[str, Any], trust: bool) -> None:
    """Raise InputError if the file is damaged or, unless it is trusted, not sealed with the user's key."""
    try:
        key = bytes(seal.SIZE) if trust else seal.user_key()
    except InputError as error:
        raise InputError(
            f"index: who wrote {path} cannot be checked, since {error}; or, if you trust who wrote it, load it with "
            "trust=True"
        ) from error
    expected, left, checksum = seal.new_seal(key), facts["bytes"], 0
    with path.open("rb") as handle:
        while left > 0 and (part := handle.read(min(_CHUNK, left))):
            left, checksum = left - len(part), zlib.crc32(part, checksum)
            expected.update(part)
        rest = handle.read()
    require(
        checksum == facts["crc32"],
        f"index: {path} is damaged: its checksum is wrong. Copy it again, or {_AGAIN}",
    )
    found = rest[-_END - seal.SIZE : -_END]
    expected.update(rest[: -_END - seal.SIZE] + rest[-_END:])
    require(
        trust or hmac.compare_digest(expected.digest(), found),
        f"index: {path} was not written by your vsehub with the key {seal.key_path()}, or was changed since; FAISS "
        f"believes what a file holds, so {_AGAIN}; or, if you trust who wrote it, load it with trust=True",
    )
