"""What the parts hand to each other.

Shape legend, used in every docstring: N pairs in a batch, I images, T texts, L words, D embedding dimensions, M bank
pairs, Q queries, K neighbours. Scores have images as rows and texts as columns, higher is closer; in criteria and
metrics rows are queries and columns are items.
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from vsehub.sets import Encoding


class Batch(NamedTuple):
    """N image-text pairs; row n of every field belongs to pair n.

    images: (N, ...) features or pixels. texts: (N, L) word ids, padded with 0, or (N, D) vectors. lengths: (N,) words
    in each text. image_ids, caption_ids: (N,) integers; pairs of one image share its image id. positives: (N, N)
    boolean, which image and text belong together, where the ids do not say so; None: where image ids are equal.
    """

    images: Tensor
    texts: Tensor
    lengths: Tensor
    image_ids: Tensor
    caption_ids: Tensor
    positives: Tensor | None = None


class NeighborStats(NamedTuple):
    """Similarities of N queries to their k nearest bank entries of the other modality, largest first.

    image_to_text: (N, k) each image's nearest bank captions. text_to_image: (N, k) each caption's nearest bank images.
    """

    image_to_text: Tensor
    text_to_image: Tensor


class Loss(Protocol):
    """Scores (N, N) with the pairs on the diagonal, a boolean mask (N, N) of all positives -> {"loss": scalar, ...}."""

    def __call__(
        self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None
    ) -> dict[str, Tensor]: ...


class Similarity(Protocol):
    """Scores (I, T) of encoded images against encoded texts, vectors (N, D) or N `Sets` of them.

    takes: "vectors" or "sets", what it compares. largest: the least upper bound of its scores, or None.
    One that is an inner product of vectors also has `vectors(encoding) -> (N, D)`.
    """

    takes: str
    largest: float | None

    def __call__(self, images: Encoding, texts: Encoding) -> Tensor: ...
