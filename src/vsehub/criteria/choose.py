"""Choosing the criterion by queries whose answers are known: the candidates on scores, with folds and samples."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import InputError, require
from vsehub.criteria.auto import Auto, chosen
from vsehub.criteria.base import Correction
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource, row_digests

log = logging.getLogger(__name__)

LEAST = 50  # queries to choose by, and to measure on
FOLDS = 5
# Of queries to choose by, of reference queries and of scores that are held: beyond them a seeded sample is taken.
MOST_QUERIES, MOST_REFERENCE, MOST_SCORES = 1000, 2000, 25_000_000
BLOCK = 8192


@dataclass(frozen=True)
class Tried:
    """A candidate, its mean reciprocal rank and R@1 in % on the queries to choose by; None: it cannot be applied."""

    name: str
    parameters: dict[str, Any]
    mrr: float | None
    r1: float | None


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how.

    name, criterion: the criterion. queries: how many it was chosen by. folds: into how many parts the reference was
    divided, since it holds these queries; 0: it does not, or all queries are the reference. items, reference: how many
    were looked at. tried: all candidates.
    """

    name: str
    criterion: Correction
    queries: int
    folds: int
    items: int
    reference: int
    tried: list[Tried]


@torch.no_grad()
def choose(
    auto: Auto,
    queries: VectorSource,
    positives: Positives,
    items: VectorSource,
    reference: VectorSource | None = None,
    own: Tensor | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Choice:
    """The candidate of `auto` that ranks the right items highest; the rule is that of `criteria.auto.chosen`.

    queries: (Q, D), of which those with a positive are chosen by. positives: the items that answer them. items: (M, D).
    reference: (R, D) queries; None: `queries` themselves, all of them (transductive). own: (Q,) the row of the
    reference that is the query itself, -1 for none: the reference is then divided into five folds, and the queries of a
    fold are corrected by the others, as queries that the reference does not hold would be. seed: of the folds and the
    samples. Raises InputError for fewer than `LEAST` queries with a positive, or where no candidate can be applied.
    """
    random = np.random.default_rng(seed)
    known = positives.counts.nonzero().flatten().numpy()
    require(
        len(known) >= LEAST,
        f"{len(known)} queries with a known answer are too few to choose a criterion by; expected at least {LEAST}. "
        "Name a criterion, or leave truth out: then the default is taken",
    )
    asked = torch.from_numpy(np.sort(random.permutation(known)[:MOST_QUERIES]))
    seen = _sample(random, len(queries if reference is None else reference), MOST_REFERENCE)
    most = max(1, MOST_SCORES // (len(asked) + len(seen)))
    among, answers = _items(random, positives, asked, len(items), most)
    scores, reference_scores = _scores(
        ((queries, asked), (queries if reference is None else reference, seen)), items, among
    )
    folds, fitted_on = _folds(random, asked, seen, own if reference is not None else None)

    candidates = auto.candidates(min(len(rows) for _, rows in fitted_on))
    standing_name, standing_one = auto.standing
    found, tried = [], []
    for name, criterion in tqdm(candidates, "choosing the criterion", leave=False, disable=None if progress else True):
        try:
            ranks = _ranks(criterion, scores, reference_scores, fitted_on, answers)
        except InputError as error:  # such as scores out of the range that it takes
            log.info("%s %s cannot be applied: %s", name, criterion.parameters(), error)
            tried.append(Tried(name, criterion.parameters(), None, None))
            continue
        tried.append(Tried(name, criterion.parameters(), float((1 / ranks).mean()), float(100 * (ranks == 1).mean())))
        found.append((name, criterion, 1 / ranks))
    standing = [
        place
        for place, (name, one, _) in enumerate(found)
        if name == standing_name and one.parameters() == standing_one.parameters()
    ]
    require(len(found) > 1, "no criterion can be applied to these scores; name one, to see what is wrong")
    place = chosen(np.stack([values for *_, values in found]), standing[0] if standing else 0, 0)
    name, criterion, _ = found[place]
    return Choice(name, criterion, len(asked), folds, len(among), len(seen), tried)


def _sample(random: np.random.Generator, count: int, most: int) -> Tensor:
    """At most so many of the first `count` numbers, rising."""
    return torch.arange(count) if count <= most else torch.from_numpy(np.sort(random.permutation(count)[:most]))


def _items(
    random: np.random.Generator, positives: Positives, asked: Tensor, items: int, most: int
) -> tuple[Tensor, Positives]:
    """The items looked at, all answers of the queries `asked` among them, and which of them answer which query."""
    place = torch.full((positives.queries,), -1)
    place[asked] = torch.arange(len(asked))
    pairs = place[positives.query] >= 0
    query, item = place[positives.query[pairs]], positives.item[pairs]
    needed = item.unique()
    among = torch.arange(items)
    if items > most:
        others = np.setdiff1d(random.permutation(items)[: most + len(needed)], needed.numpy())
        others = random.permutation(others)[: max(0, most - len(needed))]
        among = torch.from_numpy(np.union1d(needed.numpy(), others))
    return among, Positives.from_pairs(query, torch.searchsorted(among, item), len(asked), len(among))


def _scores(sides: Sequence[tuple[VectorSource, Tensor]], items: VectorSource, among: Tensor) -> list[Tensor]:
    """The scores (n, m) of some rows (n,) of each side with the items `among` (m,), on the CPU."""
    if isinstance(items, UnitVectors):
        return [_taken(scores, rows, among) for scores, rows in sides]
    held = _taken(items, among)
    return [_taken(vectors, rows) @ held.T for vectors, rows in sides]


def _taken(vectors: VectorSource, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """The rows (n,), rising, of vectors that are read in blocks, on the CPU: (n, D), or only the columns named."""
    found = []
    height = min(BLOCK, max(1, MOST_SCORES // vectors.shape[1]))
    for first in range(0, len(vectors), height):
        here = rows[(rows >= first) & (rows < first + height)]
        if len(here):
            block = vectors.rows(first, min(first + height, len(vectors)))
            held = block[(here - first).to(block.device)].cpu()
            found.append(held if columns is None else held[:, columns])
    return torch.cat(found)


def _folds(
    random: np.random.Generator, asked: Tensor, seen: Tensor, own: Tensor | None
) -> tuple[int, list[tuple[Tensor, Tensor]]]:
    """How many folds, and of each the places in `asked` of its queries and those in `seen` that it is fitted on."""
    everything = [(torch.arange(len(asked)), torch.arange(len(seen)))]
    if own is None:
        return 0, everything
    row = own[asked]
    place = torch.searchsorted(seen, row).clamp(max=len(seen) - 1)
    inside = (row >= 0) & (seen[place] == row)
    if not inside.any():
        return 0, everything
    fold = torch.from_numpy(random.permutation(len(asked)) % FOLDS)
    of_seen = torch.full((len(seen),), -1)
    of_seen[place[inside]] = fold[inside]
    return FOLDS, [
        ((fold == number).nonzero().flatten(), (of_seen != number).nonzero().flatten()) for number in range(FOLDS)
    ]


def _ranks(
    criterion: Correction,
    scores: Tensor,
    reference_scores: Tensor,
    fitted_on: list[tuple[Tensor, Tensor]],
    answers: Positives,
) -> np.ndarray:
    """The rank of the best answer of each query, (n,), from 1."""
    corrected = torch.empty_like(scores)
    for rows, seen in fitted_on:
        corrected[rows] = criterion.rescore(scores[rows], reference_scores[seen]).to(scores.dtype)
    return rank_blocks([(0, corrected)], answers).ranks.cpu().numpy().astype(float)


def own_rows(queries: VectorSource, reference: VectorSource) -> Tensor:
    """The row of the reference (R, D) that each query (Q, D) is, bit for bit; -1 for none: (Q,)."""
    asked, seen = row_digests(queries), row_digests(reference)
    order = np.argsort(seen, kind="stable")
    place = np.searchsorted(seen[order], asked).clip(max=len(seen) - 1)
    row = order[place]
    return torch.from_numpy(np.where(seen[row] == asked, row, -1))
