"""Cross-attention of many source sets with many queries: one product, and tiles of it that stay in the cache."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsehub.sets import Sets
from vsehub.similarities.attention_tile import Attention, Scratch
from vsehub.similarities.attention_vectors import gram

# Scores of a tile, and query sets in it: summing over the queries of a set costs two operations a score and set.
ON_CPU, ON_GPU = (1 << 18, 16), (1 << 25, 64)


class Run(NamedTuple):
    """Neighbouring source sets of one length, so that they need no padding, and their Gram matrices (n, s, s)."""

    sets: slice
    vectors: slice
    length: int
    grams: Tensor

    def of(self, vectors: Tensor) -> Tensor:
        """The run's part (n, s, ...) of something that has a row for each source vector, a view."""
        return vectors[self.vectors].unflatten(0, (-1, self.length))


def runs(sources: Sets) -> list[Run]:
    """The runs of equal lengths, in order."""
    found, first, start = [], 0, 0
    for length, group in groupby(sources.lengths.tolist()):
        count = len(list(group))
        vectors = slice(start, start + count * length)
        grams = gram(sources.vectors[vectors].detach().unflatten(0, (-1, length)))
        found.append(Run(slice(first, first + count), vectors, length, grams))
        first, start = first + count, vectors.stop
    return found


class AttendedCosines(torch.autograd.Function):
    """Unit vectors of sources (U, D) and queries (V, D) -> each query's cosine with what it attends: (sets, V).

    runs: the source sets. lengths: of the query sets; their sum is V. keep: whether the raw scores (U, V) are kept for
    the gradient; otherwise they lie in `scratch`, and are computed anew for it.
    """

    @staticmethod
    def forward(
        ctx,
        attention: Attention,
        runs: list[Run],
        lengths: list[int],
        keep: bool,
        scratch: Scratch,
        sources: Tensor,
        queries: Tensor,
    ) -> Tensor:
        shape = len(sources), len(queries)
        raw = sources.new_empty(shape) if keep else scratch("raw", shape)
        torch.mm(sources, queries.T, out=raw)
        cosines = raw.new_empty(runs[-1].sets.stop, len(queries))
        for tile in _tiles(runs, lengths, raw):
            cosines[tile.sets, tile.queries] = attention.cosines(
                tile.of(raw), tile.run.grams[tile.of_run], tile.member, scratch
            )
        ctx.attention, ctx.runs, ctx.lengths = attention, runs, lengths
        ctx.save_for_backward(sources, queries, raw if keep else None)
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        sources, queries, raw = ctx.saved_tensors
        raw = sources @ queries.T if raw is None else raw
        gradient, scratch = torch.empty_like(raw), Scratch(raw)
        of_grams = {run.sets.start: torch.zeros_like(run.grams) for run in ctx.runs}
        for tile in _tiles(ctx.runs, ctx.lengths, raw):
            ctx.attention.gradients(
                tile.of(raw),
                tile.run.grams[tile.of_run],
                tile.member,
                upstream[tile.sets, tile.queries],
                tile.of(gradient),
                of_grams[tile.run.sets.start][tile.of_run],
                scratch,
            )
        of_sources = gradient @ queries
        for run in ctx.runs:
            run.of(of_sources).baddbmm_(of_grams[run.sets.start], run.of(sources), alpha=2)
        return None, None, None, None, None, of_sources, gradient.T @ sources


class Tile(NamedTuple):
    """Source sets of one run against some queries: slices, and which of the query sets each query is in (q, c)."""

    run: Run
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


def _tiles(runs: list[Run], lengths: list[int], raw: Tensor) -> Iterator[Tile]:
    """Tiles that cover all scores."""
    scores, breadth = ON_CPU if raw.is_cpu else ON_GPU
    left = 0
    for first in range(0, len(lengths), breadth):
        inside = torch.tensor(lengths[first : first + breadth], device=raw.device)
        member = torch.eye(len(inside), dtype=raw.dtype, device=raw.device).repeat_interleave(inside, dim=0)
        queries = slice(left, left + len(member))
        left = queries.stop
        for run in runs:
            height = max(1, scores // (run.length * len(member)))
            for start in range(0, len(run.grams), height):
                yield Tile(run, slice(start, min(start + height, len(run.grams))), queries, member)
