"""mAP@R and R-Precision (Musgrave 2020; the measures of ECCV Caption): how pure the first R places of a ranking are.

R is the number of the query's positives. R-Precision is the share of positives among the first R places; mAP@R is
1/R Σ_{i=1..R} [place i holds a positive] · (share of positives among the first i places).
"""

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.neighbors.topk import at_least
from vsehub.positives import Positives

RECALLS = (1, 5, 10)


def list_metrics(
    positions: Tensor, positives: Positives, ks: tuple[int, ...] = RECALLS, relevance: bool = True
) -> dict[str, float]:
    """Metrics of ranked lists without scores; they include no median and mean rank, which need all scores.

    positions: (Q, K) each query's items, best first. Returns "r1", ... for each k (share of the queries with a positive
    among the first k) and "map_r", "r_precision", all in %, and "queries": the number of queries with a positive, over
    which the means are taken. relevance: False omits map_r and r_precision, which need lists as deep as the largest
    number of positives of a query. Raises InputError if the lists are not deep enough for the metrics (a list of all
    items always is), repeat an item or hold a position that is not an item.
    """
    for k in ks:
        whole("k", k)
    matrix("positions", positions, rows=positives.queries)
    most = int(positives.counts.max()) if relevance else 0
    needed = max(most, min(max(ks, default=0), positives.items))
    require(
        positions.shape[1] >= needed,
        f"positions has {positions.shape[1]} items per query; expected {needed}, the largest k or, unless "
        "relevance=False, the most positives of a query",
    )
    repeats = positions.sort(dim=1).values.diff(dim=1) == 0
    require(not repeats.any(), "positions lists an item twice for a query; expected each item once")
    hits, queries = positives.hits(positions.to(positives.query.device)), int((positives.counts > 0).sum())
    metrics = {f"r{k}": 100.0 * int(hits[:, :k].any(dim=1).sum()) / queries for k in ks}
    if relevance:
        precision = 100.0 * torch.stack(at_r(hits, positives.counts)).sum(dim=1) / queries
        metrics |= dict(zip(("map_r", "r_precision"), precision.tolist(), strict=True))
    return metrics | {"queries": float(queries)}


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


def at_r_of_scores(scores: Tensor, nearest: Tensor, row: Tensor, hits: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """AP@R and R-Precision, as `at_r`, of rankings by scores (b, M), negatives before positives of the same score.

    nearest: (b, D) the largest scores of each row, descending, D at least the largest R. row, hits: (P,) the positives'
    rows, ascending, and their scores. counts: (b,) how many positives each row has.
    """
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    positive_scores = hits.new_full((len(scores), int(counts.max())), -torch.inf)
    positive_scores[row, place] = hits
    positive_scores = positive_scores.sort(dim=1, descending=True).values
    counts = counts[:, None]
    cut = nearest.gather(1, (counts - 1).clamp(min=0))  # the score at place R
    reaching = (nearest >= cut).sum(dim=1, keepdim=True)
    hidden = ((nearest[:, -1:] == cut) & (positive_scores == cut)).any(dim=1)
    if nearest.shape[1] < scores.shape[1] and hidden.any():  # more items with the score of the cut may lie unlisted
        reaching[hidden] = at_least(scores[hidden], cut[hidden, 0])[:, None]
    above = torch.where(positive_scores > cut, _at_or_above(nearest, positive_scores), reaching)
    order = torch.arange(1, positive_scores.shape[1] + 1, device=positive_scores.device)
    place = above - _at_or_above(positive_scores, positive_scores).minimum(counts) + order
    inside = (positive_scores >= cut) & (order <= counts) & (place <= counts)
    total = counts[:, 0].clamp(min=1)
    share = torch.where(inside, order.double() / place, 0.0)
    return share.sum(dim=1) / total, inside.sum(dim=1).double() / total


def _at_or_above(falling: Tensor, values: Tensor) -> Tensor:
    """The number of entries of each descending row (b, D) are >= each of the row's values (b, n)."""
    return falling.shape[1] - torch.searchsorted(falling.flip(1), values.contiguous())
