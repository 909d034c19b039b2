"""The bytes of an index as FAISS writes it, looked through before FAISS reads them.

FAISS believes what a file says: sizes that it reserves memory for, numbers that it follows as positions, kinds of
indexes within indexes. Here every size must lie within the file, every kind and dimension be that of the facts, and
every number that stands for a position be one, so that a file that was made to do harm is refused.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vsehub.checks import InputError

INNER_PRODUCT = 0  # FAISS's number of the metric
_MOST_CANDIDATES = 1 << 20  # of a graph's search: room for so many is made for each query


class _Wrong(Exception):
    """The bytes are not laid out as they must be."""


def require_layout(path: Path, size: int, kind: str, items: int, dimensions: int) -> None:
    """InputError unless the first `size` bytes of `path` are an index of these facts, consistent in itself."""
    walks: dict[str, Callable[[_Bytes, int, int], None]] = {"flat": _flat, "ivf": _ivf, "hnsw": _hnsw}
    try:
        content = _Bytes(path, size)
        walks[kind](content, items, dimensions)
        _expect(content.left == 0, f"{content.left} bytes follow the index")
    except _Wrong as wrong:
        raise InputError(
            f"index: {path} is no {kind} index of {items} vectors of {dimensions} numbers as FAISS writes it "
            f"({wrong}); build it again"
        ) from wrong


class _Bytes:
    """Part of a file, mapped and read from its beginning to its end."""

    def __init__(self, path: Path, size: int):
        self._bytes, self._place = np.memmap(path, np.uint8, "r", shape=(size,)), 0

    @property
    def left(self) -> int:
        return len(self._bytes) - self._place

    def numbers(self, form: str) -> tuple:
        """Numbers as `struct` reads them, without padding between them."""
        return struct.unpack(f"<{form}", self.array(np.uint8, struct.calcsize(f"<{form}")).tobytes())

    def array(self, dtype: type, count: int) -> np.ndarray:
        """`count` numbers, as they lie in the file."""
        size = count * np.dtype(dtype).itemsize
        _expect(size <= self.left, f"{size} bytes are announced where {self.left} are left")
        self._place += size
        return self._bytes[self._place - size : self._place].view(dtype)

    def vector(self, dtype: type) -> np.ndarray:
        """Numbers after their own number."""
        return self.array(dtype, self.numbers("Q")[0])


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _Wrong(otherwise)


def _header(content: _Bytes, name: bytes, items: int, dimensions: int) -> None:
    """What every index begins with."""
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
    _header(content, b"IwFl", items, dimensions)
    lists, probes = content.numbers("QQ")
    _expect(1 <= probes <= lists, f"{probes} of {lists} lists are searched")
    _flat(content, lists, dimensions)
    (mapped,) = content.numbers("B")
    _expect(mapped == 0 and len(content.vector(np.int64)) == 0, "it has a map of its own, which vsehub does not write")
    name, stored, code_size, form = content.numbers("4sQQ4s")
    _expect(
        (name, stored, code_size) == (b"ilar", lists, 4 * dimensions) and form in (b"full", b"sprs"),
        f"its lists are {name!r}, {stored} of {code_size} bytes a vector, {form!r}",
    )
    sizes = content.vector(np.uint64)
    if form == b"sprs":  # the number of each list that is not empty, then its size
        _expect(len(sizes) % 2 == 0, "its list sizes are no pairs")
        numbers, sizes = sizes[::2], sizes[1::2]
        rising = len(numbers) < 2 or bool((numbers[1:] > numbers[:-1]).all())
        _expect(rising and (len(numbers) == 0 or int(numbers[-1]) < lists), "its lists are none of its own")
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
    content.vector(np.float64)  # the chances of levels, which building alone needs
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
        # A vector on this level is followed to others on it: below, they have no links of this level.
        here = np.flatnonzero(levels > level)
        first = room[here] + int(links[level])
        width = int(links[level + 1] - links[level])
        linked = neighbors[(first[:, None] + np.arange(width)).ravel()]
        linked = linked[linked >= 0]
        _expect(bool((levels[linked] > level).all()), f"its links on level {level} lead below it")
    _flat(content, items, dimensions)
