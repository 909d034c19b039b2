"""`vsehub add`: add items to a collection in a database that vsehub filled, and remove others."""

import time
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import fail, require
from vsehub.data.vectors.paths import require_vectors, split_path

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    import pyarrow as pa

    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.serving.databases.collection import Collection


def add(cfg: DictConfig) -> None:
    """Remove the items of `cfg.remove_ids` from a collection, then add `cfg.items`."""
    from vsehub.serving.databases.engines import placed

    place = placed(cfg.engine, None if cfg.uri is None else str(cfg.uri), str(cfg.collection), None)
    given = cfg["items"] is not None
    require(given or cfg.remove_ids is not None, "give items=FILE to add, or remove_ids=FILE")
    if given:
        require_vectors("items", split_path(str(cfg["items"]))[0])

    from vsehub.data.truth import read_ids
    from vsehub.serving.databases.collection import open_collection

    began, said = time.perf_counter(), []
    gone = None if cfg.remove_ids is None else read_ids(str(cfg.remove_ids), "remove_ids")
    with open_collection(place) as collection:
        if given:  # refused before anything is removed
            vectors, columns = new_items(cfg, collection)
            bias, columns = collection.prepare(vectors, columns)
        if gone is not None:
            said.append(f"removed {collection.remove(gone)} of {len(gone)} ids")
        if given:
            replaced = collection.add(vectors, bias, columns)
            said.append(f"added {len(vectors)} items, {replaced} of them in the place of earlier ones")
        held = len(collection)
    print(f"{'; '.join(said)}; {place.address} holds {held:,} items; {time.perf_counter() - began:.1f} seconds")


def new_items(cfg: DictConfig, collection: "Collection") -> "tuple[VectorFile, pa.Table]":
    """The vectors of `cfg.items` as they are stored, and their columns."""
    from vsehub.data.truth import read_ids, read_labels
    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.serving.databases.collection import item_table
    from vsehub.serving.databases.columns import read_columns

    normalize = collection.metadata.normalize if cfg.normalize is None else cfg.normalize
    vectors = open_vectors(str(cfg["items"]), "items", normalize=normalize)
    look_through(vectors)
    ids = vectors.ids if cfg.item_ids is None else read_ids(str(cfg.item_ids), "item_ids")
    labels = vectors.labels if cfg.item_labels is None else read_labels(str(cfg.item_labels), "item_labels")
    if ids is None:
        fail("items has no ids; give item_ids=FILE with one id per line")
    fields = None if cfg.item_columns is None else read_columns(str(cfg.item_columns), ids)
    return vectors, item_table(ids, labels, fields)
