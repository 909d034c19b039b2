"""What is counted of one ranking while its lists come block by block."""

from collections.abc import Callable

import torch
from torch import Tensor

from vsehub.metrics.hubness import histogram, occurrence_metrics
from vsehub.metrics.occurrences import KS, Occurrences
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS, at_r

# (k) -> the lists (b, k) of some queries, best first
Lists = Callable[[int], Tensor]


class Tally:
    """Hubness of a ranking and, where positives are given, what of it is right.

    items: M. ks: the neighbourhood sizes of `KS` that M items reach. relevance: how deep lists must be for mAP@R and
    R-Precision, or None to leave these out.
    """

    def __init__(self, items: int, positives: Positives | None, relevance: int | None):
        self.items, self.positives, self.relevance = items, positives, relevance
        self.ks = reached(items)
        # One counter a k: a matching's list for k = 5 is not the beginning of its list for k = 10.
        self._counted = {k: Occurrences(items, (k,)) for k in self.ks}
        self._found = dict.fromkeys(RECALLS, 0)
        self._precision = torch.zeros(2, dtype=torch.float64)

    def add(self, first: int, lists: Lists) -> None:
        """Count the lists of the queries `first`, `first` + 1, ..."""
        for k, counted in self._counted.items():
            if self.positives is None:
                counted.add(lists(k))
            else:
                counted.add_judged(lists(k), self.positives, first)
        if self.positives is None:
            return
        for k in RECALLS:
            self._found[k] += int(self.positives.hits(lists(min(k, self.items)), first).any(dim=1).sum())
        if self.relevance is not None:
            hits = self.positives.hits(lists(self.relevance), first)
            self._precision += torch.stack(at_r(hits, self.positives.counts[first : first + len(hits)])).sum(dim=1)

    def occurrences(self, k: int) -> Tensor:
        """N_k (M,)."""
        return self._counted[k].counts[k]

    def wrong(self, k: int) -> Tensor | None:
        """BN_k (M,): how often an item is a wrong answer; None where positives are not known."""
        return None if self.positives is None else self._counted[k].bad[k]

    def hubness(self) -> dict[str, float]:
        """The figures of `metrics.hubness.occurrence_metrics`, with those of bad hubs where positives are known."""
        counts = {k: self.occurrences(k) for k in self.ks}
        if self.positives is None:
            return occurrence_metrics(counts)
        return occurrence_metrics(counts, {k: self.wrong(k) for k in self.ks}, self._counted[self.ks[0]].judged)

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """The distribution of N_k for each k, as `metrics.hubness.histogram` gives it."""
        return {str(k): histogram(self.occurrences(k)) for k in self.ks}

    def truth(self) -> dict[str, float | None] | None:
        """ "r1", "r5", "r10", "map_r", "r_precision" in % of the queries that have a positive; None without positives.

        map_r and r_precision are None where the lists are not deep enough for them.
        """
        if self.positives is None:
            return None
        queries = int((self.positives.counts > 0).sum())
        purity = (100.0 * self._precision / queries).tolist() if self.relevance is not None else (None, None)
        recalls = {f"r{k}": 100.0 * found / queries for k, found in self._found.items()}
        return recalls | dict(zip(("map_r", "r_precision"), purity, strict=True))


class Changes:
    """How much of the plain ranking a correction leaves: the first places, and the first k as a set."""

    def __init__(self):
        self._queries = self._first = 0
        self._kept = 0.0

    def add(self, plain: Tensor, corrected: Tensor) -> None:
        """Compare two rankings (b, k) of some queries."""
        self._queries += len(plain)
        self._first += int((plain[:, 0] != corrected[:, 0]).sum())
        # No list names an item twice, so that what comes twice in both together is in both.
        together = torch.cat((plain, corrected), dim=1).sort(dim=1).values
        self._kept += (together[:, 1:] == together[:, :-1]).sum().item() / plain.shape[1]

    def figures(self) -> dict[str, float]:
        """ "first": share of queries whose first item differs; "overlap": mean share of the k items that stay."""
        return {"first": self._first / self._queries, "overlap": self._kept / self._queries}


def reached(items: int) -> tuple[int, ...]:
    """The neighbourhood sizes of `KS` that so many items reach."""
    return tuple(k for k in KS if k <= items)
