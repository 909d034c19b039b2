"""Encoding a split: each image once, captions of similar length in one batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vsehub.data.sources import ArrayLike, CaptionedImages
from vsehub.data.text.tokens import TokenTable, VectorTable
from vsehub.data.text.vocabulary import Words
from vsehub.encoders.precision import without_tf32
from vsehub.io.progress import bar, prefetch
from vsehub.sets import Encoding, Rows, concatenated

TextTable = TokenTable | VectorTable


def text_table(texts: Sequence[str] | ArrayLike, vocabulary: Words | None, max_words: int | None) -> TextTable:
    """T texts as encoders read them: tokenised captions or, without a vocabulary, vectors (T, F)."""
    if vocabulary is None:
        return VectorTable(np.asarray(texts))
    return TokenTable.build(vocabulary, list(texts), max_words)  # type: ignore[arg-type]  # they are captions then


@dataclass(frozen=True)
class EncodedSplit:
    """Images (I, D) and texts (T, D), or sets of vectors, and pairs (P, 2), image and text, all on one device."""

    images: Rows
    texts: Rows
    pairs: Tensor

    @classmethod
    def from_encodings(cls, split: CaptionedImages, images: Rows, texts: Rows) -> "EncodedSplit":
        """The encoded images and texts of a split, together with its pairs on their device."""
        return cls(images, texts, torch.from_numpy(split.pairs).to(images.device))

    def fold(self, images: slice) -> "EncodedSplit":
        """The images of a slice and the texts that describe them."""
        first, last, _ = images.indices(len(self.images))
        if (first, last) == (0, len(self.images)):
            return self  # without a copy
        pairs = self.pairs[(self.pairs[:, 0] >= first) & (self.pairs[:, 0] < last)]
        texts, within = pairs[:, 1].unique(return_inverse=True)
        return EncodedSplit(self.images[images], self.texts[texts], torch.stack([pairs[:, 0] - first, within], dim=1))


@torch.no_grad()
def encode_split(
    image_encoder: nn.Module,
    text_encoder: nn.Module,
    split: CaptionedImages,
    table: TextTable,
    batch_size: int = 256,
) -> EncodedSplit:
    """Encode all images and texts of a split on the encoders' device, in eval mode; their mode is restored."""
    images = encode_images(image_encoder, split.images, np.arange(len(split.images)), batch_size)
    texts = encode_texts(text_encoder, table, np.arange(len(table)), batch_size)
    return EncodedSplit.from_encodings(split, images, texts)


@torch.no_grad()
def encode_images(encoder: nn.Module, images: ArrayLike, rows: np.ndarray, batch_size: int = 256) -> Encoding:
    """The rows (n,) of `images`, encoded: (n, D) or sets."""
    starts = range(0, len(rows), batch_size)
    batches = (torch.from_numpy(np.ascontiguousarray(images[rows[i : i + batch_size]])) for i in starts)
    return _encode_batches(
        encoder, batches, lambda batch, device: encoder(batch.to(device)), "encoding images", len(starts)
    )


@torch.no_grad()
def encode_texts(encoder: nn.Module, table: TextTable, rows: np.ndarray, batch_size: int = 256) -> Encoding:
    """The rows (n,) of `table`, encoded: (n, D) or sets."""
    order, starts = np.argsort(table.lengths[rows], kind="stable"), range(0, len(rows), batch_size)
    encoded = _encode_batches(
        encoder,
        (table.batch(rows[order[i : i + batch_size]]) for i in starts),
        lambda batch, device: encoder(batch[0].to(device), batch[1].to(device)),
        "encoding texts",
        len(starts),
    )
    return encoded[torch.from_numpy(np.argsort(order)).to(encoded.device)]


def _encode_batches(
    encoder: nn.Module,
    batches: Iterable[Any],
    encode: Callable[[Any, torch.device], Encoding],
    name: str,
    count: int,
) -> Encoding:
    """The encodings of all batches, in eval mode and in the encoder's own precision: nothing is rounded to TF32."""
    device = next(encoder.parameters()).device
    batches = prefetch(batches) if device.type == "cuda" else batches
    training = encoder.training
    encoder.eval()
    try:
        with without_tf32():
            return concatenated([encode(batch, device).float() for batch in bar(name, batches, count)])
    finally:
        encoder.train(training)
