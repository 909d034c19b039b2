"""Scans for items planted for a topic: scores of items, which are high where an ordinary set would have few such items.

Scores are excesses over the tail of other items (`rerank.suspects.excess`): of the items above the 70 % quantile a
share e^-x exceeds x by chance, and the sum of two excesses is the negative logarithm of a product of two chances.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from experiments.suspects.sets import K, Set
from experiments.topics.sets import LEAST, TOPICS
from vsehub.rerank.suspects import FAR, beyond, excess

ALL = ("all queries, lists", "all queries, nearness")
SCANS = (*ALL, "clusters, lists", "clusters, nearness", "clusters, both", "own queries, nearness", "own queries, lead")
HELD = 0.3  # share of a cluster's queries with the item in their lists, from which on the cluster counts for it
STEPS, LISTED = 10, 50  # rounds of k-means; fewest items with a tail
_LEAST_MEAN = 0.35  # as in `rerank.suspects`: √N_k that are unequal by chance alone


def clusters(queries: Tensor, seed: int = 0) -> list[Tensor]:
    """The rows of each cluster of queries, by k-means with as many clusters as make each size of a topic."""
    unit, found = normalize(queries, dim=1), []
    for share in TOPICS:
        if share * len(unit) >= LEAST:
            random = torch.Generator().manual_seed(seed)
            centres = unit[torch.randperm(len(unit), generator=random)[: round(1 / share)]]
            for _ in range(STEPS):
                own = (unit @ centres.T).argmax(dim=1)
                centres = normalize(torch.zeros_like(centres).index_add_(0, own, unit), dim=1)
            rows = [(own == cluster).nonzero()[:, 0] for cluster in range(len(centres))]
            found += [one for one in rows if len(one) >= LEAST]
    return found


def scan(one: Set, groups: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The scores (M, len(SCANS)) of the items, and the lists (Q, K). groups: the clusters of the queries."""
    scores = one.queries @ normalize(one.items, dim=1).T
    scores -= scores.median(dim=1, keepdim=True).values
    positions = (one.queries @ one.items.T).topk(K, dim=1).indices
    within = [in_cluster(scores[rows], positions[rows]) for rows in groups]
    found = torch.stack(within).amax(dim=0) if within else torch.zeros(len(one.items), 3)
    return torch.cat([in_all(scores, positions), found, in_own(scores, positions)], dim=1), positions


def in_all(scores: Tensor, positions: Tensor) -> Tensor:
    """The scores (M, 2) that look at all queries at once, as the present rule does: lists and nearness."""
    counts = torch.bincount(positions.flatten(), minlength=scores.shape[1])
    return torch.stack([tailed(counts.double().sqrt(), _LEAST_MEAN), far_nearness(scores)], dim=1).float()


def far_nearness(scores: Tensor) -> Tensor:
    """How near each item is to the farthest of the queries: (M,)."""
    sides = scores.T.contiguous()
    return torch.stack([tailed(quantile(sides, share)) for share in FAR]).amin(dim=0)


def in_cluster(scores: Tensor, positions: Tensor) -> Tensor:
    """The three scores (M, 3) within a cluster: lists with the item, nearness to the farthest queries, and both.

    scores: (q, M). positions: (q, K). Other items are those in a list of the cluster.
    """
    counts = torch.bincount(positions.flatten(), minlength=scores.shape[1])
    listed, found = counts.nonzero()[:, 0], torch.zeros(scores.shape[1], 3)
    held = counts[listed] > HELD * len(scores)
    if len(listed) < LISTED or not held.any():
        return found
    lists = tailed(counts[listed].double().sqrt(), _LEAST_MEAN)
    near = far_nearness(scores[:, listed])
    both = lists.clamp(min=0) + near.clamp(min=0)
    found[listed[held]] = torch.stack([lists, near, both], dim=1)[held].float()
    return found


def in_own(scores: Tensor, positions: Tensor) -> Tensor:
    """The two scores (M, 2) from own queries: how near an item is to the farthest of these, and by what lead.

    An item's own queries are those with it in their lists, at least `LEAST`; other items are those in a list of them.
    lead: over the second nearest to these, judged by the leads of the other items, added to the excess of its lists.
    """
    items = scores.shape[1]
    counts = torch.bincount(positions.flatten(), minlength=items)
    queries = positions.flatten().argsort(stable=True) // positions.shape[1]
    own = queries.split(counts.tolist())
    candidates = (counts >= LEAST).nonzero()[:, 0]
    near, leads = torch.zeros(items), torch.zeros(len(candidates))
    for place, item in enumerate(candidates.tolist()):
        rows = own[item]
        listed = positions[rows].unique()
        low = quantile(scores[rows[:, None], listed].T.contiguous(), FAR[1])
        mine = low[torch.searchsorted(listed, item)]
        near[item] = excess(mine[None], low)[0] if len(listed) >= LISTED else 0
        first, second = low.topk(2).values
        leads[place] = mine - (second if mine == first else first)
    lead = torch.zeros(items)
    if len(candidates) >= LISTED:
        lists = tailed(counts.double().sqrt(), _LEAST_MEAN)[candidates].clamp(min=0)
        lead[candidates] = (tailed(leads.double()).clamp(min=0) + lists).float()
    return torch.stack([near, lead], dim=1)


def quantile(values: Tensor, share: float) -> Tensor:
    """The lower quantile (n,) of each row of values (n, q)."""
    return values.kthvalue(max(1, math.ceil(share * values.shape[1])), dim=1).values.double()


def tailed(values: Tensor, least_mean: float = 0.0) -> Tensor:
    """The excess (n,) of each value over the tail of all."""
    low, high = (values.kthvalue(math.ceil(share * len(values))).values.item() for share in (0.7, 0.9))
    return beyond(values, low, high, least_mean)
