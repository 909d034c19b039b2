"""Deferred acceptance of queries by items that have places (Gale and Shapley 1962), from lists of candidates.

Where both sides prefer by the same score there is one stable matching, and visiting all pairs from high to low scores
finds it too: the pair that comes first is wanted by both. So this gives what greedy matching gives, without sorting all
scores: most pairs never come to be looked at.
"""

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.matching.candidates import Bars, Candidates, Float32Keys, Float64Keys, Keys, RowsOf

ASKING_AT_ONCE = 2**17  # queries in a round; more only take more memory


def deferred_acceptance(
    rows: RowsOf, queries: int, items: int, wanted: int, places: int, most: int | None = None
) -> tuple[Tensor, Tensor]:
    """Greedy matching: pairs from high to low scores, a query in at most `wanted`, an item in at most `places`.

    rows: whole rows of scores on demand, those of a query each time it has been through its list of candidates. most:
    stop after so many pairs. Of equal scores the lower query, then the lower item comes first; pairs of score -inf
    never match. Returns (query, item) (n, 2) in the order accepted, and their scores (n,), on the device of the rows.
    Raises InputError for NaN, inf, or rows of another shape.
    """
    row = rows(torch.zeros(1, dtype=torch.int64))
    kind = _kind(row, items)
    candidates = Candidates(rows, queries, items, wanted, kind)
    held = _Places(queries, items, min(places, queries), kind)
    open_ = np.full(queries, min(wanted, items))
    who, bars = np.arange(queries), None
    while len(who):
        candidates.extend(who, bars)
        _settle(open_, candidates, held, kind)
        # Higher bars only shrink a list, so a complete one stays complete.
        who = np.flatnonzero((open_ > 0) & ~candidates.complete)
        if most is not None:  # what ranks behind the last pair that counts is not looked up
            who = who[candidates.reach[who] >= held.score_of(most)]
        bars = held.bars(who)
    pairs, scores = held.pairs()
    return torch.from_numpy(pairs[:most]).to(row.device), torch.from_numpy(scores[:most]).to(row.device)


def _kind(row: Tensor, items: int) -> Keys:
    """The keys for the scores' type."""
    require(
        row.shape == (1, items) and row.is_floating_point(),
        f"scores of one query are {row.dtype} {tuple(row.shape)}; expected floating-point numbers (1, {items})",
    )
    return Float64Keys if row.dtype == torch.float64 else Float32Keys


def _settle(open_: np.ndarray, candidates: Candidates, held: "_Places", kind: Keys) -> None:
    """Rounds of offers until no query with an open wish has candidates left. `open_`: (Q,) open wishes, kept up."""
    asking, place = np.arange(len(open_)), np.empty(len(open_), np.int64)
    while True:
        asking = asking[(open_[asking] > 0) & (candidates.next[asking] < candidates.end[asking])]
        if not len(asking):
            return
        now = asking[:ASKING_AT_ONCE]
        item, offers, made = candidates.propose(now, open_[now], held.worst)
        open_[now] -= made
        refused = kind.index(held.offer(item, offers))
        np.add.at(open_, refused, 1)
        asking = np.concatenate((asking, refused))
        place[asking] = np.arange(len(asking))  # of a query that is there twice the last place stays
        asking = asking[place[asking] == np.arange(len(asking))]


class _Places:
    """What the items hold: of each item that was ever asked a row of `each` keys of (score, query), in no order.

    worst: (M,) the key that an offer has to stay below; `none` while a place is free.
    """

    def __init__(self, queries: int, items: int, each: int, kind: Keys):
        self._queries, self._each, self._kind = queries, each, kind
        self._row = np.full(items, -1)
        self._item = np.empty(0, np.int64)
        self._filled = np.empty(0, np.int64)
        self._held = np.empty((0, each), kind.dtype)
        self.worst = np.full(items, kind.none, kind.dtype)

    def offer(self, item: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Take the best of what is held and offered, (n,) each; the keys that are refused, offered now or held before.

        The work is that of the offers, and for items that have more than places that of their places.
        """
        # The keys of one item behind one another; sorting numbers is several times as fast as sorting with an index.
        order = np.sort(item << 32 | np.arange(len(item))) & 2**32 - 1
        item, keys = item[order], keys[order]
        first = np.flatnonzero(np.diff(item, prepend=-1))
        counts = np.diff(first, append=len(item))
        asked = item[first]
        rows = self._rows_of(asked)
        fits = self._filled[rows] + counts <= self._each
        self._add(asked[fits], rows[fits], _stretches(first[fits], counts[fits]), counts[fits], keys)
        refused = [
            self._choose(asked[some], rows[some], first[some], counts[some], keys)
            for some in _by_count(np.flatnonzero(~fits), counts)
        ]
        return np.concatenate([np.empty(0, keys.dtype), *refused])

    def bars(self, who: np.ndarray) -> Bars:
        """What each item asks for, and where the queries `who` are held."""
        full = self.worst != self._kind.none
        score = np.full(len(full), -np.inf, self._kind.score_dtype)
        query = np.zeros(len(full), np.int64)
        score[full], query[full] = self._kind.scores(self.worst[full]), self._kind.index(self.worst[full])
        row, place = np.nonzero(self._held != self._kind.none)
        taken = self._kind.index(self._held[row, place])
        asked = np.zeros(self._queries, bool)
        asked[who] = True
        theirs = np.flatnonzero(asked[taken])
        theirs = theirs[taken[theirs].argsort()]
        return Bars(score, query, (taken[theirs], self._item[row[theirs]]))

    def score_of(self, nth: int) -> float:
        """The score of the nth best pair that is held; -inf where fewer are."""
        keys = self._held[self._held != self._kind.none]
        return self._kind.scores(np.partition(keys, nth - 1)[nth - 1 : nth])[0] if len(keys) >= nth else -np.inf

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs (query, item) that are held, the highest score first, and their scores."""
        rows = self._item.argsort()
        held = self._held[rows]
        filled = held != self._kind.none
        keys, item = held[filled], np.repeat(self._item[rows], filled.sum(axis=1))
        order = keys.argsort(kind="stable")  # equal keys are one query's, whose items rise
        keys = keys[order]
        return np.stack((self._kind.index(keys), item[order]), axis=1), self._kind.scores(keys)

    def _rows_of(self, asked: np.ndarray) -> np.ndarray:
        """The rows of some items, new ones for those that have none."""
        new = asked[self._row[asked] < 0]
        if len(new):
            self._row[new] = len(self._item) + np.arange(len(new))
            self._item = np.concatenate((self._item, new))
            self._filled = np.concatenate((self._filled, np.zeros(len(new), np.int64)))
            room = len(self._held) - len(self._item)
            if room < 0:  # by half as much again, so that growing costs no more than filling
                grown = max(-room, len(self._held) // 2)
                more = np.full((grown, self._each), self._kind.none, self._kind.dtype)
                self._held = np.concatenate((self._held, more))
        return self._row[asked]

    def _add(self, asked: np.ndarray, rows: np.ndarray, at: np.ndarray, counts: np.ndarray, keys: np.ndarray) -> None:
        """Into free places."""
        place = _stretches(self._filled[rows], counts)
        self._held[np.repeat(rows, counts), place] = keys[at]
        self._filled[rows] += counts
        full = self._filled[rows] == self._each
        self.worst[asked[full]] = self._held[rows[full]].max(axis=1)

    def _choose(
        self, asked: np.ndarray, rows: np.ndarray, first: np.ndarray, counts: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """The best `each` of held and offered; returns the others."""
        offered = np.full((len(rows), counts.max()), self._kind.none, keys.dtype)
        offered[np.arange(offered.shape[1]) < counts[:, None]] = keys[_stretches(first, counts)]
        both = np.concatenate((self._held[rows], offered), axis=1)
        both.partition(self._each - 1, axis=1)
        self._held[rows], self.worst[asked] = both[:, : self._each], both[:, self._each - 1]
        self._filled[rows] = self._each
        rest = both[:, self._each :]
        return rest[rest != self._kind.none]


def _stretches(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """first, first + 1, ... of each stretch, `counts` numbers of each, one stretch behind the other."""
    return np.repeat(first - counts.cumsum() + counts, counts) + np.arange(counts.sum())


def _by_count(which: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """`which` in parts whose counts differ by less than four times, so that padding costs no more than that."""
    size = np.frexp(counts[which].astype(float))[1] // 2
    return [which[size == one] for one in np.unique(size)]
