"""SCAN by loops over pairs, from the equations, every attended vector built: what cross-attention is held against."""

import torch
from torch import Tensor

from vsehub.sets import Sets

NORMALISATIONS = ("softmax", "l2norm", "clipped_l2norm", "l1norm", "clipped_l1norm", "clipped", "no_norm")
POOLINGS = ("mean", "lse", "max", "sum")


def normalised(raw: Tensor, how: str) -> Tensor:
    """raw (queries, source) -> normalised over the queries."""
    if how.startswith("clipped"):
        raw = torch.nn.functional.leaky_relu(raw, 0.1)
    if how == "softmax":
        return raw.softmax(dim=0)
    if how.endswith(("l1norm", "l2norm")):
        return raw / (raw.norm(p=int(how[-5]), dim=0, keepdim=True) + 1e-8)
    return raw


def unit(vectors: Tensor) -> Tensor:
    return torch.stack([row / row.norm() if row.any() else row.detach() * 0 for row in vectors])


def pair(source: Tensor, queries: Tensor, how: str, pooling: str, scale: float, lse_scale: float) -> Tensor:
    """The score of one source set (s, D) with one query set (q, D)."""
    source, queries = unit(source), unit(queries)
    attention = (scale * normalised(queries @ source.T, how)).softmax(dim=1)
    cosines = torch.stack(
        [
            (query @ attended) / attended.norm() if attended.any() else query.sum() * 0
            for query, attended in zip(queries, attention @ source, strict=True)
        ]
    )
    if pooling == "lse":
        return (lse_scale * cosines).exp().sum().log() / lse_scale
    return {"mean": cosines.mean, "max": cosines.amax, "sum": cosines.sum}[pooling]()


def oracle(images: Sets, texts: Sets, direction: str, how: str, pooling: str, scale: float, lse_scale: float) -> Tensor:
    """Scores (I, T)."""
    regions, words = (side.vectors.split(side.lengths.tolist()) for side in (images, texts))
    settings = how, pooling, scale, lse_scale
    rows = [[pair(i, t, *settings) if direction == "t2i" else pair(t, i, *settings) for t in words] for i in regions]
    return torch.stack([torch.stack(row) for row in rows])
