"""Differences between two rankings of the same queries."""

import torch
from torch import Tensor


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
