"""`Matching`, the base class of criteria that match queries with items, and the rows of scores that it works on."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.criteria.base import (
    Correction,
    Criterion,
    RowsOf,
    as_reference_items,
    as_sides,
    finite,
    fit_all,
)
from vsehub.criteria.nns import NearestNeighbor
from vsehub.neighbors.topk import joined, top_k
from vsehub.neighbors.vectors import VectorSource, scoring, to_type_of

ITEMS_AT_ONCE = 2**16
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
GAP = 2.0**-20  # between items that are lifted, as a share of the score below: enough that float32 tells them apart


class Matching(Criterion):
    """A criterion that ranks a query's accepted items, in the order accepted, before all others in their plain order.

    A subclass writes `accepted`. It matches the queries against each other, so it is transductive by nature. GRID holds
    the values of one setting; validation chooses a value for each k.
    """

    needs_reference = False
    inductive = False

    @abstractmethod
    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """(query, item) pairs (n, 2), int64 on the CPU, in the order accepted, at most k items a query.

        rows: (rising query indices (b,), int64 on the CPU) -> whole rows of scores (b, M), the same each time.
        """

    @property
    def matching(self) -> "Matching":
        """The criterion itself."""
        return self

    @property
    def correction(self) -> Correction:
        """Plain search: the scores are matched as they are."""
        return NearestNeighbor()

    def match_rows(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """`match` without the matrix, from whole rows of scores on demand; see `accepted`."""
        require(queries > 0 and items > 0, f"{queries} queries and {items} items; expected at least one of each")
        whole("k", k)
        return self.accepted(rows, queries, items, k)

    def matched_scores(self, scores: Tensor, reference_item_scores: Tensor | None) -> Tensor:
        """The scores (Q, M) that are matched, from scores (Q, M): the same."""
        self.refuse_reference(reference_item_scores)
        return scores

    def match(self, scores: Tensor, k: int, *, reference_item_scores: Tensor | None = None) -> Tensor:
        """The matching of scores (Q, M): (query, item) pairs (n, 2), int64 on the CPU, in the order accepted.

        k: the number of items for each query, at least 1. reference_item_scores: see `Criterion.rescore`. Raises
        InputError if scores is not a matrix of floating-point numbers, is empty, or holds NaN or inf.
        """
        rows = rows_of(self.matched_scores(scores, reference_item_scores))
        return self.match_rows(rows, len(scores), scores.shape[1], k)

    def lifted(self, rows: RowsOf, queries: int, items: int, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(scores (b, M), the same after `lift`) of some queries at a time, in order; arguments as in `match_rows`."""
        pairs = self.match_rows(rows, queries, items, k)
        pairs = pairs[pairs[:, 0].argsort(stable=True)]
        size = max(1, BLOCK_ELEMENTS // items)
        counts = torch.bincount(pairs[:, 0], minlength=queries).split(size)
        index = torch.arange(queries).split(size)
        sizes = [int(count.sum()) for count in counts]
        for block, accepted in zip(index, pairs.split(sizes), strict=True):
            scores = rows(block)
            yield scores, self.lift(scores, accepted - accepted.new_tensor([int(block[0]), 0]))

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        k: int = 10,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """Scores (Q, M) whose order is that of the ranking: the items of `match`, then the others; see `lift`.

        reference_scores must be None, since matching has no inductive form.
        """
        self.refuse_reference(reference_scores)
        rows = rows_of(self.matched_scores(scores, reference_item_scores))
        return torch.cat([lifted for _, lifted in self.lifted(rows, len(scores), scores.shape[1], k)])

    def lift(self, scores: Tensor, pairs: Tensor) -> Tensor:
        """Scores (b, M) that place each row's accepted items above all others, in the order accepted.

        pairs: (n, 2) row and item, those of one row in the order accepted. The others keep their scores. Rows
        that already rank so stay as they are; in other rows the accepted items are moved just above the highest of the
        others. Where that leaves too little room below the largest number of the type, the whole row is divided by
        four.
        """
        result = widened(scores).clone()
        row, item = pairs[pairs[:, 0].argsort(stable=True)].to(result.device).T.contiguous()
        values = result[row, item]
        result[row, item] = -torch.inf
        highest_other = result.amax(dim=1)
        result[row, item] = values
        wrong = _out_of_place(row, item, values, highest_other)
        moved = torch.bincount(row[wrong], minlength=len(result)) > 0
        floor = torch.where(highest_other > -torch.inf, highest_other, 0)
        limits = torch.finfo(result.dtype)
        high = (moved & (floor > limits.max / 4)).nonzero().squeeze(1)
        result[high] /= 4
        floor[high] /= 4
        from_above = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        steps = (torch.bincount(row, minlength=len(result))[row] - from_above) * GAP
        # From zero or a subnormal number, a step is the smallest normal number.
        lifted = floor[row] + steps * floor[row].abs().clamp(min=limits.tiny / GAP)
        is_moved = moved[row]
        result[row[is_moved], item[is_moved]] = lifted[is_moved]
        return result

    def search(
        self, queries: Any, items: Any, reference: Any = None, k: int = 10, *, reference_items: Any = None
    ) -> tuple[Any, Any]:
        """The k best items of each query by inner product, those it is matched with first, in bounded memory.

        queries (Q, D), items (M, D), reference_items (G, D): as in `Correction.search`. Returns scores and positions,
        both (Q, k), best first: a matched item stands above others whatever its score. Raises InputError where
        dimensions differ, k exceeds the items, a reference is given or scores are NaN or infinite.
        """
        self.refuse_reference(reference)
        query_rows, item_rows, _ = as_sides(queries, items)
        whole("k", k)
        require(k <= len(item_rows), f"k is {k}; expected at most {len(item_rows)}, the number of items")
        reference_item_rows = as_reference_items(self.correction, reference_items, item_rows)
        terms = fit_all([self.correction], item_rows, query_rows, reference_item_rows)[0]
        rows = product_rows(query_rows, item_rows, lambda scores: self.correction.apply(scores, terms))
        lists = []
        for scores, lifted in self.lifted(rows, len(query_rows), len(item_rows), k):
            columns = top_k(lifted, k)[1]
            lists.append((finite("scores", scores.gather(1, columns)), columns))
        return to_type_of(queries, *joined(lists))

    def refuse_reference(self, reference: Any) -> None:
        """Raise InputError unless a reference is None."""
        require(
            reference is None,
            f"{type(self).__name__} matches the queries against each other, so it has no inductive form: "
            "leave the reference out, or take a criterion that corrects scores, e.g. csls",
        )


def _out_of_place(row: Tensor, item: Tensor, values: Tensor, highest_other: Tensor) -> Tensor:
    """Mask of accepted items that are not above all others of their row, or not below the accepted one before them."""
    wrong = values <= highest_other[row]
    in_order = (values[1:] < values[:-1]) | ((values[1:] == values[:-1]) & (item[1:] > item[:-1]))
    wrong[1:] |= (row[1:] == row[:-1]) & ~in_order
    return wrong


def widened(scores: Tensor) -> Tensor:
    """Scores in float32 at least, detached from the graph."""
    return scores.detach().float() if scores.dtype in (torch.float16, torch.bfloat16) else scores.detach()


def rows_of(scores: Tensor) -> RowsOf:
    """The rows of scores (Q, M). Raises InputError for anything else."""
    matrix("scores", scores)
    require(scores.is_floating_point(), f"scores holds {scores.dtype} numbers; expected floating-point scores")
    return lambda index: widened(scores[index.to(scores.device)])


def product_rows(queries: VectorSource, items: VectorSource, correct: Callable[[Tensor], Tensor]) -> RowsOf:
    """The rows of the inner products of (Q, D) queries and (M, D) items, corrected: (b, M) -> (b, M)."""
    vectors = queries.rows(0, len(queries))

    def rows(index: Tensor) -> Tensor:
        block = vectors[index.to(vectors.device)]
        scores = block.new_empty(len(block), len(items))
        for start in range(0, len(items), ITEMS_AT_ONCE):
            stop = min(start + ITEMS_AT_ONCE, len(items))
            scoring(items, start, stop, block)(block, scores[:, start:stop])
        return correct(scores)

    return rows
