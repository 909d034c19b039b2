"""Of each query a list of the best items that would still take it, looked up as far as it is needed.

Higher scores come first, of equal scores the lower index. Items compare queries by such keys, queries compare items.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require

_INDEX = np.int64(2**32 - 1)


class Float32Keys:
    """Keys of float32 scores: int64, the upper half falls as the score rises, the lower half is the index."""

    dtype, score_dtype = np.dtype(np.int64), np.dtype(np.float32)
    none = np.iinfo(np.int64).max  # worse than every key

    @staticmethod
    def pack(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of scores and indices below 2^32 of one shape."""
        rising = _rising((scores + np.float32(0)).view(np.int32))  # the sum makes 0.0 of -0.0, which is equal to it
        return (~rising).astype(np.int64) << 32 | index

    @staticmethod
    def scores(keys: np.ndarray) -> np.ndarray:
        """The scores in the keys."""
        return _rising(~(keys >> 32).astype(np.int32)).view(np.float32)

    @staticmethod
    def index(keys: np.ndarray) -> np.ndarray:
        """The indices in the keys, int64."""
        return keys & _INDEX

    @staticmethod
    def with_index(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of the same scores and other indices."""
        return keys & ~_INDEX | index


class Float64Keys:
    """Keys of float64 scores, which leave no room in 64 bits: complex numbers, which numpy sorts by both parts."""

    dtype, score_dtype = np.dtype(np.complex128), np.dtype(np.float64)
    none = complex(np.inf, np.inf)

    @staticmethod
    def pack(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of scores and indices of one shape."""
        keys = np.empty(scores.shape, np.complex128)
        keys.real, keys.imag = -scores, index
        return keys

    @staticmethod
    def scores(keys: np.ndarray) -> np.ndarray:
        """The scores in the keys."""
        return -keys.real

    @staticmethod
    def index(keys: np.ndarray) -> np.ndarray:
        """The indices in the keys, int64."""
        return keys.imag.astype(np.int64)

    @staticmethod
    def with_index(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of the same scores and other indices."""
        changed = keys.copy()
        changed.imag = index
        return changed


Keys = type[Float32Keys] | type[Float64Keys]


def _rising(bits: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers as int32 that rise with them; applied twice it gives the bits back."""
    return bits ^ (bits >> 31 & np.int32(2**31 - 1))


# (query indices (b,)) -> their whole rows of scores (b, M)
RowsOf = Callable[[Tensor], Tensor]

FETCHED_ELEMENTS = 2**23  # 32 MB of float32 scores at a time, more only where 64 rows have more
LEAST_FETCHED = 64
CACHED_ELEMENTS = 2**20  # of these, what a CPU looks through at once, for its cache's sake
LISTED_KEYS = 2**25  # 256 MB of candidates in all lists together, about
FIRST_STRIDE = 8  # a list is first about so many times as long as the sample that it is cut by
SPARE = 6  # candidates beyond those that are wanted that even the shortest list has


class Bars(NamedTuple):
    """What an item asks for: a score, and of queries with that very score a lower index than `query`'s.

    score, query: (M,). Items with a free place ask for nothing: score -inf. taken: two arrays, (query, item) of the
    pairs that hold now, sorted by query, at least those of the queries that are looked up.
    """

    score: np.ndarray
    query: np.ndarray
    taken: tuple[np.ndarray, np.ndarray]


class Candidates:
    """The lists of Q queries over M items, best first, as keys of (score, item) one list behind the other.

    next, end: (Q,) where the part of each query's list that it has not been through begins and ends. complete: (Q,)
    whether no item that would take the query is missing from its list. reach: (Q,) no missing item has a higher score.
    """

    def __init__(self, rows: RowsOf, queries: int, items: int, wanted: int, kind: Keys):
        self._rows, self._items, self._kind = rows, items, kind
        self._rank = wanted + SPARE
        # Memory that is not written to is not taken.
        self._keys = np.empty(min(LISTED_KEYS, 4 * FIRST_STRIDE * self._rank * queries), kind.dtype)
        self._used = 0
        self._stride = np.full(queries, FIRST_STRIDE // 2)
        self.next, self.end = np.zeros((2, queries), np.int64)
        self.complete = np.zeros(queries, bool)
        self.reach = np.full(queries, np.inf, kind.score_dtype)

    def extend(self, who: np.ndarray, bars: Bars | None) -> None:
        """New lists, twice as long as their last, for the queries `who`, which have been through theirs.

        Items that would refuse the query and those that hold it now are left out. bars: None where no item has been
        asked by anyone yet. Raises InputError where scores are NaN or infinite; -inf marks pairs that never match.
        """
        if self._used > LISTED_KEYS:
            self._drop_what_is_through()
        longest = max(1, LISTED_KEYS // (len(who) * self._rank))
        self._stride[who] = np.minimum(2 * self._stride[who], longest)
        bar = None
        for some, stride, scores in self._blocks(who):
            if bars is not None and bar is None:
                bar = torch.from_numpy(bars.score).to(scores.device)
            lists, counts, complete = self._look_up(scores, some, stride, bar, bars)
            self.next[some] = self._used + np.arange(len(some)) * lists.shape[1]
            self.end[some] = self.next[some] + counts
            self.complete[some] = complete
            ends = lists[np.arange(len(some)), np.maximum(counts - 1, 0)]
            self.reach[some] = np.where(counts > 0, self._kind.scores(ends), -np.inf)
            self._append(lists)

    def propose(
        self, who: np.ndarray, wanted: np.ndarray, worst: np.ndarray, window: int = 16
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next offers of some queries, and on with their lists.

        wanted: (b,) how many each would make. worst: (M,) the key that an offer has to stay below at each item. Returns
        items and keys of (score, query), both (n,), and how many each query made (b,): fewer than it would where its
        list, or the window that is looked at, has no more.
        """
        end = self.end[who][:, None]
        at = self.next[who][:, None] + np.arange(window)
        listed = self._keys[np.minimum(at, end - 1)]
        item = self._kind.index(listed)
        offers = self._kind.with_index(listed, who[:, None])
        welcome = (at < end) & (offers < worst[item])
        nth = welcome.cumsum(axis=1)
        chosen = welcome & (nth <= wanted[:, None])
        through = np.where(nth[:, -1] >= wanted, (nth < wanted[:, None]).sum(axis=1) + 1, window)
        self.next[who] = np.minimum(self.next[who] + through, end[:, 0])
        return item[chosen], offers[chosen], chosen.sum(axis=1)

    def _blocks(self, who: np.ndarray) -> Iterator[tuple[np.ndarray, int, Tensor]]:
        """(queries, their stride, their scores (b, M)), few enough that a CPU has them in its cache."""
        fetched = max(FETCHED_ELEMENTS // self._items, LEAST_FETCHED)
        for stride in np.unique(self._stride[who]):
            same = who[self._stride[who] == stride]
            for begin in range(0, len(same), fetched):
                some = same[begin : begin + fetched]
                scores = self._rows(torch.from_numpy(some)).detach()
                elements = CACHED_ELEMENTS if scores.device.type == "cpu" else scores.numel()
                size = max(1, elements // self._items)
                for first in range(0, len(some), size):
                    block = scores[first : first + size].contiguous()
                    yield some[first : first + size], int(stride), block.float() if block.itemsize < 4 else block

    def _look_up(
        self, scores: Tensor, who: np.ndarray, stride: int, bar: Tensor | None, bars: Bars | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sorted lists (b, longest), filled up with `none`, how long each is, and whether it is complete.

        bar: the bars' scores as a tensor.
        """
        if bars is None:
            require(bool(scores.amax() < torch.inf), "scores hold NaN or inf; look for NaN or infinite embeddings")
        floor, complete = self._cut(scores, stride, bar)
        if bars is not None and bar is not None:
            floor = torch.maximum(floor, torch.nextafter(bar, torch.full_like(bar, -torch.inf)))
            floor[tuple(torch.from_numpy(side).to(bar.device) for side in _within(who, *bars.taken))] = torch.inf
        at, values = _above(scores, floor)
        edges = np.searchsorted(at, np.arange(len(who) + 1) * self._items)
        item = at - np.repeat(np.arange(len(who)) * self._items, np.diff(edges))
        counts = np.diff(edges)
        if bars is not None:
            welcome = _before(bars, edges, who, values, item)
            counts = np.diff(np.concatenate(([0], welcome.cumsum()))[edges])
            values, item = values[welcome], item[welcome]
        lists = np.full((len(who), max(1, counts.max())), self._kind.none, self._kind.dtype)
        lists[np.arange(lists.shape[1]) < counts[:, None]] = self._kind.pack(values, item)
        lists.sort(axis=1)
        most = 2 * stride * self._rank  # more are ties, or the sample was a poor one
        return lists[:, :most], np.minimum(counts, most), complete & (counts <= most)

    def _cut(self, scores: Tensor, stride: int, bar: Tensor | None) -> tuple[Tensor, np.ndarray]:
        """What a row's candidates have to be above, (b, 1), and where it leaves none out.

        Just below the score that `rank` of every `stride`-th item reach that are above their bars: so a list has about
        rank * stride items, and some that are new, without the row being sorted.
        """
        sample = scores[:, ::stride]
        if sample.shape[1] <= self._rank:
            return scores.new_full((len(scores), 1), -torch.inf), np.ones(len(scores), bool)
        if bar is not None:
            sample = torch.where(sample > bar[::stride], sample, -torch.inf)
        cut = _nth_largest(sample, self._rank)
        complete = (cut == -torch.inf).squeeze(1).cpu().numpy()
        return torch.nextafter(cut, torch.full_like(cut, -torch.inf)), complete

    def _append(self, lists: np.ndarray) -> None:
        if self._used + lists.size > len(self._keys):
            more = np.empty(max(lists.size, len(self._keys)), self._keys.dtype)
            self._keys = np.concatenate((self._keys[: self._used], more))
        self._keys[self._used : self._used + lists.size].reshape(lists.shape)[:] = lists
        self._used += lists.size

    def _drop_what_is_through(self) -> None:
        counts = self.end - self.next
        starts = counts.cumsum() - counts
        self._keys = self._keys[np.repeat(self.next - starts, counts) + np.arange(counts.sum())]
        self._used = len(self._keys)
        self.next, self.end = starts, starts + counts


def _within(who: np.ndarray, query: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of the queries `who`, the queries counted by their places in it."""
    first, last = np.searchsorted(query, who), np.searchsorted(query, who, side="right")
    counts = last - first
    pair = np.repeat(first - counts.cumsum() + counts, counts) + np.arange(counts.sum())
    return np.repeat(np.arange(len(who)), counts), item[pair]


def _before(bars: Bars, edges: np.ndarray, who: np.ndarray, values: np.ndarray, item: np.ndarray) -> np.ndarray:
    """Which candidates are above their item's bar; the floor let all pass that have its very score."""
    welcome = np.ones(len(values), bool)
    equal = np.flatnonzero(values == bars.score[item])
    row = np.searchsorted(edges, equal, side="right") - 1
    welcome[equal] = who[row] < bars.query[item[equal]]
    return welcome


def _nth_largest(scores: Tensor, n: int) -> Tensor:
    """The n-th largest value of each row, (b, 1); numpy finds it in a third of torch's time."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.partition(scores.numpy(), -n, axis=1)[:, -n, None])
    return scores.topk(n, dim=1).values[:, -1:]


def _above(scores: Tensor, floor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Places in the flattened scores, rising, and values of all that are above the floor."""
    if scores.device.type == "cpu":  # again numpy is the faster, by far
        at = np.flatnonzero(np.greater(scores.numpy(), floor.numpy()))
        return at, scores.numpy().reshape(-1)[at]
    places = (scores > floor).flatten().nonzero().squeeze(1)
    return places.cpu().numpy(), scores.flatten()[places].cpu().numpy()
