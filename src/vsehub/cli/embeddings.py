"""Code shared by `rerank` and `diagnose`: their files, checked before torch is loaded, and a comparison of rankings."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import existing, require, whole_seed
from vsehub.cli.nodes import device_named, require_unset
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import Output, write_json, write_text
from vsehub.io.records import EMBEDDINGS, RESULT, read_record

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.ranking.record import Comparison
    from vsehub.ranking.result import Result

KIND, PAGE = "a reranking", "index.html"
VECTORS = ("queries", "items", "reference", "reference_items", "scores", "reference_scores", "tune_queries")
SCORES = {"scores", "reference_scores"}
FILES = (*VECTORS, "truth", "tune_truth", "query_ids", "item_ids", "query_labels", "item_labels", "item_images")
LISTS = ("ranking", "against", "items", "truth", "item_labels", "item_images")


def named_files(cfg: DictConfig) -> dict[str, str]:
    """Setting -> file, of those that are given. Raises InputError for what can be refused before anything is read."""
    files = {name: str(cfg[name]) for name in FILES if cfg.get(name) is not None}
    vectors = {"queries", "items", "reference", "reference_items"}
    needed, excluded = ("scores", vectors) if "scores" in files else ("items", SCORES)
    require(
        needed in files and not files.keys() & excluded,
        "give items=FILE, one vector per row, and queries=FILE unless each item is to search among the others; or "
        "scores=FILE, and reference_scores=FILE instead of reference=FILE",
    )
    of_queries = [name for name in ("query_ids", "query_labels", "tune_queries") if name in cfg]
    has_queries = "scores" in files or "queries" in files
    require_unset(cfg, of_queries, "items that search among themselves", unless=has_queries)
    require(("tune_queries" in files) == ("tune_truth" in files), "give tune_queries and tune_truth together")
    for name in [setting for setting in VECTORS if setting in files]:
        require_vectors(name, split_path(files[name])[0])
    whole_seed("seed", cfg.seed)
    return files


def named_lists(cfg: DictConfig) -> dict[str, Any]:
    """The settings of result lists. Raises InputError for files that are absent, and for settings of vectors."""
    require_unset(cfg, [name for name in (*FILES, "normalize") if name in cfg and name not in LISTS], "ranking")
    settings = {name: cfg[name] for name in LISTS if cfg[name] is not None}
    for name in settings.keys() & {"ranking", "against"}:
        existing(name, settings[name], "Give a table with the columns query, item and rank, or a TREC run")
    return settings


@contextmanager
def comparison(
    command: str,
    cfg: DictConfig,
    files: Mapping[str, Any],
    out: Output,
    criteria: Mapping[str, Any],
) -> Iterator["Comparison"]:
    """The measured rankings of files; at the end of the block their record and page are written."""
    from vsehub.ranking.compare import compare_vectors
    from vsehub.ranking.inputs import open_inputs
    from vsehub.ranking.lists import compare_lists
    from vsehub.report.comparison import table
    from vsehub.report.pages.embeddings import embeddings_page

    device = device_named(str(cfg.device))
    with out.transaction():
        if "ranking" in files:
            outcome = compare_lists(files, cfg.k, cfg.seed)
        else:
            outcome = compare_vectors(command, open_inputs(files, cfg.normalize), criteria, cfg.k, device, cfg.seed)
        yield outcome
        outcome.record["seconds"]["total"] = time.perf_counter() - outcome.began
        write_text(out / PAGE, embeddings_page(outcome.record))
        write_json(out / RESULT, outcome.record)
    written = [name for name in out.names if (out.folder / name).exists()]
    print(f"{table(outcome.record)}\nwritten to {out.shown}: {', '.join(written)}")


@contextmanager
def extend_result(result: "Result", names: Iterable[str], overwrite: bool) -> Iterator[Output]:
    """Add files to the folder of a result within the block; at its end the record and the page are written again.

    names: names of the added files. Raises InputError if one of them exists, unless `overwrite`.
    """
    from vsehub.ranking.result import HINT
    from vsehub.report.pages.embeddings import embeddings_page

    out = Output(result.folder, KIND, names, overwrite=True)
    present = [name for name in names if (result.folder / name).exists()]
    require(
        overwrite or not present,
        f"result: {result.folder} holds {', '.join(present)} already; overwrite=true replaces it, other indexes stay",
    )
    with out.transaction(keep_earlier=True):
        result.record = read_record(result.file, EMBEDDINGS, HINT)  # another command may have added to it
        yield out
        write_text(out / PAGE, embeddings_page(result.record))
        write_json(out / RESULT, result.record)
