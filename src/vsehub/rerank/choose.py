"""`criterion=auto`: choosing the criterion by queries whose answers are known."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import InputError, fail, require
from vsehub.criteria.auto import Auto, chosen
from vsehub.criteria.base import Correction
from vsehub.data.truth import read_truth
from vsehub.data.vectors.embeddings import look_through, open_vectors, same_space
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource
from vsehub.rerank.inputs import ALLOWED, Inputs, row_digests, shared_rows
from vsehub.rerank.measure import Ranked

log = logging.getLogger(__name__)

LEAST = 50  # queries to choose by, and to measure on
FOLDS = 5
# Of queries to choose by, of reference queries and of scores that are held: beyond them a seeded sample is taken.
MOST_QUERIES, MOST_REFERENCE, MOST_SCORES = 1000, 2000, 25_000_000
BLOCK = 8192
DRAWS = 10_000


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


@dataclass(frozen=True)
class Tuning:
    """What to choose by. queries, truth: files of their own, both or neither; None: a `share` of those with truth."""

    queries: str | None = None
    truth: str | None = None
    share: float = 0.5

    def __post_init__(self) -> None:
        require(
            (self.queries is None) == (self.truth is None),
            "tune_queries and tune_truth belong together: the queries to choose a criterion by, and their answers; "
            f"{'tune_truth' if self.truth is None else 'tune_queries'} is missing",
        )
        require(
            isinstance(self.share, int | float) and 0 < self.share < 1,
            f"tune_share is {self.share!r}; expected a share between 0 and 1, e.g. 0.5",
        )


def choose_for(
    auto: Auto, inputs: Inputs, tuning: Tuning, seed: int = 0, progress: bool = False
) -> tuple[Choice | None, Inputs]:
    """The choice for opened inputs, None where no answers are known; and the inputs without the answers used up.

    Raises InputError where the queries to choose by are too few, or are measured as well.
    """
    if tuning.queries is not None and tuning.truth is not None:
        return _by_files(auto, inputs, tuning.queries, tuning.truth, seed, progress), inputs
    if inputs.truth is None:
        return None, inputs
    first, second = halves(inputs.truth, tuning.share, seed)
    choice = choose(auto, inputs.queries, first, inputs.items, inputs.reference, None, seed, progress)
    return choice, replace(inputs, truth=second)


def _by_files(auto: Auto, inputs: Inputs, queries: str, truth: str, seed: int, progress: bool) -> Choice:
    """The choice by queries from a file of their own."""
    asked = open_vectors(queries, "tune_queries", normalize=inputs.sides["queries"].normalize)
    same_space(asked, inputs.sides["items"])
    look_through(asked, progress=progress)
    shared = shared_rows(inputs.queries, asked)
    require(
        shared <= ALLOWED * len(inputs.queries),
        f"tune_queries: {shared} of the {len(inputs.queries)} queries that are ranked are in {asked} bit for bit: they "
        "would be measured by what was chosen for them. Leave them out of either, or leave out tune_queries: a part of "
        "the queries with truth is then kept for choosing",
    )
    pairs = read_truth(truth, len(asked), len(inputs.items), asked.ids, inputs.item_names.ids)
    positives = Positives.from_pairs(*pairs, len(asked), len(inputs.items), complete=False)
    own = None if inputs.reference is None else own_rows(asked, inputs.reference)
    return choose(auto, asked, positives, inputs.items, inputs.reference, own, seed, progress)


def own_rows(queries: VectorSource, reference: VectorSource) -> Tensor:
    """The row of the reference (R, D) that each query (Q, D) is, bit for bit; -1 for none: (Q,)."""
    asked, seen = row_digests(queries), row_digests(reference)
    order = np.argsort(seen, kind="stable")
    place = np.searchsorted(seen[order], asked).clip(max=len(seen) - 1)
    row = order[place]
    return torch.from_numpy(np.where(seen[row] == asked, row, -1))


def halves(positives: Positives, share: float, seed: int) -> tuple[Positives, Positives]:
    """The pairs of a seeded part of the queries with a positive, and those of the others.

    share: of the first part. Raises InputError where either part has fewer than `LEAST` queries.
    """
    known = positives.counts.nonzero().flatten()
    count = round(share * len(known))
    if min(count, len(known) - count) < LEAST:
        fail(
            f"truth knows the answers of {len(known)} queries, of which {count} would be chosen by and "
            f"{len(known) - count} measured; criterion=auto needs at least {LEAST} of each. Give more, or tune_queries "
            "and tune_truth, name a criterion, or leave truth out: then the default is taken"
        )
    drawn = known[torch.from_numpy(np.random.default_rng(seed).permutation(len(known))[:count])]
    first = torch.zeros(positives.queries, dtype=torch.bool)
    first[drawn] = True
    kept = first[positives.query]
    both = [
        Positives.from_pairs(positives.query[one], positives.item[one], positives.queries, positives.items, False)
        for one in (kept, ~kept)
    ]
    return both[0], both[1]


def gain(plain: Ranked, ranked: Ranked, positives: Positives, seed: int = 0) -> dict[str, float]:
    """What a ranking gains in R@1 over the plain one, in points, over the queries with a positive.

    "low", "high": the 95 % percentile bootstrap interval over queries, drawn as counts of queries that gain and lose.
    "p": two-sided, of the exact sign test (McNemar).
    """
    known = positives.counts > 0
    before, after = (positives.hits(one.positions[:, :1])[known, 0] for one in (plain, ranked))
    queries, up, down = int(known.sum()), int((after & ~before).sum()), int((before & ~after).sum())
    counts = np.random.default_rng(seed).multinomial(
        queries, np.array([up, down, queries - up - down]) / queries, DRAWS
    )
    low, high = np.quantile(100 * (counts[:, 0] - counts[:, 1]) / queries, [0.025, 0.975])
    p = stats.binomtest(up, up + down).pvalue if up + down else 1.0
    return {
        "queries": queries,
        "r1": 100 * (up - down) / queries,
        "low": float(low),
        "high": float(high),
        "p": float(p),
    }


def choice_record(auto: Auto, choice: Choice | None, found_gain: dict[str, float] | None) -> dict[str, Any]:
    """The choice in plain values; without one, what was taken instead."""
    if choice is None:
        name, criterion = auto.untuned
        return {"criterion": name, "parameters": criterion.parameters(), "queries": 0, "gain": found_gain}
    told = {"criterion": choice.name, "parameters": choice.criterion.parameters()}
    counts = {name: getattr(choice, name) for name in ("queries", "folds", "items", "reference")}
    return told | counts | {"tried": [asdict(one) for one in choice.tried], "gain": found_gain}
