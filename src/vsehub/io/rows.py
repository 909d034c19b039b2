"""Checks of input rows: bad rows are named and counted for messages, equal rows are found by their hashes."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vsehub.checks import require

NAMED = 5  # rows named in a message; the rest are counted
LONGEST_NAME = 200  # characters of a name in a message


def listed(names: Sequence[object], count: int | None = None, most: int = NAMED) -> str:
    """The first `most` names, and the total number if there are more. count: that number, by default len(names).

    Names from a damaged file may be of any length: each is cut after `LONGEST_NAME` characters.
    """
    count = len(names) if count is None else count
    shown = (name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]} ..." for name in map(str, names[:most]))
    return ", ".join(shown) + (f", ... ({count:,} in all)" if count > most else "")


class RowErrors:
    """Bad rows: all of them counted, the first few named.

    name: row number -> what a message calls the row; None: its number.
    """

    def __init__(self, name: Callable[[int], str] | None = None):
        self.count = 0
        self.named: list[int | str] = []
        self._name = name

    def add(self, rows: int | np.ndarray, mask: np.ndarray) -> None:
        """Add the rows of a block where `mask` (b,) is true. rows: the numbers (b,) of its rows, or its first row."""
        found = np.flatnonzero(mask)
        self.count += len(found)
        first = found[: NAMED - len(self.named)]
        numbers = (first + rows if isinstance(rows, int) else rows[first]).tolist()
        self.named += numbers if self._name is None else map(self._name, numbers)

    def __str__(self) -> str:
        return listed(self.named, self.count)

    @property
    def subject(self) -> str:
        """The rows as the subject of a sentence: their names, or "rows" and their numbers."""
        return str(self) if self._name is not None else f"row{'' if self.count == 1 else 's'} {self}"


def faults(errors: Mapping[str, RowErrors]) -> str:
    """All errors, for a message. errors: error in the plural ("have no id") -> the rows."""
    return "; ".join(
        f"{rows.subject} {singular(what) if rows.count == 1 else what}" for what, rows in errors.items() if rows.count
    )


def singular(what: str) -> str:
    """The singular of a plural predicate: "hold NaN" -> "holds NaN"."""
    verb, _, rest = what.partition(" ")
    return f"{'has' if verb == 'have' else f'{verb}s'} {rest}"


class UnusableRows:
    """Rows that contain NaN, infinite values or only zeros, collected while all rows are read once.

    name: as in `RowErrors`.
    """

    def __init__(self, name: Callable[[int], str] | None = None):
        self._found = {what: RowErrors(name) for what in ("hold NaN", "hold infinite values", "hold only zeros")}

    def add(self, rows: int | np.ndarray, sizes: np.ndarray) -> None:
        """Check a block. sizes (b,): the norm or the largest magnitude of each row, NaN if the row holds a NaN.

        rows: as in `RowErrors.add`.
        """
        for found, mask in zip(self._found.values(), (np.isnan(sizes), np.isinf(sizes), sizes == 0), strict=True):
            found.add(rows, mask)

    def refuse(self, what: str, advice: str) -> None:
        """Raise InputError if there are any. what: begins the message, before the rows; advice: ends it."""
        found = faults(self._found)
        require(not found, f"{what} {found}. {advice}")


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """64-bit hashes (n,) of the bytes of rows (n, ...). A million rows collide with probability 1 in 37 million."""
    rows = np.ascontiguousarray(rows)
    digests = (int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows)
    return np.fromiter(digests, np.uint64, len(rows))
