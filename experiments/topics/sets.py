"""Ordinary sets large enough for topics, and items planted for a topic."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from experiments.suspects.sets import FAMILIES, Set, fitted, generated, real, scored

SIZES = ((2000, 300), (1000, 1000), (2000, 2000), (1000, 4000))  # queries, items
TOPICS = (0.01, 0.02, 0.05, 0.1)  # share of the queries that are of the topic
LEAST = 20  # queries of a topic
QUESTIONS, ASKED_AGAIN = 10, 0.2  # popular questions, and the share of all queries that are one of them
KINDS = ("mean", "mean, blended", "fitted", "fitted, blended")
MADE_UP = ("isotropic", *FAMILIES, "questions")


class Named(NamedTuple):
    """What draws a set: its family, the file that real ones are parts of, and the seed."""

    family: str
    path: Path | None
    seed: int

    @property
    def calibrating(self) -> bool:
        """Whether thresholds are taken from it; figures are of the others."""
        return self.seed % 2 == 0


class Planted(NamedTuple):
    """An item planted for a topic: its place, how it was made, and the topic's queries (n,) unknown to its maker."""

    place: int
    kind: str
    unknown: Tensor


def named(folder: Path, more: list[Path], count: int) -> Iterator[Named]:
    """So many sets of each family, made up or real."""
    for seed in range(count):
        for family in MADE_UP:
            yield Named(family, None, seed)
        yield Named("clip", folder / "clip_coco500.npz", seed)
        yield Named("msrvtt", folder / "msrvtt1k_scores.npz", seed)
        for path in more:
            yield Named(path.stem, path, seed)


def drawn(one: Named) -> Set:
    """The set; queries are unit vectors or, of msrvtt, rows of scores.

    isotropic: items in all directions alike. questions: a set of clusters in which a fifth of the queries are the same
    ten ones, slightly changed, so that what answers these is popular.
    """
    if one.path is None:
        if one.family == "isotropic":
            return isotropic(one.seed)
        if one.family == "questions":
            return asked_again(generated("density", one.seed + 1000, SIZES), one.seed)
        return generated(one.family, one.seed, SIZES)
    if one.family == "clip":
        return real(one.path, one.seed)
    if one.family == "msrvtt":
        return scored(one.path, one.seed)
    return part(one.family, one.path, one.seed)


def isotropic(seed: int) -> Set:
    """Items from a normal distribution; each query an item with noise."""
    choose, random = np.random.default_rng([seed, 4]), torch.Generator().manual_seed(seed)
    asked, among = SIZES[choose.integers(len(SIZES))]
    dim = int(choose.choice([16, 64, 256]))
    items = torch.randn(among, dim, generator=random)
    own = torch.from_numpy(choose.integers(among, size=asked))
    queries = items[own] + choose.uniform(0.5, 1.5) * torch.randn(asked, dim, generator=random)
    return Set("isotropic", normalize(queries, dim=1), normalize(items, dim=1))


def asked_again(one: Set, seed: int) -> Set:
    """The set with a fifth of its queries replaced by slightly changed copies of ten others."""
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(one.queries), generator=random)
    again = order[QUESTIONS:][: round(ASKED_AGAIN * len(order))]
    original = order[torch.randint(QUESTIONS, (len(again),), generator=random)]
    changes = normalize(torch.randn(len(again), one.queries.shape[1], generator=random), dim=1)
    queries = one.queries.clone()
    queries[again] = normalize(queries[original] + 0.1 * changes, dim=1)
    return Set("questions", queries, one.items)


def part(family: str, path: Path, seed: int) -> Set:
    """A part of encoded images and texts, one direction of it."""
    choose = np.random.default_rng([seed, 5])
    with np.load(path) as stored:
        sides = [normalize(torch.from_numpy(stored[name].astype(np.float32)), dim=1) for name in ("text", "image")]
    if choose.integers(2):
        sides.reverse()
    queries, items = (
        side[torch.from_numpy(choose.permutation(len(side))[: min(most, choose.integers(len(side) // 2, len(side)))])]
        for side, most in zip(sides, (2500, 3000), strict=True)
    )
    return Set(family, queries, items)


def planted(one: Set, share: float, seed: int) -> tuple[Set, list[Planted]]:
    """The set with an item of each kind, each in the place of another and for a topic of its own.

    A topic is a query with those most like it. One who knows half of it plants: the mean of the known queries (mean);
    what enters the ten best of as many of them as a gradient finds (fitted); each of these half-way to the item that
    stood there (blended).
    """
    random = torch.Generator().manual_seed(seed + 11)
    places = torch.randperm(len(one.items), generator=random)[: len(KINDS)].tolist()
    norm = one.items.norm(dim=1).median()
    items, found = one.items.clone(), []
    for place, kind in zip(places, KINDS, strict=True):
        centre = one.queries[torch.randint(len(one.queries), (1,), generator=random)]
        topic = (one.queries @ centre[0]).topk(round(share * len(one.queries))).indices
        known, unknown = topic[torch.randperm(len(topic), generator=random)].tensor_split(2)
        made = normalize(one.queries[known].mean(dim=0, keepdim=True), dim=1)
        if kind.startswith("fitted"):
            made = fitted(one.queries[known], one.items, made, norm)
        if kind.endswith("blended"):
            made = normalize(made + normalize(one.items[place : place + 1], dim=1), dim=1)
        items[place] = norm * made[0]
        found.append(Planted(place, kind, unknown))
    return Set(one.family, one.queries, items), found
