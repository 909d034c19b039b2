"""Cross-attention of many source sets with many queries: one product, and tiles of it that stay in the cache.

The cosine of a unit query w with its attended vector Σ a_r v_r is Σ a_r <v_r, w> / sqrt(aᵀ G a), where G = <v_r, v_r'>
is the source's Gram matrix; it does not change when a is scaled, so that the softmax needs no denominator.

Shapes: n source sets of s vectors against q queries: raw (n, s, q), gram (n, s, s), cosines (n, q); `member` as in
`attention_weights`.
"""

from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsehub.sets import Sets
from vsehub.similarities.scan.weights import Normalisation


class Unit(torch.autograd.Function):
    """Rows (V, D) scaled to norm 1; a zero row stays zero, and has no gradient."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        inverse = norms.reciprocal().masked_fill_(norms == 0, 0)
        unit = vectors * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        product = gradient * unit
        radial = product.sum(dim=1, keepdim=True)
        return torch.addcmul(gradient, unit, radial, value=-1, out=product).mul_(inverse)


def gram(vectors: Tensor) -> Tensor:
    """Gram matrices of sets (n, s, D) -> (n, s, s), the diagonal raised by s times the rounding error.

    This keeps the norm of a sum of vectors that cancel above its rounding error.
    """
    matrices = torch.bmm(vectors, vectors.mT)
    matrices.diagonal(dim1=1, dim2=2).mul_(1 + vectors.shape[1] * torch.finfo(vectors.dtype).eps)
    return matrices


# Exponents up to this one need no shift: normalised scores are at most 1, and e^20 squared and summed fits float32.
UNSHIFTED = 20.0


class Buffers:
    """Memory reused for all tiles: on a CPU, allocating fresh memory costs more than the computation in it."""

    def __init__(self, like: Tensor):
        self._like = like
        self._blocks: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Uninitialised memory of a shape; one block is kept for each name."""
        size = prod(shape)
        if name not in self._blocks or self._blocks[name].numel() < size:
            self._blocks[name] = self._like.new_empty(size)
        return self._blocks[name][:size].view(shape)


class Attention(NamedTuple):
    """The conversion of raw scores to weights: `normalisation` over the queries, then softmax of `scale` times it."""

    normalisation: Normalisation
    scale: float

    def cosines(
        self, raw: Tensor, gram: Tensor, member: Tensor, buffers: Buffers, padding: Tensor | None = None
    ) -> Tensor:
        """The cosines (n, q). padding: (n, s, 1), which of the source vectors are none."""
        weights, work = (buffers(name, raw.shape) for name in ("weights", "work"))
        self.normalisation.forward(raw, member, weights, work)
        weights.mul_(self.scale)
        self._exponentials(weights if padding is None else weights.masked_fill_(padding, -torch.inf))
        squares = torch.bmm(gram, weights, out=work).mul_(weights).sum(dim=1)
        return weights.mul_(raw).sum(dim=1).mul_(_inverse_root(squares))

    def gradients(
        self,
        raw: Tensor,
        gram: Tensor,
        member: Tensor,
        upstream: Tensor,
        of_raw: Tensor,
        of_gram: Tensor,
        buffers: Buffers,
    ) -> None:
        """From the gradient (n, q) of the cosines, write raw's to `of_raw` and add gram's, symmetric, to `of_gram`."""
        names = ("normalised", "weights", "attended", "work")
        normalised, weights, attended, work = (buffers(name, raw.shape) for name in names)
        saved = self.normalisation.forward(raw, member, normalised, work)
        self._exponentials(torch.mul(normalised, self.scale, out=weights))
        torch.bmm(gram, weights, out=attended)
        inverse = _inverse_root(torch.mul(attended, weights, out=work).sum(dim=1))
        along = upstream * inverse
        across = torch.mul(raw, weights, out=work).sum(dim=1).mul_(along).mul_(inverse).mul_(inverse)
        along, across = along[:, None], across[:, None]
        of_gram.baddbmm_(torch.mul(weights, across, out=work), weights.mT, alpha=-0.5)
        # of the exponents: weights x (along x raw - across x attended)
        gradient = torch.mul(raw, along * self.scale, out=work)
        gradient.addcmul_(attended, across * self.scale, value=-1).mul_(weights)
        self.normalisation.backward(gradient, raw, normalised, member, attended, *saved)
        torch.addcmul(gradient, weights, along, out=of_raw)

    def _exponentials(self, exponents: Tensor) -> None:
        """e^x in its memory, or a multiple for each query where that could overflow."""
        if self.scale > UNSHIFTED:
            exponents.sub_(exponents.amax(dim=1, keepdim=True))
        exponents.exp_()


def _inverse_root(squares: Tensor) -> Tensor:
    """1 / sqrt(x), and 0 where x is not above 0: a query that attends only zero vectors has cosine 0."""
    return squares.rsqrt().masked_fill_(squares <= 0, 0)


# Scores of a tile, and query sets in it: summing over the queries of a set costs two operations a score and set.
ON_CPU, ON_GPU = (1 << 18, 16), (1 << 25, 64)


class EqualSets(NamedTuple):
    """Adjacent source sets of equal length, which need no padding, and their Gram matrices (n, s, s)."""

    sets: slice
    vectors: slice
    length: int
    grams: Tensor

    def of(self, vectors: Tensor) -> Tensor:
        """The run's part (n, s, ...) of a tensor with one row per source vector, as a view."""
        return vectors[self.vectors].unflatten(0, (-1, self.length))


def runs(sources: Sets) -> list[EqualSets]:
    """The runs of equal lengths, in order."""
    found, first, start = [], 0, 0
    for length, group in groupby(sources.lengths.tolist()):
        count = len(list(group))
        vectors = slice(start, start + count * length)
        grams = gram(sources.vectors[vectors].detach().unflatten(0, (-1, length)))
        found.append(EqualSets(slice(first, first + count), vectors, length, grams))
        first, start = first + count, vectors.stop
    return found


class AttendedCosines(torch.autograd.Function):
    """Unit vectors of sources (U, D) and queries (V, D) -> each query's cosine with what it attends: (sets, V).

    runs: the source sets. lengths: of the query sets; their sum is V. keep: whether the raw scores (U, V) are kept for
    the gradient; otherwise they lie in `buffers`, and are computed again for it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        attention: Attention,
        runs: list[EqualSets],
        lengths: list[int],
        keep: bool,
        buffers: Buffers,
        sources: Tensor,
        queries: Tensor,
    ) -> Tensor:
        shape = len(sources), len(queries)
        raw = sources.new_empty(shape) if keep else buffers("raw", shape)
        torch.mm(sources, queries.T, out=raw)
        cosines = raw.new_empty(runs[-1].sets.stop, len(queries))
        for tile in _tiles(runs, lengths, raw):
            cosines[tile.sets, tile.queries] = attention.cosines(
                tile.of(raw), tile.run.grams[tile.of_run], tile.member, buffers
            )
        ctx.attention, ctx.runs, ctx.lengths = attention, runs, lengths
        ctx.save_for_backward(sources, queries, raw if keep else None)
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        sources, queries, raw = ctx.saved_tensors
        raw = sources @ queries.T if raw is None else raw
        gradient, buffers = torch.empty_like(raw), Buffers(raw)
        of_grams = {run.sets.start: torch.zeros_like(run.grams) for run in ctx.runs}
        for tile in _tiles(ctx.runs, ctx.lengths, raw):
            ctx.attention.gradients(
                tile.of(raw),
                tile.run.grams[tile.of_run],
                tile.member,
                upstream[tile.sets, tile.queries],
                tile.of(gradient),
                of_grams[tile.run.sets.start][tile.of_run],
                buffers,
            )
        of_sources = gradient @ queries
        for run in ctx.runs:
            run.of(of_sources).baddbmm_(of_grams[run.sets.start], run.of(sources), alpha=2)
        return None, None, None, None, None, of_sources, gradient.T @ sources


class Tile(NamedTuple):
    """Source sets of one run against some queries: slices, and which of the query sets each query is in (q, c)."""

    run: EqualSets
    of_run: slice
    queries: slice
    member: Tensor

    @property
    def sets(self) -> slice:
        """The source sets, counted from the first run's first."""
        return slice(self.run.sets.start + self.of_run.start, self.run.sets.start + self.of_run.stop)

    def of(self, scores: Tensor) -> Tensor:
        """The tile's part (n, s, q) of (U, V) scores, a view."""
        return self.run.of(scores)[self.of_run, :, self.queries]


def _tiles(runs: list[EqualSets], lengths: list[int], raw: Tensor) -> Iterator[Tile]:
    """Tiles that cover all scores."""
    scores, breadth = ON_CPU if raw.is_cpu else ON_GPU
    left = 0
    for first in range(0, len(lengths), breadth):
        sizes = lengths[first : first + breadth]
        one_each = torch.eye(len(sizes), dtype=raw.dtype, device=raw.device)
        repeats = torch.tensor(sizes, device=raw.device)
        member = one_each.repeat_interleave(repeats, dim=0, output_size=sum(sizes))
        queries = slice(left, left + len(member))
        left = queries.stop
        for run in runs:
            height = max(1, scores // (run.length * len(member)))
            for start in range(0, len(run.grams), height):
                yield Tile(run, slice(start, min(start + height, len(run.grams))), queries, member)
