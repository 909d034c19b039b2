"""`vsehub add`: add items to a collection in a database that vsehub filled, and remove others."""

import time
from typing import Any

from omegaconf import DictConfig

from vsehub.checks import require


def add(cfg: DictConfig) -> None:
    """Remove the items of `cfg.remove_ids` from a collection, then add `cfg.items`."""
    from vsehub.serving.databases.engines import location_of

    location = location_of(cfg.engine, cfg.uri, cfg.collection)
    require(cfg["items"] is not None or cfg.remove_ids is not None, "give items=FILE to add, or remove_ids=FILE")

    from vsehub.data.truth import read_ids, read_labels
    from vsehub.data.vectors.embeddings import check_vectors, open_vectors
    from vsehub.serving.databases.collection import open_collection

    began = time.perf_counter()
    removed_ids = [] if cfg.remove_ids is None else read_ids(str(cfg.remove_ids), "remove_ids")
    with open_collection(location) as collection:
        items: dict[str, Any] = {}
        if cfg["items"] is not None:
            normalize = collection.metadata["normalize"] if cfg.normalize is None else cfg.normalize
            vectors = open_vectors(str(cfg["items"]), "items", normalize=normalize)
            check_vectors(vectors)
            ids = vectors.ids if cfg.item_ids is None else read_ids(str(cfg.item_ids), "item_ids")
            labels = vectors.labels if cfg.item_labels is None else read_labels(str(cfg.item_labels), "item_labels")
            items = {"vectors": vectors, "ids": ids or (), "labels": labels}
        removed, replaced = collection.change(removed_ids, **items)
        print(
            f"removed {removed} of {len(removed_ids)} ids; added {len(items.get('vectors', ()))} items, "
            f"{replaced} replaced; {location.title} holds {len(collection):,} items; "
            f"{time.perf_counter() - began:.1f} seconds"
        )
