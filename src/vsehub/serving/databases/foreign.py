"""Collections made by others: the bias of each item as one more field, and an expression that ranks by the field.

The vectors stay unchanged. The engine's own search finds a shortlist by plain similarity, and the expression ranks
the shortlist by a·s - b. Items without the field are left out.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch

from vsehub.checks import require
from vsehub.io.address import Address
from vsehub.io.progress import bar
from vsehub.io.rows import listed
from vsehub.neighbors.vectors import as_vectors, given_back
from vsehub.serving.corrected import unit_rows
from vsehub.serving.databases.engines import ENGINES, Place, without_secret

FIELD = "vsehub_bias"
SHORTLIST = 1000  # items in the shortlist of plain search
BATCH = 1000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Foreign(ABC):
    """A collection made by others. ids: of the items, in their order; the keys of the collection.

    place: where it is. id_column, vector_column: the names of its columns; None: the engine's usual one. scale: a.
    """

    usual_vector: ClassVar[str | None] = "vector"

    def __init__(
        self, place: Place, ids: Sequence[str], scale: float, id_column: str | None, vector_column: str | None
    ):
        self.place, self.ids, self.scale = place, ids, scale
        self.id_column, self.vector_column = id_column or "id", vector_column or self.usual_vector
        for setting, column in (("correct_id", self.id_column), ("correct_vector", self.vector_column)):
            require(
                column is None or _NAME.fullmatch(column) is not None,
                f"{setting} is {column!r}; expected letters, digits and underscores, no digit first",
            )
        self._rows = {one: row for row, one in enumerate(ids)}

    @abstractmethod
    def check(self) -> bool:
        """Whether the collection has the field. Raises InputError unless its columns and its distance fit."""

    @abstractmethod
    def among(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids whose items have a vector in the collection."""

    @abstractmethod
    def write(self, bias: Sequence[float]) -> None:
        """Write the bias of each item, and change nothing else."""

    @abstractmethod
    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """Ids and scores of the k best items of a query (D,), by the expression of the note or by plain similarity."""

    @abstractmethod
    def note(self, k: int) -> tuple[str, str]:
        """Imports, and code in the engine's own client that gives `ids` for `vectors`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    def require(self, replace: bool) -> None:
        """Raise InputError for a field that must not be replaced, and for items missing in the collection."""
        there = self.check()
        require(
            replace or not there,
            f"correct: {self.place.address} has a field {FIELD} already; give overwrite=true to replace it",
        )
        missing: list[str] = []
        for start in range(0, len(self.ids), BATCH):
            some = self.ids[start : start + BATCH]
            held = self.among(some)
            missing += [one for one in some if one not in held]
        require(
            not missing,
            f"correct: {len(missing):,} of {len(self.ids):,} items are not in {self.place.address}, or have no vector "
            f"there: {listed(missing)}. Give the ids that it has (item_ids=FILE), and correct_id=COLUMN if that is "
            f"not {self.id_column}",
        )

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) as `ServedIndex.search` gives them."""
        asked = as_vectors("queries", queries)
        values = torch.full((len(asked), k), -torch.inf)
        positions = torch.full((len(asked), k), -1, dtype=torch.int64)
        with self.place.asking():
            for row, query in enumerate(asked.rows(0, len(asked)).float().cpu().numpy()):
                for rank, (one, score) in enumerate(self.find(query, k, corrected)[:k]):
                    if one in self._rows:
                        values[row, rank], positions[row, rank] = score, self._rows[one]
        return given_back(queries, values, positions)

    def batches(self, bias: Sequence[float]) -> Iterator[tuple[Sequence[str], Sequence[float]]]:
        """Ids and biases, some at a time, with a bar."""
        with bar(f"writing {FIELD}", total=len(self.ids), unit=" items") as steps:
            for start in range(0, len(self.ids), BATCH):
                yield self.ids[start : start + BATCH], bias[start : start + BATCH]
                steps.update(len(self.ids[start : start + BATCH]))

    @property
    def uri(self) -> str:
        """The whole address."""
        return Address(self.place.uri).opened("index_uri")


@contextmanager
def open_foreign(
    place: Place, ids: Sequence[str], scale: float, id_column: str | None = None, vector_column: str | None = None
) -> Iterator[Foreign]:
    """A collection of others within the block. Raises InputError if the engine does not answer."""
    module = import_module(f"vsehub.serving.databases.{place.engine}")
    with place.asking():
        found: Foreign = getattr(module, ENGINES[place.engine].foreign)(place, ids, scale, id_column, vector_column)
        with closing(found):
            yield found


def usage_of(collection: Foreign, normalize: bool | None, queries: str = "queries.npy", k: int = 10) -> str:
    """Python that ranks a collection by its field with the engine's client: `ids` of the k best."""
    imports, search = without_secret(collection.place.uri, *collection.note(k))
    read = f'queries = np.load({queries!r}).astype("float32")\n{unit_rows(normalize)}vectors = queries\n'
    return f"{imports}\n{read}{search}"
