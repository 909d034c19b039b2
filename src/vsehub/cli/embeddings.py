"""Code shared by `rerank` and `diagnose`: their files, checked before torch is loaded, and the end of a comparison."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import InputError, existing, require, whole_seed
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import Output, write_json
from vsehub.io.progress import stage

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.ranking.compare import Comparison
    from vsehub.ranking.inputs import Inputs

log = logging.getLogger(__name__)

RESULT, PAGE = "result.json", "index.html"
VECTORS, SCORES = ("queries", "items", "reference", "reference_items"), ("scores", "reference_scores")
ANNOTATIONS = ("truth", "query_ids", "item_ids", "query_labels", "item_labels", "item_images")
TUNING = ("tune_queries", "tune_truth")


def named_files(cfg: DictConfig) -> dict[str, str]:
    """Setting -> file, of those that are given. Raises InputError for what can be refused before anything is read."""
    names = (*VECTORS, *SCORES, *TUNING, *ANNOTATIONS)
    files = {name: str(cfg[name]) for name in names if cfg.get(name) is not None}
    for name, path in files.items():
        if name in (*VECTORS, *SCORES, "tune_queries"):
            require_vectors(name, split_path(path)[0])
        elif (name, path) != ("truth", "aligned"):  # see `data.truth`
            existing(name, Path(path), "Give a file")
    whole_seed("seed", cfg.seed)
    both = [name for name in (*VECTORS, "tune_queries") if name in files]
    require(
        "scores" not in files or not both,
        f"scores and {', '.join(both)} are given; give queries and items, whose other queries are reference, or "
        "scores, whose other queries are reference_scores",
    )
    require("scores" not in files or cfg.normalize is None, "normalize is for vectors, and scores are given; omit it")
    for name in ("queries", "items"):
        require(
            "scores" in files or name in files,
            f"{name} is not set; give {name}=FILE, one vector per row, or scores=FILE instead of queries and items",
        )
    require("scores" in files or "reference_scores" not in files, "reference_scores goes with scores; give reference")
    alone = [name for name in TUNING if name in files]
    require(len(alone) != 1, f"{', '.join(alone)}: tune_queries and tune_truth belong together; give both")
    return files


def opened(files: Mapping[str, str], normalize: bool | None, criteria: Mapping[str, Any]) -> "Inputs":
    """The inputs, without a reference that no criterion reads."""
    stage(log, "loading torch and opening the vectors")

    from vsehub.ranking.inputs import open_inputs

    reads = any(one.needs_reference or one.matching is not None for one in criteria.values())
    unread = [name for name in ("reference", "reference_scores") if name in files and not reads]
    for name in unread:
        log.warning("%s is not read: none of these criteria uses reference queries", name)
    return open_inputs({name: path for name, path in files.items() if name not in unread}, normalize)


def finish(found: "Comparison", out: Output) -> list[str]:
    """Write the page, then the record. Returns the names of the files.

    Raises InputError, and leaves no result, if a file of vectors has changed.
    """
    from vsehub.report.pages.embeddings import write_embeddings_report

    try:
        found.require_unchanged()
    except InputError:
        out.begin(())  # removes the ranking
        raise
    found.record["seconds"]["total"] = time.perf_counter() - found.began
    write_embeddings_report(found.record, out.folder)
    write_json(out / RESULT, found.record)
    out.finish()
    return [RESULT, PAGE]
