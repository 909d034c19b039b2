"""Ranks of the best positives and k-occurrences of the items, counted block by block in one pass over the scores."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.metrics.topk import top_k

CACHED_ELEMENTS = 2**20  # 4 MB of float32 scores


@dataclass(frozen=True)
class Positives:
    """Which items answer which query, as P pairs sorted by query.

    query, item: (P,) integers. Every query has at least one item; any number each way.
    """

    query: Tensor
    item: Tensor
    queries: int
    items: int

    @classmethod
    def from_mask(cls, mask: Tensor) -> "Positives":
        """From a boolean (Q, M) mask. Raises InputError where a query has no positive."""
        require(
            mask.ndim == 2 and mask.dtype == torch.bool,
            f"positives is {mask.dtype} {tuple(mask.shape)}; expected a boolean matrix (queries, items)",
        )
        query, item = mask.nonzero(as_tuple=True)
        return cls(query, item, *mask.shape)._complete()

    @classmethod
    def from_ids(cls, query_ids: Tensor, item_ids: Tensor) -> "Positives":
        """Pairs whose ids are equal: query_ids (Q,), item_ids (M,). Raises InputError where a query has none."""
        sorted_ids, order = item_ids.sort(stable=True)
        first = torch.searchsorted(sorted_ids, query_ids)
        counts = torch.searchsorted(sorted_ids, query_ids, right=True) - first
        query = torch.repeat_interleave(torch.arange(len(query_ids), device=query_ids.device), counts)
        within = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        return cls(query, order[first[query] + within], len(query_ids), len(item_ids))._complete()

    def _complete(self) -> "Positives":
        counts = torch.bincount(self.query, minlength=self.queries)
        without = (counts == 0).nonzero().flatten()
        require(
            len(without) == 0,
            f"{len(without)} of {self.queries} queries have no positive item (first: query {without[:1].tolist()}); "
            "expected at least one for every query",
        )
        return self


@dataclass(frozen=True)
class Ranking:
    """What a pass over the scores leaves.

    ranks: (Q,) 1-based rank of each query's best positive, equal-scored negatives counted ahead of it. occurrences:
    for each k asked, (M,) how many queries have the item among their k nearest (of equal scores the lower item wins).
    """

    ranks: Tensor
    occurrences: dict[int, Tensor]


def rank_blocks(blocks: Iterable[tuple[int, Tensor]], positives: Positives, ks: tuple[int, ...] = ()) -> Ranking:
    """Rank from blocks (first query, scores (b, M)) that cover all queries in order.

    Raises InputError where scores are NaN or a block does not fit.
    """
    starts = torch.cat((positives.query.new_zeros(1), torch.bincount(positives.query, minlength=positives.queries)))
    starts = starts.cumsum(0).tolist()
    device = positives.query.device
    ranks = torch.zeros(positives.queries, dtype=torch.int64, device=device)
    occurrences = {k: torch.zeros(positives.items, dtype=torch.int64, device=device) for k in ks}
    deepest = min(max(ks, default=1), positives.items)
    for first, scores in _cut(blocks):
        last = first + len(scores)
        require(
            scores.shape[1] == positives.items and last <= positives.queries,
            f"scores of queries {first} to {last} have {scores.shape[1]} columns; expected {positives.queries} "
            f"queries and {positives.items} items",
        )
        mine = slice(starts[first], starts[last])
        row, item = positives.query[mine] - first, positives.item[mine]
        hits = scores[row, item]
        best = scores.new_full((len(scores),), -torch.inf).scatter_reduce(0, row, hits, "amax")
        equal_hits = row.new_zeros(len(scores)).index_add_(0, row, (hits >= best[row]).long())
        ranks[first:last] = _at_least(scores, best) - equal_hits + 1
        largest, nearest = top_k(scores, deepest)
        require(not largest[:, 0].isnan().any(), "scores hold NaN; look for NaN or infinite embeddings")
        for k, counts in occurrences.items():
            counts += torch.bincount(nearest[:, :k].flatten(), minlength=positives.items)
    return Ranking(ranks, occurrences)


def _cut(blocks: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """On a CPU blocks that stay in its cache, since every row is read several times."""
    for first, scores in blocks:
        elements = CACHED_ELEMENTS if scores.device.type == "cpu" else scores.numel()
        rows = max(1, elements // max(1, scores.shape[1]))
        for begin in range(0, len(scores), rows):
            yield first + begin, scores[begin : begin + rows]


def _at_least(scores: Tensor, least: Tensor) -> Tensor:
    """How many of each row (b, M) are >= the row's `least` (b,)."""
    # Ones in floating point are added up several times as fast as booleans, and exactly while they fit the mantissa.
    ones = torch.float32 if scores.shape[1] < 2**24 else torch.float64
    reached = torch.empty(scores.shape, dtype=ones, device=scores.device)
    return torch.ge(scores, least[:, None], out=reached).sum(dim=1).long()
