"""Encoding a batch a few pairs at a time, so that the loss of a large batch needs the memory of a small one.

The forward pass keeps only the encodings; the backward pass encodes each chunk once more. The idea is that of
GradCache (Gao et al. 2021), done by `torch.utils.checkpoint`.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsehub.checks import require
from vsehub.sets import Encoding, concatenated
from vsehub.types import Encoder


def encoded(encoder: Encoder, inputs: tuple[Tensor, ...], chunk: int | None) -> Encoding:
    """The encoder's (N, D) or N `Sets` of inputs (N, ...), with the gradient of encoding all at once.

    chunk: rows encoded at a time, whose intermediate values are not kept but computed again in the backward pass; None,
    and without gradient: all at once. Dropout draws chunk by chunk, the same again in the backward pass.
    """
    rows = len(inputs[0])
    if chunk is None or chunk >= rows or not torch.is_grad_enabled():
        return encoder(*inputs)
    return concatenated(
        [
            checkpoint(encoder, *(one[first : first + chunk] for one in inputs), use_reentrant=False)
            for first in range(0, rows, chunk)
        ]
    )


def require_rows_apart(side: str, encoder: Encoder, why: str) -> None:
    """Raise InputError if the encoder, in training mode, has batch normalisation, which mixes the rows it is given.

    why: what gives it a part of a batch, "loader.chunk encodes a batch in parts".
    """
    training = encoder.training
    encoder.train()  # a frozen network stays in eval mode, where the statistics are those of its own training
    mixing = [
        name or type(part).__name__
        for name, part in encoder.named_modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training
    ]
    encoder.train(training)
    require(
        not mixing,
        f"{why}, but the {side} encoder {type(encoder).__name__} normalises over the batch "
        f"({', '.join(mixing[:3])}{', ...' if len(mixing) > 3 else ''}), so its statistics would be a part's; choose a "
        "network without batch normalisation (image_encoder.norm=group for image_cnn, image_encoder.model=vit_b_16 for "
        "torchvision), or freeze a pretrained one (image_encoder.tune=false)",
    )
