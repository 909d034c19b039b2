"""Items that look planted: nearer to all queries, and in more lists, than the tails of the other items allow.

An adversarial hub (arXiv 2412.14113) is an item whose vector was made to be near to almost everything that is asked.
An ordinary hub is near to many queries because items lie unevenly: behind a gap between the modalities, in a cone or in
a dense cluster it is the most central of many central ones. A planted item stands apart from these.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsehub.metrics.occurrences import ItemCounts
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource, drawn, sampled

LISTS = 0.05  # share of the queries that have the item among their k nearest
NEAR, RARE = 0.3, 0.01  # limits of near_chance, and of near_chance · lists_chance; see `Suspect`
LEAST = 50  # fewest items with a visible tail
ASKED, COMPARED = 1000, 20_000  # queries and items whose scores are compared
FAR = (0.1, 0.25)  # of an item's scores: those with the farthest queries
TAIL = (0.7, 0.9)  # of the items; up to a tenth of the items may be planted
_LEAST_MEAN = 0.35  # of the excesses of √N_k where N_k is by chance alone (Poisson, so that √N_k deviates by 0.5)


@dataclass(frozen=True)
class Suspect:
    """An item that looks planted.

    first, lists: the shares of the queries with the item in the first place, and among their k nearest. near_chance:
    the expected number, in an ordinary set, of items as near to all queries. lists_chance: of items in as many lists.
    """

    item: int
    first: float
    lists: float
    near_chance: float
    lists_chance: float


@torch.no_grad()
def suspects(positions: Tensor, queries: VectorSource, items: VectorSource, seed: int = 0) -> list[Suspect]:
    """The items that look planted in the plain lists (Q, k), those in the most lists first.

    queries: (Q, D). items: (M, D). An item is a suspect if more than 5 % of the queries have it in their lists,
    near_chance is below 0.3, and near_chance · lists_chance is below 0.01. Fewer than 50 items have no suspects. Both
    expected numbers follow from exponential tails (`excess`). seed: of the samples of 1,000 queries and 20,000 items.
    experiments/suspects derives the rule.
    """
    count = len(items)
    firsts, lists = (ItemCounts.listed(count, own.flatten()) for own in (positions[:, :1], positions))
    found = int((lists.amounts > LISTS * len(positions)).sum())
    if not found or count < LEAST:
        return []
    candidates = lists.largest(found)
    in_lists = torch.tensor([lists[item] for item in candidates.tolist()])
    near = _expected(nearness_excess(candidates, queries, items, seed), count)
    low, high = (math.sqrt(lists.kth(math.ceil(share * count))) for share in TAIL)
    many = _expected(beyond(in_lists.double().sqrt(), low, high, _LEAST_MEAN), count)
    named = (near < NEAR) & (near * many < RARE)
    return [
        Suspect(
            item,
            firsts[item] / len(positions),
            int(in_lists[place]) / len(positions),
            near[place].item(),
            many[place].item(),
        )
        for place, item in enumerate(candidates.tolist())
        if named[place]
    ]


def excess(values: Tensor, ordinary: Tensor) -> Tensor:
    """How far values (c,) lie `beyond` the upper tail of ordinary ones (m,): (c,)."""
    low, high = (ordinary.kthvalue(math.ceil(share * len(ordinary))).values.item() for share in TAIL)
    return beyond(values, low, high)


def beyond(values: Tensor, low: float, high: float, least_mean: float = 0.0) -> Tensor:
    """How far values (c,) lie beyond a tail between its 70 % and its 90 % quantile: (c,), in mean excesses.

    The tail goes on exponentially: of the values above the 70 % quantile a share e^-x exceeds x. least_mean: of the
    mean excess; where it is 0, there is no tail, and the result is 0.
    """
    mean = max((high - low) / math.log((1 - TAIL[0]) / (1 - TAIL[1])), least_mean)
    return (values - low) / mean if mean > 0 else torch.zeros_like(values)


def _expected(excesses: Tensor, count: int) -> Tensor:
    """The expected number, among `count` items of the tail, of excesses this large: (c,)."""
    return (1 - TAIL[0]) * count * (-excesses).exp()


def nearness_excess(candidates: Tensor, queries: VectorSource, items: VectorSource, seed: int) -> Tensor:
    """The `excess` (c,) of the nearness to all queries of the candidates (c,), items by number.

    The nearness of an item to all queries is its nearness to the farthest ones: the lower of the excesses of the 10 %
    and the 25 % quantile of its scores. A popular item is near to its own queries only. Scores are those of unit
    vectors, so that a large norm does not count, minus the median of the query's scores.
    """
    asked = normalize(sampled(queries, ASKED, seed)[0].cpu().float(), dim=1)
    scores = torch.cat([_compared(asked, items, seed), _scores(asked, items, candidates)], dim=1)
    others = scores.shape[1] - len(candidates)
    scores = scores - scores[:, :others].median(dim=1, keepdim=True).values
    sides = scores.T.contiguous()
    found = []
    for share in FAR:
        near = sides.kthvalue(max(1, math.ceil(share * len(asked))), dim=1).values.double()
        found.append(excess(near[others:], near[:others]))
    return torch.stack(found).amin(dim=0)


def _compared(asked: Tensor, items: VectorSource, seed: int) -> Tensor:
    """The scores (b, m) of queries with a sample of the items."""
    if isinstance(items, UnitVectors):
        return _scores(asked, items, drawn(len(items), COMPARED, seed))
    return asked @ normalize(sampled(items, COMPARED, seed)[0].cpu().float(), dim=1).T


def _scores(asked: Tensor, items: VectorSource, rows: Tensor) -> Tensor:
    """The scores (b, m) of queries with some items."""
    if isinstance(items, UnitVectors):
        return asked[:, rows]
    held = torch.cat([items.rows(row, row + 1) for row in rows.tolist()]).cpu().float()
    return asked @ normalize(held, dim=1).T
