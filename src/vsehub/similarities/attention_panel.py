"""Cross-attention of many source sets with many queries: one product, and tiles of it that stay in the cache."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsehub.similarities.attention_tile import Attention, Scratch

# Scores of a tile, and query sets in it: summing over the queries of a set costs two operations a score and set.
ON_CPU, ON_GPU = (1 << 18, 16), (1 << 25, 64)


class Run(NamedTuple):
    """Neighbouring source sets of one length, so that they need no padding."""

    first_set: int
    first_vector: int
    sets: int
    length: int


def runs(lengths: Sequence[int]) -> list[Run]:
    """The runs of equal lengths, in order."""
    found, start = [], 0
    for index, length in enumerate(lengths):
        if found and found[-1].length == length:
            found[-1] = found[-1]._replace(sets=found[-1].sets + 1)
        else:
            found.append(Run(index, start, 1, length))
        start += length
    return found


class AttendedCosines(torch.autograd.Function):
    """Unit vectors of sources (U, D) and queries (V, D) -> each query's cosine with what it attends: (sets, V).

    lengths: of the query sets; their sum is V. runs: the source sets. grams: one (n, s, s) for each run. keep: whether
    the raw scores (U, V) are kept for the gradient; otherwise they lie in `scratch`, and are computed anew for it.
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
        *grams: Tensor,
    ) -> Tensor:
        shape = len(sources), len(queries)
        raw = sources.new_empty(shape) if keep else scratch("raw", shape)
        torch.mm(sources, queries.T, out=raw)
        cosines = raw.new_empty(sum(run.sets for run in runs), len(queries))
        for tile in _tiles(runs, lengths, raw):
            cosines[tile.sets, tile.queries] = attention.cosines(
                tile.of(raw), grams[tile.run][tile.of_run], tile.member, scratch
            )
        ctx.attention, ctx.runs, ctx.lengths = attention, runs, lengths
        ctx.save_for_backward(sources, queries, raw if keep else None, *grams)
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        sources, queries, raw, *grams = ctx.saved_tensors
        raw = sources @ queries.T if raw is None else raw
        gradient, of_grams, scratch = torch.empty_like(raw), [torch.zeros_like(gram) for gram in grams], Scratch(raw)
        for tile in _tiles(ctx.runs, ctx.lengths, raw):
            ctx.attention.gradients(
                tile.of(raw),
                grams[tile.run][tile.of_run],
                tile.member,
                upstream[tile.sets, tile.queries],
                tile.of(gradient),
                of_grams[tile.run][tile.of_run],
                scratch,
            )
        return None, None, None, None, None, gradient @ queries, gradient.T @ sources, *of_grams


class Tile(NamedTuple):
    """Source sets of one run against some queries: slices, and which of the query sets each query is in (q, c)."""

    run: int
    of_run: slice
    sets: slice
    vectors: slice
    queries: slice
    length: int
    member: Tensor

    def of(self, scores: Tensor) -> Tensor:
        """The tile's part (n, s, q) of (U, V) scores, a view."""
        return scores[self.vectors, self.queries].unflatten(0, (-1, self.length))


def _tiles(runs: list[Run], lengths: list[int], raw: Tensor) -> Iterator[Tile]:
    """Tiles that cover all scores."""
    scores, breadth = ON_CPU if raw.is_cpu else ON_GPU
    left = 0
    for first in range(0, len(lengths), breadth):
        inside = torch.tensor(lengths[first : first + breadth], device=raw.device)
        member = torch.eye(len(inside), dtype=raw.dtype, device=raw.device).repeat_interleave(inside, dim=0)
        queries = slice(left, left + len(member))
        left = queries.stop
        for number, run in enumerate(runs):
            height = max(1, scores // (run.length * len(member)))
            for start in range(0, run.sets, height):
                stop = min(start + height, run.sets)
                sets = slice(run.first_set + start, run.first_set + stop)
                vectors = slice(run.first_vector + start * run.length, run.first_vector + stop * run.length)
                yield Tile(number, slice(start, stop), sets, vectors, queries, run.length, member)
