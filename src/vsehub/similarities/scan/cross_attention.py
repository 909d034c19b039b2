"""Stacked cross-attention between the words of a text and the regions of an image (Lee 2018, SCAN)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vsehub.checks import one_of
from vsehub.sets import Sets
from vsehub.similarities.scan.tiles import AttendedCosines, Attention, Buffers, Unit, gram, runs
from vsehub.similarities.scan.weights import NORMALISATIONS, POOLINGS
from vsehub.types import Similarity

# Raw scores per product, and how many of these panels training keeps instead of computing them twice.
PANEL_ON_CPU, PANEL_ON_GPU = 1 << 24, 1 << 28
KEPT_PANELS = 4
# Numbers of the entries that are copied out and padded at a time: 1 GB of float32.
COPIED = 1 << 28


class CrossAttention(Similarity):
    """S[i, t]: each word attends the regions (t2i), or each region the words (i2t); their cosines are pooled.

    With raw cosines s of queries and sources: `normalisation` of s over the queries, softmax of λ times it over the
    source, cosine of each query with the weighted sum of the source, `pooling` over the queries. direction "t2i": words
    are queries, regions the source; "i2t" the reverse. normalisation: clipped_l2norm, l2norm, clipped_l1norm, l1norm,
    softmax, clipped (LeakyReLU 0.1) or no_norm. pooling: mean, lse, max or sum. softmax_scale: λ, 9 for t2i and 4 for
    i2t in the paper. lse_scale: λ of the LogSumExp, used only with pooling "lse", 6 for t2i and 5 for i2t (20 on COCO).
    All vectors are l2-normalised here; a zero vector has cosine 0 with all others and no gradient.

    Attended vectors are never built: the scores follow from one product of all regions with all words and from Gram
    matrices, in panels of bounded memory. Raises InputError for an unknown choice.
    """

    takes = "sets"

    def __init__(
        self,
        direction: str = "t2i",
        normalisation: str = "clipped_l2norm",
        pooling: str = "mean",
        softmax_scale: float = 9.0,
        lse_scale: float = 6.0,
    ):
        super().__init__()
        one_of("direction", direction, ("t2i", "i2t"))
        one_of("normalisation", normalisation, tuple(NORMALISATIONS))
        one_of("pooling", pooling, tuple(POOLINGS))
        self.direction, self.pooling, self.lse_scale = direction, pooling, lse_scale
        self.attention = Attention(NORMALISATIONS[normalisation], softmax_scale)

    @property
    def largest(self) -> float | None:
        """1 if scores are means or maxima of cosines, else None: sums and log-sums have no bound."""
        return 1.0 if self.pooling in ("mean", "max") else None

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        """Scores (I, T) of I images against T texts."""
        if self.direction == "t2i":
            return self._scores(images, texts)
        return self._scores(texts, images).T

    @torch.no_grad()
    def candidates(self, queries: Sets, entries: Sets, chosen: Tensor, side: str) -> Tensor:
        """Scores (Q, C) of each query with its own entries, without gradient; see `Similarity`."""
        if chosen.is_cpu:  # the candidates of one query stay in its cache; a GPU waits for each query's numbers
            return super().candidates(queries, entries, chosen, side)
        return self.candidates_at_once(queries, entries, chosen, side)

    def candidates_at_once(self, queries: Sets, entries: Sets, chosen: Tensor, side: str) -> Tensor:
        """The same, of many queries at a time, padded: twice as slow on a CPU."""
        entries_attend = (self.direction == "t2i") == (side == "texts")
        found = candidate_cosines(self.attention, queries, entries, chosen, entries_attend)
        return torch.cat([self._pooled(cosines, inside) for cosines, inside in found])

    def _scores(self, sources: Sets, queries: Sets) -> Tensor:
        """Scores of source sets (rows) against query sets (columns)."""
        if not len(sources) or not len(queries):
            return sources.vectors.new_zeros(len(sources), len(queries))
        order = sources.lengths.argsort(stable=True)
        if (sources.lengths.diff() < 0).any():
            sources = sources[order]
        sources, queries = _unit(sources), _unit(queries)
        found, lengths = runs(sources), queries.lengths.tolist()
        panel = PANEL_ON_CPU if sources.vectors.is_cpu else PANEL_ON_GPU
        parts = _panels(lengths, panel // len(sources.vectors))
        keep = len(parts) <= KEPT_PANELS and torch.is_grad_enabled()
        scores, buffers = [], Buffers(sources.vectors)
        for part, vectors in zip(parts, queries.vectors.split([sum(part) for part in parts]), strict=True):
            cosines = AttendedCosines.apply(self.attention, found, part, keep, buffers, sources.vectors, vectors)
            scores.append(self._pooled(*_padded(cosines, part)))
        return torch.cat(scores, dim=1)[order.argsort()]

    def _pooled(self, cosines: Tensor, inside: Tensor) -> Tensor:
        return POOLINGS[self.pooling](cosines, inside, self.lse_scale)


def _unit(sets: Sets) -> Sets:
    return Sets(Unit.apply(sets.vectors), sets.lengths)


def _panels(lengths: list[int], vectors: int) -> list[list[int]]:
    """The lengths of successive sets, in panels of at most `vectors` vectors together, but of at least one set."""
    panels: list[list[int]] = []
    room = 0
    for length in lengths:
        if not panels or length > room:
            panels.append([])
            room = vectors
        panels[-1].append(length)
        room -= length
    return panels


def _padded(cosines: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """(n, V) cosines of queries, set after set -> (n, sets, L) and the mask (sets, L) of what is inside."""
    sizes = torch.tensor(lengths, device=cosines.device)
    position = torch.arange(max(lengths), device=cosines.device)
    inside = position < sizes[:, None]
    index = ((sizes.cumsum(0) - sizes)[:, None] + position).where(inside, 0)
    return cosines[:, index.flatten()].unflatten(1, index.shape), inside


def candidate_cosines(
    attention: Attention, queries: Sets, entries: Sets, chosen: Tensor, entries_attend: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cosines of attending vectors with what they attend, for some queries with their candidates after the other.

    chosen: (Q, C) rows of the entries. entries_attend: whether the vectors of the entries attend those of the query,
    else the reverse. Yields cosines (b, C, L) and the mask of the same shape of what is not padding.
    """
    count, buffers = chosen.shape[1], Buffers(queries.vectors)
    for rows in _parts(queries, entries, chosen):
        query, in_query = _padded_unit(queries[rows])  # (b, q, D), (b, q)
        entry, in_entry = _padded_unit(entries[chosen[rows].flatten()])  # (b C, e, D), (b C, e)
        raw = (entry.reshape(len(query), -1, entry.shape[2]) @ query.mT).reshape(len(entry), -1, query.shape[1])
        grams = gram(query).repeat_interleave(count, dim=0) if entries_attend else gram(entry)
        in_query = in_query.repeat_interleave(count, dim=0)
        attending, attended = (in_entry, in_query) if entries_attend else (in_query, in_entry)
        cosines = attention.cosines(
            raw.mT.contiguous() if entries_attend else raw,
            grams,
            attending[:, :, None].to(raw),
            buffers,
            ~attended[:, :, None],
        )
        yield cosines.unflatten(0, (-1, count)), attending.unflatten(0, (-1, count))


def _parts(queries: Sets, entries: Sets, chosen: Tensor) -> Iterator[slice]:
    """Rows of the queries whose candidates are copied out together."""
    each = chosen.shape[1] * int(entries.lengths.max()) * entries.vectors.shape[1]
    height = max(1, COPIED // each)
    for first in range(0, len(queries), height):
        yield slice(first, min(first + height, len(queries)))


def _padded_unit(sets: Sets) -> tuple[Tensor, Tensor]:
    """Unit vectors (n, L, D), padded with zeros, and the mask (n, L) of the others."""
    padded, inside = sets.padded()
    norms = torch.linalg.vector_norm(padded, dim=2, keepdim=True)
    return padded.mul_(norms.reciprocal_().masked_fill_(torch.isinf(norms), 0)), inside
