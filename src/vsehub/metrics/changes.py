"""Differences between two rankings of the same queries."""

import torch
from torch import Tensor

from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS


class Changes:
    """The share of a ranking that another one keeps: of the first items, and of the first k as sets."""

    def __init__(self) -> None:
        self.queries = self._first = 0
        self.kept = 0.0

    def add(self, before: Tensor, after: Tensor) -> None:
        """Compare two rankings (b, k) of some queries."""
        self.queries += len(before)
        self._first += int((before[:, 0] != after[:, 0]).sum())
        # No list names an item twice, so an item that occurs twice in both lists together is in both.
        together = torch.cat((before, after), dim=1).sort(dim=1).values
        self.kept += (together[:, 1:] == together[:, :-1]).sum().item() / before.shape[1]

    def metrics(self) -> dict[str, float]:
        """ "first": share of queries whose first item differs; "overlap": mean share of the k items that stay."""
        return {"first": self._first / self.queries, "overlap": self.kept / self.queries}


class RoundingChanges:
    """The changes by rounding in the rankings of a sample of queries; k: the length of the compared lists."""

    def __init__(self, k: int):
        self.k, self._changes = k, Changes()
        self._found, self.known = torch.zeros(2, len(RECALLS), dtype=torch.int64), 0

    def add(self, exact: Tensor, rounded: Tensor, positives: Positives | None) -> None:
        """Compare lists (n, K) of the same queries, best first, K at least k; positives: of these n queries."""
        exact, rounded = exact.cpu(), rounded.cpu()
        self._changes.add(exact[:, : self.k], rounded[:, : self.k])
        if positives is None or len(positives.query) == 0:
            return
        self.known += int((positives.counts > 0).sum())
        for row, lists in enumerate((exact, rounded)):
            hits = positives.hits(lists.to(positives.query.device)).cpu()
            self._found[row] += torch.stack([hits[:, :k].any(dim=1).sum() for k in RECALLS])

    def metrics(self) -> dict[str, float | None]:
        """ "queries", "k", and "first" and "overlap" as `Changes` gives them.

        "recall": the largest difference of R@1, R@5 and R@10, as far as the lists reach, in points; None if no query
        has a positive.
        """
        differences = 100.0 * (self._found[0] - self._found[1]).abs().max().item()
        recall = differences / self.known if self.known else None
        return {"queries": self._changes.queries, "k": self.k, **self._changes.metrics(), "recall": recall}
