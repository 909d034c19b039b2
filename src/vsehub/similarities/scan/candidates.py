"""Cross-attention of queries with a few entries each, such as the shortlists of a memory bank: padded, many at once."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vsehub.sets import Sets
from vsehub.similarities.scan.tiles import Attention, Buffers, gram

# Numbers of the entries that are copied out and padded at a time: 1 GB of float32.
COPIED = 1 << 28


def candidate_cosines(
    attention: Attention, queries: Sets, entries: Sets, chosen: Tensor, entries_attend: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cosines of attending vectors with what they attend, for some queries with their candidates after the other.

    chosen: (Q, C) rows of the entries. entries_attend: whether the vectors of the entries attend those of the query,
    else the reverse. Yields cosines (b, C, L) and the mask of the same shape of what is not padding.
    """
    count, buffers = chosen.shape[1], Buffers(queries.vectors)
    for rows in _parts(queries, entries, chosen):
        query, in_query = _unit(queries[rows])  # (b, q, D), (b, q)
        entry, in_entry = _unit(entries[chosen[rows].flatten()])  # (b C, e, D), (b C, e)
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


def _unit(sets: Sets) -> tuple[Tensor, Tensor]:
    """Unit vectors (n, L, D), padded with zeros, and the mask (n, L) of the others."""
    padded, inside = sets.padded()
    norms = torch.linalg.vector_norm(padded, dim=2, keepdim=True)
    return padded.mul_(norms.reciprocal_().masked_fill_(torch.isinf(norms), 0)), inside
