"""Which search results to believe: split-conformal p values of a query's best score (Vovk et al. 2005, chapter 2).

A calibration query is asked against the items without its own answers, so that its best score is a *null score*: what a
query finds that nothing answers. Of a new query with the best score s, p = (1 + #{S_i >= s}) / (n + 1) over n null
scores S_i. Accepting results with p <= rate accepts a query without an answer with at most that probability, whatever
the distribution of the scores, if such a query is like a calibration query without its answers (exchangeable with it).
That is not guaranteed for queries of another kind. Answers that the truth misses make the null scores larger, and the
threshold only stricter. A new query is also asked against the answers of the calibration queries: where its best item
is one that a calibration query was not asked against, p may be too small by 1 / (n + 1).

The calibrated score is the value that a search returns, a·s - b(item) under an `ItemBias`. CSLS has a term of the query
too, the mean of its k nearest scores; this is left out, since it costs a second search in an index and separates no
better (experiments/no_match).
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Correction, ItemBias, Terms, finite, finite_terms, joined
from vsehub.data.truth import connected
from vsehub.metrics.positives import Positives
from vsehub.neighbors.tiles import COLUMN_ELEMENTS, TileCorrection, nearest, row_blocks
from vsehub.neighbors.vectors import Chosen, RowRange, VectorSource, row_digests

log = logging.getLogger(__name__)

RATES = (0.01, 0.05, 0.1)  # at which a calibration is judged where no rates are given


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores from which p values follow.

    null_scores: (n,) float64, the best score of each calibration query among the items that do not answer it.
    best_scores: (n,) float64, its best score among all items. Raises InputError if there are none or one is not finite.

    >>> found = Calibration(torch.tensor([0.1, 0.4, 0.2, 0.3]), torch.tensor([0.5, 0.4, 0.9, 0.3]))
    >>> found.p_values(torch.tensor([0.5, 0.3])).tolist()
    [0.2, 0.6]
    >>> found.threshold(0.2), found.accepted_share(0.2)
    (0.4000000059604645, 0.5)
    """

    null_scores: Tensor
    best_scores: Tensor

    def __post_init__(self) -> None:
        for name in ("null_scores", "best_scores"):
            scores = getattr(self, name)
            require(
                scores.ndim == 1 and len(scores) == len(self.null_scores) > 0,
                f"{name} has shape {tuple(scores.shape)}; expected two lists of one score for each calibration query",
            )
            object.__setattr__(self, name, finite(name, scores.detach().cpu().double()).sort().values)

    def __len__(self) -> int:
        return len(self.null_scores)

    @classmethod
    def of(
        cls,
        criterion: Correction,
        queries: VectorSource,
        items: VectorSource,
        item_terms: Terms,
        positives: Positives,
        reference: VectorSource | None = None,
        seed: int = 0,
    ) -> Self:
        """The calibration by queries (Q, D) with known answers among the items (M, D) with their terms.

        Queries without a known answer are left out: nothing says that they have none. Of queries that share answers,
        directly or through others, one is drawn by seed, so that the scores are independent. reference: (R, D), from
        which the terms were estimated; a query in it, bit for bit, is left out with all that share its answers, since a
        correction that has seen a query lowers its scores. Raises InputError if no query is left, if all items answer a
        query, and where scores are NaN or infinite.
        """
        pairs = positives.query.cpu().numpy(), positives.item.cpu().numpy()
        groups = connected(*pairs, positives.queries, positives.items)
        usable = positives.counts.cpu().numpy() > 0
        if reference is not None:
            seen = np.isin(row_digests(queries), row_digests(reference))
            usable &= ~np.isin(groups, groups[seen & usable])
            if seen.any():
                log.warning(
                    "calibration: %d of %d queries are in the reference, bit for bit, and left out with those that "
                    "share their answers", seen.sum(), len(seen)
                )  # fmt: skip
        require(
            bool(usable.any()),
            f"calibration: of {len(queries)} queries none has a known answer and is not in the reference; give other "
            "queries than the reference, with their answers",
        )
        drawn = torch.from_numpy(_one_each(groups, usable, seed))
        known = positives.of(drawn)
        most = int(known.counts.max())
        require(
            most < len(items),
            f"truth: all {len(items)} items answer query {drawn[int(known.counts.argmax())]}, so that nothing is left "
            "to ask it against; leave such queries out, or calibrate with more items",
        )
        asked = Chosen(queries, drawn.tolist())
        correct = criterion.over(asked, items, item_terms)
        without = criterion.over_tiles(item_terms, _query_terms(criterion, asked, items, item_terms, known))
        (null, _), (best, _) = nearest(asked, items, 1, [_masked(without, known), correct])
        return cls(null[:, 0], best[:, 0])

    def p_values(self, scores: Tensor) -> Tensor:
        """(1 + #{S_i >= s}) / (n + 1) of best scores s, of any shape; -inf, where nothing was found, has 1."""
        below = torch.searchsorted(self.null_scores, scores.detach().cpu().double().contiguous())
        return (1 + len(self) - below).double() / (1 + len(self))

    def threshold(self, rate: float) -> float:
        """The score above which p <= rate. Raises InputError for a rate that so few queries cannot hold."""
        self.require_rate(rate)
        return float(self.null_scores[len(self) - self._accepted(rate)])

    def accepted_share(self, rate: float) -> float:
        """The share of the calibration queries that are accepted at a rate when their answers are there."""
        return (self.best_scores > self.threshold(rate)).double().mean().item()

    def accepted_interval(self, rate: float) -> tuple[float, float]:
        """The 95 % interval of Clopper and Pearson (1934) for that share among all such queries."""
        from scipy import stats

        count = int((self.best_scores > self.threshold(rate)).sum())
        low, high = stats.binomtest(count, len(self)).proportion_ci(0.95, method="exact")
        return float(low), float(high)

    def no_better(self, rates: Sequence[float]) -> list[str]:
        """A sentence for each rate at which queries with answers may be accepted no more often than others."""
        told = []
        for rate in rates:
            low, high = self.accepted_interval(rate)
            if low <= rate:
                told.append(
                    f"a rate of {rate:g} is no better than accepting at random: of {len(self):,} queries whose answers "
                    f"are there {self.accepted_share(rate):.1%} are accepted, in general {low:.1%} to {high:.1%} (95 % "
                    f"interval), and of those without an answer up to {rate:.1%}"
                )
        return told

    def require_rate(self, rate: float) -> None:
        """Raise InputError unless `rate` is between 0 and 1 and at least 1 / (n + 1)."""
        checked_rate("accept", rate)
        require_held(rate, len(self))

    def _accepted(self, rate: float) -> int:
        """The largest whole number c with c / (n + 1) <= rate, in floating point as in `p_values`."""
        size = len(self) + 1
        count = math.ceil(rate * size)
        return count if count / size <= rate else count - 1


def needed(rate: float) -> int:
    """The fewest calibration queries with which p can be as small as `rate`: 1 / rate - 1, rounded up."""
    count = max(1, math.floor(1 / rate) - 1)
    return count if 1 / (count + 1) <= rate else count + 1


def require_held(rate: float, count: int) -> None:
    """Raise InputError unless so many calibration queries can hold a rate."""
    require(
        count >= needed(rate),
        f"calibration: a rate of {rate:g} needs at least {needed(rate):,} calibration queries that share no answers, "
        f"and there are {count:,}; give more, or a rate of at least {1 / (count + 1):.3g}",
    )


def answered_groups(positives: Positives) -> int:
    """How many queries of known answers share none of them: the most calibration queries that may be drawn."""
    pairs = positives.query.cpu().numpy(), positives.item.cpu().numpy()
    groups = connected(*pairs, positives.queries, positives.items)
    return len(np.unique(groups[positives.counts.cpu().numpy() > 0]))


def checked_rate(name: str, rate: Any) -> float:
    """The rate. Raises InputError unless it is a number between 0 and 1."""
    require(
        isinstance(rate, Real) and not isinstance(rate, bool) and 0 < float(rate) < 1,
        f"{name} is {rate!r}; expected a share between 0 and 1, such as 0.05: of the queries without an answer, those "
        "that may be accepted",
    )
    return float(rate)


def checked_rates(name: str, rates: Any) -> list[float]:
    """The rates, ascending. Raises InputError unless they are a list of different shares between 0 and 1."""
    listed = isinstance(rates, Sequence) and not isinstance(rates, str)
    require(listed and len(rates) > 0, f"{name} is {rates!r}; expected a list of shares, such as [0.01,0.05,0.1]")
    found = sorted(checked_rate(name, rate) for rate in rates)
    require(len(set(found)) == len(found), f"{name} is {rates!r}; expected each share once")
    return found


def stored(calibration: Calibration, rates: Sequence[float]) -> dict[str, Any]:
    """The thresholds of some rates in plain values, as the facts of a collection hold them."""
    return {"queries": len(calibration), "thresholds": {repr(rate): calibration.threshold(rate) for rate in rates}}


def score_text(name: str, criterion: Correction) -> str:
    """Which score of a criterion is calibrated, in words."""
    formula = f"{criterion.scale:g}·s - b(item)" if isinstance(criterion, ItemBias) else "the corrected score"
    return f"{formula} under {name}, as a search returns it"


def _one_each(groups: np.ndarray, usable: np.ndarray, seed: int) -> np.ndarray:
    """The rows, ascending, of one usable query of each group, drawn by seed."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(usable))
    return np.sort(order[np.unique(groups[order], return_index=True)[1]])


def _masked(correct: TileCorrection | None, positives: Positives) -> TileCorrection:
    """A correction that puts each query's own answers below everything."""

    def corrected(scores: Tensor, rows: slice, columns: slice) -> Tensor:
        values = scores.clone() if correct is None else correct(scores, rows, columns)
        first, last = torch.searchsorted(positives.query, torch.tensor([rows.start, rows.stop])).tolist()
        query, item = positives.query[first:last] - rows.start, positives.item[first:last]
        here = (item >= columns.start) & (item < columns.stop)
        values[query[here], item[here] - columns.start] = -torch.inf
        return values

    return corrected


def _query_terms(
    criterion: Correction, queries: VectorSource, items: VectorSource, item_terms: Terms, positives: Positives
) -> Terms:
    """The terms of queries that change the order of items, each query's without its own answers; () if there are none.

    Whole rows of scores are held, at most `COLUMN_ELEMENTS` numbers at a time.
    """
    if not criterion.query_terms_rank:
        return ()
    found, ends = [], [0, *positives.counts.cumsum(0).tolist()]
    height = max(1, COLUMN_ELEMENTS // len(items))
    for first in range(0, len(queries), height):
        block = RowRange(queries, first, min(first + height, len(queries)))
        for scores in row_blocks(block, items):
            for row in torch.cat(list(scores), dim=1):
                kept = torch.ones(len(items), dtype=torch.bool, device=row.device)
                kept[positives.item[ends[first] : ends[first + 1]].to(row.device)] = False
                found.append(criterion.query_terms((row[kept][None],), tuple(term[kept] for term in item_terms)))
                first += 1
    return finite_terms(joined(found))
