"""Encoding a split: each image once, captions of like length together."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from vsehub.data.captioned import CaptionedImages
from vsehub.data.tokens import TokenTable


@dataclass(frozen=True)
class EncodedSplit:
    """images: (I, D). texts: (T, D). image_index: (T,) the image that each text describes. All on one device."""

    images: Tensor
    texts: Tensor
    image_index: Tensor

    def fold(self, images: slice) -> "EncodedSplit":
        """The images of a slice and the texts that describe them."""
        first, last, _ = images.indices(len(self.images))
        texts = ((self.image_index >= first) & (self.image_index < last)).nonzero().squeeze(1)
        return EncodedSplit(self.images[images], self.texts[texts], self.image_index[texts] - first)


@torch.no_grad()
def encode_split(
    image_encoder: nn.Module,
    text_encoder: nn.Module,
    split: CaptionedImages,
    table: TokenTable,
    batch_size: int = 256,
    progress: bool = False,
) -> EncodedSplit:
    """All images and texts of a split on the encoders' device, in eval mode; the encoders' mode is restored."""
    images = encode_images(image_encoder, split.images, np.arange(len(split.images)), batch_size, progress)
    texts = encode_texts(text_encoder, table, np.arange(len(table)), batch_size, progress)
    return EncodedSplit(images, texts, torch.from_numpy(split.image_index).to(images.device))


@torch.no_grad()
def encode_images(
    encoder: nn.Module, images: np.ndarray, rows: np.ndarray, batch_size: int = 256, progress: bool = False
) -> Tensor:
    """The given rows of `images`, encoded: (rows, D)."""
    return _in_eval_mode(
        encoder,
        (torch.from_numpy(np.ascontiguousarray(images[rows[i : i + batch_size]])) for i in _starts(rows, batch_size)),
        lambda batch, device: encoder(batch.to(device)),
        "encoding images",
        len(_starts(rows, batch_size)),
        progress,
    )


@torch.no_grad()
def encode_texts(
    encoder: nn.Module, table: TokenTable, rows: np.ndarray, batch_size: int = 256, progress: bool = False
) -> Tensor:
    """The given captions of `table`, encoded: (rows, D)."""
    order = np.argsort(table.lengths[rows], kind="stable")
    encoded = _in_eval_mode(
        encoder,
        (table.batch(rows[order[i : i + batch_size]]) for i in _starts(rows, batch_size)),
        lambda batch, device: encoder(batch[0].to(device), batch[1].to(device)),
        "encoding texts",
        len(_starts(rows, batch_size)),
        progress,
    )
    back = torch.empty(len(order), dtype=torch.int64)
    back[torch.from_numpy(order)] = torch.arange(len(order))
    return encoded[back.to(encoded.device)]


def _starts(rows: np.ndarray, batch_size: int) -> range:
    return range(0, len(rows), batch_size)


def _in_eval_mode(encoder: nn.Module, batches, encode: Callable, name: str, count: int, progress: bool) -> Tensor:
    device = next(encoder.parameters()).device
    training = encoder.training
    encoder.eval()
    try:
        shown = tqdm(batches, name, count, leave=False, disable=None if progress else True)
        return torch.cat([encode(batch, device).float() for batch in shown])
    finally:
        encoder.train(training)
