"""Cross-attention of many source sets with many queries, from one product, in tiles that stay in the cache.

The cosine of a unit query w with its attended vector Σ a_r v_r is Σ a_r <v_r, w> / sqrt(aᵀ G a), where G = <v_r, v_r'>
is the source's Gram matrix. The cosine does not change when a is scaled, so that the softmax needs no denominator.

Shapes: n source sets of s vectors against q queries: raw (n, s, q), gram (n, s, s), cosines (n, q); `member` as in
`weights`. With a gradient a tile is checkpointed: the backward pass computes it again, and little is stored.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsehub.sets import Sets
from vsehub.similarities.scan.weights import normalised

# Exponents up to this one need no shift: normalised scores are at most 1, and e^20 squared and summed fits float32.
UNSHIFTED = 20.0
# Scores of a tile, and query sets in it: summing over the queries of each set costs two operations for each score and
# each query set.
ON_CPU, ON_GPU = (1 << 18, 16), (1 << 25, 64)


def gram(vectors: Tensor) -> Tensor:
    """Gram matrices of sets (n, s, D) -> (n, s, s), the diagonal raised by s times the rounding error.

    This keeps the norm of a sum of vectors that cancel above its rounding error.
    """
    raised = 1 + torch.eye(vectors.shape[1]).to(vectors) * (vectors.shape[1] * torch.finfo(vectors.dtype).eps)
    return (vectors @ vectors.mT) * raised


def tiled_cosines(normalisation: str, scale: float, raw: Tensor, grams: Tensor, lengths: list[int]) -> Tensor:
    """The cosines (n, q) of raw scores (n, s, q), where the query sets have these lengths; their sum is q."""
    elements, breadth = ON_CPU if raw.is_cpu else ON_GPU
    parts = [lengths[first : first + breadth] for first in range(0, len(lengths), breadth)]
    columns = []
    for part, scores in zip(parts, raw.split([sum(part) for part in parts], dim=2), strict=True):
        member = torch.block_diag(*(raw.new_ones(length, 1) for length in part))
        height = max(1, elements // scores[0].numel())
        tiles = zip(scores.split(height), grams.split(height), strict=True)
        blocks = [
            checkpoint(_cosines, normalisation, scale, member, *tile, use_reentrant=False, preserve_rng_state=False)
            for tile in tiles
        ]
        columns.append(torch.cat(blocks))
    return torch.cat(columns, dim=1)


def exponentials(scores: Tensor, scale: float, padding: Tensor | None = None) -> Tensor:
    """e^(scale x), divided by the largest of each query where that could overflow; 0 where `padding`, (n, s, 1)."""
    exponents = scores * scale
    if padding is not None:
        exponents.masked_fill_(padding, -torch.inf)
    if scale > UNSHIFTED:
        exponents.sub_(exponents.detach().amax(dim=1, keepdim=True))
    return exponents.exp_()


def cosines(raw: Tensor, gram: Tensor, weights: Tensor) -> Tensor:
    """The cosines (n, q) of raw scores with unscaled attention, both (n, s, q); 0 where it sees only zero vectors."""
    squares = ((gram @ weights) * weights).sum(dim=1)
    return (weights * raw).sum(dim=1) * squares.masked_fill(squares <= 0, torch.inf).rsqrt()


def _cosines(normalisation: str, scale: float, member: Tensor, raw: Tensor, gram: Tensor) -> Tensor:
    """Raw scores (n, s, q) and Gram matrices (n, s, s) -> the cosine of each query with what it attends: (n, q)."""
    return cosines(raw, gram, exponentials(normalised(raw, member, normalisation), scale))


def unit(sets: Sets) -> Sets:
    """The vectors scaled to norm 1; a zero vector stays zero, and has no gradient."""
    norms = torch.linalg.vector_norm(sets.vectors, dim=1, keepdim=True)
    return Sets(sets.vectors / norms.masked_fill(norms == 0, torch.inf), sets.lengths)
