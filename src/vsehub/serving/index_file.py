"""A FAISS index and the facts about it in one file: creating the empty index, writing it, and reading it safely.

FAISS reads its own part and stops, so `faiss.read_index` can open the file too. The facts follow as JSON, then their
length in 8 bytes and the name of the format in 8 bytes.

FAISS trusts the contents of a file: sizes for which it allocates memory, numbers that it uses as positions, indexes
nested in indexes. `require_layout` therefore checks that every size fits the file, that kinds and dimensions are those
of the facts, and that every position is that of an item. A malicious file is refused.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from vsehub.checks import InputError, existing, fail, one_of, require
from vsehub.io.files import atomic

INNER_PRODUCT = 0  # FAISS's number of the metric
_MOST_CANDIDATES = 1 << 20  # of a graph's search: room for so many is made for each query
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
_NAME, _VERSION = b"vsehub-", b"1"
MARK = _NAME + _VERSION
_LENGTH = 8
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
    """Write an index and its facts atomically."""
    size = checksum = 0
    with atomic(path) as handle:

        def write(part: bytes) -> None:
            nonlocal size, checksum
            size, checksum = size + len(part), zlib.crc32(part, checksum)
            handle.write(part)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write))
        content = json.dumps(facts | {"bytes": size, "crc32": checksum}).encode()
        handle.write(content + len(content).to_bytes(_LENGTH, "little") + MARK)


def read_index(faiss: ModuleType, path: str | Path) -> tuple[Any, dict[str, Any]]:
    """The index and its facts. Raises InputError if the file is cut short, damaged or not an index of vsehub.

    A checksum detects damage. Against malicious files, `require_layout` checks the file before FAISS reads it, and
    FAISS allocates no more than the file's size for any part of it.
    """
    path = existing("index", path, "Give the file that `ServedIndex.save` or `vsehub rerank index=...` wrote")
    facts = _facts(path)
    require(
        _checksum(path, facts["bytes"]) == facts["crc32"],
        f"index: {path} is damaged: its checksum is wrong. Copy it again, or {_AGAIN}",
    )
    require_layout(path, facts["bytes"], facts["kind"], facts["items"], width(facts["kind"], facts["dim"]))
    try:
        # Of ivfpq FAISS also bounds a table that it never makes for inner products: 4 * 256 / GROUP bytes a centroid's
        # number, each of which takes 4 bytes of the file.
        with _bounded(faiss, facts["bytes"] * (CODES if facts["kind"] == "ivfpq" else 1)):
            return faiss.read_index(str(path)), facts
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"index: FAISS {faiss.__version__} cannot read {path} ({error}); {_AGAIN}") from error


@contextmanager
def _bounded(faiss: ModuleType, size: int) -> Iterator[None]:
    """Within the block FAISS allocates no more than `size` bytes for a vector."""
    before = faiss.get_deserialization_vector_byte_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    try:
        yield
    finally:
        faiss.set_deserialization_vector_byte_limit(before)


def _facts(path: Path) -> dict[str, Any]:
    """The facts, which follow the index in the file."""
    ending = _LENGTH + len(MARK)
    size = os.path.getsize(path)
    with path.open("rb") as handle:
        handle.seek(max(0, size - ending))
        end = handle.read()
        length = int.from_bytes(end[:_LENGTH], "little")
        mark = end[_LENGTH:]
        require(
            mark == MARK or not mark.startswith(_NAME),
            f"index: {path} is of version {mark.removeprefix(_NAME).decode(errors='replace')!r}; this vsehub reads "
            f"version {_VERSION.decode()}. Use the vsehub that wrote it, or {_AGAIN}",
        )
        require(
            mark == MARK and length <= min(_MOST_FACTS, size - ending),
            f"index: {path} is not an index of vsehub, or it is cut short (its last bytes are wrong); {_AGAIN}",
        )
        handle.seek(size - ending - length)
        try:
            facts = json.loads(handle.read(length))
        except (ValueError, RecursionError):
            facts = None
    if not isinstance(facts, dict) or facts.get("bytes") != size - ending - length or "crc32" not in facts:
        fail(f"index: {path} is damaged: the facts at its end are not those of its size. Copy it again, or {_AGAIN}")
    numbers = [facts.get(name) for name in ("bytes", "items", "dim")]
    require(
        facts.get("kind") in KINDS and all(isinstance(one, int) and 0 < one <= size for one in numbers),
        f"index: the facts at the end of {path} are those of no index; build it again",
    )
    return facts


def _checksum(path: Path, size: int) -> int:
    checksum = 0
    with path.open("rb") as handle:
        while size > 0 and (part := handle.read(min(_CHUNK, size))):
            size, checksum = size - len(part), zlib.crc32(part, checksum)
    return checksum


class _Wrong(Exception):
    """Raised if the bytes do not have the expected layout."""


class _Bytes:
    """Part of a file, mapped and read from its beginning to its end."""

    def __init__(self, path: Path, size: int):
        self._bytes, self._place = np.memmap(path, np.uint8, "r", shape=(size,)), 0

    @property
    def left(self) -> int:
        return len(self._bytes) - self._place

    def numbers(self, form: str) -> tuple[Any, ...]:
        """Numbers as `struct` reads them, without padding between them."""
        return struct.unpack(f"<{form}", self.array(np.uint8, struct.calcsize(f"<{form}")).tobytes())

    def array(self, dtype: type, count: int) -> np.ndarray:
        """`count` numbers, mapped from the file."""
        size = count * np.dtype(dtype).itemsize
        _expect(size <= self.left, f"{size} bytes are announced where {self.left} are left")
        self._place += size
        return self._bytes[self._place - size : self._place].view(dtype)

    def vector(self, dtype: type) -> np.ndarray:
        """An array of numbers that is preceded by its length."""
        return self.array(dtype, self.numbers("Q")[0])


def require_layout(path: Path, size: int, kind: str, items: int, dimensions: int) -> None:
    """Raise InputError unless the first `size` bytes of `path` are an index of these facts, consistent in itself."""
    walks: dict[str, Callable[[_Bytes, int, int], None]] = {
        "flat": _flat,
        "ivf": _ivf,
        "hnsw": _hnsw,
        "ivfpq": _ivfpq,
    }
    try:
        content = _Bytes(path, size)
        walks[kind](content, items, dimensions)
        _expect(content.left == 0, f"{content.left} bytes follow the index")
    except _Wrong as wrong:
        raise InputError(
            f"index: {path} is no {kind} index of {items} vectors of {dimensions} numbers as FAISS writes it "
            f"({wrong}); build it again"
        ) from wrong


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Wrong(otherwise)


def _header(content: _Bytes, name: bytes, items: int, dimensions: int) -> None:
    """Check the header that every index begins with."""
    found, d, n, _, _, trained, metric = content.numbers("4siqqqBi")
    _expect(found == name, f"its kind is {found!r}, not {name!r}")
    _expect(
        (d, n, trained, metric) == (dimensions, items, 1, INNER_PRODUCT),
        f"it says {n} vectors of {d} numbers, trained {trained}, metric {metric}",
    )


def _flat(content: _Bytes, items: int, dimensions: int) -> None:
    _header(content, b"IxFI", items, dimensions)
    count = len(content.vector(np.float32))
    _expect(count == items * dimensions, f"it holds {count} numbers")


def _ivf(content: _Bytes, items: int, dimensions: int) -> None:
    lists = _list_header(content, b"IwFl", items, dimensions)
    _lists(content, lists, 4 * dimensions, items)


def _ivfpq(content: _Bytes, items: int, dimensions: int) -> None:
    lists = _list_header(content, b"IwPQ", items, dimensions)
    residual, code_size, d, groups, bits = content.numbers("?QQQQ")
    expected = (True, dimensions // GROUP, dimensions, dimensions // GROUP, CODES.bit_length() - 1)
    _expect(
        (residual, code_size, d, groups, bits) == expected,
        f"its codes are {code_size} bytes of {groups} groups of {bits} bits for {d} dimensions",
    )
    count = len(content.vector(np.float32))
    _expect(count == CODES * dimensions, f"its codes stand for {count} numbers")
    _lists(content, lists, code_size, items)


def _list_header(content: _Bytes, name: bytes, items: int, dimensions: int) -> int:
    """Check what an index of lists begins with, and return the number of lists."""
    _header(content, name, items, dimensions)
    lists, probes = content.numbers("QQ")
    _expect(1 <= probes <= lists, f"{probes} of {lists} lists are searched")
    _flat(content, lists, dimensions)
    (mapped,) = content.numbers("B")
    _expect(mapped == 0 and len(content.vector(np.int64)) == 0, "it has a map, which vsehub does not write")
    return int(lists)


def _lists(content: _Bytes, lists: int, expected: int, items: int) -> None:
    """Check inverted lists with `expected` bytes a vector."""
    name, stored, code_size, form = content.numbers("4sQQ4s")
    _expect(
        (name, stored, code_size) == (b"ilar", lists, expected) and form in (b"full", b"sprs"),
        f"its lists are {name!r}, {stored} of {code_size} bytes a vector, {form!r}",
    )
    sizes = content.vector(np.uint64)
    if form == b"sprs":  # the number of each list that is not empty, then its size
        _expect(len(sizes) % 2 == 0, "its list sizes are not pairs")
        numbers, sizes = sizes[::2], sizes[1::2]
        rising = len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all())
        _expect(
            rising and (len(numbers) == 0 or int(numbers[-1]) < lists),
            "its list numbers are not rising numbers of its lists",
        )
    else:
        _expect(len(sizes) == lists, f"it has sizes of {len(sizes)} lists, not {lists}")
    total = sum(sizes.tolist())
    _expect(total == items, f"its lists hold {total} vectors")
    for size in sizes.tolist():
        content.array(np.uint8, size * code_size)
        ids = content.array(np.int64, size)
        _expect(size == 0 or (ids.min() >= 0 and ids.max() < items), "its lists hold positions of no item")


def _hnsw(content: _Bytes, items: int, dimensions: int) -> None:
    _header(content, b"IHNf", items, dimensions)
    content.vector(np.float64)  # the probabilities of levels, needed only to build
    links, levels, offsets = content.vector(np.int32), content.vector(np.int32), content.vector(np.uint64)
    neighbors = content.vector(np.int32)
    entry, highest, building, searching, _ = content.numbers("5i")
    _expect(
        len(links) > 1 and links[0] == 0 and bool((np.diff(links.astype(np.int64)) >= 0).all()),
        "the numbers of links of its levels do not rise from 0",
    )
    _expect(
        len(levels) == items and levels.min() >= 1 and levels.max() < len(links),
        f"it has levels of {len(levels)} vectors, not {items}, or other than 1 to {len(links) - 1}",
    )
    room = np.concatenate([[0], np.cumsum(links[levels], dtype=np.int64)])
    _expect(
        np.array_equal(room, offsets.astype(np.int64)) and room[-1] == len(neighbors),
        "its links do not lie where its levels put them",
    )
    _expect(len(neighbors) == 0 or (neighbors.min() >= -1 and neighbors.max() < items), "it links to vectors it lacks")
    _expect(
        0 <= entry < items and highest == levels.max() - 1 == levels[entry] - 1,
        f"its search begins at vector {entry} on level {highest}",
    )
    _expect(
        1 <= searching <= _MOST_CANDIDATES and 1 <= building <= _MOST_CANDIDATES,
        f"it searches among {searching} candidates and builds among {building}",
    )
    for level in range(1, highest + 1):
        # A search on this level follows links to vectors of this level: those that end below it have no links here.
        here = np.flatnonzero(levels > level)
        first = room[here] + int(links[level])
        width = int(links[level + 1] - links[level])
        linked = neighbors[(first[:, None] + np.arange(width)).ravel()]
        linked = linked[linked >= 0]
        _expect(bool((levels[linked] > level).all()), f"its links on level {level} lead below it")
    _flat(content, items, dimensions)
