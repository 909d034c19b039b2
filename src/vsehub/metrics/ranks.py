"""Ranks of the positives and k-occurrences of the items, counted block by block in one pass over the scores.

From them: R@K, median and mean rank (VSE++, AAAI table 2), mAP@R and R-Precision of both directions (Musgrave 2020; the
measures of ECCV Caption). R is the number of the query's positives. R-Precision is the share of positives among the
first R places; mAP@R is 1/R Σ_{i=1..R} [place i holds a positive] · (share of positives among the first i places).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.metrics.occurrences import count_occurrences
from vsehub.neighbors.topk import at_least, top_k
from vsehub.positives import Positives

RECALLS = (1, 5, 10)
CACHED_ELEMENTS = 2**20  # 4 MB of float32 scores


@dataclass(frozen=True)
class Ranking:
    """The result of a pass over the scores.

    ranks: (Q,) 1-based rank of each query's best positive, after all negatives of equal score; 0 for a query without a
    positive. average_precision, r_precision: (Q,) AP@R and R-Precision, fractions of 1, also with negatives of equal
    score first. occurrences: N_k (M,) for each k: the number of queries that have the item among their k nearest (among
    equal scores the lower item wins). bad: the same count over the queries that have a positive and the item as a
    negative.
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
    several_positives = bool((positives.counts > 1).any())
    deepest = min(max((whole("k", k) for k in ks), default=1), positives.items)
    lists = list[Tensor]()
    last = 0
    for first, block in blocks:
        matrix("scores", block)
        require(block.is_floating_point(), f"scores holds {block.dtype} numbers; expected floating-point scores")
        require(
            first == last and block.shape[1] == positives.items and first + len(block) <= positives.queries,
            f"scores of queries {first} to {first + len(block)} have {block.shape[1]} columns; expected "
            f"{positives.queries} queries and {positives.items} items, query {last} first",
        )
        # On a CPU as many rows at a time as fit its cache, since each is read several times.
        rows = max(1, CACHED_ELEMENTS // positives.items if block.is_cpu else len(block))
        for scores in block.split(rows):
            first, last = last, last + len(scores)
            counts = positives.counts[first:last]
            depth = min(max(deepest, int(counts.max())), positives.items) if several_positives else deepest
            largest, nearest = top_k(scores, depth)
            require(not largest[:, 0].isnan().any(), "scores hold NaN; look for NaN or infinite embeddings")
            pairs = slice(starts[first], starts[last])
            row = positives.query[pairs] - first
            pair_scores = scores[row, positives.item[pairs]]
            best = scores.new_full((len(scores),), -torch.inf).scatter_reduce(0, row, pair_scores, "amax")
            # The rank counts the items that reach the best positive's score, without the positives among them.
            equal_hits = row.new_zeros(len(scores)).index_add_(0, row, (pair_scores >= best[row]).long())
            ranks[first:last] = (at_least(scores, best) - equal_hits + 1) * (counts > 0)
            if several_positives:
                precision[:, first:last] = torch.stack(at_r_of_scores(scores, largest, row, pair_scores, counts))
            lists.append(nearest[:, :deepest])
    require(last == positives.queries, f"scores end at query {last}; expected {positives.queries} queries")
    if not several_positives:  # only the first place counts: both are R@1
        precision[:] = ranks == 1
    counted = count_occurrences(torch.cat(lists), positives.items, ks, positives)
    occurrences = {k: counts.dense() for k, counts in counted.counts.items()}
    bad = {k: counts.dense() for k, counts in counted.bad.items()}
    return Ranking(ranks, precision[0], precision[1], occurrences, bad)


def recall_metrics(scores: Tensor, positives: Tensor) -> dict[str, float]:
    """Both directions' metrics of images x texts.

    scores: (I, T), higher is closer. positives: (I, T) boolean, at least one in every row and column. Returns
    "i2t/r1", "i2t/r5", "i2t/r10" in %, "i2t/medr", "i2t/meanr", "i2t/map_r" and "i2t/r_precision" in %, the same for
    "t2i", and "rsum". Raises InputError for shapes that differ, NaN scores, or a row or column without a positive.
    """
    both: dict[str, float] = {}
    for direction, block, mask in (("i2t", scores, positives), ("t2i", scores.T, positives.T)):
        ranking = rank_blocks([(0, block)], Positives.from_mask(mask))
        both |= {f"{direction}/{name}": value for name, value in rank_metrics(ranking).items()}
    return both | {"rsum": rsum(both)}


def rank_metrics(ranking: Ranking) -> dict[str, float]:
    """The metrics of one direction, over the queries that have a positive.

    "r1", "r5", "r10" in %, "medr" (floor of the median of the 0-based ranks, + 1), "meanr", and "map_r" and
    "r_precision" (mAP@R and R-Precision, Musgrave 2020) in %.
    """
    ranks = ranking.ranks[ranking.measured].cpu()  # a GPU rounds the mean differently: 85.00000000000001 %
    metrics = {f"r{k}": 100.0 * (ranks <= k).double().mean().item() for k in RECALLS}
    zero_based = ranks.sort().values - 1
    median = (zero_based[(len(ranks) - 1) // 2] + zero_based[len(ranks) // 2]) // 2
    metrics |= {"medr": median.item() + 1.0, "meanr": ranks.double().mean().item()}
    for name, fractions in (("map_r", ranking.average_precision), ("r_precision", ranking.r_precision)):
        metrics[name] = 100.0 * fractions[ranking.measured].cpu().mean().item()
    return metrics


def rsum(metrics: dict[str, float]) -> float:
    """The sum of the six recalls of both directions, 0 to 600."""
    return sum(metrics[f"{direction}/r{k}"] for direction in ("i2t", "t2i") for k in RECALLS)


def chance_rsum(texts_of: Sequence[int], images_of: Sequence[int]) -> float:
    """The expected rsum of random rankings.

    texts_of: number of positives of each image (I,). images_of: number of positives of each text (T,).
    """
    total = 0.0
    for positives, items in ((texts_of, len(images_of)), (images_of, len(texts_of))):
        for k in RECALLS:
            possible_lists = comb(items, min(k, items))
            hits = [1 - comb(items - count, min(k, items)) / possible_lists for count in positives if count]
            total += 100 * sum(hits) / len(hits)
    return total


def at_r(hits: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """AP@R and R-Precision of each query, (b,) fractions in float64; 0 for a query without a positive.

    hits: (b, K) boolean, whether each place of the ranking holds a positive, K at least the largest R. counts: (b,) R.
    """
    places = torch.arange(1, int(counts.max()) + 1, device=hits.device)
    inside = hits[:, : len(places)] & (places <= counts[:, None])
    share = inside.cumsum(dim=1).double() / places
    share *= inside
    total = counts.clamp(min=1)
    return share.sum(dim=1) / total, inside.sum(dim=1).double() / total


def at_r_of_scores(
    scores: Tensor, largest: Tensor, row: Tensor, pair_scores: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """AP@R and R-Precision, as `at_r`, of rankings by scores (b, M), negatives before positives of the same score.

    largest: (b, D) the largest scores of each row, descending, D at least the largest R. row, pair_scores: (P,) the
    positives' rows, ascending, and their scores. counts: (b,) how many positives each row has.
    """
    position = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    positive_scores = pair_scores.new_full((len(scores), int(counts.max())), -torch.inf)
    positive_scores[row, position] = pair_scores
    positive_scores = positive_scores.sort(dim=1, descending=True).values
    counts = counts[:, None]
    cut = largest.gather(1, (counts - 1).clamp(min=0))  # the score at place R
    reaching = (largest >= cut).sum(dim=1, keepdim=True)
    # Where the list ends at the score of the cut, more items with this score may lie behind its end.
    hidden = ((largest[:, -1:] == cut) & (positive_scores == cut)).any(dim=1)
    if largest.shape[1] < scores.shape[1] and hidden.any():
        reaching[hidden] = at_least(scores[hidden], cut[hidden, 0])[:, None]
    at_or_above = torch.where(positive_scores > cut, _at_or_above(largest, positive_scores), reaching)
    order = torch.arange(1, positive_scores.shape[1] + 1, device=positive_scores.device)
    # A positive's rank: the items of at least its score, less the positives among them, plus its number among these.
    rank = at_or_above - _at_or_above(positive_scores, positive_scores).minimum(counts) + order
    inside = (positive_scores >= cut) & (order <= counts) & (rank <= counts)
    total = counts[:, 0].clamp(min=1)
    share = torch.where(inside, order.double() / rank, 0.0)
    return share.sum(dim=1) / total, inside.sum(dim=1).double() / total


def _at_or_above(descending: Tensor, values: Tensor) -> Tensor:
    """The number (b, n) of entries of each descending row (b, D) that are at least each of the row's values (b, n)."""
    return descending.shape[1] - torch.searchsorted(descending.flip(1), values.contiguous())
