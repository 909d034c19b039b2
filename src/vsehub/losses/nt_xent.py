"""Cross-entropy at a fixed temperature, the pair's own score lowered by a margin."""

from torch import Tensor

from vsehub.checks import finite_number, positive
from vsehub.losses.base import checked, cross_entropies
from vsehub.types import Loss, NeighborStats


class NTXent(Loss):
    """Mean over rows and columns of -log e^{(S_ii - m)/τ} / (e^{(S_ii - m)/τ} + Σ_neg e^{S_neg/τ}) (Yang 2019).

    NT-Xent (Chen 2020) across the two modalities with the additive margin of Yang 2019; with margin 0 InfoNCE whose
    temperature is not learnt. temperature: τ. margin: m. Other positives of an image are left out. Raises InputError
    for a temperature that is not positive or a margin below 0.
    """

    def __init__(self, temperature: float = 0.07, margin: float = 0.3):
        super().__init__()
        positive("temperature", temperature)
        finite_number("margin", margin, 0)
        self.temperature, self.margin = temperature, margin

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        scores = checked(scores, positives)
        paired = scores.diagonal() - self.margin
        rows, columns = cross_entropies(scores / self.temperature, paired / self.temperature, positives)
        return {"loss": (rows + columns).mean() / 2}
