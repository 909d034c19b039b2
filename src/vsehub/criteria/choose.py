"""Choosing the criterion by queries whose answers are known: the candidates on scores, with folds and samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.auto import PLAIN, Auto, Candidates, chosen, try_all
from vsehub.criteria.base import Correction
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.topk import top_k_of_blocks
from vsehub.neighbors.vectors import UnitVectors, VectorSource, as_vectors, row_digests, rows_at
from vsehub.positives import Positives

LEAST = 50  # queries to choose by, and to measure on
FOLDS = 5
# The most queries to choose by, reference queries, and scores in memory; beyond these a seeded sample is used.
MOST_QUERIES, MOST_REFERENCE, MOST_SCORES = 1000, 2000, 25_000_000


@dataclass(frozen=True)
class Tried:
    """A candidate, and on the queries to choose by the geometric mean of the answer's rank, and R@1 in %.

    rank, r1: None if the candidate cannot be applied.
    """

    name: str
    parameters: dict[str, Any]
    rank: float | None
    r1: float | None


@dataclass(frozen=True)
class Choice:
    """The chosen criterion, and the data of the choice.

    name, criterion: the chosen one. queries: the number of queries to choose by. folds: the number of parts of a
    reference that contains these queries; 0 otherwise, and if all queries are the reference. items, reference: the
    numbers used. tried: all candidates, plain search or what stands without a choice first. held_out: R@1 in % where
    each fifth of the queries is ranked by the criterion that the others choose. others: each other criterion
    that the other fifths choose for some queries, with the rows of these queries.
    """

    name: str
    criterion: Correction
    queries: int
    folds: int
    items: int
    reference: int
    tried: list[Tried]
    held_out: float
    others: list[tuple[Correction, Tensor]]


@torch.no_grad()
def choose(
    among: Auto | Correction,
    queries: VectorSource,
    positives: Positives,
    items: VectorSource,
    reference: VectorSource | None = None,
    seed: int = 0,
) -> Choice:
    """The candidate that ranks the right items highest, by the logarithm of their rank and `criteria.auto.chosen`.

    among: the criteria of an `Auto`, of which plain search has to be beaten, or one criterion with all settings of its
    GRID, of which its own have to be; no k beyond the number of reference queries. queries: (Q, D); those with a
    positive are used for choosing. positives: the items that answer the queries. items: (M, D). reference: (R, D)
    queries; None: all of `queries` themselves (transductive). If the reference contains queries that are also used for
    choosing, these are divided into five folds. The queries of a fold are corrected by a reference without them and
    without their copies, like new queries, and search the items without those that only queries of other folds are
    known to want. seed: seed of the folds and the samples. Raises InputError for fewer than `LEAST` queries with a
    positive, a criterion without a GRID, or where no candidate can be applied.
    """
    random = np.random.default_rng(seed)
    known = positives.counts.nonzero().flatten().numpy()
    require(
        len(known) >= LEAST,
        f"{len(known)} queries with a known answer are too few to choose by; expected at least {LEAST}. Give more, or "
        "choose nothing: name a criterion with its settings, or take the default",
    )
    fitted_on = queries if reference is None else reference
    query_sample = torch.from_numpy(np.sort(random.permutation(known)[:MOST_QUERIES]))
    reference_sample = _sample(random, len(fitted_on), MOST_REFERENCE)
    most = max(1, MOST_SCORES // (len(query_sample) + len(reference_sample)))
    item_sample, answers = _items(random, positives, query_sample, len(items), most)
    precomputed = isinstance(items, UnitVectors)  # a row of precomputed scores has one for each item
    columns = item_sample if precomputed else slice(None)
    scores = rows_at(queries, query_sample, columns).cpu()
    reference_scores = rows_at(fitted_on, reference_sample, columns).cpu()
    digests, reference_digests = (row_digests(as_vectors("rows", rows)) for rows in (scores, reference_scores))
    part = _parts(random, digests)
    folds = [] if reference is None else _folds(part, digests, reference_digests)
    splits = folds or [(torch.arange(len(scores)), torch.arange(len(reference_scores)))]
    candidates = _candidates(among, min(len(fitted) for _, fitted in splits))
    item_scores = None
    if not precomputed:
        item_rows = rows_at(items, item_sample).cpu()
        scores, reference_scores = scores @ item_rows.T, reference_scores @ item_rows.T
        if any(criterion.reference_items_as == "rows" for _, criterion in candidates):
            bank = _sample(random, len(item_rows), max(1, MOST_SCORES // len(item_rows)))
            item_scores = item_rows[bank] @ item_rows.T
    ranks = np.full((len(candidates), len(scores)), np.nan)
    for asking, fitted in splits:
        index, right = _index(answers, asking)
        further = None if item_scores is None else item_scores[:, index]
        fold = scores[asking][:, index], reference_scores[fitted][:, index], further
        for number, rank in enumerate(try_all(candidates, _ranks_on(candidates, *fold, right))):
            if rank is not None:
                ranks[number, asking.numpy()] = rank
    applied = np.flatnonzero(~np.isnan(ranks).any(axis=1))
    require(
        any(candidates[number][0] != PLAIN for number in applied),
        "no criterion can be applied to these scores; name one, to see what is wrong",
    )
    tried = [_tried(name, criterion, row) for (name, criterion), row in zip(candidates, ranks, strict=True)]
    values = -np.log(ranks[applied])
    place = applied[chosen(values)]
    by_others = np.empty(len(scores), dtype=np.int64)
    for number in np.unique(part):
        by_others[part == number] = applied[chosen(values[:, part != number])]
    held_out = 100 * (ranks[by_others, np.arange(len(scores))] == 1).mean().item()
    others = [
        (candidates[number][1], query_sample[by_others == number]) for number in np.unique(by_others) if number != place
    ]
    name, criterion = candidates[place]
    sizes = len(scores), len(folds), len(item_sample), len(reference_scores)
    return Choice(name, criterion, *sizes, tried, held_out, others)


def _ranks_on(
    candidates: Candidates, scores: Tensor, reference: Tensor, item_scores: Tensor | None, answers: Positives
) -> Callable[[Correction], np.ndarray]:
    """A function criterion -> rank of each query's best answer, for scores (n, m) and reference scores (R, m).

    item_scores: scores of reference items (G, m), or None.
    """
    deepest = max((criterion.parameters()["k"] for _, criterion in candidates if criterion.nearest_alone), default=1)
    nearest = top_k_of_blocks((reference.T,), deepest)[0].T  # of each item, largest first

    def ranks(criterion: Correction) -> np.ndarray:
        fitted_by = nearest[: criterion.parameters()["k"]] if criterion.nearest_alone else reference
        further = item_scores if criterion.reference_items_as == "rows" else None
        corrected = criterion.rescore(scores, fitted_by, reference_item_scores=further).to(scores.dtype)
        return rank_blocks([(0, corrected)], answers).ranks.cpu().numpy()

    return ranks


def _tried(name: str, criterion: Correction, ranks: np.ndarray) -> Tried:
    """ranks: (n,), NaN where the candidate cannot be applied."""
    if np.isnan(ranks).any():
        return Tried(name, criterion.parameters(), None, None)
    mean = np.exp(np.log(ranks).mean()).item()
    return Tried(name, criterion.parameters(), mean, 100 * (ranks == 1).mean().item())


def _candidates(among: Auto | Correction, rows: int) -> Candidates:
    """All candidates, with no k beyond `rows`; the first is the one that others have to beat."""
    if isinstance(among, Auto):
        return among.candidates(rows)
    require(bool(among.GRID), f"{type(among).__name__} has no settings to tune; leave tune out")
    others = [among.with_parameters(**settings) for settings in among.grid() if settings.get("k", 1) <= rows]
    others = [criterion for criterion in others if criterion.parameters() != among.parameters()]
    return [(type(among).__name__, criterion) for criterion in (among, *others)]


def _sample(random: np.random.Generator, count: int, most: int) -> Tensor:
    """At most so many of the first `count` numbers, rising."""
    return torch.arange(count) if count <= most else torch.from_numpy(np.sort(random.permutation(count)[:most]))


def _items(
    random: np.random.Generator, positives: Positives, queries: Tensor, items: int, most: int
) -> tuple[Tensor, Positives]:
    """A sample of the items with all answers of the queries (n,), and the answers by position in the sample."""
    known = positives.of(queries)
    needed = known.item.unique()
    among = torch.arange(items)
    if items > most:
        others = np.setdiff1d(random.permutation(items)[: most + len(needed)], needed.numpy())
        others = random.permutation(others)[: max(0, most - len(needed))]
        among = torch.from_numpy(np.union1d(needed.numpy(), others))
    return among, Positives.from_pairs(known.query, torch.searchsorted(among, known.item), len(queries), len(among))


def _index(answers: Positives, queries: Tensor) -> tuple[Tensor, Positives]:
    """The items without those that only other queries want, ascending, and the answers of the queries among them."""
    right = answers.of(queries)
    gone = answers.item[~torch.isin(answers.item, right.item)]
    index = torch.arange(answers.items)
    index = index[~torch.isin(index, gone)]
    return index, Positives.from_pairs(right.query, torch.searchsorted(index, right.item), len(queries), len(index))


def _parts(random: np.random.Generator, digests: np.ndarray) -> np.ndarray:
    """The fold of each query (n,), with copies of a query in one fold."""
    distinct, group = np.unique(digests, return_inverse=True)
    return (random.permutation(len(distinct)) % FOLDS)[group]


def _folds(part: np.ndarray, digests: np.ndarray, reference: np.ndarray) -> list[tuple[Tensor, Tensor]]:
    """Of each fold the places of its queries, and those of the reference rows that it is fitted on.

    part (n,): the fold of each query. digests (n,), reference (r,): digests of the queries and of the reference. There
    are no folds if these share no row.
    """
    if not np.isin(digests, reference).any():
        return []
    folds = [
        (np.flatnonzero(part == number), np.flatnonzero(~np.isin(reference, digests[part == number])))
        for number in np.unique(part)
    ]
    require(
        all(len(rest) > 0 for _, rest in folds),
        "the reference holds no query but those that are chosen by and left out of it; give other queries besides",
    )
    return [(torch.from_numpy(rows), torch.from_numpy(rest)) for rows, rest in folds]
