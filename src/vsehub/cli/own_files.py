"""The files of vectors, pairs, ids and captions that the settings of `rerank` and `diagnose` name."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import fail, require
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vector_checks import same_space
from vsehub.data.vectors import VectorFile, open_vectors
from vsehub.metrics.positives import Positives
from vsehub.retrieval.names import Names, read_images
from vsehub.retrieval.parts import Parts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Given:
    """What the settings name, opened: the sides, what their rows are called, and which items answer which query.

    stamps: by file of vectors, what tells it from one that has been changed or replaced, from before it was opened.
    """

    queries: VectorFile
    items: VectorFile
    reference: VectorFile | None
    query_names: Names
    item_names: Names
    truth: Positives | None
    stamps: dict[Path, tuple[int, ...] | None]


def opened(cfg: DictConfig, criteria: Mapping[str, Any]) -> Given:
    """The files that the settings name; InputError where one cannot be read or they do not fit each other."""
    for name in ("queries", "items"):
        require(not OmegaConf.is_missing(cfg, name), f"{name} is not set; give {name}=FILE, vectors in rows")
    named = [str(cfg[name]) for name in ("queries", "items", "reference") if cfg[name] is not None]
    stamps = {file: stamp(file) for file in map(file_of, named)}
    queries = open_vectors(str(cfg.queries), "queries", normalize=cfg.normalize)
    items = open_vectors(str(cfg["items"]), "items", normalize=cfg.normalize)
    reference = opened_reference(cfg, criteria, queries)
    same_space(queries, items, reference)
    if (queries.fingerprint(), queries.shape) == (items.fingerprint(), items.shape):
        log.warning("queries and items are the same vectors: each finds itself first, which counts as any other hit")
    require(cfg.k <= len(items), f"k is {cfg.k}; expected at most {len(items)}, the number of items")
    images = None if cfg.item_images is None else read_images(str(cfg.item_images), "item_images")
    query_names = Names("queries", len(queries), *names(cfg.query_ids, cfg.query_labels, "query", queries))
    item_names = Names("items", len(items), *names(cfg.item_ids, cfg.item_labels, "item", items), images)
    truth = None
    if cfg.truth is not None:
        sizes = (len(queries), len(items))
        pairs = read_truth(str(cfg.truth), *sizes, query_names.ids, item_names.ids)
        truth = Positives.from_pairs(*pairs, *sizes, complete=False)
    return Given(queries, items, reference, query_names, item_names, truth, stamps)


def opened_reference(cfg: DictConfig, criteria: Mapping[str, Any], queries: VectorFile) -> VectorFile | None:
    """The reference queries, None where none are given or nobody looks at them."""
    if cfg.reference is None:
        return None
    if not any(rule.needs_reference or rule.matching is not None for rule in criteria.values()):
        log.warning("reference is not read: nothing here takes anything from other queries")
        return None
    reference = open_vectors(str(cfg.reference), "reference", normalize=cfg.normalize)
    require(
        Path(reference.path).resolve() != Path(queries.path).resolve(),
        f"reference: {reference.path} is the queries' own file. Leave reference out: the queries themselves are then "
        "taken (transductive), and the record says so",
    )
    return reference


def names(ids: str | None, labels: str | None, side: str, vectors: VectorFile) -> tuple[list[str] | None, ...]:
    """The ids and the labels of a side: those in the files that are named, else the ids that the vectors bring."""
    return (
        vectors.ids if ids is None else read_ids(str(ids), f"{side}_ids"),
        None if labels is None else read_labels(str(labels), f"{side}_labels"),
    )


def identity(vectors: VectorFile) -> list:
    """What tells a file of vectors from others and from what it was: its sample's hash, its size, its last change."""
    stat = file_of(vectors.path).stat()
    return [vectors.fingerprint(), *vectors.shape, stat.st_size, stat.st_mtime_ns]


def file_of(path: str) -> Path:
    """The file of a path that may name an array in it."""
    file = Path(path)
    return file if file.exists() or "::" not in path else Path(path.rpartition("::")[0])


def stamp(file: Path) -> tuple[int, ...] | None:
    """Size, last change and place on the disk; None where there is no such file."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def require_unchanged(given: Given, parts: Parts) -> None:
    """Raise InputError where a file of vectors is no longer what it was; what was found in it is then thrown away."""
    changed = [str(file) for file, before in given.stamps.items() if stamp(file) != before]
    if changed:
        parts.remove()
        fail(
            f"{', '.join(changed)} changed while it was read, so that nothing of it can be used. Give the command "
            "again when nothing writes to it any more"
        )
