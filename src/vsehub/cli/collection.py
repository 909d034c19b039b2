"""What `add` and `gate` share: the collection, and the new items."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import InputError, boolean, existing, fail, require, whole_seed
from vsehub.cli.kinds import RequestedKinds
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.spreadsheet import unescaped

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.serving.databases.collection import Items
    from vsehub.serving.databases.engines import Place
    from vsehub.serving.databases.living import Living


def collection_place(cfg: DictConfig) -> "Place":
    """The place that `cfg` names. Raises InputError for settings that can be refused before anything is read."""
    from vsehub.serving.databases.engines import ENGINES, placed

    if cfg.index is None:
        fail(f"index is not set; give that of the collection: {', '.join(ENGINES)}")
    boolean("normalize", cfg.normalize, or_none=True)
    whole_seed("seed", cfg.seed)
    if cfg["items"] is not None:
        require_vectors("items", split_path(str(cfg["items"]))[0])
        RequestedKinds.of(cfg)
    return placed(str(cfg.index), None if cfg.index_uri is None else str(cfg.index_uri), str(cfg.index_name), None)


def new_items(cfg: DictConfig, collection: "Living", without: Path | None = None) -> "Items":
    """The vectors of `cfg.items` as they are stored, with their ids, labels and biases.

    without: a table with a column id, of items that are left out.
    """
    from vsehub.data.truth import read_ids, read_labels
    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.neighbors.kinds import Kinds
    from vsehub.neighbors.vectors import Chosen
    from vsehub.serving.databases.columns import read_columns

    normalize = collection.facts.normalize if cfg.normalize is None else cfg.normalize
    vectors = open_vectors(str(cfg["items"]), "items", normalize=normalize)
    look_through(vectors)
    ids = vectors.ids if cfg.item_ids is None else read_ids(str(cfg.item_ids), "item_ids")
    labels = vectors.labels if cfg.item_labels is None else read_labels(str(cfg.item_labels), "item_labels")
    if ids is None:
        fail("items has no ids, by which they are found again; give item_ids=FILE with one id per line")
    columns, requested = cfg.get("item_columns"), RequestedKinds.of(cfg)
    entries = None if requested is None else requested.entries(len(vectors), ids)
    if without is None:
        fields = None if columns is None else read_columns(str(columns), ids)
        kinds = None if entries is None else Kinds.named(entries)
        return collection.new(vectors, ids, labels, fields, kinds)
    out = quarantined(without)
    unknown = out - set(ids)
    require(
        not unknown,
        f"quarantine: {without} names {len(unknown)} items that are not among those to add, such as "
        f"{min(unknown, default='')!r}; expected the list that gate wrote for these items",
    )
    kept = [row for row, one in enumerate(ids) if one not in out]
    require(bool(kept), f"quarantine: {without} names all {len(ids)} items, so that none is left to add")
    collection.require_fits(vectors, ids, labels)
    some = [ids[row] for row in kept]
    fields = None if columns is None else read_columns(str(columns), some)
    own = None if labels is None else [labels[row] for row in kept]
    kinds = None if entries is None else Kinds.named([entries[row] for row in kept])
    return collection.new(Chosen(vectors, kept), some, own, fields, kinds)


def quarantined(path: Path) -> set[str]:
    """The ids in a list that gate wrote. Raises InputError for another file."""
    existing("quarantine", path, "Give the quarantine.csv that gate wrote")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return {unescaped(row["id"]) for row in csv.DictReader(file)}
    except (KeyError, UnicodeDecodeError, csv.Error, OSError) as error:
        why = "it has no column id" if isinstance(error, KeyError) else str(error)
        raise InputError(f"quarantine: {path} is not a list that gate wrote: {why}") from error
