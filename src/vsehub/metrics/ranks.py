"""Ranks of the positives and k-occurrences of the items, counted block by block in one pass over the scores."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import matrix, require
from vsehub.metrics.occurrences import Occurrences
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import at_r_of_scores
from vsehub.metrics.topk import at_least, top_k

CACHED_ELEMENTS = 2**20  # 4 MB of float32 scores


@dataclass(frozen=True)
class Ranking:
    """The result of a pass over the scores.

    ranks: (Q,) 1-based rank of each query's best positive, after all negatives of equal score; 0 for a query without a
    positive. average_precision, r_precision: (Q,) AP@R and R-Precision, fractions of 1, also with negatives of equal
    score first. occurrences: for each k, (M,) how many queries have the item among their k nearest (among equal scores
    the lower item wins). bad: for each k, (M,) for how many queries with a positive it is there as a negative.
    """

    ranks: Tensor
    average_precision: Tensor
    r_precision: Tensor
    occurrences: dict[int, Tensor]
    bad: dict[int, Tensor]

    @property
    def measured(self) -> Tensor:
        """Boolean mask (Q,) of the queries with a positive."""
        return self.ranks > 0


def rank_blocks(blocks: Iterable[tuple[int, Tensor]], positives: Positives, ks: tuple[int, ...] = ()) -> Ranking:
    """The ranking from blocks (first query, scores (b, M)) that cover all queries in order.

    Raises InputError if scores are NaN or not floating-point numbers, or if a block does not fit or is missing.
    """
    starts = [0, *positives.counts.cumsum(0).tolist()]
    device = positives.query.device
    ranks = torch.zeros(positives.queries, dtype=torch.int64, device=device)
    precision = torch.zeros(2, positives.queries, dtype=torch.float64, device=device)
    occurrences = Occurrences(positives.items, ks)
    several = bool((positives.counts > 1).any())
    deepest = min(max(ks, default=1), positives.items)
    last = 0
    for first, block in blocks:
        matrix("scores", block)
        require(block.is_floating_point(), f"scores holds {block.dtype} numbers; expected floating-point scores")
        require(
            first == last and block.shape[1] == positives.items and first + len(block) <= positives.queries,
            f"scores of queries {first} to {first + len(block)} have {block.shape[1]} columns; expected "
            f"{positives.queries} queries and {positives.items} items, query {last} first",
        )
        lists = []
        for scores in block.split(_rows(block)):
            first, last = last, last + len(scores)
            largest, nearest = top_k(scores, deepest)
            require(not largest[:, 0].isnan().any(), "scores hold NaN; look for NaN or infinite embeddings")
            mine = slice(starts[first], starts[last])
            row, counts = positives.query[mine] - first, positives.counts[first:last]
            hits = scores[row, positives.item[mine]]
            ranks[first:last] = _ranks(scores, row, hits) * (counts > 0)
            if several:
                precision[:, first:last] = torch.stack(at_r_of_scores(scores, largest, row, hits, counts))
            lists.append(nearest)
        if ks:
            occurrences.add(torch.cat(lists), positives, last - len(block))
    require(last == positives.queries, f"scores end at query {last}; expected {positives.queries} queries")
    if not several:  # only the first place counts: both are R@1
        precision[:] = ranks == 1
    both = ({k: one.dense() for k, one in counts.items()} for counts in (occurrences.counts, occurrences.bad))
    return Ranking(ranks, precision[0], precision[1], *both)


def _ranks(scores: Tensor, row: Tensor, hits: Tensor) -> Tensor:
    """The rank (b,) of each row's best positive. scores: (b, M). row, hits: rows and scores of the positives (P,)."""
    best = scores.new_full((len(scores),), -torch.inf).scatter_reduce(0, row, hits, "amax")
    equal_hits = row.new_zeros(len(scores)).index_add_(0, row, (hits >= best[row]).long())
    return at_least(scores, best) - equal_hits + 1


def _rows(block: Tensor) -> int:
    """The number of rows to process at a time: on a CPU as many as fit its cache, since each is read several times."""
    return max(1, CACHED_ELEMENTS // max(1, block.shape[1])) if block.device.type == "cpu" else max(1, len(block))
