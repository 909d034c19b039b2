"""Writing item biases into a field of an existing collection, and a note that ranks by a·s - b with this field."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail, positive, require
from vsehub.data.truth import require_distinct_ids
from vsehub.io.arrays import listed
from vsehub.serving.databases.engines import Location, note_code
from vsehub.serving.index import normalize_code

_BATCH = 10_000  # items read or written at a time


def write_biases(
    location: Location, ids: Sequence[Any], biases: Any, only_missing: bool = False, *, field: str = "bias"
) -> int:
    """Write a number to each item with one of these ids, and nothing else; returns the number of items written.

    The collection need not be of vsehub. ids: the keys of points in Qdrant, the primary field in Milvus, the column
    `id` elsewhere. biases: b (n,) of an `ItemBias`. only_missing: skip items that have a number. field: the column, or
    field of the payload, which is added where it is missing. Raises InputError, before anything is written, if the
    collection is absent, if it lacks some of the ids, and if the engine cannot change one field.
    """
    ids, values = list(map(str, ids)), np.asarray(biases, dtype=np.float64)
    require_distinct_ids("item_ids", ids)
    require(
        values.shape == (len(ids),) and bool(np.isfinite(values).all()),
        f"biases has shape {values.shape}; expected one finite number for each of {len(ids)} ids",
    )
    bias_of = dict(zip(ids, values.tolist(), strict=True))
    with location.connect() as database:
        if database.metadata() is None:
            fail(f"uri: there is no collection {location.title}")
        stored = [
            row
            for start in range(0, len(ids), _BATCH)
            for row in location.module.read_biases(database, ids[start : start + _BATCH], field)
        ]
        unknown = sorted(bias_of.keys() - {name for name, _, _ in stored})
        require(not unknown, f"item_ids: {location.title} has no item {listed(unknown)}")
        chosen = [(key, bias_of[name]) for name, key, bias in stored if bias is None or not only_missing]
        for start in range(0, len(chosen), _BATCH):
            location.module.put_biases(database, dict(chosen[start : start + _BATCH]), field)
    return len(chosen)


def bias_note(
    location: Location,
    folder: Path,
    scale: float,
    k: int = 10,
    *,
    field: str = "bias",
    vector: str | None = None,
    queries: str = "queries.npy",
    normalize: bool | None = None,
) -> str:
    """Python that ranks the items by `scale` times their inner product with a query minus the number in `field`.

    It gives `ids` and `scores` (Q, k), with the engine's client; items without a number are left out. scale: a of the
    `ItemBias`. vector: the column or field of the vectors; None: `vector`, or in Qdrant those without a name. Other
    arguments: see `write_biases` and `usage_note`.
    """
    positive("scale", scale)
    imports, search = location.module.bias_note(
        location.uri_code(folder), location.name, k, float(scale), field, vector
    )
    search = (
        f"{normalize_code(normalize)}{search}"
        "ids = [[name for _, name in hits] for hits in ranked]\n"
        "scores = [[score for score, _ in hits] for hits in ranked]\n"
    )
    return note_code(imports, queries, "D", search)
