"""`vsehub add`: add items to a collection that rerank filled in a database, and remove others."""

import time
from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import existing, require
from vsehub.cli import app
from vsehub.cli.collection import collection_place, new_items


def main() -> None:
    """Run the command."""
    app.run(add, "add")


def add(cfg: DictConfig) -> None:
    """Remove the items of `cfg.remove_ids` from a collection, then add `cfg.items`."""
    place = collection_place(cfg)
    given = cfg["items"] is not None
    require(given or cfg.remove_ids is not None, "give items=FILE to add, or remove_ids=FILE")
    own = [name for name in ("item_ids", "item_labels", "item_columns") if cfg[name] is not None]
    require(given or not own, f"{', '.join(own)}: of items to add; give items=FILE, or omit them")
    if cfg.item_columns is not None:
        existing("item_columns", Path(str(cfg.item_columns)), "Give a table with the column id and those to store")

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
