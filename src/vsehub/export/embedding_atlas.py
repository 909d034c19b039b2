"""Items as a table for Embedding Atlas."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vsehub.export.items import ItemsFormat, MeasuredItems
from vsehub.io.files import atomic
from vsehub.neighbors.tiles import nearest_blocks

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "items.parquet"
_GROUP_ROWS = 1 << 16  # of the table; one row group is in memory at a time


class EmbeddingAtlas(ItemsFormat):
    """A parquet table, a row an item: vector, id, label, hubness, and the items next to it.

    The column `neighbors` holds the k other items with the largest cosine, by their rows, and their distances, 1 minus
    the cosine, as Embedding Atlas takes them: {"ids": [...], "distances": [...]}.
    """

    files = (TABLE,)

    def write(self, items: MeasuredItems, folder: Path) -> None:
        """See `ItemsFormat`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        measured = items.columns
        names = items.names
        schema = pa.schema(
            {
                "id": pa.int64() if names.ids is None else pa.string(),
                **({} if names.labels is None else {"label": pa.string()}),
                **{name: pa.bool_() if one.dtype == torch.bool else pa.int64() for name, one in measured.items()},
                "vector": pa.list_(pa.float32()),
                "neighbors": pa.struct({"ids": pa.list_(pa.int64()), "distances": pa.list_(pa.float32())}),
            },
            {"k": str(items.k), "criterion": items.criterion or ""},
        )
        with atomic(folder / TABLE) as handle, pq.ParquetWriter(handle, schema, compression="zstd") as writer:
            for first, positions, distances in neighbors(items):
                for start in range(0, len(positions), _GROUP_ROWS):
                    rows = slice(first + start, first + min(start + _GROUP_ROWS, len(positions)))
                    own = slice(rows.start - first, rows.stop - first)
                    near = [_lists(positions[own]), _lists(distances[own])]
                    columns = [
                        pa.array(range(rows.start, rows.stop) if names.ids is None else names.ids[rows]),
                        *([] if names.labels is None else [pa.array(names.labels[rows], pa.string())]),
                        *(pa.array(one[rows].numpy()) for one in measured.values()),
                        _lists(items.vectors.rows(rows.start, rows.stop).cpu()),
                        pa.StructArray.from_arrays(near, ["ids", "distances"]),
                    ]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    def opened_by(self, items: MeasuredItems, folder: Path) -> str:
        """See `ItemsFormat`."""
        label = "" if items.names.labels is None else " --text label"
        return f"embedding-atlas {shlex.quote(str(folder / TABLE))} --vector vector --neighbors neighbors{label}"


def neighbors(items: MeasuredItems) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first row, positions (b, n), distances (b, n)) of the n other items nearest by cosine, in blocks of rows.

    n is k, or the number of other items if they are fewer.
    """
    rows, count = replace(items.vectors, normalize=True), min(items.k, len(items) - 1)
    for first, [(cosines, positions)] in nearest_blocks(rows, rows, count + 1):
        own = positions == torch.arange(first, first + len(positions), device=positions.device)[:, None]
        own[:, -1] |= ~own.any(dim=1)  # an item with many copies may not be in its own list
        shape = len(positions), count
        distances = (1 - cosines[~own]).clamp(min=0).reshape(shape)
        yield first, positions[~own].reshape(shape).cpu(), distances.float().cpu()


def _lists(rows: Tensor) -> "pa.Array":
    """The rows (n, d) of a matrix as a column of lists."""
    import pyarrow as pa

    count, width = rows.shape
    offsets = pa.array(range(0, count * width + 1, width) if width else [0] * (count + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(rows.flatten().numpy()))
