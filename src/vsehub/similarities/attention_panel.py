"""Cross-attention of many source sets with many queries: one product, and tiles of it that stay in the cache."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsehub.similarities.attention_tile import Attention

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
    the raw scores (U, V) are kept for the gradient, or computed anew.
    """

    @staticmethod
    def forward(
        ctx,
        attention: Attention,
        runs: list[Run],
        lengths: list[int],
        keep: bool,
        sources: Tensor,
        queries: Tensor,
        *grams: Tensor,
    ) -> Tensor:
        raw = sources @ queries.T
        cosines = raw.new_empty(sum(run.sets for run in runs), len(queries))
        for run, rows, sets, columns, member in _tiles(runs, lengths, raw):
            tile = raw[rows, columns].unflatten(0, (-1, runs[run].length))
            of_run = slice(sets.start - runs[run].first_set, sets.stop - runs[run].first_set)
            cosines[sets, columns] = attention.cosines(tile, grams[run][of_run], member)
        ctx.attention, ctx.runs, ctx.lengths = attention, runs, lengths
        ctx.save_for_backward(sources, queries, raw if keep else None, *grams)
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        sources, queries, raw, *grams = ctx.saved_tensors
        raw = sources @ queries.T if raw is None else raw
        gradient, of_grams = torch.empty_like(raw), [torch.zeros_like(gram) for gram in grams]
        for run, rows, sets, columns, member in _tiles(ctx.runs, ctx.lengths, raw):
            shape = (-1, ctx.runs[run].length)
            of_run = slice(sets.start - ctx.runs[run].first_set, sets.stop - ctx.runs[run].first_set)
            of_raw, of_gram = ctx.attention.gradients(
                raw[rows, columns].unflatten(0, shape), grams[run][of_run], member, upstream[sets, columns]
            )
            gradient[rows, columns] = of_raw.flatten(0, 1)
            of_grams[run][of_run] += of_gram
        return None, None, None, None, gradient @ queries, gradient.T @ sources, *of_grams


def _tiles(runs: list[Run], lengths: list[int], raw: Tensor) -> Iterator[tuple[int, slice, slice, slice, Tensor]]:
    """Tiles that cover all scores: number of the run, vectors, sets, queries, and which set each query is in."""
    scores, breadth = ON_CPU if raw.is_cpu else ON_GPU
    left = 0
    for first in range(0, len(lengths), breadth):
        inside = torch.tensor(lengths[first : first + breadth], device=raw.device)
        member = torch.arange(len(inside), device=raw.device).repeat_interleave(inside)
        member = torch.nn.functional.one_hot(member, len(inside)).to(raw.dtype)
        columns = slice(left, left + len(member))
        left = columns.stop
        for number, run in enumerate(runs):
            height = max(1, scores // (run.length * len(member)))
            for start in range(0, run.sets, height):
                count = min(height, run.sets - start)
                rows = run.first_vector + start * run.length
                sets = slice(run.first_set + start, run.first_set + start + count)
                yield number, slice(rows, rows + count * run.length), sets, columns, member
