"""Items that look planted: first for many unlike queries, and nearer to all queries than the other items allow.

An adversarial hub (arXiv 2412.14113) is an item whose vector was made to be near to almost everything that is asked.
An ordinary hub is near to many queries because items lie unevenly: behind a gap between the modalities, in a cone or in
a dense cluster it is the most central of many central ones. A planted item stands apart from these.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource, sampled

FIRST = 0.01  # share of the queries that have the item first
SPREAD = 0.25  # over the kinds of queries, as a share of what all queries together cover
RARE = 0.05  # expected number of items so far out in the tail of an ordinary set
LEAST = 50  # items from which on a tail can be seen
KINDS, ROUNDS, CLUSTERED = 32, 10, 20_000
ASKED, COMPARED = 1000, 20_000  # queries and items of which distances to the queries are compared
FAR = (0.1, 0.25)  # of an item's scores, from the lowest: those with the queries to which it is far
TAIL = (0.7, 0.9)  # of the items, from the farthest; up to a tenth of the items may be planted


@dataclass(frozen=True)
class Suspect:
    """An item that looks planted.

    first: the share of the queries that have it first. spread: the effective number of kinds of queries that find it
    (the exponential of the entropy over k-means clusters), over that of all queries. chance: how many items as far out
    as this one an ordinary set of so many would have, see `tail_excess`.
    """

    item: int
    first: float
    spread: float
    chance: float


@torch.no_grad()
def suspects(positions: Tensor, queries: VectorSource, items: VectorSource, seed: int = 0) -> list[Suspect]:
    """The items that look planted in the plain lists (Q, k), the most often first one before the others.

    queries: (Q, D). items: (M, D). An item is a suspect if it is first for more than 1 % of the queries, its spread is
    above a quarter, and an ordinary set would have fewer than 0.05 items as far out. Among fewer than 50 items none is.
    seed: of the clusters and of the samples: 20,000 queries that are clustered, and the scores of 1,000 queries with
    20,000 items.
    """
    count = len(items)
    first = torch.bincount(positions[:, 0], minlength=count) / len(positions)
    candidates = (first > FIRST).nonzero().flatten()
    if not len(candidates) or count < LEAST:
        return []
    candidates = candidates[first[candidates].argsort(descending=True, stable=True)]
    chances = (1 - TAIL[0]) * count * (-tail_excess(candidates, queries, items, seed)).exp()
    far_out = chances < RARE
    if not far_out.any():
        return []
    rows, drawn = sampled(queries, CLUSTERED, seed)
    kinds = clustered(normalize(rows.cpu().float(), dim=1), min(KINDS, len(rows)), seed)
    found = []
    for item, chance in zip(candidates[far_out].tolist(), chances[far_out].tolist(), strict=True):
        hit = (positions == item).any(dim=1)
        spread = effective(kinds[hit[drawn]]) / effective(kinds)
        if spread > SPREAD:
            found.append(Suspect(item, first[item].item(), spread, chance))
    return found


def tail_excess(candidates: Tensor, queries: VectorSource, items: VectorSource, seed: int) -> Tensor:
    """How far the candidates (c,), items by number, lie beyond the upper tail of the items: (c,), in mean excesses.

    An item is as near to the queries as its score with those to which it is far: the lower of its 10 % and its 25 %
    quantile, each against the tail, since what many queries ask for is near to these alone. Scores are those of unit
    vectors, so that a large norm is no reason, less the median of the query's scores. The tail is seen between the 70 %
    and the 90 % quantile of the items, and goes on exponentially: a share e^-x of those above 70 % exceeds x. The tails
    of directions fall faster.
    """
    asked = normalize(sampled(queries, ASKED, seed)[0].cpu().float(), dim=1)
    scores = torch.cat([_compared(asked, items, seed), _scores(asked, items, candidates)], dim=1)
    others = scores.shape[1] - len(candidates)
    scores = scores - scores[:, :others].median(dim=1, keepdim=True).values
    sides = scores.T.contiguous()
    excesses = []
    for share in FAR:
        near = sides.kthvalue(max(1, math.ceil(share * len(asked))), dim=1).values.double()
        low, high = near[:others].quantile(torch.tensor(TAIL, dtype=torch.float64))
        mean = (high - low) / math.log((1 - TAIL[0]) / (1 - TAIL[1]))
        excess = (near[others:] - low) / mean
        excesses.append(excess if mean > 0 else torch.zeros_like(excess))  # most items are equal: no tail is seen
    return torch.stack(excesses).amin(dim=0)


def _compared(asked: Tensor, items: VectorSource, seed: int) -> Tensor:
    """The scores (b, m) of queries with a sample of the items."""
    if isinstance(items, UnitVectors):
        drawn = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))[:COMPARED]
        return _scores(asked, items, drawn)
    return asked @ normalize(sampled(items, COMPARED, seed)[0].cpu().float(), dim=1).T


def _scores(asked: Tensor, items: VectorSource, rows: Tensor) -> Tensor:
    """The scores (b, m) of queries with some items."""
    if isinstance(items, UnitVectors):
        return asked[:, rows]
    held = torch.cat([items.rows(row, row + 1) for row in rows.tolist()]).cpu().float()
    return asked @ normalize(held, dim=1).T


def clustered(rows: Tensor, kinds: int, seed: int) -> Tensor:
    """The cluster (n,) of each unit row (n, D) after ten rounds of spherical k-means."""
    centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:kinds]]
    for _ in range(ROUNDS):
        own = (rows @ centres.T).argmax(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, own, rows)
        empty = torch.bincount(own, minlength=kinds) == 0
        centres = torch.where(empty[:, None], centres, normalize(sums, dim=1))
    return (rows @ centres.T).argmax(dim=1)


def effective(kinds: Tensor) -> float:
    """The exponential of the entropy of the kinds (n,): how many there are if all were equally frequent; 0 of none."""
    if not len(kinds):
        return 0.0
    shares = torch.bincount(kinds).double() / len(kinds)
    shares = shares[shares > 0]
    return float((-(shares * shares.log()).sum()).exp())
