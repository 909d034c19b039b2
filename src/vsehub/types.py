"""The values that the parts exchange, and the attributes that each part declares.

Shape legend, used in every docstring: N pairs in a batch, I images, T texts, L words, D embedding dimensions, M bank
pairs, Q queries, K neighbours. Scores have images as rows and texts as columns, higher is closer; in criteria and
metrics rows are queries and columns are items.

`Loss`, `Similarity` and `Encoder` are the base classes of the trainable parts. Their attributes say what a part can do
and have defaults, so that a subclass writes `forward` and overrides only what differs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vsehub.checks import fail, require
from vsehub.components import Component


class Batch(NamedTuple):
    """N image-text pairs; row n of every field belongs to pair n.

    With several processes images, texts and lengths are those of this process's share of the N pairs, ids and positives
    those of all.

    images: (N, ...) features or pixels. texts: (N, L) word ids, padded with 0, or (N, D) vectors. lengths: (N,) words
    in each text. image_ids, caption_ids: (N,) integers; pairs of one image share its image id. positives: (N, N)
    boolean, true where image and text belong together; None: they do where their image ids are equal.
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
    image_centrality, text_centrality: (N,) the mean similarity to all bank captions, to all bank images; None unless
    asked for.
    """

    image_to_text: Tensor
    text_to_image: Tensor
    image_centrality: Tensor | None = None
    text_centrality: Tensor | None = None


class Preparation(NamedTuple):
    """The resizing of a picture for an encoder.

    size: side of the square in pixels. resize: length in pixels of the side or sides that `mode` names. mode:
    "shortest" or "longest" side, the ratio being kept, or "squash" for both sides. The middle size x size pixels are
    then taken; missing ones get the grey level `fill`. interpolation: "bilinear", "bicubic" or another of Pillow's,
    antialiased.
    """

    size: int
    resize: int
    mode: str = "shortest"
    interpolation: str = "bicubic"
    fill: int = 0


class Loss(nn.Module):
    """A training loss: scores (N, N) with the pairs on the diagonal -> {"loss": scalar, ...}.

    A subclass writes `forward(scores, positives, neighbors=None)`. positives: (N, N) boolean, true wherever image and
    text belong together. neighbors: `NeighborStats` of the memory bank, or None. All values of the returned dictionary
    are logged.

    takes_neighbors: whether `neighbors` is used; only such a loss is trained with a memory bank. neighbors_k: number of
    the bank's neighbours that are used, None for all. takes_centrality: whether the bank is to give the centralities
    too. needs_above: the score that a pair must exceed before the loss rewards it, None for losses without such a
    score. margin: the margin between a pair and its negatives, 0 for losses without one.
    """

    takes_neighbors: bool = False
    neighbors_k: int | None = None
    takes_centrality: bool = False
    needs_above: float | None = None
    margin: float = 0.0

    def set_epoch(self, epoch: int) -> None:
        """Called at the start of each epoch, counted from 0; does nothing unless overridden."""


class Similarity(nn.Module):
    """Scores (I, T) of encoded images against encoded texts.

    A subclass writes `forward(images, texts)`. takes: type of the encodings: "vectors" (N, D), "sets" (N `Sets`), or
    "several" of an ensemble. inner_product: whether the scores are inner products of `vectors`, which the memory bank,
    search and evaluation then use; all other similarities are scored by `forward`. largest: the least upper bound of
    the scores; None: no bound.
    """

    takes: str = "vectors"
    inner_product: bool = False
    largest: float | None = None

    def vectors(self, encoding: Any) -> Tensor:
        """Vectors (N, D) of encodings (N, D), whose inner products are the scores.

        Only a similarity with `inner_product` defines it.
        """
        fail(f"{type(self).__name__} does not define `vectors`; expected a similarity that is an inner product")

    def candidate_scores(self, queries: Any, entries: Any, chosen: Tensor, side: str) -> Tensor:
        """Scores (Q, C) of Q encoded queries, each with its own entries, whose rows are `chosen` (Q, C).

        side: whether the entries are "images" or "texts". This one calls `forward` query by query; a similarity that
        can score many at once may write its own.
        """
        scores = []
        for number, entry_rows in enumerate(chosen):
            query, candidates = queries[number : number + 1], entries[entry_rows]
            scores.append(self(query, candidates) if side == "texts" else self(candidates, query).T)
        return torch.cat(scores)


class Encoder(nn.Module, Component):
    """An image encoder, `forward(images)`, or a text encoder, `forward(texts, lengths)`.

    gives: "vectors" where `forward` returns (N, D), "sets" where it returns N `Sets`. space: a name of the space of the
    vectors, if they were trained to be compared with those of the other encoder; None if vsehub trains them to be.
    preparation: size and interpolation of an image encoder's pictures; None: the data's settings. dim: D; None: not
    declared. max_positions: the most words that a text encoder takes, <start> and <end> counted; None: no limit.
    """

    gives: str = "vectors"
    space: str | None = None
    preparation: Preparation | None = None
    dim: int | None = None
    max_positions: int | None = None

    @classmethod
    def preparation_of(cls, settings: Mapping[str, Any]) -> Preparation | None:
        """The `preparation` of an encoder of these settings, before it is built."""
        return None

    @classmethod
    def subwords_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The tokenizer of a text encoder of these settings, in plain values; None: `loader.tokenizer`, or words."""
        return None

    def learning_rates(self) -> list[tuple[list[nn.Parameter], float]]:
        """Parameters that are trained at a learning rate other than the optimizer's, and that rate."""
        return []


def require_part(name: str, part: object, kind: type[nn.Module]) -> None:
    """Raise InputError unless `part` is a `Loss`, `Similarity` or `Encoder`, whichever `kind` is."""
    require(
        isinstance(part, kind),
        f"the {name} is a {type(part).__name__}; expected a subclass of vsehub.types.{kind.__name__}, which declares "
        "what it can do (docs/extend.md)",
    )
