"""`Matching`, the base class of criteria that match queries with items, and the rows of scores that it works on."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require, whole
from vsehub.criteria.base import Criterion, RowsOf, as_sides, finite
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.topk import top_k
from vsehub.neighbors.given import scoring
from vsehub.neighbors.vectors import VectorSource, given_back

ITEMS_AT_ONCE = 2**16
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
GAP = 2.0**-20  # between items that are lifted, as a share of the score below: enough that float32 tells them apart


class Matching(Criterion):
    """A criterion that ranks a query's accepted items, in the order accepted, before all others in their plain order.

    A subclass writes `accepted`. It matches the queries against each other, so it is transductive by nature. GRID holds
    the values of a setting among which validation chooses, one for each k.
    """

    needs_reference = False
    inductive = False

    @abstractmethod
    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> tuple[Tensor, Tensor]:
        """(query, item) pairs (n, 2) int64 in the order accepted and their scores (n,), at most k items a query.

        rows: (rising query indices (b,), int64 on the CPU) -> whole rows of scores (b, M), whose device the answer has.
        """

    @property
    def matching(self) -> "Matching":
        """The criterion itself."""
        return self

    @property
    def correction(self) -> NearestNeighbor:
        """None: the scores are matched as they are."""
        return NearestNeighbor()

    def match_rows(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """`match` without the matrix: rows (query indices (b,)) -> scores (b, M) gives whole rows on demand.

        rows may be asked for a query again, and should answer as before. Returns pairs (n, 2).
        """
        require(queries > 0 and items > 0, f"{queries} queries and {items} items; expected at least one of each")
        whole("k", k)
        return self.accepted(rows, queries, items, k)[0]

    def match(self, scores: Tensor, k: int) -> Tensor:
        """The matching of scores (Q, M): (query, item) pairs (n, 2), int64, in the order accepted.

        k: how many items a query is to get, at least 1. Raises InputError where scores is no matrix of floating-point
        numbers, is empty, or holds NaN or inf.
        """
        rows = rows_of(scores)
        return self.match_rows(rows, len(scores), scores.shape[1], k)

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        k: int = 10,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """Scores (Q, M) whose order is that of the ranking: the items of `match`, then the others; see `lift`.

        reference_scores and reference_item_scores have to be None: there is no inductive form.
        """
        self.refuse_reference(reference_scores)
        self.correction.checked_item_scores(reference_item_scores, scores)
        pairs = self.match(scores, k)
        pairs = pairs[pairs[:, 0].argsort(stable=True)]
        ends = torch.bincount(pairs[:, 0], minlength=len(scores)).cumsum(0).tolist()
        answer = torch.empty(scores.shape, dtype=widened(scores[:1]).dtype, device=scores.device)
        size = max(1, BLOCK_ELEMENTS // scores.shape[1])
        for first in range(0, len(scores), size):
            last = min(first + size, len(scores))
            own = pairs[ends[first - 1] if first else 0 : ends[last - 1]] - pairs.new_tensor([first, 0])
            answer[first:last] = self.lift(scores[first:last], own)
        return answer

    def lift(self, scores: Tensor, pairs: Tensor) -> Tensor:
        """Scores (b, M) in which each row's accepted items stand above all others, in the order accepted.

        pairs: (n, 2) row and item, those of one row in the order accepted. The others keep their scores. The accepted
        keep theirs in rows where they stand so already; else they are put just above the highest of the others. Where
        that leaves too little room below the largest number of the type, the whole row is divided by four.
        """
        answer = widened(scores).clone()
        row, item = pairs[pairs[:, 0].argsort(stable=True)].T.contiguous()
        values = answer[row, item]
        answer[row, item] = -torch.inf
        others = answer.amax(dim=1)
        answer[row, item] = values
        wrong = _out_of_place(row, item, values, others)
        moved = torch.bincount(row[wrong], minlength=len(answer)) > 0
        floor = torch.where(others > -torch.inf, others, 0)
        limits = torch.finfo(answer.dtype)
        high = (moved & (floor > limits.max / 4)).nonzero().squeeze(1)
        answer[high] /= 4
        floor[high] /= 4
        from_above = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        steps = (torch.bincount(row, minlength=len(answer))[row] - from_above) * GAP
        # A step from zero, or from a subnormal number, is one of the least normal number.
        lifted = floor[row] + steps * floor[row].abs().clamp(min=limits.tiny / GAP)
        which = moved[row]
        answer[row[which], item[which]] = lifted[which]
        return answer

    def search(
        self, queries: Any, items: Any, reference: Any = None, k: int = 10, *, reference_items: Any = None
    ) -> tuple[Any, Any]:
        """The k best items of each query by inner product, those it is matched with first, in bounded memory.

        queries (Q, D), items (M, D): tensors, numpy arrays, memory maps, or open files (`data.vectors`). Returns scores
        and positions, both (Q, k), best first: a matched item stands above others whatever its score. numpy arrays
        where the queries are one. Raises InputError where dimensions differ, k exceeds the items, a reference is given
        or scores are NaN or infinite.
        """
        self.refuse_reference(reference)
        if reference_items is not None:
            self.correction.require_reference_items()
        return self.search_rows(lambda scores: scores, queries, items, k)

    def search_rows(self, correct: Callable[[Tensor], Tensor], queries: Any, items: Any, k: int) -> tuple[Any, Any]:
        """`search` on corrected scores: `correct` takes whole rows of inner products (b, M) and gives such rows."""
        asked, among, _ = as_sides(queries, items)
        whole("k", k)
        require(k <= len(among), f"k is {k}; expected at most {len(among)}, the number of items")
        # The best that is not accepted is among the k + 1 best.
        rows = Noted(product_rows(asked, among, correct), len(asked), len(among), min(k + 1, len(among)))
        scores, positions, pairs = rows.with_pairs(*self.accepted(rows, len(asked), len(among), k))
        columns = top_k(self.lift(scores, pairs), k)[1]
        return given_back(queries, finite("scores", scores.gather(1, columns)), positions.gather(1, columns))

    def refuse_reference(self, reference: Any) -> None:
        """Raise InputError unless `reference` is None."""
        if reference is not None:
            fail(
                f"{type(self).__name__} matches the queries against each other, so it has no inductive form: "
                "leave the reference out, or take a criterion that corrects scores, e.g. csls"
            )


def _out_of_place(row: Tensor, item: Tensor, values: Tensor, others: Tensor) -> Tensor:
    """Which accepted items are not above all others of their row, or not below the accepted one before them."""
    wrong = values <= others[row]
    later = (values[1:] < values[:-1]) | ((values[1:] == values[:-1]) & (item[1:] > item[:-1]))
    wrong[1:] |= (row[1:] == row[:-1]) & ~later
    return wrong


def widened(scores: Tensor) -> Tensor:
    """Scores in float32 at least, apart from any graph."""
    return scores.detach().float() if scores.dtype in (torch.float16, torch.bfloat16) else scores.detach()


def rows_of(scores: Tensor) -> RowsOf:
    """The rows of (Q, M) scores; neighbouring ones without a copy. Raises InputError where it is no such matrix."""
    matrix("scores", scores)
    require(scores.is_floating_point(), f"scores holds {scores.dtype} numbers; expected floating-point scores")

    def rows(index: Tensor) -> Tensor:
        first, last = int(index[0]), int(index[-1]) + 1
        return widened(scores[first:last] if last - first == len(index) else scores[index.to(scores.device)])

    return rows


def product_rows(queries: VectorSource, items: VectorSource, correct: Callable[[Tensor], Tensor]) -> RowsOf:
    """The rows of the inner products of (Q, D) queries and (M, D) items, corrected: (b, M) -> (b, M)."""
    held = queries.rows(0, len(queries))

    def rows(index: Tensor) -> Tensor:
        asked = held[index.to(held.device)]
        scores = torch.empty(len(asked), len(items), dtype=held.dtype, device=held.device)
        for start in range(0, len(items), ITEMS_AT_ONCE):
            stop = min(start + ITEMS_AT_ONCE, len(items))
            scoring(items, start, stop, held)(asked, scores[:, start:stop])
        return correct(scores)

    return rows


class Noted:
    """Rows as they are asked for, the `depth` best items of each query noted as they pass."""

    def __init__(self, rows: RowsOf, queries: int, items: int, depth: int):
        self._rows, self._queries, self._items, self._depth = rows, queries, items, depth
        self._best: tuple[Tensor, Tensor] | None = None

    def __call__(self, index: Tensor) -> Tensor:
        scores = self._rows(index)
        if self._best is None:
            unknown = torch.full((self._queries, self._depth), -1, device=scores.device)
            self._best = scores.new_empty(self._queries, self._depth), unknown
        values, positions = self._best
        new = positions[index.to(scores.device), 0] < 0
        if new.any():
            which = index.to(scores.device)[new]
            values[which], positions[which] = top_k(scores if new.all() else scores[new], self._depth)
        return scores

    def with_pairs(self, pairs: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each query its noted items and those of (query, item) pairs (n, 2), whose scores (n,) are given.

        Returns scores (Q, w), the positions they belong to, rising, and the pairs as row and column of these. What is
        left of the width has score -inf and a position past the last item.
        """
        if self._best is None:
            fail("no rows have been looked at; expected those of every query")
        order = pairs[:, 0].argsort(stable=True)
        (query, item), scores = pairs[order].T, scores[order]
        counts = torch.bincount(query, minlength=self._queries)
        nth = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        paired = torch.full((self._queries, int(counts.max())), self._items, device=query.device)
        paired[query, nth] = item
        values = self._best[0].new_full(paired.shape, -torch.inf)
        values[query, nth] = scores.to(values)
        values, positions = _sorted(torch.cat((self._best[0], values), 1), torch.cat((self._best[1], paired), 1))
        twice = torch.zeros_like(positions, dtype=torch.bool)
        twice[:, 1:] = positions[:, 1:] == positions[:, :-1]
        values, positions = _sorted(values.masked_fill(twice, -torch.inf), positions.masked_fill(twice, self._items))
        column = torch.searchsorted(positions, paired)[query, nth]
        return values, positions, torch.stack((query, column), dim=1)


def _sorted(values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Both by rising position; of one position what came first stays first."""
    positions, order = positions.sort(dim=1, stable=True)
    return values.gather(1, order), positions
