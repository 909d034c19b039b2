"""Encoders of images and texts that are vectors: a linear map to the joint space, or a residual adapter."""

import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import require, whole
from vsehub.types import Encoder


def width(encoder: Encoder, shape: tuple[int, ...]) -> int:
    """The dimension of the data's vectors. Raises InputError for data of another shape."""
    require(
        len(shape) == 1,
        f"{type(encoder).__name__} takes a vector for each image or text, but the data's have shape {tuple(shape)}; "
        "choose another encoder or other features",
    )
    return shape[0]


def linear_map(size: int, dim: int) -> nn.Linear:
    """A linear layer whose weights start Xavier-uniform, the bias at 0."""
    linear = nn.Linear(size, whole("dim", dim))
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class ImageFeatures(Encoder):
    """A linear map of l2-normalised feature vectors.

    image_shape: (features,) of one image, from the data. dim: D of the joint space. dropout: probability of dropping a
    normalised feature in a training step. Weights start Xavier-uniform, the bias at 0. Raises InputError for features
    that are not vectors.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024, dropout: float = 0.0):
        super().__init__()
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.linear = linear_map(width(self, image_shape), dim)

    def forward(self, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(N, features) of any float type -> (N, D); `lengths` (N,) are those of captions and not used."""
        return self.linear(self.dropout(F.normalize(rows.to(self.linear.weight.dtype), dim=1)))


class TextFeatures(ImageFeatures):
    """A linear map of l2-normalised feature vectors.

    text_shape: (features,) of one text, from the data. Everything else is as in `ImageFeatures`.
    """

    def __init__(self, text_shape: tuple[int, ...], dim: int = 1024, dropout: float = 0.0):
        super().__init__(text_shape, dim, dropout)


class ImageAdapter(Encoder):
    """A residual adapter of image vectors that a frozen model gave (CLIP-Adapter, Gao et al. 2021, arXiv 2110.04544).

    With v the l2-normalised vector of an image, the result is (1 - ratio) v + ratio A(v), l2-normalised, of the same
    dimension. A is W2 ReLU(W1 v + b1) + b2 with `hidden` units, or W v + b. Unlike the paper's, A has biases and no
    ReLU at its end, and its last layer starts at 0 (as residual branches do in Goyal et al. 2017, arXiv 1706.02677), so
    that training starts exactly at the frozen model.

    image_shape: (D,) of one image, from the data. hidden: the bottleneck's units; None: a quarter of D, as in the
    paper; 0: a linear map. ratio: α of the paper, which took 0.2; between 0 and 1. dropout: probability of dropping an
    input of the last layer in a training step. Raises InputError for data that are not vectors.
    """

    def __init__(
        self, image_shape: tuple[int, ...], hidden: int | None = None, ratio: float = 0.2, dropout: float = 0.0
    ):
        super().__init__()
        require(0 < ratio < 1, f"ratio is {ratio}; expected a number between 0 and 1")
        self.dim = width(self, image_shape)
        # The weight of A(v) beside v itself, so that a zero A leaves v exactly as it is.
        self.change_weight = ratio / (1 - ratio)
        hidden = max(1, self.dim // 4) if hidden is None else hidden
        last = nn.Linear(hidden or self.dim, self.dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        first = [nn.Linear(self.dim, hidden), nn.ReLU()] if hidden else []
        self.change = nn.Sequential(*first, nn.Dropout(dropout), last)

    def forward(self, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(N, D) of any float type -> (N, D), unit rows; `lengths` (N,) are those of captions and not used."""
        frozen = F.normalize(rows.float(), dim=1)
        return F.normalize(frozen + self.change_weight * self.change(frozen), dim=1)


class TextAdapter(ImageAdapter):
    """A residual adapter of text vectors that a frozen model gave.

    text_shape: (D,) of one text, from the data. Everything else is as in `ImageAdapter`.
    """

    def __init__(
        self, text_shape: tuple[int, ...], hidden: int | None = None, ratio: float = 0.2, dropout: float = 0.0
    ):
        super().__init__(text_shape, hidden, ratio, dropout)
