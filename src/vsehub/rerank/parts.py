"""Parts of a long search, stored on disk so that a killed command continues when it is run again."""

import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.criteria.base import Terms, joined
from vsehub.io.unfinished import UnfinishedWork

Pieces = list[tuple[Tensor, ...]]
MAPPED_ROWS = 2**26  # of items, whose terms are 256 MB in float32
_EMPTY = 1024  # pieces without tensors that a part may have


class Parts(UnfinishedWork):
    """Named lists of tuples of tensors, each with the seconds that it took to compute."""

    def get(self, name: str) -> tuple[Pieces, float] | None:
        """A part, on the CPU, and its seconds; None if it is absent or damaged."""
        stored = self.load(name)
        try:
            return None if stored is None else _pieces(stored)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            self.discard(name, error)
            return None

    def put(self, name: str, pieces: Pieces, seconds: float) -> None:
        """Store a part."""
        arrays: dict[str, Any] = {
            f"{n}.{m}": tensor.cpu().numpy() for n, piece in enumerate(pieces) for m, tensor in enumerate(piece)
        }
        self.store(name, arrays | {"pieces": len(pieces), "seconds": seconds})

    def joined(self, parts: Iterable[Terms], rows: int) -> Terms:
        """Terms of parts of the items, in order, as terms of all `rows`.

        From `MAPPED_ROWS` rows on, the terms lie in an unnamed file that is mapped into memory and vanishes with the
        process, so that only one part at a time takes main memory.
        """
        if rows < MAPPED_ROWS:
            return joined(parts)
        self.folder.mkdir(parents=True, exist_ok=True)
        whole: list[np.ndarray] = []
        start = 0
        for terms in parts:
            if not whole:
                whole = [self._mapped(term.numpy().dtype, rows) for term in terms]
            stop = start + len(terms[0])
            for term, one in zip(terms, whole, strict=True):
                one[start:stop] = term.numpy()
            start = stop
        return tuple(torch.from_numpy(one) for one in whole)

    def _mapped(self, dtype: np.dtype, rows: int) -> np.ndarray:
        with tempfile.TemporaryFile(dir=self.folder) as file:
            return np.memmap(file, dtype, "w+", shape=(rows,))


def _pieces(stored: dict[str, np.ndarray]) -> tuple[Pieces, float]:
    count = int(stored["pieces"])
    if not 0 <= count <= len(stored) + _EMPTY:
        raise ValueError(f"{len(stored)} arrays for {count} pieces")
    pieces: list[list[Tensor]] = [[] for _ in range(count)]
    for label, array in stored.items():
        if "." in label:
            pieces[int(label.split(".")[0])].append(torch.from_numpy(array))
    return [tuple(piece) for piece in pieces], float(stored["seconds"])
