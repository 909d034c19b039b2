"""SUM first, MAX afterwards: VSE∞'s warm-up against the collapse of MAX (Chen 2021)."""

from torch import Tensor

from vsehub.checks import whole
from vsehub.losses.hinge import MaxMargin, SumMargin
from vsehub.types import Loss, NeighborStats


class SumToMax(Loss):
    """The SUM loss in the first `warmup_epochs` epochs, the MAX loss in all later ones (Chen 2021).

    Both are sums over the batch, so that the value drops by a factor of up to N - 1 where MAX takes over. The epoch, 0
    until `set_epoch` is called, is its only state: a resumed run that sets it continues as an uninterrupted one. Raises
    InputError for a margin or number of epochs that is not positive.
    """

    def __init__(self, margin: float = 0.2, warmup_epochs: int = 1):
        super().__init__()
        whole("warmup_epochs", warmup_epochs)
        self.sum, self.max = SumMargin(margin), MaxMargin(margin)
        self.margin, self.warmup_epochs, self.epoch = margin, warmup_epochs, 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that begins, counted from 0."""
        self.epoch = epoch

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        phase = self.sum if self.epoch < self.warmup_epochs else self.max
        terms: dict[str, Tensor] = phase(scores, positives)
        return terms
