"""Ways to damage a file, by accident, as disks and editors do, and on purpose, by somebody who knows the format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXTREMES = (
    0,
    1,
    -1,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    10**9,
    10**12,
    2**40,
    2**62,
    2**63 - 1,
)
NUMBERS = (b"", b"-1", b"-0", b"0", b"1", b"00", b"0x1", b"1e3", b"1e309", b"1.5", b"nan", b"999999999999", b"9" * 25)
WORDS = (
    *(b",", b'"', b'""', b"\n", b"\r", b"\r\n", b"\0", b" ", b"\t", b";", b":", b"{", b"}", b"[", b"]", b"\\", b"'"),
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"NaN",
        b"Infinity",
        b"-1e400",
        b"1" * 5000,
        b"[" * 100_000,
        b"x" * 200_000,
    ),
    *(b"../", b"/etc/passwd", b"..", b"::", b"\\ud83d", b"\\u0000", b"\xff", b"\xc3", b"\xef\xbb\xbf", "é".encode()),
)
_EDGE = 256  # bytes at either end, where headers and footers are


def mutate(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """The bytes with one to three changes, and what these are."""
    kinds = []
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(list(_CHANGES)))
        data = bytes(_CHANGES[name](bytearray(data), rng))
        kinds.append(name)
    return data, "+".join(kinds)


def _place(data: bytearray, rng: np.random.Generator) -> int:
    """Somewhere in the file, at its ends more often than not."""
    if len(data) == 0:
        return 0
    edge = min(len(data), _EDGE)
    where = rng.random()
    if where < 0.4:
        return int(rng.integers(edge))
    return int(len(data) - 1 - rng.integers(edge)) if where < 0.6 else int(rng.integers(len(data)))


def _part(data: bytearray, rng: np.random.Generator) -> slice:
    """A stretch of the file, short more often than long."""
    first = _place(data, rng)
    length = int(min(len(data) - first, 2 ** rng.uniform(0, 12)))
    return slice(first, first + length)


def _flip(data: bytearray, rng: np.random.Generator) -> bytearray:
    for _ in range(rng.integers(1, 9)):
        if data:
            data[_place(data, rng)] ^= 1 << int(rng.integers(8))
    return data


def _set(data: bytearray, rng: np.random.Generator) -> bytearray:
    if data:
        data[_place(data, rng)] = int(rng.choice((0, 1, 9, 10, 32, 34, 44, 127, 128, 255)))
    return data


def _truncate(data: bytearray, rng: np.random.Generator) -> bytearray:
    return data[: int(rng.integers(len(data) + 1))] if rng.random() < 0.5 else data[: -int(rng.integers(1, 64))]


def _behead(data: bytearray, rng: np.random.Generator) -> bytearray:
    return data[int(rng.integers(1, 64)) :]


def _zeros(data: bytearray, rng: np.random.Generator) -> bytearray:
    part = _part(data, rng)
    data[part] = bytes(part.stop - part.start)
    return data


def _remove(data: bytearray, rng: np.random.Generator) -> bytearray:
    del data[_part(data, rng)]
    return data


def _duplicate(data: bytearray, rng: np.random.Generator) -> bytearray:
    part = _part(data, rng)
    times = int(rng.choice((1, 1, 1, 2, 50)))
    data[part.stop : part.stop] = data[part] * times
    return data


def _splice(data: bytearray, rng: np.random.Generator) -> bytearray:
    """One stretch over another."""
    part, to = _part(data, rng), _place(data, rng)
    data[to : to + part.stop - part.start] = data[part]
    return data


def _insert(data: bytearray, rng: np.random.Generator) -> bytearray:
    place = _place(data, rng)
    data[place:place] = rng.bytes(int(2 ** rng.uniform(0, 8)))
    return data


def _number(data: bytearray, rng: np.random.Generator) -> bytearray:
    """An extreme number of 1, 2, 4 or 8 bytes, of either order, over what is there."""
    size = int(rng.choice((1, 2, 4, 8)))
    value = int(rng.choice(np.array(EXTREMES, object))) % (1 << 8 * size)
    place = _place(data, rng)
    data[place : place + size] = value.to_bytes(size, "little" if rng.random() < 0.8 else "big")
    return data


def _thrift(data: bytearray, rng: np.random.Generator) -> bytearray:
    """An extreme number of seven bits a byte, as the footer of a .parquet has them, over a byte that ends one."""
    value = 2 * abs(int(rng.choice(np.array(EXTREMES, object))))
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    place = _place(data, rng)
    data[place : place + 1] = bytes([*parts, value])
    return data


def _digits(data: bytearray, rng: np.random.Generator) -> bytearray:
    """Another number in the place of one that is written in digits."""
    start = _place(data, rng)
    while start < len(data) and not 48 <= data[start] <= 57:
        start += 1
    stop = start
    while stop < len(data) and 48 <= data[stop] <= 57:
        stop += 1
    data[start:stop] = NUMBERS[rng.integers(len(NUMBERS))]
    return data


def _word(data: bytearray, rng: np.random.Generator) -> bytearray:
    place, word = _place(data, rng), WORDS[rng.integers(len(WORDS))]
    data[place : place + (len(word) if rng.random() < 0.3 else 0)] = word
    return data


def _lines(data: bytearray, rng: np.random.Generator) -> bytearray:
    """Lines repeated, left out or in another order."""
    lines = data.split(b"\n")
    order = np.arange(len(lines))
    chosen = rng.integers(len(lines), size=2)
    order[chosen] = order[chosen[::-1]] if rng.random() < 0.5 else order[chosen[0]]
    return bytearray(b"\n".join(lines[line] for line in order))


_CHANGES: dict[str, Callable[[bytearray, np.random.Generator], bytearray]] = {
    "flip": _flip,
    "set": _set,
    "truncate": _truncate,
    "behead": _behead,
    "zeros": _zeros,
    "remove": _remove,
    "duplicate": _duplicate,
    "splice": _splice,
    "insert": _insert,
    "number": _number,
    "thrift": _thrift,
    "digits": _digits,
    "word": _word,
    "lines": _lines,
}


@dataclass(frozen=True)
class Reader:
    """A reader of files, and how they are damaged.

    make: writes a valid file into a folder, with what belongs to it, the same each time, and returns its path. read:
    reads that path and looks at the answer: raises InputError where the file is refused, anything else where the answer
    is none of a file's. mutate: changes the bytes; a format with checksums mends them.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    mutate: Callable[[bytes, np.random.Generator], tuple[bytes, str]] = mutate
