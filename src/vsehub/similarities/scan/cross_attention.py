"""Stacked cross-attention between the words of a text and the regions of an image (Lee 2018, SCAN)."""

import torch
from torch import Tensor

from vsehub.checks import one_of
from vsehub.sets import Sets
from vsehub.similarities.scan.tiles import cosines, exponentials, gram, tiled_cosines, unit
from vsehub.similarities.scan.weights import NORMALISATIONS, POOLINGS, normalised, pooled
from vsehub.types import Similarity

PANEL_ON_CPU, PANEL_ON_GPU = 1 << 24, 1 << 28  # raw scores per product
# Elements of the candidates that are gathered and padded at a time: 1 GB of float32.
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
    matrices; without a gradient, in panels of bounded memory. Raises InputError for an unknown choice.
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
        one_of("normalisation", normalisation, NORMALISATIONS)
        one_of("pooling", pooling, POOLINGS)
        self.direction, self.pooling, self.lse_scale = direction, pooling, lse_scale
        self.normalisation, self.softmax_scale = normalisation, softmax_scale
        self.largest = 1.0 if pooling in ("mean", "max") else None  # sums and log-sums have no bound

    def forward(self, images: Sets, texts: Sets) -> Tensor:
        """Scores (I, T) of I images against T texts."""
        if self.direction == "t2i":
            return self._scores(images, texts)
        return self._scores(texts, images).T

    @torch.no_grad()
    def candidate_scores(self, queries: Sets, entries: Sets, chosen: Tensor, side: str) -> Tensor:
        """Scores (Q, C) of each query with its own entries, without gradient; see `Similarity`."""
        if chosen.is_cpu:  # a CPU's cache holds the candidates of one query; a GPU would be synchronised for each query
            return super().candidate_scores(queries, entries, chosen, side)
        return self.candidate_scores_at_once(queries, entries, chosen, side)

    def candidate_scores_at_once(self, queries: Sets, entries: Sets, chosen: Tensor, side: str) -> Tensor:
        """`candidate_scores` of many queries at a time, padded: fast on a GPU, two to three times as slow on a CPU."""
        entries_attend = (self.direction == "t2i") == (side == "texts")
        count, blocks = chosen.shape[1], []
        queries, entries = unit(queries), unit(entries)
        elements = count * int(entries.lengths.max()) * entries.vectors.shape[1]  # of one query's candidates
        for rows in torch.arange(len(queries), device=chosen.device).split(max(1, COPIED // elements)):
            query, in_query = queries[rows].padded()  # (b, q, D), (b, q)
            entry, in_entry = entries[chosen[rows].flatten()].padded()  # (b C, e, D), (b C, e)
            products = entry.reshape(len(query), -1, entry.shape[2]) @ query.mT
            raw = products.reshape(len(entry), -1, query.shape[1])
            in_query = in_query.repeat_interleave(count, dim=0)
            if entries_attend:
                raw, grams = raw.mT.contiguous(), gram(query).repeat_interleave(count, dim=0)
                attending, attended = in_entry, in_query
            else:
                grams, attending, attended = gram(entry), in_query, in_entry
            scores = normalised(raw, attending[:, :, None].to(raw), self.normalisation)
            weights = exponentials(scores, self.softmax_scale, ~attended[:, :, None])
            scores = pooled(cosines(raw, grams, weights), attending, self.pooling, self.lse_scale)
            blocks.append(scores.unflatten(0, (-1, count)))
        return torch.cat(blocks)

    def _scores(self, sources: Sets, queries: Sets) -> Tensor:
        """Scores of source sets (rows) against query sets (columns)."""
        if not len(sources) or not len(queries):
            return sources.vectors.new_zeros(len(sources), len(queries))
        order = sources.lengths.argsort(stable=True)
        sources, queries = unit(sources[order]), unit(queries)
        # Source sets of equal length need no padding.
        sizes, sets = sources.lengths.unique_consecutive(return_counts=True)
        runs = sources.vectors.split((sizes * sets).tolist())
        grams = [gram(run.unflatten(0, (count, -1))) for run, count in zip(runs, sets.tolist(), strict=True)]
        scores = []
        panel = PANEL_ON_CPU if sources.vectors.is_cpu else PANEL_ON_GPU
        most_scores = len(sources.vectors) * int(queries.lengths.max())  # of a query set
        parts = [part.tolist() for part in queries.lengths.split(max(1, panel // most_scores))]
        for part, vectors in zip(parts, queries.vectors.split([sum(part) for part in parts]), strict=True):
            raw = (sources.vectors @ vectors.T).split([len(run) for run in runs])
            columns = [
                tiled_cosines(
                    self.normalisation, self.softmax_scale, products.unflatten(0, (len(run_grams), -1)), run_grams, part
                )
                for products, run_grams in zip(raw, grams, strict=True)
            ]
            scores.append(pooled(*_padded(torch.cat(columns), part), self.pooling, self.lse_scale))
        return torch.cat(scores, dim=1)[order.argsort()]


def _padded(cosines: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """(n, V) cosines of queries, set after set -> (n, sets, L) and the mask (sets, L) of what is inside."""
    sizes = torch.tensor(lengths, device=cosines.device)
    position = torch.arange(max(lengths), device=cosines.device)
    inside = position < sizes[:, None]
    index = ((sizes.cumsum(0) - sizes)[:, None] + position).where(inside, 0)
    return cosines[:, index.flatten()].unflatten(1, index.shape), inside
