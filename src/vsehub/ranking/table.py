"""Rankings and biases as .parquet tables, which any data tool can open."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vsehub.io.files import atomic

ROWS = 1 << 20  # of a row group


def write_table(path: Path, columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write columns as a .parquet table, completely or not at all. metadata: texts to store in the table."""
    with atomic(path) as handle:
        pq.write_table(
            pa.table({name: arrow(column) for name, column in columns.items()}, metadata=metadata),
            handle,
            compression="zstd",
            row_group_size=ROWS,
        )


def arrow(column: Any) -> Any:
    """A column of numbers as Arrow's array, other columns unchanged: pyarrow itself would import pandas first."""
    if not (isinstance(column, np.ndarray) and column.dtype.kind in "iuf"):
        return column
    buffer = pa.py_buffer(np.ascontiguousarray(column))
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [None, buffer])


def write_ranking(
    path: Path,
    positions: Tensor,
    scores: Tensor,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> None:
    """Write a ranking, best first, as a table (query, rank, item, score).

    positions: (Q, K) row numbers of items. scores: (Q, K), float64 stays float64, others are stored as float32.
    query_ids: Q strings, item_ids: one string per item, the names in the table; None: row numbers from 0. Ranks count
    from 1.
    """
    queries, depth = positions.shape
    scores = scores if scores.dtype == torch.float64 else scores.float()
    columns = {
        "query": _named(query_ids, np.arange(queries).repeat(depth)),
        "rank": np.tile(np.arange(1, depth + 1, dtype=np.int32), queries),
        "item": _named(item_ids, positions.flatten().numpy()),
        "score": scores.flatten().numpy(),
    }
    write_table(path, columns)


def write_biases(
    path: Path, item_terms: Sequence[Tensor], scale: float, items: int, item_ids: Sequence[str] | None = None
) -> None:
    """Write the bias b of each of M items as a table (id, bias).

    item_terms: b (M,), or nothing for the plain ranking. scale: a, in the metadata of the table: a corrected score is
    a·s - b. item_ids: as in `write_ranking`.
    """
    bias = item_terms[0].double().cpu().numpy() if item_terms else np.zeros(items)
    write_table(path, {"id": _named(item_ids, np.arange(items)), "bias": bias}, {"scale": repr(float(scale))})


def _named(ids: Sequence[str] | None, rows: np.ndarray) -> Any:
    return rows if ids is None else pa.array(ids, pa.string()).take(pa.array(rows))
