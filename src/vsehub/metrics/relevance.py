"""mAP@R and R-Precision (Musgrave 2020; the measures of ECCV Caption): how pure the first R places of a ranking are.

R is the number of the query's positives. R-Precision is the share of positives among the first R places; mAP@R is
1/R Σ_{i=1..R} [place i holds a positive] · (share of positives among the first i places).
"""

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require, whole
from vsehub.metrics.positives import Positives
from vsehub.metrics.topk import at_least, largest

RECALLS = (1, 5, 10)
BLOCK_ELEMENTS = 2**22  # entries of lists at a time


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
    _check_depth(positions.shape[1], positives, ks, relevance)
    found = dict.fromkeys(ks, 0)
    precision = torch.zeros(2, dtype=torch.float64, device=positives.query.device)
    rows = max(1, BLOCK_ELEMENTS // max(1, positions.shape[1]))
    for first in range(0, positives.queries, rows):
        part = positions[first : first + rows].to(positives.query.device)
        hits = positives.hits(part, first)
        _check_repeats(part, first)
        for k in ks:
            found[k] += int(hits[:, :k].any(dim=1).sum())
        if relevance:
            precision += torch.stack(at_r(hits, positives.counts[first : first + rows])).sum(dim=1)
    queries = int((positives.counts > 0).sum())
    metrics = {f"r{k}": 100.0 * found[k] / queries for k in ks}
    if relevance:
        metrics |= dict(zip(("map_r", "r_precision"), (100.0 * precision / queries).tolist(), strict=True))
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

    nearest: (b, D) the largest scores of each row, descending, for any D. row, hits: (P,) the positives' rows,
    ascending, and their scores. counts: (b,) how many positives each row has.
    """
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    own = hits.new_full((len(scores), int(counts.max())), -torch.inf)
    own[row, place] = hits
    own = own.sort(dim=1, descending=True).values
    deep = counts > nearest.shape[1]
    if not deep.any():
        return _at_r_of_sorted(scores, nearest, own, counts)
    # A query with a thousand positives must not make the others' lists as long.
    longer = largest(scores[deep], own.shape[1])[0]
    measured = scores.new_zeros(2, len(scores), dtype=torch.float64)
    for some, listed in ((deep, longer), (~deep, nearest[~deep])):
        measured[:, some] = torch.stack(
            _at_r_of_sorted(scores[some], listed, own[some, : listed.shape[1]], counts[some])
        )
    return measured[0], measured[1]


def _at_r_of_sorted(scores: Tensor, nearest: Tensor, own: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The same from the positives' scores own (b, n), descending, padded with -inf; D and n at least the largest R."""
    cut = nearest.gather(1, (counts[:, None] - 1).clamp(min=0))  # the score at place R
    reaching = (nearest >= cut).sum(dim=1, keepdim=True)
    hidden = ((nearest[:, -1:] == cut) & (own == cut)).any(dim=1)
    if nearest.shape[1] < scores.shape[1] and hidden.any():  # more items with the score of the cut may lie unlisted
        reaching[hidden] = at_least(scores[hidden], cut[hidden, 0])[:, None]
    above = torch.where(own > cut, _at_or_above(nearest, own), reaching)
    order = torch.arange(1, own.shape[1] + 1, device=own.device)
    counts = counts[:, None]
    place = above - _at_or_above(own, own).minimum(counts) + order
    inside = (own >= cut) & (order <= counts) & (place <= counts)
    total = counts[:, 0].clamp(min=1)
    share = torch.where(inside, order.double() / place, 0.0)
    return share.sum(dim=1) / total, inside.sum(dim=1).double() / total


def _at_or_above(falling: Tensor, values: Tensor) -> Tensor:
    """How many entries of each descending row (b, D) are >= each of the row's values (b, n)."""
    return falling.shape[1] - torch.searchsorted(falling.flip(1), values.contiguous())


def _check_depth(depth: int, positives: Positives, ks: tuple[int, ...], relevance: bool) -> None:
    """Raise InputError unless lists of this depth suffice for the recalls and, if wanted, for the first R places."""
    needed = min(max(ks, default=0), positives.items)
    require(depth >= needed, f"positions has {depth} items per query; recall at {max(ks, default=0)} needs {needed}")
    most = int(positives.counts.max())
    require(
        not relevance or depth >= most,
        f"positions has {depth} items per query; mAP@R and R-Precision need {most}, the most positives of a query. "
        f"Search {most} deep, or leave them out with relevance=False",
    )


def _check_repeats(positions: Tensor, first: int) -> None:
    """Raise InputError if a list names an item twice: a positive would be found twice."""
    ordered = positions.sort(dim=1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).nonzero()
    if len(twice):
        row, place = twice[0].tolist()
        fail(f"positions lists item {ordered[row, place]} twice for query {first + row}; expected each item once")
