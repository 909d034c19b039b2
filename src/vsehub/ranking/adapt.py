"""Linear maps of queries and items that are fitted to known pairs in closed form, and an honest choice among them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import InputError, require
from vsehub.criteria.csls import CSLS
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.truth import connected_groups
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.vectors import VectorSource, rows_at, sample_positions
from vsehub.positives import Positives
from vsehub.ranking.gains import paired_gain
from vsehub.ranking.inputs import Sides

GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
CRITERIA = {"nns": NearestNeighbor(), "csls": CSLS()}
NOTHING = "nothing"
LEAST = 50  # groups of known queries; those that share answers are one group
# Beyond these numbers of fitted queries, measured or reference queries, and items, a seeded sample is used.
MOST_FITTED, MOST_QUERIES, MOST_ITEMS = 50_000, 2000, 5000


class Map(NamedTuple):
    """Maps rows x to (x - mean) @ matrix, l2-normalised. mean: (D,). matrix: (D, D)."""

    mean: Tensor
    matrix: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Unit rows (n, D) of rows (n, D)."""
        return F.normalize((rows - self.mean) @ self.matrix, dim=1)


def fit_maps(queries: Tensor, items: Tensor, grid: Sequence[float] = GRID) -> dict[str, tuple[Map, Map]]:
    """The maps of queries and of items by name. queries, items: (P, D), pairs row by row. grid: values of λ.

    All subtract the means of both sides; "centre" does no more. "whiten": both sides by (K + λ tr K / D · I)^-½, where
    K is the mean of (a - b)(a - b)ᵀ over centred pairs (within-class covariance normalisation, Hatch et al. 2006).
    "ridge": the items by the matrix W with the smallest sum of |W b - a|² over pairs plus λ tr(Σ b bᵀ) / D · |W - I|²;
    a map of the queries would make hubs (Shigeto et al. 2015).
    """
    means = queries.double().mean(0), items.double().mean(0)
    a, b = queries.double() - means[0], items.double() - means[1]
    identity = torch.eye(a.shape[1], dtype=a.dtype)
    # K times the number of pairs: `Map` normalises, so that a factor drops out.
    spread, axes = torch.linalg.eigh((a - b).T @ (a - b))
    squares, directions = torch.linalg.eigh(b.T @ b)
    matrices = {"centre": (identity, identity)}
    for scale in grid:
        shrunk = (spread + scale * spread.mean()).clamp(min=1e-12)
        whitened = (axes * shrunk.rsqrt()) @ axes.T
        matrices[f"whiten λ={scale:g}"] = (whitened, whitened)
    for scale in grid:
        strength = scale * squares.mean()
        solved = (directions / (squares + strength)) @ directions.T @ (b.T @ a + strength * identity)
        matrices[f"ridge λ={scale:g}"] = (identity, solved)
    return {
        name: (Map(means[0].float(), first.float()), Map(means[1].float(), second.float()))
        for name, (first, second) in matrices.items()
    }


@dataclass(frozen=True)
class CrossValidation:
    """Cross-validated candidates: no map and each map, plain and under CSLS.

    candidates: C pairs (map, criterion), those of `NOTHING` first. ranks: (C, n) ranks of the answers of n queries,
    fold by fold. folds, groups: (n,) numbers; queries that share answers are a group. items: mean number of items that
    a query searched.
    """

    candidates: list[tuple[str, str]]
    ranks: np.ndarray
    folds: np.ndarray
    groups: np.ndarray
    items: int

    def gain(self, row: int) -> dict[str, float]:
        """The gain in R@1 of a row over no map under the same criterion; see `paired_gain`."""
        # The first rows are those without a map, one for each criterion.
        return paired_gain(self.ranks[row % len(CRITERIA)] == 1, self.ranks[row] == 1, self.groups)

    def gain_of_choosing(self, first: int = 0) -> dict[str, float]:
        """The gain in R@1 of the best row from `first` on over the best row without a map.

        Both are chosen for each fold by the other folds: otherwise the best of many would seem to gain by luck.
        """
        hits = list[np.ndarray]()
        for rows in (self.ranks[: len(CRITERIA)], self.ranks[first:]):
            picked = []
            for fold in np.unique(self.folds):
                row = best(rows[:, self.folds != fold])
                picked.append(rows[row, self.folds == fold])
            hits.append(np.concatenate(picked) == 1)
        return paired_gain(hits[0], hits[1], self.groups)


def best(ranks: np.ndarray) -> int:
    """The row of (C, n) with the largest mean reciprocal rank, the first of equal ones."""
    return int((1 / ranks).mean(axis=1).argmax())


def try_maps(
    queries: VectorSource,
    items: VectorSource,
    positives: Positives,
    grid: Sequence[float] = GRID,
    seed: int = 0,
) -> CrossValidation:
    """The maps of `fit_maps`, cross-validated over the queries with known answers.

    Queries that share answers are in one fold. Maps are fitted to the pairs of the other folds, whose queries are the
    reference of CSLS. Items that only queries of other folds want are left out of the index of a fold, so that no
    answer of the reference is in it. There are five folds, or two if at least half of the items are answers, since with
    five an index would have only a fifth of the answers, which is too easy. seed: seed of folds and samples. Raises
    InputError for fewer than `LEAST` groups of queries.
    """
    random = np.random.default_rng(seed)
    known = positives.counts.nonzero().flatten()
    group_of_query = connected_groups(
        positives.query.numpy(), positives.item.numpy(), positives.queries, positives.items
    )
    labels, groups = np.unique(group_of_query[known], return_inverse=True)
    require(
        len(labels) >= LEAST,
        f"truth: {len(labels)} queries that share no answers are too few to choose a map by; expected at least {LEAST}",
    )
    wanted = positives.item.unique()
    count = 5 if len(items) > 2 * len(wanted) else 2
    folds = (random.permutation(len(labels)) % count)[groups]
    ranks = list[np.ndarray]()
    measured = list[np.ndarray]()
    sizes = list[int]()
    for fold in range(count):
        in_fold = np.flatnonzero(folds == fold)
        sample = np.sort(random.permutation(in_fold)[: MOST_QUERIES // count])
        pairs = positives.of_queries(known[sample])
        other_answers = np.setdiff1d(wanted, positives.of_queries(known[in_fold]).item)
        allowed = random.permutation(np.setdiff1d(np.arange(len(items)), other_answers))[:MOST_ITEMS]
        index = torch.from_numpy(np.union1d(pairs.item, allowed))
        answers = Positives.from_pairs(pairs.query, torch.searchsorted(index, pairs.item), len(sample), len(index))
        fitted_queries, fitted_items = pairs_of(queries, items, positives, known[folds != fold], seed)
        reference = fitted_queries[sample_positions(len(fitted_queries), MOST_QUERIES, seed)]
        rows, item_rows = rows_at(queries, known[sample]), rows_at(items, index)
        maps = fit_maps(fitted_queries, fitted_items, grid)
        sides = [(rows, item_rows, reference)]
        sides += [
            (of_queries(rows), of_items(item_rows), of_queries(reference)) for of_queries, of_items in maps.values()
        ]
        scores = [(mapped @ targets.T, fitted_on @ targets.T) for mapped, targets, fitted_on in sides]
        corrected = [criterion.rescore(*pair) for pair in scores for criterion in CRITERIA.values()]
        ranks.append(np.stack([rank_blocks([(0, values)], answers).ranks for values in corrected]))
        measured.append(sample)
        sizes.append(len(index))
    candidates = [(name, criterion) for name in (NOTHING, *maps) for criterion in CRITERIA]
    order = np.concatenate(measured)
    return CrossValidation(
        candidates, np.concatenate(ranks, axis=1), folds[order], groups[order], round(np.mean(sizes))
    )


def pairs_of(
    queries: VectorSource, items: VectorSource, positives: Positives, known: Tensor, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The pairs (P, D), (P, D) of the queries `known` (n,), ascending; of at most `MOST_FITTED` queries."""
    known = known[sample_positions(len(known), MOST_FITTED, seed)]
    pairs = positives.of_queries(known)
    wanted, row_of_pair = pairs.item.unique(return_inverse=True)
    return rows_at(queries, known)[pairs.query], rows_at(items, wanted)[row_of_pair]


def quick_gain(sides: Sides, seed: int = 0) -> dict[str, float] | None:
    """The gain of choosing among no map, centring, whitening and ridge with λ 1.

    None without enough known pairs, for precomputed scores, and for items that search among themselves.
    """
    if sides.positives is not None and not (sides.precomputed or sides.exclude_self):
        with suppress(InputError):  # too few
            return try_maps(sides.queries, sides.items, sides.positives, (1.0,), seed).gain_of_choosing()
    return None
