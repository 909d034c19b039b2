"""Hubness, recalls and precisions of a ranking, counted block by block."""

from collections.abc import Callable

import torch
from torch import Tensor

from vsehub.metrics.occurrences import (
    KS,
    ItemCounts,
    ListedOccurrences,
    Occurrences,
    histogram,
    occurrence_metrics,
)
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS, at_r

# A counter for each item takes 16 bytes for each k; beyond this many items, lists are stored instead.
COUNTED_EACH = 2**24
# (k) -> positions (b, k) of some queries, best first
Positions = Callable[[int], Tensor]


class Tally:
    """Hubness of a ranking and, if positives are given, its recalls and precisions.

    items: M. ks: the neighbourhood sizes of `KS` that M items allow. relevance: the depth of lists that mAP@R and
    R-Precision need; None omits these metrics.
    """

    def __init__(self, items: int, positives: Positives | None, relevance: int | None):
        self.items, self.positives, self.relevance = items, positives, relevance
        self.ks = reached(items)
        # One counter per k: a matching's list for k = 5 is not the beginning of its list for k = 10.
        counter = Occurrences if items <= COUNTED_EACH else ListedOccurrences
        self._counted = {k: counter(items, (k,)) for k in self.ks}
        self._found = dict.fromkeys(RECALLS, 0)
        self._precision = torch.zeros(2, dtype=torch.float64)

    def add(self, first: int, lists: Positions) -> None:
        """Count the lists of the queries `first`, `first` + 1, ..."""
        for k, counted in self._counted.items():
            if self.positives is None:
                counted.add(lists(k))
            else:
                counted.add_judged(lists(k), self.positives, first)
        if self.positives is None:
            return
        for k in RECALLS:
            nearest = lists(min(k, self.items))
            self._found[k] += int(self.positives.hits(nearest, first).any(dim=1).sum())
        if self.relevance is not None:
            hits = self.positives.hits(lists(self.relevance), first)
            self._precision += torch.stack(at_r(hits, self.positives.counts[first : first + len(hits)])).sum(dim=1)

    def occurrences(self, k: int) -> ItemCounts:
        """N_k."""
        return self._counted[k].item_counts(k)

    def wrong(self, k: int) -> ItemCounts | None:
        """BN_k: how often an item is a wrong answer; None if positives are not known."""
        return None if self.positives is None else self._counted[k].bad_counts(k)

    def hubness(self) -> dict[str, float]:
        """The metrics of `occurrence_metrics`, with those of bad hubs where positives are known."""
        counts = {k: self.occurrences(k) for k in self.ks}
        if self.positives is None:
            return occurrence_metrics(counts)
        bad = {k: counted.bad_counts(k) for k, counted in self._counted.items()}
        return occurrence_metrics(counts, bad, self._counted[self.ks[0]].judged)

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """The distribution of N_k for each k, as `metrics.occurrences.histogram` gives it."""
        return {str(k): histogram(self.occurrences(k)) for k in self.ks}

    def truth(self) -> dict[str, float | None] | None:
        """ "r1", "r5", "r10", "map_r", "r_precision" in % of the queries that have a positive; None without positives.

        map_r and r_precision are None if the lists are not deep enough for them.
        """
        if self.positives is None:
            return None
        queries = int((self.positives.counts > 0).sum())
        purity = (100.0 * self._precision / queries).tolist() if self.relevance is not None else (None, None)
        recalls = {f"r{k}": 100.0 * found / queries for k, found in self._found.items()}
        return recalls | dict(zip(("map_r", "r_precision"), purity, strict=True))


def reached(items: int) -> tuple[int, ...]:
    """The neighbourhood sizes of `KS` that this number of items allows."""
    return tuple(k for k in KS if k <= items)
