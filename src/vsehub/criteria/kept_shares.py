"""Rounds of Sinkhorn normalisation on the shares that matter, at a small part of the cost of rounds over all scores.

Scaled, each item shares its mass among the reference queries, and at usual temperatures few of them have nearly all of
it. Which ones is told from scalings of the queries that a sample of the items gives; the rounds then start anew.
"""

import math

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import Tensor

LEAST, MOST_LEAST = 1e-7, 2e-4  # share of an item that is kept: where there is room, and where there is little
MOST_KEPT = 2**27  # shares: 1 GB, and as much again while they are put together
WORTH = 8  # of the shares at most one in so many is kept: rounds on more save little
SAMPLED = 8  # items of a block that tell how many shares are kept


class KeptShares:
    """The shares of M items in R queries, block by block, then rounds on the large ones.

    Of the small ones the sums of each item and each query are known; they count as the product of these sums.
    full: whether there are too many.
    """

    def __init__(self, queries: Tensor, items: int):
        """queries: log u (R,), the scaling of the queries. items: M."""
        self._log_queries = queries.double().numpy()
        self._room, self.full = min(MOST_KEPT / items, len(queries) / WORTH), False
        self._kept: list[csr_matrix] = []
        self._received, self._unscaled = np.zeros(len(queries)), np.zeros(len(queries))
        self._level: float | None = None

    def add(self, shares: Tensor, mass: Tensor, scaled: Tensor) -> None:
        """Shares (m, R) of the next items, each item's of a sum `mass` (m,); scaled: log M·v (m,) of the items."""
        self._level = float(-scaled.double().mean()) if self._level is None else self._level
        weights = torch.stack([mass.reciprocal(), (-scaled - self._level).exp_() / mass])
        received, unscaled = (weights @ shares).double().numpy()
        self._received += received
        self._unscaled += unscaled
        if self.full:
            return
        values, sums = shares.numpy(), mass.numpy()
        few = values[:SAMPLED] / sums[:SAMPLED, None]
        least = LEAST
        if np.count_nonzero(few >= least) > self._room * len(few):
            least = float(
                np.partition(few.ravel(), -math.ceil(self._room * len(few)))[-math.ceil(self._room * len(few))]
            )
            self.full = least > MOST_LEAST
        large = values >= (least * sums)[:, None]
        ends = np.append(0, np.count_nonzero(large, axis=1).cumsum())
        large_shares, query = values[large] / np.repeat(sums, np.diff(ends)), np.flatnonzero(large) % values.shape[1]
        self._kept.append(csr_matrix((large_shares, query.astype(np.int32), ends), shape=values.shape))

    def rounds(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """log u (R,) after `count` rounds from the beginning, and by how much log v (M,) differs from what was added.

        The latter in the last of these rounds, and half a round later.
        """
        shares, self._kept = vstack(self._kept, "csr"), []
        shape = shares.shape
        of_items = np.clip(1 - shares @ np.ones(shape[1]), 0, None)
        of_queries = np.clip(self._received - shares.T @ np.ones(shape[0]), 0, None)
        total = max(of_queries.sum(), np.finfo(np.float64).tiny)

        def next_items(queries: np.ndarray) -> np.ndarray:
            return 1 / (shares @ queries + of_items * (of_queries @ queries / total))

        assert self._level is not None
        log_first = self._log_queries - np.log(self._unscaled) - self._level - math.log(shape[1])
        with np.errstate(all="ignore"):  # rows without a large share become NaN, which is reported later
            queries = np.exp(log_first - self._log_queries)
            for _ in range(count):
                items = next_items(queries)
                queries = shape[0] / shape[1] / (shares.T @ items + of_queries * (of_items @ items / total))
            log_queries = torch.from_numpy(self._log_queries + np.log(queries))
            return log_queries, torch.from_numpy(np.log(items)), torch.from_numpy(np.log(next_items(queries)))
