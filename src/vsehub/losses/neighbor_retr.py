"""NeighborRetr (Lin 2025): weights by centrality, adjusted neighbourhoods, and retrieval that is uniform over items."""

import torch
from torch import Tensor

from vsehub.checks import fail, finite_number, positive, probability, whole
from vsehub.losses.base import checked, fill_excluded, without_other_positives
from vsehub.types import Loss, NeighborStats


class NeighborRetr(Loss):
    """Sum of three cross-entropies, each a mean over rows and columns (Lin 2025; docs/protocols.md).

    The centrality c of an item is its mean score with the bank's entries of the other modality; without a bank, with
    those of the batch. Weights and targets are constants. Other positives of an image are left out of all sums.

    Centrality weighting: -e^{κ c_i} log p_ii, p the softmax of S/τ, c_i that of the row's own item. Neighbour
    adjusting: the k largest negatives of a row are its neighbours; the target is one half the pair, one half the
    softmax over the neighbours of T (s - c), s and c scaled by the range that they have outside the neighbourhood: near
    neighbours are pulled, hubs pushed. The prediction is the softmax of S over both. Uniform regularisation: the target
    is β Q + (1 - β) I, Q the doubly stochastic plan of entropic optimal transport by S/ε, which retrieves every item
    equally often; the prediction is p.

    temperature: τ. centrality_scale: κ. k: number of neighbours; ties with the k-th, up to rounding, count too.
    sharpness: T. transport_temperature, transport_share: ε and β; transport_rounds: rounds of Sinkhorn's algorithm.
    neighbor_weight, uniform_weight: of the second and the third term; 0 leaves one out. Scores are to be bounded, such
    as cosines. Raises InputError for settings out of range and for neighbours without centralities.
    """

    takes_neighbors = True
    takes_centrality = True

    def __init__(
        self,
        temperature: float = 0.07,
        centrality_scale: float = 0.3,
        k: int = 20,
        sharpness: float = 3.0,
        transport_temperature: float = 0.1,
        transport_share: float = 0.7,
        transport_rounds: int = 50,
        neighbor_weight: float = 1.0,
        uniform_weight: float = 1.0,
    ):
        super().__init__()
        positive("temperature", temperature)
        positive("transport_temperature", transport_temperature)
        probability("transport_share", transport_share)
        whole("transport_rounds", transport_rounds)
        whole("k", k)
        for name, value in (
            ("centrality_scale", centrality_scale),
            ("sharpness", sharpness),
            ("neighbor_weight", neighbor_weight),
            ("uniform_weight", uniform_weight),
        ):
            finite_number(name, value, 0)
        self.temperature, self.centrality_scale, self.k, self.sharpness = temperature, centrality_scale, k, sharpness
        self.transport_temperature, self.transport_share = transport_temperature, transport_share
        self.transport_rounds = transport_rounds
        self.neighbor_weight, self.uniform_weight = neighbor_weight, uniform_weight

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean, neighbors with centralities (N,) -> {"loss" and its three terms}."""
        scores = checked(scores, positives)
        counted = without_other_positives(positives)
        images, texts = self.centralities(scores, counted, neighbors)
        log_rows = _log_softmax(scores / self.temperature, counted)
        log_columns = _log_softmax(scores.T / self.temperature, counted.T)

        row_weights, column_weights = ((self.centrality_scale * side).exp() for side in (images, texts))
        weighted = row_weights * log_rows.diagonal() + column_weights * log_columns.diagonal()
        terms = {"centrality": -weighted.mean() / 2}
        loss = terms["centrality"]
        if self.neighbor_weight:
            rows = self._neighbor_term(scores, counted, texts)
            columns = self._neighbor_term(scores.T, counted.T, images)
            terms["neighbor"] = (rows + columns).mean() / 2
            loss = loss + self.neighbor_weight * terms["neighbor"]
        if self.uniform_weight:
            targets = self.uniform_targets(scores, counted)
            terms["uniform"] = (_cross_entropy(targets, log_rows) + _cross_entropy(targets.T, log_columns)).mean() / 2
            loss = loss + self.uniform_weight * terms["uniform"]
        return {"loss": loss} | {name: term.detach() for name, term in terms.items()}

    @torch.no_grad()
    def centralities(
        self, scores: Tensor, counted: Tensor, neighbors: NeighborStats | None = None
    ) -> tuple[Tensor, Tensor]:
        """The centrality of each image and of each text, (N,) each, without gradient."""
        if neighbors is None:
            counted_scores = scores.masked_fill(~counted, 0.0)
            return counted_scores.sum(dim=1) / counted.sum(dim=1), counted_scores.sum(dim=0) / counted.sum(dim=0)
        images, texts = neighbors.image_centrality, neighbors.text_centrality
        if images is None or texts is None or not images.shape == texts.shape == scores.shape[:1]:
            fail(
                f"neighbors holds no centralities of shape ({len(scores)},) for images and texts; query the bank with "
                "centrality=True"
            )
        return images.to(scores.dtype), texts.to(scores.dtype)

    @torch.no_grad()
    def neighborhood(self, scores: Tensor, counted: Tensor) -> Tensor:
        """Each row's pair and its neighbours, (N, N) boolean.

        Scores that differ only by rounding count as equal, such as those of copies of an image that were encoded in
        different chunks.
        """
        pair = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        negatives = counted & ~pair
        least = scores.masked_fill(~negatives, -torch.inf).topk(min(self.k, len(scores)), dim=1).values[:, -1:]
        near = scores >= least - _rounding(scores.abs().amax(dim=1, keepdim=True))
        return pair | (negatives & near)

    @torch.no_grad()
    def neighbor_targets(self, scores: Tensor, counted: Tensor, centrality: Tensor, neighborhood: Tensor) -> Tensor:
        """Each row's target over its pair and its neighbours, (N, N), 0 elsewhere, without gradient.

        centrality: (N,) of the columns' items. neighborhood: the result of `neighborhood`.
        """
        pair = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        near, outside = neighborhood & ~pair, counted & ~neighborhood
        difference = _scaled(scores, outside) - _scaled(centrality.expand_as(scores), outside)
        shares = fill_excluded(self.sharpness * difference, ~near).softmax(dim=1) * near
        targets = shares + pair.to(scores.dtype)
        return targets / targets.sum(dim=1, keepdim=True)

    @torch.no_grad()
    def uniform_targets(self, scores: Tensor, counted: Tensor) -> Tensor:
        """β Q + (1 - β) I, (N, N), without gradient; one plan Q serves both directions."""
        logits = (scores / self.transport_temperature).masked_fill(~counted, -torch.inf)
        # After one round on logarithms no row or column underflows, so that further rounds need only products.
        kernel = logits.log_softmax(dim=1).log_softmax(dim=0).exp()
        row_scale = column_scale = scores.new_ones(len(scores))
        for _ in range(self.transport_rounds - 1):
            row_scale = 1 / (kernel @ column_scale)
            column_scale = 1 / (row_scale @ kernel)
        plan = row_scale[:, None] * kernel * column_scale
        pairs = torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
        return self.transport_share * plan + (1 - self.transport_share) * pairs

    def _neighbor_term(self, scores: Tensor, counted: Tensor, centrality: Tensor) -> Tensor:
        """The neighbour adjusting term of each row: (N,)."""
        neighborhood = self.neighborhood(scores, counted)
        targets = self.neighbor_targets(scores, counted, centrality, neighborhood)
        return _cross_entropy(targets, _log_softmax(scores, neighborhood))


def _rounding(values: Tensor) -> Tensor:
    """By how much results of this size may differ by rounding."""
    return 100 * torch.finfo(values.dtype).eps * values.abs()


def _log_softmax(logits: Tensor, counted: Tensor) -> Tensor:
    """Log-softmax of each row over its counted entries, (N, N); very low elsewhere, but finite."""
    return fill_excluded(logits, ~counted).log_softmax(dim=1)


def _cross_entropy(targets: Tensor, log_probabilities: Tensor) -> Tensor:
    """-Σ target · log probability of each row: (N, N), (N, N) -> (N,)."""
    return -(targets * log_probabilities).sum(dim=1)


def _scaled(values: Tensor, mask: Tensor) -> Tensor:
    """Each row scaled so that its entries in the mask range from 0 to 1; 0 where these do not differ."""
    low = values.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
    high = values.masked_fill(~mask, -torch.inf).amax(dim=1, keepdim=True)
    span = high - low
    differ = span > _rounding(torch.maximum(low.abs(), high.abs()))
    return ((values - low) / span).where(differ, 0.0)
