"""Choosing among criteria: the candidates, the default, the rule, and the choice by queries with known answers."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, one_of, require
from vsehub.components import Components, conf_folders
from vsehub.criteria.base import Correction, Criterion, ItemBias
from vsehub.io.progress import bar
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.topk import top_k_of_blocks
from vsehub.neighbors.vectors import UnitVectors, VectorSource, as_vectors, row_digests, rows_at
from vsehub.positives import Positives

log = logging.getLogger(__name__)

T = TypeVar("T")
Candidates = list[tuple[str, Correction]]  # names and criteria, the one that others have to beat first

PLAIN = "nns"
# Reference queries: in experiments/pretrained Sinkhorn gains less than CSLS with 100 of them and more with 300.
SINKHORN_FROM = 200
FEWEST_QUERIES = 50  # queries to choose by, and to measure on
FOLDS = 5
# The most queries to choose by, reference queries, and scores in memory; beyond these a seeded sample is used.
MOST_QUERIES, MOST_REFERENCE, MOST_SCORES = 1000, 2000, 25_000_000


def known_corrections() -> dict[str, Correction]:
    """The corrections of the yaml files that take no reference items, by name, plain search first."""
    return _corrections(conf_folders())


@cache
def _corrections(folders: tuple[Path, ...]) -> dict[str, Correction]:
    components = Components(folders)
    nodes = {name: components.node("criterion", name) for name in components.choices("criterion")}
    kinds: dict[str, Any] = {name: components.find("criterion", node) for name, node in nodes.items()}
    corrections = {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Correction)}
    names = [name for name in corrections if kinds[name].reference_items_as is None]
    names.sort(key=lambda name: (name != PLAIN, name))
    return {name: components.build("criterion", nodes[name]) for name in names}


def named_criterion(name: str | Criterion, parameters: Mapping[str, Any]) -> Criterion:
    """The criterion of a yaml file, or the given one, with some settings changed.

    Raises InputError for other names and settings.
    """
    if isinstance(name, Criterion):
        return name.with_parameters(**parameters)
    components = Components(conf_folders())
    return components.build("criterion", {**components.node("criterion", name), **parameters})


class Auto(Criterion):
    """The criterion that suits the data: chosen where queries with known answers allow it, else a default.

    among: names of the criteria to choose among; None: all `known_corrections`. Plain search is always among them.
    indexable: whether to omit criteria that no index can store. Raises InputError for unknown names.

    >>> import numpy as np
    >>> queries, items = np.eye(3)[[0, 0, 1, 2]], np.eye(3)
    >>> Auto().search(queries, items, k=1)[1].squeeze(1).tolist()
    [0, 0, 1, 2]
    """

    def __init__(self, among: Sequence[str] | None = None, indexable: bool = False):
        known = tuple(
            name for name, criterion in known_corrections().items() if isinstance(criterion, ItemBias) or not indexable
        )
        names = known if among is None else tuple(among)
        for name in names:
            one_of("among", name, known)
        require(bool(set(names) - {PLAIN}), "among names no criterion besides nns; expected at least one")
        self.among, self.indexable = among, indexable
        self.names = (PLAIN, *(name for name in dict.fromkeys(names) if name != PLAIN))

    def untuned(self, references: int) -> tuple[str, Correction]:
        """The criterion without known answers: CSLS with k = 10, or Sinkhorn from 200 reference queries.

        If that is not allowed, the first that is. references: the number of reference queries.
        """
        default = "sinkhorn" if references >= SINKHORN_FROM and "sinkhorn" in self.names else "csls"
        name = default if default in self.names else self.names[1]
        return name, known_corrections()[name]

    def with_grids(self, references: int) -> Candidates:
        """All criteria with all settings of their grids, plain search first; no k above the number of references."""
        return [(name, variant) for name in self.names for variant in variants(known_corrections()[name], references)]

    @property
    def correction(self) -> Correction:
        """`untuned` for few reference queries."""
        return self.untuned(0)[1]


def variants(criterion: Correction, references: int) -> list[Correction]:
    """The criterion with all settings of its grid, without a k above the number of reference queries."""
    return [
        criterion.with_parameters(**settings) for settings in criterion.grid() if settings.get("k", 1) <= references
    ]


def try_all(candidates: Sequence[tuple[str, Any]], measure: Callable[[Any], T]) -> list[T | None]:
    """`measure(criterion)` for each candidate (name, criterion); None where it raises InputError.

    Some criteria cannot take all scores, for example those out of their range.
    """
    results = list[T | None]()
    for name, criterion in bar("choosing the criterion", candidates):
        try:
            results.append(measure(criterion))
        except InputError as error:
            log.info("%s %s cannot be applied: %s", name, criterion.parameters(), error)
            results.append(None)
    return results


def choose_row(values: np.ndarray) -> int:
    """The row of (C, n) that is chosen: one value for each of C criteria and n queries, larger being better.

    The row with the largest mean wins if it is above that of row 0, the baseline (plain search, or the current
    settings), by more than one standard error of their paired difference; otherwise row 0 does. The rule is that of the
    study experiments/pretrained, with minus the logarithm of the answer's rank as value.

    >>> plain, better, luckier = [3, 3, 3, 3], [1, 2, 1, 2], [1, 9, 1, 9]
    >>> choose_row(-np.log([plain, luckier, better])), choose_row(-np.log([plain, luckier]))
    (2, 0)
    """
    difference = values - values[0]
    best = int(difference.mean(axis=1).argmax())
    error = difference[best].std(ddof=1) / np.sqrt(values.shape[1])
    return best if difference[best].mean() > error else 0


@dataclass(frozen=True)
class Tried:
    """A candidate and its results on the queries to choose by.

    rank: the geometric mean of the answer's rank. r1: R@1 in %. Both are None if the candidate cannot be applied.
    """

    name: str
    parameters: dict[str, Any]
    rank: float | None
    r1: float | None


@dataclass(frozen=True)
class Choice:
    """The chosen criterion, and the data of the choice.

    name, criterion: the chosen one. queries: the number of queries to choose by. folds: number of folds if the
    reference contains queries to choose by; 0 if it contains none, or if the queries are their own reference. items,
    reference: the numbers used. tried: all candidates, the baseline first: plain search, or the current settings.
    held_out: R@1 in % if each fifth of the queries is ranked by the criterion that the other four fifths choose.
    others: criteria besides the chosen one that were chosen in this way for some fifth, each with the rows of its
    queries.
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
    """The candidate that ranks the right items highest, by the logarithm of their rank and `choose_row`.

    among: an `Auto`, whose criteria must beat plain search, or one criterion, whose GRID must beat its current
    settings. Settings with a k above the number of reference queries are omitted. queries: (Q, D); those with a
    positive are used for choosing. positives: the items that answer the queries. items: (M, D). reference: (R, D)
    queries; None: all of `queries` themselves (transductive). If the reference contains queries that are also used for
    choosing, these are divided into five folds. The queries of a fold are corrected by a reference without them and
    without their copies, like new queries, and search all items except those that answer only queries of other folds.
    seed: seed of the folds and the samples. Raises InputError for fewer than `FEWEST_QUERIES` queries with a positive,
    a criterion without a GRID, or where no candidate can be applied.
    """
    random = np.random.default_rng(seed)
    known = positives.counts.nonzero().flatten().numpy()
    require(
        len(known) >= FEWEST_QUERIES,
        f"{len(known)} queries with a known answer are too few to choose by; expected at least {FEWEST_QUERIES}. Give "
        "more, or choose nothing: name a criterion with its settings, or take the default",
    )
    fitted_on = queries if reference is None else reference
    query_sample = torch.from_numpy(np.sort(random.permutation(known)[:MOST_QUERIES]))
    reference_sample = _sample(random, len(fitted_on), MOST_REFERENCE)
    most = max(1, MOST_SCORES // (len(query_sample) + len(reference_sample)))
    item_sample, answers = _sample_items(random, positives, query_sample, len(items), most)
    precomputed = isinstance(items, UnitVectors)  # a row of precomputed scores has one for each item
    columns = item_sample if precomputed else slice(None)
    scores = rows_at(queries, query_sample, columns).cpu()
    reference_scores = rows_at(fitted_on, reference_sample, columns).cpu()
    digests = row_digests(as_vectors("queries", scores))
    reference_digests = row_digests(as_vectors("reference", reference_scores))
    fold_of_query = _fold_numbers(random, digests)
    folds = [] if reference is None else _folds(fold_of_query, digests, reference_digests)
    splits = folds or [(torch.arange(len(scores)), torch.arange(len(reference_scores)))]
    candidates = _to_try(among, min(len(fitted) for _, fitted in splits))
    item_scores = None
    if not precomputed:
        item_rows = rows_at(items, item_sample).cpu()
        scores, reference_scores = scores @ item_rows.T, reference_scores @ item_rows.T
        if any(criterion.reference_items_as == "rows" for _, criterion in candidates):
            reference_items = _sample(random, len(item_rows), max(1, MOST_SCORES // len(item_rows)))
            item_scores = item_rows[reference_items] @ item_rows.T
    ranks = _ranks(candidates, splits, answers, scores, reference_scores, item_scores)
    sizes = {"items": len(item_sample), "reference": len(reference_scores), "folds": len(folds)}
    return _choice(candidates, ranks, fold_of_query, query_sample, sizes)


def _choice(
    candidates: Candidates, ranks: np.ndarray, fold_of_query: np.ndarray, queries: Tensor, sizes: Mapping[str, int]
) -> Choice:
    """The choice by ranks (C, n).

    fold_of_query (n,): the fold of each query. queries: rows (n,). sizes: further fields.
    """
    applied = np.flatnonzero(~np.isnan(ranks).any(axis=1))
    require(
        any(candidates[number][0] != PLAIN for number in applied),
        "no criterion can be applied to these scores; name one, to see what is wrong",
    )
    tried = [_tried(name, criterion, row) for (name, criterion), row in zip(candidates, ranks, strict=True)]
    values = -np.log(ranks[applied])
    best = applied[choose_row(values)]
    by_other_folds = np.empty(len(fold_of_query), dtype=np.int64)
    for number in np.unique(fold_of_query):
        by_other_folds[fold_of_query == number] = applied[choose_row(values[:, fold_of_query != number])]
    held_out = 100 * (ranks[by_other_folds, np.arange(len(fold_of_query))] == 1).mean().item()
    others = [
        (candidates[number][1], queries[by_other_folds == number])
        for number in np.unique(by_other_folds)
        if number != best
    ]
    name, criterion = candidates[best]
    return Choice(name, criterion, len(fold_of_query), tried=tried, held_out=held_out, others=others, **sizes)


def _ranks(
    candidates: Candidates,
    splits: Sequence[tuple[Tensor, Tensor]],
    answers: Positives,
    scores: Tensor,
    reference_scores: Tensor,
    item_scores: Tensor | None,
) -> np.ndarray:
    """The rank (C, n) of each query's best answer under each candidate, NaN where it cannot be applied.

    splits: the queries of each fold, and the reference queries that it is fitted on.
    """
    ranks = np.full((len(candidates), len(scores)), np.nan)
    for rows, fitted in splits:
        index, right = _items_of_fold(answers, rows)
        reference_item_scores = None if item_scores is None else item_scores[:, index]
        measure = _ranks_on(
            candidates, scores[rows][:, index], reference_scores[fitted][:, index], reference_item_scores, right
        )
        for number, rank in enumerate(try_all(candidates, measure)):
            if rank is not None:
                ranks[number, rows.numpy()] = rank
    return ranks


def _ranks_on(
    candidates: Candidates, scores: Tensor, reference: Tensor, item_scores: Tensor | None, answers: Positives
) -> Callable[[Correction], np.ndarray]:
    """A function criterion -> rank of each query's best answer, for scores (n, m) and reference scores (R, m).

    item_scores: scores of reference items (G, m), or None.
    """
    deepest = max(
        (criterion.parameters()["k"] for _, criterion in candidates if criterion.terms_from_k_nearest), default=1
    )
    nearest = top_k_of_blocks((reference.T,), deepest)[0].T  # of each item, largest first

    def ranks(criterion: Correction) -> np.ndarray:
        fitted_on = nearest[: criterion.parameters()["k"]] if criterion.terms_from_k_nearest else reference
        reference_items = item_scores if criterion.reference_items_as == "rows" else None
        corrected = criterion.rescore(scores, fitted_on, reference_item_scores=reference_items).to(scores.dtype)
        return rank_blocks([(0, corrected)], answers).ranks.cpu().numpy()

    return ranks


def _tried(name: str, criterion: Correction, ranks: np.ndarray) -> Tried:
    """A candidate as tried. ranks: (n,), NaN where it cannot be applied."""
    if np.isnan(ranks).any():
        return Tried(name, criterion.parameters(), None, None)
    mean = np.exp(np.log(ranks).mean()).item()
    return Tried(name, criterion.parameters(), mean, 100 * (ranks == 1).mean().item())


def _to_try(among: Auto | Correction, references: int) -> Candidates:
    """All candidates, with no k above the number of references; the first is the one that others have to beat."""
    if isinstance(among, Auto):
        return among.with_grids(references)
    require(bool(among.GRID), f"{type(among).__name__} has no settings to tune; leave tune out")
    others = [variant for variant in variants(among, references) if variant.parameters() != among.parameters()]
    return [(type(among).__name__, criterion) for criterion in (among, *others)]


def _sample(random: np.random.Generator, count: int, most: int) -> Tensor:
    """At most `most` of the numbers from 0 to `count` - 1, ascending."""
    return torch.arange(count) if count <= most else torch.from_numpy(np.sort(random.permutation(count)[:most]))


def _sample_items(
    random: np.random.Generator, positives: Positives, queries: Tensor, items: int, most: int
) -> tuple[Tensor, Positives]:
    """A sample of the items with all answers of the queries (n,), and the answers by position in the sample."""
    known = positives.of_queries(queries)
    needed = known.item.unique()
    sample = torch.arange(items)
    if items > most:
        others = np.setdiff1d(random.permutation(items)[: most + len(needed)], needed.numpy())
        others = random.permutation(others)[: max(0, most - len(needed))]
        sample = torch.from_numpy(np.union1d(needed.numpy(), others))
    return sample, Positives.from_pairs(known.query, torch.searchsorted(sample, known.item), len(queries), len(sample))


def _items_of_fold(answers: Positives, queries: Tensor) -> tuple[Tensor, Positives]:
    """The items without those that only other queries want, ascending, and the answers of the queries among them."""
    right = answers.of_queries(queries)
    wanted_by_others = answers.item[~torch.isin(answers.item, right.item)]
    index = torch.arange(answers.items)
    index = index[~torch.isin(index, wanted_by_others)]
    return index, Positives.from_pairs(right.query, torch.searchsorted(index, right.item), len(queries), len(index))


def _fold_numbers(random: np.random.Generator, digests: np.ndarray) -> np.ndarray:
    """The fold of each query (n,), with copies of a query in one fold."""
    distinct, group = np.unique(digests, return_inverse=True)
    return (random.permutation(len(distinct)) % FOLDS)[group]


def _folds(fold_of_query: np.ndarray, digests: np.ndarray, reference: np.ndarray) -> list[tuple[Tensor, Tensor]]:
    """For each fold, the positions of its queries and of the reference rows that its criteria are fitted on.

    fold_of_query (n,): the fold of each query. digests (n,), reference (r,): digests of the queries and of the
    reference. Returns an empty list if these share no row.
    """
    if not np.isin(digests, reference).any():
        return []
    folds = [
        (np.flatnonzero(fold_of_query == number), np.flatnonzero(~np.isin(reference, digests[fold_of_query == number])))
        for number in np.unique(fold_of_query)
    ]
    require(
        all(len(rest) > 0 for _, rest in folds),
        "the reference holds only queries to choose by, each of which is left out for its own fold; give other queries "
        "too",
    )
    return [(torch.from_numpy(rows), torch.from_numpy(rest)) for rows, rest in folds]
