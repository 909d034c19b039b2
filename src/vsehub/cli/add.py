"""`vsehub add`: add items to a collection that rerank filled in a database, and remove others."""

import time

from omegaconf import DictConfig

from vsehub.checks import boolean, fail, require
from vsehub.cli import app
from vsehub.data.vectors.paths import require_vectors, split_path


def main() -> None:
    """Run the command."""
    app.run(add, "add")


def add(cfg: DictConfig) -> None:
    """Remove the items of `cfg.remove_ids` from a collection, then add `cfg.items`."""
    from vsehub.serving.databases.engines import ENGINES, placed

    if cfg.index is None:
        fail(f"index is not set; give that of the collection: {', '.join(ENGINES)}")
    uri = None if cfg.index_uri is None else str(cfg.index_uri)
    place = placed(str(cfg.index), uri, str(cfg.index_name), None)
    given = cfg["items"]
    require(given is not None or cfg.remove_ids is not None, "give items=FILE to add, or remove_ids=FILE, or both")
    require(
        given is not None or (cfg.item_ids is None and cfg.item_labels is None),
        "item_ids and item_labels are those of items to add; give items=FILE, or omit them",
    )
    boolean("normalize", cfg.normalize, or_none=True)
    if given is not None:
        require_vectors("items", split_path(str(given))[0])

    from vsehub.data.truth import read_ids, read_labels
    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.serving.databases.living import opened

    began, said = time.perf_counter(), []
    gone = None if cfg.remove_ids is None else read_ids(str(cfg.remove_ids), "remove_ids")
    with opened(place) as collection:
        normalize = collection.facts.normalize if cfg.normalize is None else cfg.normalize
        vectors = None if given is None else open_vectors(str(given), "items", normalize=normalize)
        if vectors is not None:
            look_through(vectors, progress=True)
            ids = vectors.ids if cfg.item_ids is None else read_ids(str(cfg.item_ids), "item_ids")
            labels = vectors.labels if cfg.item_labels is None else read_labels(str(cfg.item_labels), "item_labels")
            if ids is None:
                fail("items has no ids, by which they are found again; give item_ids=FILE with one id per line")
            new = collection.new(vectors, ids, labels)  # refused before anything is removed
        if gone is not None:
            said.append(f"removed {collection.remove(gone)} of {len(gone)} ids")
        if vectors is not None:
            replaced = collection.put(new)
            said.append(f"added {len(vectors)} items, {replaced} of them in the place of earlier ones")
        held = len(collection)
    print(f"{'; '.join(said)}; {place.address} holds {held:,} items; {time.perf_counter() - began:.1f} seconds")
