"""Items that look planted: first for many unlike queries, far above all others, however the queries are disturbed.

An adversarial hub (arXiv 2412.14113) is an item whose vector was made to be near to almost everything that is asked.
An ordinary hub answers many queries of a few kinds; a planted one is found by queries of all kinds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled

FIRST = 0.01  # share of the queries that have the item first
Z = 6.0  # robust z of √N_k
SPREAD = 0.25  # over the kinds of queries, as a share of what all queries together cover
STABILITY = 0.5  # share of its hits that remain when the queries are disturbed
KINDS, ROUNDS, SAMPLE, DISTURBED = 32, 10, 20_000, 1000
NOISE = 0.5  # norm of what is added to a unit query
_LEAST_DEVIATION = 0.5  # of √N_k where N_k is by chance alone (Poisson)


@dataclass(frozen=True)
class Suspect:
    """An item that looks planted.

    first: the share of the queries that have it first. z: robust z of √N_k, (x - median) / (1.4826 · MAD). spread: the
    effective number of kinds of queries that find it (the exponential of the entropy over k-means clusters), over that
    of all queries. stability: the share of the queries that still find it when noise is added to them.
    """

    item: int
    first: float
    z: float
    spread: float
    stability: float


@torch.no_grad()
def suspects(positions: Tensor, queries: VectorSource, items: VectorSource, seed: int = 0) -> list[Suspect]:
    """The items that look planted in the plain lists (Q, k), the most often first one before the others.

    queries: (Q, D). items: (M, D). An item is a suspect if it is first for more than 1 % of the queries and its z,
    spread and stability are above 6, 0.25 and 0.5. seed: of the clusters, the noise and the samples of 20,000 queries
    that are clustered and of 1,000 of an item's queries that are disturbed.
    """
    count = len(items)
    occurrences = torch.bincount(positions.flatten(), minlength=count)
    first = torch.bincount(positions[:, 0], minlength=count) / len(positions)
    z = robust_z(occurrences.double().sqrt())
    candidates = ((first > FIRST) & (z > Z)).nonzero().flatten()
    if not len(candidates):
        return []
    rows, drawn = sampled(queries, SAMPLE, seed)
    kinds = clustered(torch.nn.functional.normalize(rows.cpu().float(), dim=1), min(KINDS, len(rows)), seed)
    found = []
    for item in candidates[first[candidates].argsort(descending=True, stable=True)].tolist():
        hit = (positions == item).any(dim=1)
        spread = effective(kinds[hit[drawn]]) / effective(kinds)
        if spread > SPREAD:
            stability = stable_share(item, hit.nonzero().flatten(), queries, items, positions.shape[1], seed)
            if stability > STABILITY:
                found.append(Suspect(item, first[item].item(), z[item].item(), spread, stability))
    return found


def robust_z(values: Tensor) -> Tensor:
    """(x - median) / (1.4826 · MAD) of values (n,); the deviation is at least 0.5, that of √N of a Poisson count."""
    centre = values.median()
    deviation = 1.4826 * (values - centre).abs().median()
    return (values - centre) / deviation.clamp(min=_LEAST_DEVIATION)


def clustered(rows: Tensor, kinds: int, seed: int) -> Tensor:
    """The cluster (n,) of each unit row (n, D) after ten rounds of spherical k-means."""
    centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:kinds]]
    for _ in range(ROUNDS):
        own = (rows @ centres.T).argmax(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, own, rows)
        empty = torch.bincount(own, minlength=kinds) == 0
        centres = torch.where(empty[:, None], centres, torch.nn.functional.normalize(sums, dim=1))
    return (rows @ centres.T).argmax(dim=1)


def effective(kinds: Tensor) -> float:
    """The exponential of the entropy of the kinds (n,): how many there are if all were equally frequent; 0 of none."""
    if not len(kinds):
        return 0.0
    shares = torch.bincount(kinds).double() / len(kinds)
    shares = shares[shares > 0]
    return float((-(shares * shares.log()).sum()).exp())


def stable_share(item: int, asking: Tensor, queries: VectorSource, items: VectorSource, k: int, seed: int) -> float:
    """The share of the queries `asking` (n,) whose k nearest items still hold `item` when noise is added to them."""
    generator = torch.Generator().manual_seed(seed)
    drawn = asking[torch.randperm(len(asking), generator=generator)[:DISTURBED]].sort().values
    rows = torch.cat([queries.rows(int(row), int(row) + 1) for row in drawn]).cpu().float()
    noise = torch.nn.functional.normalize(torch.randn(rows.shape, generator=generator), dim=1)
    disturbed = rows + NOISE * rows.norm(dim=1, keepdim=True) * noise
    positions = nearest(as_vectors("queries", disturbed), items, k, [None])[0][1]
    return (positions == item).any(dim=1).double().mean().item()
