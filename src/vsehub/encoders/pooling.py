"""Poolings: from the states of a caption's words, or of an image's regions, to one encoding."""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vsehub.checks import one_of
from vsehub.encoders.fast.prefix_gru import all_states, fits
from vsehub.encoders.fast.sort import WeightedByPlace
from vsehub.sets import Encoding, Sets


def run(network: nn.Module, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The states (N, L, D) of a GRU or LSTM, and the last one of each row (N, D); of two directions their means.

    rows: (N, L, ...), the first lengths[n] are row n's. lengths: (N,), at least 1. Another network than torch's, as an
    exporter puts in its place, takes both and returns both.
    """
    if not isinstance(network, nn.RNNBase):
        found: tuple[Tensor, Tensor] = network(rows, lengths)
        return found
    if not network.bidirectional:
        states = network(rows)[0]  # it never sees the padding behind a row
        return states, states[torch.arange(len(states), device=states.device), lengths - 1]
    lengths = lengths.cpu()
    order = lengths.argsort(descending=True, stable=True)
    count, longest = len(lengths), int(lengths[order[0]])
    steps = torch.arange(longest)[:, None]
    running = steps < lengths[order]  # (L, N): step by step, the rows that are not at their end
    # torch's own packing copies step by step, and each step's gradient is as large as all. One copy to the device
    # serves the packed order and the one that undoes the sorting.
    places = torch.cat([(order * longest + steps)[running], order.argsort()]).to(rows.device, non_blocking=True)
    packed, unsorted = places[:-count], places[-count:]
    given = rows[:, :longest].flatten(0, 1).index_select(0, packed)
    states, last = network(PackedSequence(given, running.sum(dim=1)))
    last = last[0] if isinstance(network, nn.LSTM) else last
    mean = states.data.unflatten(1, (2, -1)).mean(dim=1)
    padded = mean.new_zeros(count * longest, mean.shape[1]).index_copy(0, packed, mean)
    return padded.unflatten(0, (count, longest)), last[-2:].mean(dim=0).index_select(0, unsorted)


class Pooling(nn.Module):
    """Pool (N, L, D) states, the first lengths[n] >= 1 of each row n, to (N, D) vectors or N `Sets`.

    gives: "vectors" or "sets". States beyond lengths[n], even infinite or NaN, have no effect.
    """

    gives = "vectors"

    def of_sets(self, states: Sets) -> Encoding:
        """The same of states without padding."""
        return self(states.padded()[0], states.lengths)

    @staticmethod
    def inside(states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, 1) boolean: which states are a row's own."""
        return (torch.arange(states.shape[1], device=states.device) < lengths[:, None])[:, :, None]


class Last(Pooling):
    """The last state."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D)."""
        return states[torch.arange(states.shape[0], device=states.device), lengths - 1]


class Mean(Pooling):
    """The mean of the states."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D)."""
        return states.masked_fill(~self.inside(states, lengths), 0).sum(dim=1) / lengths[:, None]


class Max(Pooling):
    """The largest value of each dimension."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D)."""
        return states.masked_fill(~self.inside(states, lengths), -math.inf).max(dim=1).values


class GPO(Pooling):
    """Generalised pooling: each dimension's values from largest to smallest, weighted by place (VSE∞, Chen 2021).

    The weights depend only on the set's size: a bidirectional GRU, its directions averaged, reads the places' sine and
    cosine encodings, and its scores, divided by the temperature 0.1 of the authors' code, go through a softmax over the
    places. position_dim: of the encodings, even. hidden_dim: of the GRU.
    """

    temperature = 0.1

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32):
        super().__init__()
        self.position_dim = position_dim
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D), in the weights' type."""
        exporting = torch.compiler.is_exporting()
        if states.device.type == "cpu" and not exporting:
            return self._on_cpu(states.flatten(0, 1), torch.arange(len(states)) * states.shape[1], lengths)
        with torch.autocast(states.device.type, enabled=False):
            weights = self.weights(lengths, states.shape[1]) if exporting else self._weights_of(lengths)
            inside = self.inside(states, lengths)
            ordered = states.to(weights.dtype).masked_fill(~inside, -math.inf).sort(dim=1, descending=True).values
            return (weights[:, None] @ ordered.masked_fill(~inside, 0)[:, : weights.shape[1]])[:, 0]

    def of_sets(self, states: Sets) -> Tensor:
        """N `Sets` -> (N, D), in the weights' type."""
        if states.device.type == "cpu":
            return self._on_cpu(states.vectors, states.lengths.cumsum(0) - states.lengths, states.lengths)
        return self(states.padded()[0], states.lengths)

    def _on_cpu(self, vectors: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            weights = self._weights_of(lengths)
            return WeightedByPlace.apply(vectors.to(weights.dtype), starts, lengths, weights)

    def _weights_of(self, lengths: Tensor) -> Tensor:
        """The weights of sets of these sizes: (N,) -> (N, longest)."""
        sizes, where = lengths.cpu().unique(return_inverse=True)  # a GPU would be waited for at each of three numbers
        return self.weights(sizes, int(sizes.max()))[where.to(lengths.device)]

    def weights(self, sizes: Tensor, longest: int) -> Tensor:
        """The weights of the places in sets of each size: (U,) on the CPU -> (U, longest), each row's sum 1."""
        encoded = self.encoded(longest)
        if fits(self.gru, encoded):
            words = torch.arange(longest).expand(len(sizes), -1)
            states = all_states(self.gru, encoded.__getitem__, words, sizes).padded()[0]
        else:
            states = run(self.gru, encoded.expand(sizes.shape[0], -1, -1), sizes)[0]
        scores = self.linear(states) / self.temperature
        inside = self.inside(scores, sizes.to(scores.device))
        return scores.masked_fill(~inside, -math.inf).softmax(dim=1)[:, :, 0]

    def encoded(self, longest: int) -> Tensor:
        """The places' sines and cosines (longest, position_dim), the first place being 0 as in the authors' code."""
        like = self.linear.weight
        steps = torch.arange(0, self.position_dim, 2, device=like.device, dtype=like.dtype)
        angles = torch.arange(longest, device=like.device, dtype=like.dtype)[:, None]
        angles = angles * torch.exp(steps * (-math.log(10000.0) / self.position_dim))
        return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


class Whole(Pooling):
    """All states, as sets for cross-attention."""

    gives = "sets"

    def forward(self, states: Tensor, lengths: Tensor) -> Encoding:
        """(N, L, D), (N,) -> N `Sets`."""
        return Sets.from_padded(states, lengths)

    def of_sets(self, states: Sets) -> Sets:
        """As they are."""
        return states


POOLINGS = {"last": Last, "mean": Mean, "max": Max, "gpo": GPO, "none": Whole}


def pooling_of(name: str, choices: tuple[str, ...] = tuple(POOLINGS)) -> Pooling:
    """The pooling of that name; "none" gives `Sets`. Raises InputError where it is not among `choices`."""
    one_of("pooling", name, choices)
    return POOLINGS[name]()
