"""Ordinary sets of queries and items, and items planted among them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

GAPS = (0.0, 0.4, 0.8, 1.2, 1.5, 2.0)
SIZES = ((300, 112), (500, 500), (2000, 300), (300, 3000), (1000, 1000), (150, 60))
DIMENSIONS = ((32, 12), (64, 6), (128, 32), (512, 48), (16, 16))
K = 10
STEPS = 80


@dataclass(frozen=True)
class Set:
    """An ordinary set. family: how it was made. queries: (Q, D). items: (M, D)."""

    family: str
    queries: Tensor
    items: Tensor


def generated(family: str, seed: int, sizes: Sequence[tuple[int, int]] = SIZES) -> Set:
    """A drawn set of a family; size (queries, items), dimension, gap and noise are drawn by the seed.

    gap: a cone for each side, with a gap between them. cone: one narrow cone for both. density: clusters of unequal
    size and width, on both sides of a gap. norms: the items of `gap` with log-normal norms. popular: what is asked for
    is as unequal as Zipf's law.
    """
    choose = np.random.default_rng([seed, 1])
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    asked, among = sizes[choose.integers(len(sizes))]
    dim, inner = DIMENSIONS[choose.integers(len(DIMENSIONS))]
    gap, noise = GAPS[choose.integers(len(GAPS))], choose.uniform(0.3, 1.2)
    basis, sides = normal(inner, dim), normal(2, dim) * inner**0.5
    points = normal(among, inner)
    own = torch.from_numpy(choose.integers(among, size=asked))
    width = torch.ones(among, 1)
    if family == "density":
        clusters = int(choose.integers(3, 20))
        shares = choose.dirichlet(np.full(clusters, 0.5))
        member = torch.from_numpy(choose.choice(clusters, among, p=shares))
        widths = torch.from_numpy(choose.uniform(0.1, 1.0, clusters)).float()[:, None]
        width = widths[member]
        points = normal(clusters, inner)[member] + width * points
    if family == "popular":
        own = torch.from_numpy(np.minimum(choose.zipf(1.6, asked) - 1, among - 1))
    near = points[own] + noise * width[own] * normal(asked, inner)
    if family == "cone":
        sides = sides[:1].expand(2, dim)
        gap = 2 * gap
    queries, items = normalize(near @ basis + gap * sides[1], dim=1), normalize(points @ basis + gap * sides[0], dim=1)
    if family == "norms":
        items = items * (choose.uniform(0.02, 0.4) * normal(among, 1)).exp()
    return Set(family, queries, items)


FAMILIES = ("gap", "cone", "density", "norms", "popular")


def real(path: Path, seed: int) -> Set:
    """A part of the CLIP embeddings of COCO images and captions, one direction of it, in part with a changed gap."""
    choose = np.random.default_rng([seed, 2])
    with np.load(path) as stored:
        sides = [normalize(torch.from_numpy(stored[name].astype(np.float32)), dim=1) for name in ("image", "text")]
    if choose.integers(2):
        sides.reverse()
    queries = sides[0][torch.from_numpy(choose.permutation(500)[: choose.integers(150, 501)])]
    items = sides[1][torch.from_numpy(choose.permutation(500)[: choose.integers(60, 501)])]
    apart = sides[0].mean(dim=0) - sides[1].mean(dim=0)
    moved = choose.choice([0.0, -1.0, 0.5, 1.0])
    items = items - moved * apart
    if choose.integers(2):
        items = normalize(items, dim=1)
    return Set("clip", queries, items)


def scored(path: Path, seed: int) -> Set:
    """A part of the scores of MSR-VTT's texts and videos: the queries are rows of scores, the items unit vectors."""
    choose = np.random.default_rng([seed, 3])
    with np.load(path) as stored:
        scores = torch.from_numpy(stored["text_to_video"].astype(np.float32))
    scores = scores if choose.integers(2) else scores.T
    rows, columns = (torch.from_numpy(choose.permutation(1000)[: choose.integers(100, 1001)]) for _ in range(2))
    return Set("msrvtt", scores[rows][:, columns].contiguous(), torch.eye(len(columns)))


PLANTS = ("centroid", "half-way", "fitted", "fitted to few", "ten fitted")


def planted(one: Set, kind: str, seed: int) -> tuple[Set, list[int]]:
    """The set with an item planted by one who knows half of the queries (fitted to few: 50), and its place.

    centroid: the mean of the known queries. half-way: between it and an item. fitted: moved by gradient to be among the
    ten best of as many known queries as possible; ten fitted: ten such items, from starts near that mean. The norm is
    the median of the items' norms.
    """
    random = torch.Generator().manual_seed(seed + 7)
    order = torch.randperm(len(one.queries), generator=random)
    known = one.queries[order[: 50 if kind == "fitted to few" else len(order) // 2]]
    places = torch.randperm(len(one.items), generator=random)[: 10 if kind == "ten fitted" else 1].sort().values
    made = normalize(known.mean(dim=0, keepdim=True), dim=1).expand(len(places), -1)
    norm = one.items.norm(dim=1).median()
    if kind == "half-way":
        made = normalize(made + normalize(one.items[places], dim=1), dim=1)
    if kind.startswith("fitted"):
        made = fitted(known, one.items, made, norm)
    if kind == "ten fitted":
        away = normalize(torch.randn(made.shape, generator=random), dim=1)
        made = fitted(known, one.items, normalize(made + 0.3 * away, dim=1), norm)
    items = one.items.clone()
    items[places] = norm * made
    return Set(one.family, one.queries, items), places.tolist()


def fitted(known: Tensor, items: Tensor, start: Tensor, norm: Tensor) -> Tensor:
    """A unit vector moved by gradient to be among the ten best of as many of the known queries as it can."""
    least = (known @ items.T).topk(K, dim=1).values[:, -1:]
    spread = (known @ items.T).std()
    moving = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([moving], lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        apart = norm * known @ normalize(moving, dim=1).T - least
        (-(apart / (0.2 * spread)).sigmoid().mean(dim=0).sum()).backward()
        optimizer.step()
    return normalize(moving.detach(), dim=1)


def ordinary(pretrained: Path | None, count: int) -> Iterator[Set]:
    """So many sets of each family; those of the real embeddings where their folder is given."""
    for family in FAMILIES:
        yield from (generated(family, seed) for seed in range(count))
    if pretrained is not None:
        yield from (real(pretrained / "clip_coco500.npz", seed) for seed in range(count))
        yield from (scored(pretrained / "msrvtt1k_scores.npz", seed) for seed in range(count))
