"""The items of a diagnosis as a table that Embedding Atlas opens: vectors, names, hubness and nearest items."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsehub.data.vectors.embeddings import VectorFile
from vsehub.neighbors.tiles import nearest_blocks, without_itself
from vsehub.positives import Positives
from vsehub.ranking.compare import Comparison
from vsehub.ranking.table import write_table
from vsehub.ranking.verdict import hub_level

log = logging.getLogger(__name__)

MOST_ITEMS = 20_000  # all pairs of them are compared


def write_neighbors(path: Path, comparison: Comparison) -> bool:
    """Write the items of a comparison, a row each; False for precomputed scores and for more than `MOST_ITEMS` items.

    Columns: `id`, `label` where there are labels, `n_k`, `hub` (whether N_k reaches `hub_level`) and, with truth,
    `displaced` (in how many lists the item is wrong and above every right answer) of the plain lists, the same with the
    name of each criterion at the end, `vector`, and `neighbors`: the k other items with the largest cosine, by their
    rows, and their distances, 1 minus the cosine.
    """
    import pyarrow as pa

    vectors, names = comparison.inputs.files.get("items"), comparison.inputs.item_names
    if vectors is None or len(vectors) > MOST_ITEMS:
        log.info("%s is written for at most %d items, of vectors", path.name, MOST_ITEMS)
        return False
    columns: dict[str, Any] = {"id": range(len(vectors)) if names.ids is None else names.ids}
    columns |= {} if names.labels is None else {"label": names.labels}
    for number, ranking in enumerate(comparison.measured.rankings):
        ending = f"_{ranking.name}" if number else ""
        measured = hubness(ranking.positions, len(vectors), comparison.inputs.sides.positives)
        columns |= {f"{name}{ending}": column.numpy() for name, column in measured.items()}
    near = [torch.cat(parts) for parts in zip(*neighbors(vectors, comparison.record["k"]), strict=True)]
    # A matrix as a list of its rows becomes a column of lists.
    lists = pa.StructArray.from_arrays([pa.array([*matrix.numpy()]) for matrix in near], ["ids", "distances"])
    write_table(path, {**columns, "vector": [*vectors.rows(0, len(vectors)).cpu().numpy()], "neighbors": lists})
    return True


def hubness(positions: Tensor, items: int, truth: Positives | None) -> dict[str, Tensor]:
    """The measured columns, each (M,), of lists (Q, k), best first, of M items."""
    counts = positions.flatten().bincount(minlength=items)
    columns = {"n_k": counts, "hub": counts >= hub_level(positions.shape[1], len(positions), items)}
    if truth is None:
        return columns
    ahead = (truth.hits(positions).cumsum(dim=1) == 0) & (truth.counts > 0)[:, None]
    return columns | {"displaced": positions[ahead].bincount(minlength=items)}


def neighbors(vectors: VectorFile, k: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions and distances (b, n) of the n other items nearest by cosine, in blocks; n is at most k."""
    rows, count = replace(vectors, normalize=True), min(k, len(vectors) - 1)
    for first, [(cosines, positions)] in nearest_blocks(rows, rows, count + 1):
        numbers = torch.arange(first, first + len(positions))
        cosines, positions = without_itself(numbers, (cosines, positions))
        yield positions, (1 - cosines).clamp(min=0).float()
