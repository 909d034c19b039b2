"""Encoders in a form that a tracer can follow: sizes that vary, and no step outside of torch's own operators.

The encoders themselves run a batch's shared prefixes and sort in numpy, which is faster and gives the same numbers.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import fail
from vsehub.encoders.images import ImageCNN, ImageRegions
from vsehub.encoders.pooling import GPO, Last, Pooling, Whole
from vsehub.encoders.pretrained.images import ImageBackbone
from vsehub.encoders.pretrained.texts import TextPretrained
from vsehub.encoders.texts import TextGRU, TextTransformer
from vsehub.types import Encoder

# (a GRU or LSTM, batch first; whether all states are wanted) -> a module: inputs (N, L, F), lengths (N,) -> the last
# layer's states (N, L, D), or the last state of each row (N, D); of two directions their means.
Cells = Callable[[nn.RNNBase, bool], nn.Module]


def traced(encoder: Encoder, cells: Cells) -> nn.Module:
    """The encoder in traceable form, with the same results.

    It returns (N, D), or of an encoder that gives `Sets` the padded vectors (N, L, D), zero beyond a set, and the
    boolean mask (N, L) of what is no padding. cells: how the format computes a GRU or an LSTM. Raises InputError for an
    encoder of sets of another class.
    """
    if isinstance(encoder, TextGRU):
        return TracedRecurrent(encoder, cells)
    if isinstance(encoder, TextTransformer | TextPretrained):
        return TracedStates(encoder, traced_pool(encoder.pool, cells))
    if isinstance(encoder, ImageRegions):
        return TracedRegions(encoder, cells)
    if isinstance(encoder, ImageCNN) and encoder.pool is not None:
        return TracedMap(encoder, traced_pool(encoder.pool, cells))
    if isinstance(encoder, ImageBackbone):
        return TracedBackbone(encoder, traced(encoder.head, cells))
    if encoder.gives != "vectors":
        fail(f"{type(encoder).__name__} gives sets in a way that cannot be exported; choose a checkpoint of vectors")
    return encoder


def traced_pool(pool: Pooling, cells: Cells) -> nn.Module:
    """A pooling in traceable form: states (N, L, D), lengths (N,) -> what `traced` returns."""
    if isinstance(pool, GPO):
        return TracedGPO(pool, cells)
    return TracedSets() if isinstance(pool, Whole) else pool


class TracedSets(nn.Module):
    """States (N, L, D), zero beyond each row's length, and the mask of what is no padding."""

    def forward(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(N, L, D), (N,) -> (N, L, D), (N, L)."""
        inside = Pooling.inside(states, lengths)
        return states.masked_fill(~inside, 0), inside[:, :, 0]


class TracedGPO(nn.Module):
    """Generalised pooling by torch's own sort; weights are computed for each row instead of each size."""

    def __init__(self, pool: GPO, cells: Cells):
        super().__init__()
        self.pool, self.cells = pool, cells(pool.gru, True)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D)."""
        inside = Pooling.inside(states, lengths)
        places = self.pool.encoded(states.shape[1]).expand(states.shape[0], -1, -1)
        scores = self.pool.linear(self.cells(places, lengths)) / self.pool.temperature
        weights = scores.masked_fill(~inside, -torch.inf).softmax(dim=1)
        ordered = states.masked_fill(~inside, -torch.inf).sort(dim=1, descending=True).values
        return (weights * ordered.masked_fill(~inside, 0)).sum(dim=1)


class TracedRecurrent(nn.Module):
    """Words through a GRU or an LSTM, pooled."""

    def __init__(self, encoder: TextGRU, cells: Cells):
        super().__init__()
        at_the_end = isinstance(encoder.pool, Last)
        self.words, self.cells = encoder.words, cells(encoder.gru, not at_the_end)
        self.pool = None if at_the_end else traced_pool(encoder.pool, cells)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(N, L) ids, (N,) -> what `traced` returns."""
        found = self.cells(self.words(texts), lengths)
        return found if self.pool is None else self.pool(found, lengths)


class TracedStates(nn.Module):
    """Words through a Transformer, pooled."""

    def __init__(self, encoder: TextTransformer | TextPretrained, pool: nn.Module):
        super().__init__()
        self.encoder, self.pool = encoder, pool

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(N, L) ids, (N,) -> what `traced` returns."""
        return self.pool(self.encoder.states(texts, lengths), lengths)


class TracedRegions(nn.Module):
    """Regions of which those that are all zeros are padding, wherever they stand."""

    def __init__(self, encoder: ImageRegions, cells: Cells):
        super().__init__()
        self.linear, self.pool = encoder.linear, traced_pool(encoder.pool, cells)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(N, R, features) -> what `traced` returns; the padding comes last."""
        found = images.ne(0).any(dim=2)
        places = torch.arange(images.shape[1], device=images.device)
        order = (places + images.shape[1] * (~found).long()).argsort(dim=1)
        features = images.gather(1, order[:, :, None].expand(-1, -1, images.shape[2])).to(self.linear.weight.dtype)
        return self.pool(self.linear(F.normalize(features, dim=2)), found.sum(dim=1))


class TracedMap(nn.Module):
    """The places of a convolutional network's last map, pooled."""

    def __init__(self, encoder: ImageCNN, pool: nn.Module):
        super().__init__()
        self.encoder, self.pool = encoder, pool

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(N, 3, height, width) -> what `traced` returns."""
        regions = self.encoder.regions(images)
        lengths = torch.full((regions.shape[0],), regions.shape[1], dtype=torch.int64, device=regions.device)
        return self.pool(regions, lengths)


class TracedBackbone(nn.Module):
    """A pretrained network's features through a traced head."""

    def __init__(self, encoder: ImageBackbone, head: nn.Module):
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(N, *image_shape) -> what `traced` returns."""
        return self.head(self.encoder.features(images))
