"""HAL, the hubness-aware loss (AAAI eq. 6 and 7), with global weights from a memory bank or from the batch itself."""

import logging

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import finite_number, one_of, positive, require, whole
from vsehub.losses.base import checked, log_sums
from vsehub.types import Loss, NeighborStats

log = logging.getLogger(__name__)

FIRST_LOOK = 16  # the first step at which pairs are looked at, which synchronises a GPU; then at later powers of two


class HAL(Loss):
    """Mean over the pairs of 1/γ log(1 + Σ e^{γ W (S - ε)}) over rows and columns, minus log(1 + [W_ii S_ii]₊).

    gamma, epsilon: γ and ε of eq. 7. alpha, beta, epsilon1, epsilon2: the weights' constants of eq. 6, used only with
    neighbours; without them W = 1. statistics: source of the weights' neighbours: "bank", or "batch" for the negatives
    of each row and column, an ablation that needs no bank. neighbors_k: number of neighbours that count, the nearest
    first (None: all). variant: "paper" computes the equations, "release" what the authors' published code does
    (docs/protocols.md lists where they differ). clamp: True rewards a pair by log(1 + max(0, W_ii S_ii)), as the
    authors' code does, which has no gradient below 0; False by log(1 + W_ii S_ii), as eq. 7 prints, for scores
    above -1. Log-sums are taken stably, in float32 at least, so that γ = 1000 stays finite. Logs a warning, once,
    if no pair of a batch scores above 0 and the reward is clamped, looking at the 16th training step, the 32nd, the
    64th, and so on. Raises InputError for constants out of range.
    """

    def __init__(
        self,
        gamma: float = 60.0,
        epsilon: float = 0.7,
        alpha: float = 40.0,
        beta: float = 40.0,
        epsilon1: float = 0.2,
        epsilon2: float = 0.1,
        neighbors_k: int | None = None,
        variant: str = "paper",
        statistics: str = "bank",
        clamp: bool = True,
    ):
        super().__init__()
        positive("gamma", gamma)
        positive("alpha", alpha)
        positive("beta", beta)
        one_of("variant", variant, ("paper", "release"))
        one_of("statistics", statistics, ("bank", "batch"))
        for name, value in (("epsilon", epsilon), ("epsilon1", epsilon1), ("epsilon2", epsilon2)):
            finite_number(name, value)
        if neighbors_k is not None:
            whole("neighbors_k", neighbors_k)
        self.gamma, self.epsilon = gamma, epsilon
        self.alpha, self.beta, self.epsilon1, self.epsilon2 = alpha, beta, epsilon1, epsilon2
        self.neighbors_k, self.variant, self.statistics = neighbors_k, variant, statistics
        self.takes_neighbors = statistics == "bank"
        self.clamp, self.needs_above = clamp, 0.0 if clamp else None
        self._steps: int | None = 0  # training steps so far; None once the warning was logged

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean, neighbors (N, k) each -> {"loss", "negatives", "positives", ...}.

        Also the share of negatives above ε, `above_epsilon`, and with neighbours their mean W, `mean_weight`.
        """
        scores = checked(scores, positives)
        if self.statistics == "batch":
            neighbors = self._batch_neighbors(scores.detach(), positives)
        weights = None if neighbors is None else self.weights(scores, neighbors)
        paired = scores.diagonal()
        if weights is not None:
            paired = weights.diagonal() * paired
        rows, columns = log_sums(scores, positives, self.gamma, self.epsilon, weights)
        if self.variant == "release":
            # The authors multiply by a mask instead of leaving the diagonal out, so it adds e^{γ(0 - ε)}, or e^0
            # where the mask also zeroes the weight.
            zeroed = scores.new_tensor(0.0 if weights is not None else -self.gamma * self.epsilon)
            rows, columns = torch.logaddexp(rows, zeroed), torch.logaddexp(columns, zeroed)
        # torch's own threshold of 20 leaves an error of e^-20, above float64's.
        rows, columns = (F.softplus(side, threshold=40) / self.gamma for side in (rows, columns))
        negatives = (rows + columns).mean()
        if self.clamp:
            self._warn_below_0(paired)
            paired = paired.clamp(min=0)
        reward = torch.log1p(paired).mean()
        count = (~positives).sum().clamp(min=1)
        terms = {
            "loss": negatives - reward,
            "negatives": negatives.detach(),
            "positives": reward.detach(),
            "above_epsilon": ((scores.detach() > self.epsilon) & ~positives).sum() / count,
        }
        if weights is not None:
            terms["mean_weight"] = weights.masked_fill(positives, 0).sum() / count
        return terms

    def _warn_below_0(self, paired: Tensor) -> None:
        """Log a warning, once, if no pair of a training step's batch (N,) gets a gradient from its clamped reward.

        A compiled step logs none: it would be compiled anew for each number of steps.
        """
        if not paired.requires_grad or self._steps is None or torch.compiler.is_compiling():
            return
        self._steps += 1
        if self._steps >= FIRST_LOOK and self._steps.bit_count() == 1 and not (paired > 0).any():
            log.warning(
                "HAL: none of the %d pairs of training step %d scores above 0, where the reward has no gradient: "
                "they may stay there. Warm the learning rate up, lower it, or set clamp=False",
                len(paired), self._steps,
            )  # fmt: skip
            self._steps = None

    @torch.no_grad()
    def weights(self, scores: Tensor, neighbors: NeighborStats) -> Tensor:
        """Global weights W (N, N) of eq. 6 from the neighbours' similarities, without gradient.

        scores: (N, N) of the batch. neighbors: (N, k) largest first, -inf where there are fewer. Raises InputError
        where the sizes differ.
        """
        images = self._nearest("image_to_text", neighbors.image_to_text, scores)
        texts = self._nearest("text_to_image", neighbors.text_to_image, scores)
        paired = scores.diagonal()
        release = self.variant == "release"

        # The weights of the pairs, on the diagonal.
        pair_weight_shift = self.epsilon1 if release else self.epsilon2
        image_term, text_term = (
            _log_sum(stats, self.alpha, pair_weight_shift * self.alpha) for stats in (images, texts)
        )
        pair_weights = torch.sigmoid(torch.logaddexp(image_term, text_term) - self.alpha * (paired - self.epsilon1))

        # The weights of all other entries.
        neighbor_shift = self.epsilon2 if release else self.beta * self.epsilon2
        pair_shift = 0.0 if release else self.epsilon1
        image_crowd, text_crowd = (_log_sum(stats, self.beta, neighbor_shift) for stats in (images, texts))
        pair_term = self.beta * (paired - pair_shift)
        crowd = torch.logaddexp(image_crowd[:, None], text_crowd[None, :])
        weights = torch.sigmoid(crowd - torch.logaddexp(pair_term[:, None], pair_term[None, :]))
        return weights.diagonal_scatter(pair_weights)

    def _batch_neighbors(self, scores: Tensor, positives: Tensor) -> NeighborStats:
        """The negatives of each row and of each column, (N, k) each: the k largest, or all."""
        negatives = scores.masked_fill(positives, -torch.inf)
        k = min(self.neighbors_k or len(scores), len(scores))
        return NeighborStats(negatives.topk(k, dim=1).values, negatives.T.topk(k, dim=1).values)

    def _nearest(self, name: str, stats: Tensor, scores: Tensor) -> Tensor:
        """The similarities (N, k) to the neighbours that count, after a check of their shape."""
        require(
            stats.ndim == 2 and len(stats) == len(scores) and stats.shape[1] > 0,
            f"neighbors.{name} has shape {tuple(stats.shape)}; expected ({len(scores)}, k), one row for each pair",
        )
        k = stats.shape[1] if self.neighbors_k is None else self.neighbors_k
        require(
            k <= stats.shape[1] or self.statistics == "batch",
            f"neighbors.{name} holds {stats.shape[1]} neighbours but neighbors_k is {k}; raise the bank's k",
        )
        if self.variant == "release":
            k = min(k, len(scores))  # the authors' code takes no more neighbours than the batch has pairs
        return stats[:, :k].to(scores.dtype)


def _log_sum(stats: Tensor, factor: float, shift: float) -> Tensor:
    """log Σ_k e^{factor · s - shift} of each row: (N, k) -> (N,)."""
    return (factor * stats - shift).logsumexp(dim=1)
