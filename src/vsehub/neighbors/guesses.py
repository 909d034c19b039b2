"""Items that may be among the k best of some queries, as far as rounded scores tell.

Rounded scores are good guesses, whose error is far below its bound. By the guesses, items are left out that can hardly
be among the k best; the largest score that one of them may have for certain is noted. Once the others are computed in
full, the k-th best of these is compared with it, which proves the guesses right or says of which queries they were not.
"""

import numpy as np
import torch
from torch import Tensor

from vsehub.metrics.topk import WAITING, order_of

# Rows and columns (e,) of some items, guesses that are no larger than theirs, and numbers that are no smaller.
Guesses = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Guessed:
    """The items of some queries whose guesses come in turn.

    known: (b, k) float32, the best scores so far. kth: the k-th best score or guess so far (b, 1), or a lower one.
    left_out: (b, 1) float64, what the score of no item that is left out exceeds.
    """

    def __init__(self, known: Tensor):
        self.left_out = np.full((len(known), 1), -np.inf)
        self.start(known)

    def start(self, known: Tensor) -> None:
        """Forget the items that are held, whose scores are known now."""
        self._known = known.numpy()
        self.kth = self._known.min(axis=1, keepdims=True)
        self._unranked: list[tuple[np.ndarray, np.ndarray]] = []  # rows and guesses since kth was found
        self._held: list[tuple[np.ndarray, ...]] = []  # rows, positions and largest possible guesses
        self._margin, self._slack = np.zeros_like(self.kth, np.float64), np.full_like(self.kth, np.inf, np.float64)
        self.count = 0

    def add(self, guesses: Guesses, first: int, margin: np.ndarray, slack: np.ndarray) -> None:
        """Take the items of some columns, from the position `first` on, whose guesses may be kth less the margin.

        margin: (b, 1) the error of the guesses, and the slack (b, 1).
        """
        rows, columns, least, largest = guesses
        self._held.append((rows, columns + first, largest))
        self._unranked.append((rows, least))
        self.count += len(rows)
        np.maximum(self.left_out, self.kth - slack, out=self.left_out)
        np.maximum(self._margin, margin, out=self._margin)
        np.minimum(self._slack, slack, out=self._slack)
        if sum(len(one) for one, _ in self._unranked) > WAITING * self._known.size:
            self._rank()

    def _rank(self) -> None:
        """Find the k-th best of all so far."""
        rows, guesses = (np.concatenate(parts) for parts in zip(*self._unranked, strict=True))
        order = order_of(rows)
        counts = np.bincount(rows, minlength=len(self._known))
        ends, rows = counts.cumsum(), rows[order]
        lines = np.full((len(counts), counts.max()), -np.inf, np.float32)
        lines[rows, np.arange(len(rows)) - (ends - counts)[rows]] = guesses[order]
        k = self._known.shape[1]
        self._known = np.partition(np.concatenate([self._known, lines], axis=1), -k, axis=1)[:, -k:]
        self.raise_kth(self._known.min(axis=1, keepdims=True))
        self._unranked = []

    def raise_kth(self, kth: np.ndarray) -> None:
        """Note that the k-th best is at least this (b, 1)."""
        self.kth = np.maximum(self.kth, kth)

    def leave_out(self) -> None:
        """Hold only items that may still be among the best."""
        if self._unranked:
            self._rank()
        if self._held:
            rows, positions, largest = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
            kept = largest >= (self.kth - self._margin)[rows, 0]
            np.maximum(self.left_out, self.kth - self._slack, out=self.left_out)
            self._held, self.count = [(rows[kept], positions[kept], largest[kept])], int(kept.sum())

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The rows and positions (e,) of what is held, in the order of rows, then of positions."""
        rows, positions, _ = (
            self._held[0] if len(self._held) == 1 else map(np.concatenate, zip(*self._held, strict=True))
        )
        order = order_of(rows)
        return torch.from_numpy(rows[order]), torch.from_numpy(positions[order])
