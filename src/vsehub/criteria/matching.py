"""What criteria that match queries and items with each other have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, require, whole
from vsehub.criteria.base import as_sides, checked_scores
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.topk import top_k

# (query indices (b,)) -> their whole rows of scores (b, M)
RowsOf = Callable[[Tensor], Tensor]

BLOCK_ELEMENTS = 2**24  # 64 MB of float32 scores at a time
STEPS = 2**12  # a step is this share of a row's largest score: far more than the rounding, room for as many items


class Matching(ABC):
    """A criterion under which the answer to one query depends on the others: items have few places.

    A subclass writes `match_rows`. A query's ranking is its matched items by score, then all others by score. As all
    queries are matched together, there is no inductive form.
    """

    needs_reference = False
    inductive = False
    GRID: ClassVar[dict[str, tuple]] = {}

    @property
    def correction(self) -> NearestNeighbor:
        """Nothing corrects the scores before they are matched."""
        return NearestNeighbor()

    @property
    def matching(self) -> "Matching":
        """What matches: this."""
        return self

    @abstractmethod
    def match_rows(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """Pairs (n, 2) of query and item, int64, in the order accepted; each query is in at most k.

        rows: gives whole rows of scores for query indices, as often as asked.
        """

    def match(self, scores: Tensor, k: int) -> Tensor:
        """Pairs (n, 2) of query and item, int64, in the order accepted, from all scores (Q, M)."""
        scores, _ = checked_scores(scores, None)
        return self.match_rows(lambda index: scores[index.to(scores.device)], *scores.shape, k)

    def rescore(self, scores: Tensor, reference_scores: Tensor | None = None, k: int = 10) -> Tensor:
        """Scores (Q, M) in the order of the matching with k: matched items of a query above all its others.

        Both keep their order among themselves. Raises InputError where reference scores are given.
        """
        self.refuse_reference(reference_scores)
        scores, _ = checked_scores(scores, None)
        pairs, answer = self.match(scores, k), torch.empty_like(scores)
        for first, some in blocks_of(pairs, *scores.shape):
            last = first + max(1, BLOCK_ELEMENTS // scores.shape[1])
            answer[first:last] = self.lift(scores[first:last], some)
        return answer

    def lift(self, scores: Tensor, pairs: Tensor) -> Tensor:
        """Whole rows (b, M) of scores with those of `pairs` (n, 2) above all others, rows counted from 0.

        Matched items get steps above their row's largest score, one for each of their distinct scores, so that no
        rounding joins or parts any two.
        """
        row, item = pairs.to(scores.device).T
        matched = scores[row, item]
        order = matched.argsort(stable=True)
        order = order[row[order].argsort(stable=True)]
        row, item, matched = row[order], item[order], matched[order]
        rises = torch.ones_like(row)
        rises[1:] = (matched[1:] != matched[:-1]) | (row[1:] != row[:-1])
        rises = rises.cumsum(0)
        starts = torch.searchsorted(row, torch.arange(len(scores), device=row.device))
        place = rises - rises[starts.clamp(max=max(0, len(row) - 1))][row] + 1 if len(row) else rises
        top = scores.amax(dim=1)[row]
        lifted = scores.clone()
        lifted[row, item] = top + top.abs().clamp(min=1) * place / STEPS
        return lifted

    def search(self, queries: Any, items: Any, reference: Any = None, k: int = 10) -> tuple[Any, Any]:
        """The k first items of each query by inner products, matched.

        queries (Q, D), items (M, D): tensors, numpy arrays, memory maps or open files. Rows of scores are computed when
        they are needed, never all. Returns scores and positions (Q, k), as `Criterion.search`. Raises InputError where
        a reference is given, dimensions differ or k exceeds the items.
        """
        self.refuse_reference(reference)
        return self.search_rows(lambda scores: scores, queries, items, k)

    def search_rows(self, correct: Callable[[Tensor], Tensor], queries: Any, items: Any, k: int) -> tuple[Any, Any]:
        """As `search`, on the scores that `correct` makes of whole rows (b, M) of inner products."""
        asked, found, _ = as_sides(queries, items)
        whole("k", k)
        require(k <= len(found), f"k is {k}; expected 1 to {len(found)}, the number of items")
        held, against = asked.rows(0, len(asked)), found.rows(0, len(found))

        def rows(index: Tensor) -> Tensor:
            return correct(held[index.to(held.device)] @ against.to(held).T)

        pairs = self.match_rows(rows, len(held), len(against), k)
        size = max(1, BLOCK_ELEMENTS // len(against))
        values, positions = [], []
        for first, some in blocks_of(pairs, len(held), len(against)):
            scores = rows(torch.arange(first, min(first + size, len(held))))
            positions.append(top_k(self.lift(scores, some), k)[1])
            values.append(scores.gather(1, positions[-1]))
        best = torch.cat(values), torch.cat(positions)
        return tuple(side.cpu().numpy() for side in best) if isinstance(queries, np.ndarray) else best

    def refuse_reference(self, reference: Any) -> None:
        """Raise InputError where a reference is given."""
        if reference is not None:
            raise InputError(
                f"{type(self).__name__} matches the queries that are ranked against each other, so it has no inductive "
                "form; leave the reference away"
            )


def blocks_of(pairs: Tensor, queries: int, items: int) -> list[tuple[int, Tensor]]:
    """(first query, the pairs of it and those that follow, counted from it), BLOCK_ELEMENTS scores at a time."""
    size = max(1, BLOCK_ELEMENTS // items)
    pairs = pairs[pairs[:, 0].argsort(stable=True)]
    ends = [0, *torch.bincount(pairs[:, 0], minlength=queries).cumsum(0).tolist()]
    return [
        (first, pairs[ends[first] : ends[min(first + size, queries)]] - pairs.new_tensor([first, 0]))
        for first in range(0, queries, size)
    ]
