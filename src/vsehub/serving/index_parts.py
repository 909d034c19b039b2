"""A corrected index in several files, of consecutive items each, of which one at a time is in memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.io.progress import bar
from vsehub.neighbors.vectors import RowRange, as_vectors, given_back
from vsehub.serving.corrected import (
    IndexFacts,
    NoteQueries,
    ServedIndex,
    build_index,
    load_index,
    measured_time,
    search_lines,
)

DIGITS = 5


def part_names(items: int, rows: int) -> list[str]:
    """The names of the files for so many items, `rows` in each."""
    return [f"index-{number:0{DIGITS}d}.faiss" for number in range(-(-items // rows))]


class IndexParts:
    """Indexes of consecutive items in files of their own, in order.

    files: of `ServedIndex.save`. facts: those of all items together.
    """

    def __init__(self, files: Sequence[Path], facts: IndexFacts):
        self.files, self.facts = list(files), facts

    def __len__(self) -> int:
        return self.facts.items

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        folder: Path,
        items: Any,
        bias: Tensor,
        scale: float,
        kind: str,
        rows: int,
        seed: int = 0,
    ) -> Self:
        """Write the files `part_names` to a folder: `rows` items in each, the rest in the last.

        The other arguments, and errors: see `build_index`. All parts share the mean of the bias, so that one formula
        turns the products of any part into scores.
        """
        items = as_vectors("items", items)
        require(len(bias) == len(items), f"bias has {len(bias)} entries; expected one for each of {len(items)} items")
        mean = float(bias.double().mean())
        files = [folder / name for name in part_names(len(items), rows)]
        with bar("writing the parts of the index", total=len(files), unit=" files") as steps:
            for number, file in enumerate(files):
                start, stop = number * rows, min((number + 1) * rows, len(items))
                own = RowRange(items, start, stop)
                build_index(own, bias[start:stop], scale, kind, seed, mean).save(file)
                steps.update()
        return cls(files, IndexFacts(kind, len(items), items.shape[1], float(scale), mean))

    def opened(self) -> Iterator[ServedIndex]:
        """Each part, read when its turn comes."""
        return (load_index(file) for file in self.files)

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k); see `ServedIndex.search`. Each call reads every file once."""
        asked = as_vectors("queries", queries, columns=self.facts.dim).rows
        rows = asked(0, len(queries))
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of items in the index")
        values, positions = torch.empty((len(rows), 0)), torch.empty((len(rows), 0), dtype=torch.int64)
        start = 0
        for part in self.opened():
            found = part.search(rows, min(k, len(part)), corrected)
            values = torch.cat([values, found[0]], dim=1)
            positions = torch.cat([positions, torch.where(found[1] < 0, found[1], found[1] + start)], dim=1)
            best = values.argsort(dim=1, descending=True, stable=True)[:, :k]
            values, positions = values.gather(1, best), positions.gather(1, best)
            start += len(part)
        return given_back(queries, values, positions)

    def measured_time(self, queries: Any, k: int, seed: int = 0) -> dict[str, float]:
        """See `corrected.measured_time`: the sum over the parts, each in memory as it is measured."""
        times = [measured_time(part, queries, min(k, len(part)), seed=seed) for part in self.opened()]
        return {name: sum(time[name] for time in times) for name in ("plain", "corrected")}

    def usage_note(self, folder: str, k: int = 10, queries: NoteQueries | None = None) -> str:
        """Python that searches all parts in `folder`: `positions` and `scores`, both (Q, k). See `usage_note`."""
        lines = search_lines(self.facts, next(self.opened()).effort, queries or NoteQueries())
        k = min(k, len(self))
        return f"""import faiss
import numpy as np

{lines.vectors}products, positions, start = [], [], 0
for number in range({len(self.files)}):  # {len(self):,} items
    index = faiss.read_index({folder + "/index-"!r} + f"{{number:0{DIGITS}d}}.faiss")
    {lines.effort.strip() or "# an exact index"}
    found = index.search(vectors, min({k}, index.ntotal))
    products.append(found[0])
    positions.append(np.where(found[1] < 0, -1, found[1] + start))  # -1: none found
    start += index.ntotal
products, positions = np.hstack(products), np.hstack(positions)
best = np.argsort(-products, axis=1, kind="stable")[:, :{k}]  # best first
products, positions = np.take_along_axis(products, best, 1), np.take_along_axis(positions, best, 1)
scores = {lines.formula}  # the corrected scores
"""
