"""What `add` reads: the collection, and the new items."""

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import boolean, fail
from vsehub.data.vectors.paths import require_vectors, split_path

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    import pyarrow as pa

    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.serving.databases.collection import Collection
    from vsehub.serving.databases.engines import Place


def collection_place(cfg: DictConfig) -> "Place":
    """The place that `cfg` names. Raises InputError for settings that can be refused before anything is read."""
    from vsehub.serving.databases.engines import ENGINES, placed

    if cfg.index is None:
        fail(f"index is not set; give that of the collection: {', '.join(ENGINES)}")
    boolean("normalize", cfg.normalize, or_none=True)
    if cfg["items"] is not None:
        require_vectors("items", split_path(str(cfg["items"]))[0])
    return placed(str(cfg.index), None if cfg.index_uri is None else str(cfg.index_uri), str(cfg.index_name), None)


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
        fail("items has no ids, by which they are found again; give item_ids=FILE with one id per line")
    fields = None if cfg.item_columns is None else read_columns(str(cfg.item_columns), ids)
    return vectors, item_table(ids, labels, fields)
