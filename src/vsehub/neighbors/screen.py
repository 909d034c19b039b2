"""A search whose items are screened in int8, so that float32 computes few of them; see `int8` and `guesses`."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vsehub.metrics.topk import MOST_ENTERED, RunningTopK
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.guesses import Guessed, Guesses
from vsehub.neighbors.in_memory import InMemory
from vsehub.neighbors.int8 import Int8Items, Int8Queries, Int8Tile, scores_of_pairs
from vsehub.neighbors.vectors import VectorSource

MOST_HELD = 2**24  # items of all queries; a few hundred of each query are usual
TYPICAL_ERRORS = 2.25  # times 1 / √D of its bound: larger errors of guesses are rare, since errors of dimensions cancel

# (block of queries, rows and positions (e,) of pairs) -> their float32 scores (e,)
Scores = Callable[[slice, Tensor, Tensor], Tensor]
Found = tuple[Guesses, int, np.ndarray, np.ndarray]  # what `Guessed.add` takes


class _Asked:
    """A block of the queries under one correction.

    error: by how much values of float32 scores may differ from those of defined ones, of all queries (Q,).
    """

    def __init__(
        self,
        rows: slice,
        queries: Int8Queries,
        correct: Affine | None,
        error: Callable[[], np.ndarray],
        best: RunningTopK,
        k: int,
    ):
        self.rows, self._queries, self._correct = rows, queries, correct
        self._errors, self._best, self._k = error, best, k
        self._slope = 1.0 if correct is None else correct.slope
        self.guessed = Guessed(self._known())

    @property
    def _error(self) -> Tensor:
        """By how much float32 scores may differ from defined ones, where values differ: (b, 1)."""
        return torch.from_numpy(self._errors()[self.rows])[:, None] / self._slope

    def _known(self, first: int = 0) -> Tensor:
        """The k best values so far, but the first ones, as products: (b, k)."""
        return self._queries.rounded(self._best.values[:, first : self._k] / self._slope).float()

    def found(self, tile: Int8Tile, columns: slice, slack: float, share: float) -> Found | None:
        """Which items of a tile may be among the best; None if not told, or more than this share of them."""
        exact = self._error
        margin = (self._queries.common_error(tile) + 3 * exact) / self._queries.step
        spare = (slack * self._queries.error(tile) + 2 * exact) / self._queries.step
        biases = None if self._correct is None else self._correct.unscaled_bias[columns] / self._slope
        self.guessed.raise_kth(self._known(self._k - 1).numpy())
        kth = torch.from_numpy(self.guessed.kth).double()
        guesses = self._queries.among(tile, kth, margin + spare, biases, share)
        return None if guesses is None else (guesses, columns.start, (margin + spare).numpy(), spare.numpy())

    def compute(self, scores: Scores) -> None:
        """Add to the best what may be among them."""
        self.guessed.leave_out()
        if self.guessed.count:
            rows, positions = self.guessed.pairs()
            values = scores(self.rows, rows, positions)
            values = values if self._correct is None else self._correct.unscaled(values, positions)
            self._best.add_entries((rows, values, positions))
        self.guessed.start(self._known())

    def unsure(self) -> Tensor:
        """Of which queries an item that was left out may reach the k-th best value: (b,) booleans."""
        kth = self._best.best()[0][:, self._k - 1 : self._k].double() / self._slope
        return (torch.from_numpy(self.guessed.left_out) >= self._queries.rounded(kth - self._error))[:, 0]


class Screen:
    """The search for the k best of queries (Q, D) among items, block by block of the queries.

    opened: items before the first that is screened. norms: of the queries (Q,). error: by how much values of float32
    scores may differ from those of defined ones, under a correction (Q,). most: see `int8.steps_of_queries`. Items in
    memory are computed in float32 when all have been screened, others tile by tile.
    """

    def __init__(
        self,
        queries: Tensor,
        items: VectorSource,
        k: int,
        opened: int,
        corrections: Sequence[Affine | None],
        norms: np.ndarray,
        error: Callable[[Affine | None], np.ndarray],
        most: int,
    ):
        self._queries, self._k, self._opened, self._corrections = queries, k, opened, corrections
        self._norms, self._error, self._most = norms, error, most
        self._whole = items if isinstance(items, InMemory) else None
        self._items = Int8Items(items, kept=False) if self._whole is None else self._whole.int8
        self._slack = min(1.0, TYPICAL_ERRORS / math.sqrt(items.shape[1]))
        self._asked: dict[int, list[_Asked]] = {}  # by the first row of a block
        self._starts: dict[int, int] = {}

    def prepare(self, columns: slice) -> None:
        """Round a tile of items in memory, which is kept: threads then find it made."""
        self._tile_of(columns)

    def read(self, start: int, rows: Tensor) -> None:
        """Take the rows (m, D) of the items that the next tiles are of; not needed for items in memory."""
        if self._whole is None:
            self._first, self._rows = start, rows
            self._tile = self._items.tile(start, rows) if start >= self._opened else None

    def _tile_of(self, columns: slice) -> Int8Tile | None:
        """Some items, rounded; None for the first ones."""
        if self._whole is None:
            return self._tile
        if columns.start < self._opened:
            return None
        return self._items.tile(columns.start, self._whole.rows(columns.start, columns.stop))

    def takes(self, rows: slice, columns: slice, running: Sequence[RunningTopK]) -> bool:
        """Note which items of a tile may be among the best; False if float32 finds them as soon.

        running: for each correction, the best so far, to which what is computed is added.
        """
        tile = self._tile_of(columns)
        if tile is None or not math.isfinite(tile.norm) or columns.start < self._starts.get(rows.start, 0):
            return False
        asked, found = self._asked.get(rows.start) or self._first_asked(rows, running), []
        most = MOST_ENTERED if self._whole is None else self._most_held(columns) / (columns.stop - columns.start)
        for one in asked:
            guesses = one.found(tile, columns, self._slack, most)
            if guesses is None:
                self._give_up(rows, columns)
                return False
            found.append(guesses)
        for one, guesses in zip(asked, found, strict=True):
            one.guessed.add(*guesses)
        if self._whole is None:
            self._compute(asked)
        else:
            self._relieve(rows, columns)
        return True

    def _compute(self, asked: Sequence[_Asked]) -> None:
        for one in asked:
            one.compute(self._scores)

    def _most_held(self, columns: slice) -> float:
        """How many items of each query are held, before they are computed.

        More are not computed sooner than all items are; the first items are many, of which later ones rule most out.
        """
        assert self._whole is not None
        seen = max(columns.stop, len(self._whole) // 2)
        return min(MOST_HELD / len(self._queries), MOST_ENTERED * seen)

    def _relieve(self, rows: slice, columns: slice) -> None:
        """Compute what is noted where it is too much to hold, or a large share of the items."""
        asked, height = self._asked[rows.start], rows.stop - rows.start
        most, crowded = self._most_held(columns), False
        for one in asked:
            if one.guessed.count > most * height:
                one.guessed.leave_out()
                crowded = crowded or one.guessed.count > most / 2 * height
        if crowded and most < MOST_HELD / len(self._queries):
            self._give_up(rows, columns)
        elif crowded:
            self._compute(asked)

    def _give_up(self, rows: slice, columns: slice) -> None:
        """Leave a block of the queries to float32 until there are twice the items: the k-th best then tells more."""
        self._compute(self._asked[rows.start])
        self._starts[rows.start] = 2 * columns.start

    def _first_asked(self, rows: slice, running: Sequence[RunningTopK]) -> list[_Asked]:
        queries, norms = self._queries[rows], self._norms[rows]
        rounded = {
            alike: Int8Queries(queries, norms, self._items.frame, self._most, alike)
            for alike in {correct is not None for correct in self._corrections}
        }
        self._asked[rows.start] = [
            _Asked(rows, rounded[correct is not None], correct, partial(self._error, correct), best, self._k)
            for correct, best in zip(self._corrections, running, strict=True)
        ]
        return self._asked[rows.start]

    def _scores(self, asked: slice, rows: Tensor, positions: Tensor) -> Tensor:
        """The float32 scores (e,) of pairs of a block of queries and items."""
        queries = self._queries[asked]
        if self._whole is not None:
            return self._whole.fast_scores_at(queries, rows, positions)
        return scores_of_pairs(queries, self._rows, rows, positions - self._first)

    def finish(self, rows: slice) -> list[Tensor]:
        """Compute what is noted of a block of the queries; for each correction, of which of them too much was left out.

        (b,) booleans.
        """
        asked = self._asked.get(rows.start)
        if asked is None:
            return [torch.zeros(rows.stop - rows.start, dtype=torch.bool) for _ in self._corrections]
        self._compute(asked)
        return [one.unsure() for one in asked]
