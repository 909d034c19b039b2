"""Items in memory, whose scores with a few queries are computed at once: no blocks, no pass over the items."""

import threading
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from vsehub.metrics.topk import order_of
from vsehub.neighbors.defined import defined_of_each, largest_norm
from vsehub.neighbors.int8 import Int8Items, scores_of_pairs
from vsehub.neighbors.vectors import BLOCK, Concatenated, VectorSource, array_of

FEW_QUERIES = 32
GROUP = 128  # of adjacent items, whose largest value is looked at first
_WITHIN = np.arange(GROUP)


class InMemory:
    """(M, D) float32 vectors on the CPU, searched where they lie; make one by `InMemory.of`.

    largest: an upper bound of their norms, close to the largest, which is found once.
    """

    def __init__(self, source: VectorSource, arrays: Sequence[np.ndarray]):
        self._source, self._arrays = source, tuple(arrays)
        self.shape = source.shape
        self.largest = max(
            largest_norm(source.rows(start, min(start + BLOCK, len(source)))) for start in range(0, len(source), BLOCK)
        )
        self._starts = np.cumsum([0, *map(len, self._arrays)])[:-1]
        self._asked = 0

    @classmethod
    def of(cls, source: VectorSource) -> Self | None:
        """The vectors of a source, which are not copied; None where they are not arrays of float32 in memory."""
        parts = source.parts if isinstance(source, Concatenated) else (source,)
        arrays = [array_of(part) for part in parts]
        return cls(source, [one for one in arrays if one is not None]) if all(a is not None for a in arrays) else None

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1."""
        return self._source.rows(start, stop)

    def asked(self, queries: int) -> int:
        """How many queries have been searched in all, with these."""
        self._asked += queries
        return self._asked

    @cached_property
    def _tensors(self) -> list[Tensor]:
        """The arrays as tensors, which are only read: torch warns of those that cannot be written."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return [torch.from_numpy(array) for array in self._arrays]

    @cached_property
    def int8(self) -> Int8Items:
        """The items in int8, which are kept."""
        return Int8Items(self, kept=True)

    def scores(self, queries: Tensor) -> Tensor:
        """The fast scores (b, M) of a few queries (b, D); the next call of this thread overwrites them."""
        asked, found = queries.numpy(), memory("scores", len(queries) * len(self)).view(len(queries), len(self))
        first = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for array in self._arrays:
                columns = found[:, first : first + len(array)]
                if len(asked) == 1:
                    np.dot(array, asked[0], out=columns[0].numpy())
                elif columns.is_contiguous():
                    np.dot(asked, array.T, out=columns.numpy())
                else:
                    columns.copy_(torch.from_numpy(np.dot(asked, array.T)))
                first += len(array)
        return found

    def fast_scores_at(self, queries: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
        """The fast scores (e,) of some pairs of queries (b, D) and items."""
        order = torch.from_numpy(
            order_of(positions.numpy())
        )  # the items are read in order; the queries fit into a cache
        positions, rows, found = positions[order], rows[order], torch.empty(len(order))
        ends = torch.searchsorted(positions, torch.tensor([*self._starts.tolist(), len(self)])).tolist()
        for own_rows, first, start, stop in zip(self._tensors, self._starts.tolist(), ends, ends[1:], strict=False):
            own = slice(start, stop)
            found[order[own]] = scores_of_pairs(own_rows, queries, positions[own] - first, rows[own])
        return found

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The rows (b, n, D) at positions (b, n), ascending in each row."""
        if len(self._arrays) == 1:
            return self._arrays[0].take(positions, axis=0)
        return np.stack([self._parts_at(own) for own in positions])

    def _parts_at(self, positions: np.ndarray) -> np.ndarray:
        parts = np.split(positions, np.searchsorted(positions, self._starts[1:]))
        held = zip(self._arrays, self._starts, parts, strict=True)
        return np.concatenate([array.take(part - first, axis=0) for array, first, part in held])

    def scores_at(self, queries: Tensor, positions: Tensor) -> Tensor:
        """The defined scores (b, n) with items at positions (b, n); see `defined.ScoresAt`."""
        return torch.from_numpy(self.defined_at(queries.numpy(), positions.numpy()))

    def defined_at(self, queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """`scores_at` of arrays."""
        return defined_of_each(queries, positions, self.at, self.largest)


def in_memory(source: VectorSource) -> VectorSource:
    """`InMemory.of` the source, else the source itself."""
    found = InMemory.of(source)
    return source if found is None else found


class _OfThread(threading.local):
    """The memory of one thread, by name."""

    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}


_of_thread = _OfThread()


def memory(name: str, size: int) -> Tensor:
    """Memory (size,) of this thread for float32 numbers: touching fresh memory costs more than a few queries do."""
    if name not in _of_thread.held or len(_of_thread.held[name]) < size:
        _of_thread.held[name] = torch.empty(size)
    return _of_thread.held[name][:size]


def best_of_one(values: np.ndarray, count: int) -> np.ndarray:
    """The positions (count,) of the largest of many values (M,), in any order; of equal ones any."""
    groups = len(values) // GROUP
    if groups < 2 * count:
        return np.argpartition(values, -count)[-count:]
    whole = groups * GROUP
    largest = np.maximum.reduce(values[:whole].reshape(groups, GROUP), axis=1)
    chosen = np.argpartition(largest, -count)[-count:]
    columns = np.concatenate([(chosen[:, None] * GROUP + _WITHIN).ravel(), np.arange(whole, len(values))])
    return columns[np.argpartition(values[columns], -count)[-count:]]
