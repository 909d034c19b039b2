"""Rankings as .parquet tables, which any data tool can open: one row per query and rank."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, existing, matrix, require
from vsehub.data.truth import distinct_ids
from vsehub.io.files import atomic

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("query", "rank", "item", "score")
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


def read_ranking(
    path: str | Path, query_ids: Sequence[str] | None = None, item_ids: Sequence[str] | None = None
) -> tuple[Tensor, Tensor]:
    """The ranking in a table of `write_ranking`, whose rows may be in any order: positions (Q, K) int64, scores (Q, K).

    query_ids, item_ids: the ids that the table uses, in the order of the rows; None if it has row numbers.
    Raises InputError if the file is damaged, an id is unknown, or not every query has every rank from 1 to K once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = existing("ranking", path, "Give a table that write_ranking wrote")
    naming = {"query": _names("query_ids", query_ids), "item": _names("item_ids", item_ids)}
    try:
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            names = file.schema_arrow.names
            require(
                set(COLUMNS) <= set(names),
                f"{path} has the columns {', '.join(names)}; expected a ranking: {', '.join(COLUMNS)}",
            )
            require(file.metadata.num_rows > 0, f"{path} is a ranking without rows")
            table = file.read(columns=list(COLUMNS), use_threads=False)
            empty = [name for name in COLUMNS if table.column(name).null_count]
            require(not empty, f"{path}: the columns {', '.join(empty)} have empty entries; expected none")
            query, item = (_numbers(path, name, table.column(name), ids) for name, ids in naming.items())
            rank, score = table.column("rank").cast(pa.int64()).to_numpy(), table.column("score").to_numpy()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as .parquet ({error}). Write or copy it again") from error
    queries = int(query.max()) + 1 if query_ids is None else len(query_ids)
    depth = int(rank.max())
    whole = len(query) == queries * depth and query.min() >= 0 and rank.min() >= 1
    positions = np.full(queries * depth if whole else 0, -1, np.int64)
    if whole:
        places = query * depth + rank - 1
        positions[places] = item
    require(
        whole and positions.min() >= 0,
        f"{path} has {len(query)} rows for {queries} queries; expected the ranks 1 to {depth} once for each query",
    )
    values = np.empty_like(score)
    values[places] = score
    shape = (queries, depth)
    return torch.from_numpy(positions).reshape(shape), torch.from_numpy(values).reshape(shape)


def _names(name: str, ids: Sequence[str] | None) -> "pa.Array | None":
    import pyarrow as pa

    if ids is None:
        return None
    distinct_ids(name, ids)
    return pa.array(ids, pa.string())


def _numbers(path: Path, name: str, column: "pa.ChunkedArray", ids: "pa.Array | None") -> np.ndarray:
    """The row numbers for the entries of a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = pa.types.is_integer(column.type)
    require(
        numbered == (ids is None),
        f"{path}: the column {name} holds {'row numbers' if numbered else 'ids'}; "
        f"{'omit' if numbered else 'give the'} {name}_ids",
    )
    numbers: np.ndarray
    if numbered:
        numbers = column.cast(pa.int64()).to_numpy()
        return numbers
    found = pc.index_in(column, value_set=ids)
    require(
        found.null_count == 0, f"{path}: {found.null_count} entries of the column {name} are not among the {name}_ids"
    )
    numbers = found.to_numpy().astype(np.int64)
    return numbers
