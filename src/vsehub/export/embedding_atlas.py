"""Items with their vectors, names and hubness as a table for Embedding Atlas."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vsehub.data.vectors.embeddings import VectorFile
from vsehub.io.files import atomic
from vsehub.neighbors.tiles import nearest_blocks
from vsehub.rerank.compare import Comparison
from vsehub.rerank.verdict import hub_level

TABLE = "items.parquet"


class EmbeddingAtlas:
    """A parquet table, a row an item: vector, id, label, hubness, and the items next to it.

    The column `neighbors` holds the k other items with the largest cosine, by their rows, and their distances, 1 minus
    the cosine, as Embedding Atlas takes them: {"ids": [...], "distances": [...]}.
    """

    files = (TABLE,)

    def write(self, found: Comparison, folder: Path) -> str:
        """Write the table of a comparison's items; returns the command line that opens it."""
        names, k = found.inputs.item_names, found.measured.rankings[0].positions.shape[1]
        named: dict[str, list[object]] = {"id": list(names.ids or range(names.rows))}
        if names.labels is not None:
            named["label"] = list(names.labels)
        measured, writer = hubness(found), None
        with atomic(folder / TABLE) as handle:
            for rows, vectors, positions, distances in neighbors(found.inputs.files["items"], k):
                nearest = zip(positions.tolist(), distances.tolist(), strict=True)
                table = pa.table(
                    {name: values[rows] for name, values in named.items()}
                    | {name: one[rows].numpy() for name, one in measured.items()}
                    | {"vector": pa.array(list(vectors.numpy()), pa.list_(pa.float32()))}
                    | {"neighbors": pa.array([{"ids": ids, "distances": far} for ids, far in nearest], _NEIGHBORS)}
                )
                writer = writer or pq.ParquetWriter(handle, table.schema, compression="zstd")
                writer.write_table(table)
            if writer is not None:
                writer.close()
        label = "" if names.labels is None else " --text label"
        return f"embedding-atlas {shlex.quote(str(folder / TABLE))} --vector vector --neighbors neighbors{label}"


_NEIGHBORS = pa.struct({"ids": pa.list_(pa.int64()), "distances": pa.list_(pa.float32())})


def hubness(found: Comparison) -> dict[str, Tensor]:
    """The columns n_k, hub and, with known answers, displaced, each (M,); of the corrected ranking with an ending.

    n_k: in how many lists the item is. hub: whether that reaches `hub_level`. displaced: in how many lists it is wrong
    and stands above every right answer.
    """
    count, truth, columns = len(found.inputs.sides.items), found.inputs.sides.positives, {}
    for ending, ranking in zip(("", "_corrected"), found.measured.rankings, strict=False):
        positions = ranking.positions
        n_k = positions.flatten().bincount(minlength=count)
        columns |= {f"n_k{ending}": n_k, f"hub{ending}": n_k >= hub_level(positions.shape[1], len(positions), count)}
        if truth is not None:
            ahead = (truth.hits(positions).cumsum(dim=1) == 0) & (truth.counts > 0)[:, None]
            columns[f"displaced{ending}"] = positions[ahead].bincount(minlength=count)
    return columns


def neighbors(items: VectorFile, k: int) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Blocks of rows, their vectors, and the positions and distances (b, n) of the n other items nearest by cosine.

    n is k, or the number of other items if they are fewer.
    """
    unit, count = replace(items, normalize=True), min(k, len(items) - 1)
    for first, [(cosines, positions)] in nearest_blocks(unit, unit, count + 1):
        rows = slice(first, first + len(positions))
        own = positions == torch.arange(rows.start, rows.stop, device=positions.device)[:, None]
        own[:, -1] |= ~own.any(dim=1)  # an item with many copies may not be in its own list
        shape = len(positions), count
        distances = (1 - cosines[~own]).clamp(min=0).reshape(shape).float()
        yield rows, items.rows(rows.start, rows.stop).cpu(), positions[~own].reshape(shape).cpu(), distances.cpu()
