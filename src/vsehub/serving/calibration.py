"""Thresholds for search results: split-conformal p values of a query's best score (Vovk et al. 2005, chapter 2).

A calibration query is searched among the items without its answers, so that its best score is a *null score*: that of a
query without an answer. For a new query with the best score s, p = (1 + #{S_i >= s}) / (n + 1) over n null scores S_i.
Accepting results with p <= rate accepts a query without an answer with at most that probability, whatever the
distribution of the scores, if such a query is like a calibration query without its answers (exchangeable with it). That
is not guaranteed for queries of another kind. Answers that the truth misses make the null scores larger, and the
threshold only stricter. A new query is searched among all items, a calibration query without its answers. Where the
best item of a new query answers a calibration query, p may be too small by 1 / (n + 1).

The calibrated score is the value that a search returns, a·s - b(item) under an `ItemBias`. CSLS has a term of the query
too, the mean of its k nearest scores; this is left out, since it costs a second search in an index and separates no
better (docs/findings.md).
"""

import logging
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Correction, Terms, finite
from vsehub.data.truth import connected_groups
from vsehub.neighbors.vectors import VectorSource, as_vectors, row_digests
from vsehub.positives import Positives

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration scores that determine p values.

    null_scores: (n,) float64, the best score of each calibration query among the items that do not answer it.
    best_scores: (n,) float64, its best score among all items. Raises InputError without scores, or if one is not
    finite.

    >>> calibration = Calibration(torch.tensor([0.1, 0.4, 0.2, 0.3]), torch.tensor([0.5, 0.4, 0.9, 0.3]))
    >>> calibration.p_values(torch.tensor([0.5, 0.3])).tolist()
    [0.2, 0.6]
    >>> calibration.threshold(0.2)
    0.4000000059604645
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
    def from_queries(
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

        Queries without a known answer are omitted: they may have an unknown answer. Of queries that share answers,
        directly or through others, one is drawn by seed, so that the scores are independent. reference: (R, D), from
        which the terms were estimated; a query in it, bit for bit, is left out with all that share its answers, since a
        correction that has seen a query lowers its scores. Raises InputError if no query is left, if all items answer a
        query, for a criterion whose terms of a query depend on its answers, and for scores that are not finite.
        """
        require(
            not criterion.query_terms_affect_order,
            f"criterion: under {criterion!r} a query's scores depend on its answers; take another, such as csls",
        )
        groups = connected_groups(positives.query.cpu().numpy(), positives.item.cpu().numpy(), len(queries), len(items))
        usable = positives.counts.cpu().numpy() > 0
        if reference is not None:
            in_reference = np.isin(row_digests(queries), row_digests(reference))
            usable &= ~np.isin(groups, groups[in_reference & usable])
            if in_reference.any():
                log.warning(
                    "calibration: %d of %d queries are in the reference and left out with those that share answers",
                    in_reference.sum(),
                    len(in_reference),
                )
        order = np.random.default_rng(seed).permutation(np.flatnonzero(usable))
        require(len(order) > 0, "queries: each lacks a known answer or shares answers with the reference; give others")
        _, first_of_group = np.unique(groups[order], return_index=True)
        drawn = torch.from_numpy(np.sort(order[first_of_group]))
        known = positives.of_queries(drawn)
        most_answers = int(known.counts.max())
        require(most_answers < len(items), f"truth: all {len(items)} items answer a query; calibrate without it")
        vectors = as_vectors("queries", queries.rows(0, len(queries))[drawn])
        # A query's best item that does not answer it is among the first `most_answers` + 1.
        values, positions = (
            side.cpu() for side in criterion.search_fitted(vectors, items, item_terms, most_answers + 1)
        )
        return cls(values.masked_fill(known.hits(positions), -torch.inf).amax(dim=1), values[:, 0])

    def p_values(self, scores: Tensor) -> Tensor:
        """(1 + #{S_i >= s}) / (n + 1) of best scores s, of any shape; -inf, where nothing was found, has 1."""
        below = torch.searchsorted(self.null_scores, scores.detach().cpu().double().contiguous())
        return (1 + len(self) - below).double() / (1 + len(self))

    def threshold(self, rate: float) -> float:
        """The score above which p <= rate. Raises InputError for a rate that so few queries do not allow."""
        size = len(self) + 1
        # p is one of 1/(n + 1), 2/(n + 1), ..., 1: the number of these below 1 that are at most the rate.
        count = int((torch.arange(1, size).double() / size <= rate).sum())
        require(
            count > 0 and rate < 1,
            f"a false-accept rate of {rate!r} is not possible: expected a share below 1, and with {len(self):,} "
            f"calibration queries that share no answers at least {1 / size:.3g}",
        )
        return float(self.null_scores[-count])

    def at_rate(self, rate: float) -> dict[str, Any]:
        """The threshold of a false-accept rate, and how often it accepts queries whose answers are among the items.

        That is a share of the calibration queries, with the 95 % interval of the share among all such queries (Clopper
        and Pearson, 1934).
        """
        from scipy import stats

        threshold = self.threshold(rate)
        count = int((self.best_scores > threshold).sum())
        interval = [float(end) for end in stats.binomtest(count, len(self)).proportion_ci(0.95, method="exact")]
        return {"false_accept": rate, "threshold": threshold, "accepted": count / len(self), "interval": interval}
