"""Rankings as .parquet tables, which any data tool can open: one row per query and rank."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import matrix, require
from vsehub.data.truth import distinct_ids
from vsehub.io.files import atomic

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 1 << 20  # of the table; one row group is in memory at a time


def write_ranking(
    path: str | Path,
    positions: Tensor | np.ndarray,
    scores: Tensor | np.ndarray,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
    p_values: Tensor | None = None,
    accept: float | None = None,
) -> None:
    """Write a ranking, best first, as a table (query, rank, item, score), completely or not at all.

    positions: (Q, K) row numbers of items. scores: (Q, K), float64 stays float64, others are stored as float32.
    query_ids: Q strings, item_ids: one string per item, the names in the table; None: row numbers from 0. Ranks count
    from 1. p_values: (Q,), that of each query's first item, as a further column p. accept: the queries whose p value is
    larger are left out. Raises InputError if shapes or ids do not fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    positions, scores = torch.as_tensor(positions), torch.as_tensor(scores)
    matrix("positions", positions)
    matrix("scores", scores, *positions.shape)
    require(
        positions.numel() > 0 and not positions.is_floating_point(),
        f"positions is {positions.dtype} {tuple(positions.shape)}; expected whole numbers, at least one",
    )
    named_queries, named_items = _names("query_ids", query_ids), _names("item_ids", item_ids)
    require(
        query_ids is None or len(query_ids) == len(positions),
        f"there are {len(query_ids or ())} query_ids for {len(positions)} queries; expected one for each",
    )
    least, most = positions.min().item(), positions.max().item()
    require(
        least >= 0 and (item_ids is None or most < len(item_ids)),
        f"positions go from {least} to {most}; expected row numbers of items counted from 0"
        + ("" if item_ids is None else f", of which there are {len(item_ids)} item_ids"),
    )
    queries, depth = positions.shape
    score_type = torch.float64 if scores.dtype == torch.float64 else torch.float32
    schema = pa.schema(
        {
            "query": pa.int64() if named_queries is None else pa.string(),
            "rank": pa.int32(),
            "item": pa.int64() if named_items is None else pa.string(),
            "score": pa.float64() if score_type == torch.float64 else pa.float32(),
            **({} if p_values is None else {"p": pa.float64()}),
        }
    )
    left = torch.arange(queries)
    if p_values is not None and accept is not None:
        left = (p_values <= accept).nonzero()[:, 0]
    step = max(1, _GROUP_ROWS // depth)
    with atomic(path) as handle, pq.ParquetWriter(handle, schema, compression="zstd") as writer:
        for rows in left.split(step) if len(left) else ():
            query = pa.array(rows.numpy().repeat(depth))
            item = pa.array(positions[rows].to("cpu", torch.int64).flatten().numpy())
            columns = [
                query if named_queries is None else named_queries.take(query),
                pa.array(np.tile(np.arange(1, depth + 1, dtype=np.int32), len(rows))),
                item if named_items is None else named_items.take(item),
                pa.array(scores[rows].detach().to("cpu", score_type).flatten().numpy()),
                *(() if p_values is None else (pa.array(p_values[rows].numpy().repeat(depth)),)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def write_biases(
    path: str | Path, item_terms: Sequence[Tensor], scale: float, items: int, item_ids: Sequence[str] | None = None
) -> None:
    """Write the bias b of each item as a table (id, bias), completely or not at all.

    item_terms: b (M,), or nothing for a criterion that has no bias. scale: a, in the metadata of the table: a corrected
    score is a·s - b. item_ids: the names in the table; None: row numbers from 0.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {"id": pa.int64() if item_ids is None else pa.string(), "bias": pa.float64()}, {"scale": repr(float(scale))}
    )
    with atomic(path) as handle, pq.ParquetWriter(handle, schema, compression="zstd") as writer:
        for first in range(0, items, _GROUP_ROWS):
            last = min(first + _GROUP_ROWS, items)
            names = np.arange(first, last) if item_ids is None else item_ids[first:last]
            bias = (
                item_terms[0][first:last].detach().cpu().double() if item_terms else torch.zeros(last - first).double()
            )
            columns = [pa.array(names, schema.field("id").type), pa.array(bias.numpy())]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _names(name: str, ids: Sequence[str] | None) -> "pa.Array | None":
    import pyarrow as pa

    if ids is None:
        return None
    distinct_ids(name, ids)
    return pa.array(ids, pa.string())
