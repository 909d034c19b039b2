"""Placebos of the bank: HAL with weights that lost whose they are, and a bank that counts how large a hub a pair is."""

from typing import Any

import torch
from torch import Tensor

from vsehub.checks import one_of
from vsehub.losses import HAL
from vsehub.neighbors.bank import MemoryBank
from vsehub.training.callbacks import BankCallback
from vsehub.types import NeighborStats

NEAREST = 10  # N_10
ORDERS = ("own", "constant", "permuted", "sorted", "reversed")


class CountingBank(MemoryBank):
    """`MemoryBank` that gives, as centrality, N_10 of a batch's items among the bank: inner products only.

    N_10 of a text: the bank's images of other photos that would have it among their 10 nearest texts, were it added to
    the bank; of an image likewise.
    """

    def fill(self, images: Any, texts: Any, image_ids: Tensor, *others: Any, **named: Any) -> None:
        """Replace the contents, as `MemoryBank.fill`, and note each entry's similarity to its 10th neighbour."""
        super().fill(images, texts, image_ids, *others, **named)
        scores = (images @ texts.T).masked_fill(image_ids[:, None] == image_ids[None, :], -torch.inf)
        self._sides = images, texts
        self._bars = [side.topk(NEAREST, dim=1).values[:, -1] for side in (scores, scores.T)]

    @torch.no_grad()
    def query(self, images: Any, texts: Any, image_ids: Tensor, *others: Any, **named: Any) -> NeighborStats:
        """As `MemoryBank.query`; the centralities (N,) are N_10."""
        stats = super().query(images, texts, image_ids, *others, **named)
        others_of = self._image_ids[:, None] != image_ids[None, :]
        counts = [
            ((entries @ batch.T >= bar[:, None]) & others_of).sum(dim=0).float()
            for entries, batch, bar in zip(self._sides, (texts, images), self._bars, strict=True)
        ]
        return stats._replace(text_centrality=counts[0], image_centrality=counts[1])


class CountingCallback(BankCallback):
    """`BankCallback` with a `CountingBank`."""

    bank_class = CountingBank


class BlindHAL(HAL):
    """HAL whose weights are given to other pairs; with a bank that counts it logs what the weights know of hubs.

    order: "own" (HAL itself), "constant" (the mean of the batch's W_ij, and that of its W_ii), "permuted" (each pair
    has another pair's), "sorted" (the larger N_10 of image and text together, the larger the weight), or "reversed".
    """

    takes_centrality = True

    def __init__(self, order: str = "own", **settings: Any):
        super().__init__(**settings)
        one_of("order", order, ORDERS)
        self.order = order

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """HAL's terms; with neighbours also the correlation of W's means with N_10, and W of the hardest negatives."""
        terms = super().forward(scores, positives, neighbors)
        if neighbors is None:
            return terms
        weights = self.weights(scores.detach(), neighbors)
        negatives = ~positives
        share = negatives.sum(dim=1).clamp(min=1), negatives.sum(dim=0).clamp(min=1)
        masked = weights * negatives
        hardest = scores.detach().masked_fill(positives, -torch.inf).argmax(dim=1, keepdim=True)
        return terms | {
            "images_correlation": correlation(masked.sum(dim=1) / share[0], neighbors.image_centrality),
            "texts_correlation": correlation(masked.sum(dim=0) / share[1], neighbors.text_centrality),
            "hardest_weight": weights.gather(1, hardest).mean(),
        }

    @torch.no_grad()
    def weights(self, scores: Tensor, neighbors: NeighborStats) -> Tensor:
        """Global weights (N, N) in another order."""
        weights = super().weights(scores, neighbors)
        paired = weights.diagonal()
        if self.order == "own":
            return weights
        if self.order == "permuted":
            # Batches are in random order: half a turn gives each pair the weights of another one, drawn at random.
            return weights.roll((len(weights) // 2,) * 2, (0, 1))
        apart = ~torch.eye(len(weights), dtype=torch.bool, device=weights.device)
        if self.order == "constant":
            return weights[apart].mean().expand_as(weights).diagonal_scatter(paired.mean().expand_as(paired))
        hubs = neighbors.image_centrality[:, None] + neighbors.text_centrality[None, :]
        falls = self.order == "reversed"
        ordered = torch.empty_like(weights)
        for entries in (apart, ~apart):
            ranks = hubs[entries].argsort(stable=True).argsort()
            ordered[entries] = weights[entries].sort(descending=falls).values[ranks]
        return ordered


def correlation(left: Tensor, right: Tensor) -> Tensor:
    """Pearson's correlation of two vectors (N,); 0 where one of them is constant."""
    return torch.corrcoef(torch.stack([left, right]))[0, 1].nan_to_num()
