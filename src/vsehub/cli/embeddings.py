"""What `rerank` and `diagnose` share: people's own embeddings opened, checked, measured, and the record of it."""

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from vsehub import __version__
from vsehub.checks import InputError, boolean, fail, require, whole
from vsehub.cli.build import build
from vsehub.criteria.base import Criterion
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors, same_space
from vsehub.io.files import alone, write_json
from vsehub.io.outputs import Output
from vsehub.io.provenance import code_version, hardware, versions
from vsehub.io.records import EMBEDDINGS
from vsehub.metrics.positives import Positives
from vsehub.rerank.inputs import Names, read_images
from vsehub.rerank.leakage import refuse_shared
from vsehub.rerank.measure import Measured, check_criteria, measure
from vsehub.rerank.parts import Parts
from vsehub.rerank.record import figures, reference_kind

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


def opened(cfg: DictConfig, criteria: Mapping[str, Criterion]) -> Given:
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


def opened_reference(cfg: DictConfig, criteria: Mapping[str, Criterion], queries: VectorFile) -> VectorFile | None:
    """The reference queries, None where none are given or nobody looks at them."""
    if cfg.reference is None:
        return None
    if not any(criterion.needs_reference or criterion.matching is not None for criterion in criteria.values()):
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


TRUTH = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_r": "mAP@R", "r_precision": "R-Prec"}


def table(record: dict[str, Any]) -> str:
    """A line a ranking: what is found where that is known, how unevenly the items are shared out, what changed."""
    k = record["ks"][-1]
    queries, items = record["queries"], record["items"]
    lines = [
        f"{queries['rows']:,} queries, {items['rows']:,} items, {items['dim']} dimensions; {_reference(record)}",
        *_truth(record["truth"]),
    ]
    width = max(len(ranking["criterion"]) for ranking in record["rankings"])
    heading = "".join(f"{name:>8}" for name in TRUTH.values()) if record["truth"] else ""
    skew = f"skew N_{k}"
    heading += f"{skew:>11}{'Gini':>7}{'antihubs':>10}{'largest hub':>13}"
    heading += f"{'wrong':>8}" if record["truth"] else ""
    kept = f"top {record['k']} kept"
    heading += f"{'1st moved':>11}{kept:>13}" if len(record["rankings"]) > 1 else ""
    lines.append(f"{'':<{width}}{heading}")
    for ranking in record["rankings"]:
        found, hubness = ranking["truth"], ranking["hubness"]
        line = "".join(_number(found[name], 8, ".1f") for name in TRUTH) if found else ""
        line += f"{hubness[f'skew_{k}']:11.2f}{hubness[f'gini_{k}']:7.2f}{hubness[f'antihub_rate_{k}']:10.1%}"
        line += f"{hubness[f'largest_hub_{k}']:13,.0f}"
        line += f"{hubness[f'bad_share_{k}']:8.1%}" if found else ""
        if ranking is not record["rankings"][0]:
            line += f"{ranking['changed']['first']:11.1%}{ranking['changed']['overlap']:13.1%}"
        lines.append(f"{ranking['criterion']:<{width}}{line}")
    seconds = record["seconds"]
    return "\n".join(
        [
            *lines,
            *_index(record["index"]),
            f"a fair share is {k * queries['rows'] / items['rows']:.3g} queries an item; seconds: "
            + ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in seconds.items()),
        ]
    )


def _reference(record: dict[str, Any]) -> str:
    reference = record["reference"]
    if reference["kind"] == "none":
        return "no reference"
    return f"reference: {reference['set']}, {reference['rows']:,} ({reference['kind']})"


def _truth(truth: dict[str, Any] | None) -> list[str]:
    if truth is None:
        return []
    without = truth["queries_without"]
    left_out = f"; {without:,} without a pair are left out of the recalls" if without else ""
    return [f"truth: {truth['pairs']:,} pairs of {truth['measured_queries']:,} queries{left_out}"]


def _index(index: dict[str, Any] | None) -> list[str]:
    if index is None or index["recall"] is None:
        return []
    recall = index["recall"]
    return [
        f"the {index['kind']} index finds {recall['corrected']:.1%} of the {recall['k']} best, "
        f"{recall['plain']:.1%} of the plain ranking's"
    ]


def _number(value: float | None, width: int, form: str) -> str:
    return f"{'-' if value is None else format(value, form):>{width}}"


RESULT, PAGE, RANKING, INDEX, USAGE = "result.json", "index.html", "ranking.parquet", "index.faiss", "USAGE.md"
PARTS = "parts"  # the unfinished work
FILES = {"diagnose": (RESULT, PAGE), "rerank": (RESULT, PAGE, RANKING, INDEX, USAGE)}
KINDS = {"diagnose": "a diagnosis", "rerank": "a reranking"}


@dataclass(frozen=True)
class Found:
    """What was measured, the record of it, and where it goes. began: when, by the clock of `time.perf_counter`."""

    given: Given
    measured: Measured
    record: dict[str, Any]
    out: Output
    parts: Parts
    began: float


def built(name: str, node: DictConfig) -> Criterion:
    """The criterion of a configuration node; what its constructor refuses comes as the InputError that it is."""
    try:
        return build("criterion", node)
    except InputError as error:
        raise InputError(f"criterion {name}: {error}") from error


@contextmanager
def find(cfg: DictConfig, kind: str, criteria: Mapping[str, Criterion]) -> Iterator[Found]:
    """Open, check and measure what `cfg` names; everything that can be refused is, before the work begins.

    The folder of the result is this process's alone until the block ends.
    """
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    whole("k", cfg.k)
    boolean("normalize", cfg.normalize, or_none=True)
    require(isinstance(cfg.seed, int) and cfg.seed >= 0, f"seed is {cfg.seed!r}; expected a whole number from 0 up")
    device, out = chosen_device(cfg.device), Output(cfg.out, KINDS[kind], FILES[kind], cfg.overwrite)
    given = opened(cfg, criteria)
    inductive = given.reference is not None
    check_criteria(criteria, inductive, len(given.queries), len(given.items), cfg.k)
    with alone(out.folder, "writing"):
        out = Output(cfg.out, KINDS[kind], FILES[kind], cfg.overwrite)  # another process may have finished it
        parts = Parts(out / PARTS, work_settings(cfg, given, criteria, device), cfg.overwrite)

        checking = time.perf_counter()
        sides = {name: side for name, side in vars(given).items() if isinstance(side, VectorFile)}
        described = {name: describe(side, look_through(side, progress=True)) for name, side in sides.items()}
        shared = refuse_shared(given.queries, given.reference) if inductive else 0
        measuring = time.perf_counter()
        measured = measure(
            given.queries, given.items, criteria, given.reference, cfg.k, given.truth, parts, device, progress=True
        )
        # What an earlier run found took time as well.
        began -= max(0.0, sum(measured.seconds.values()) - (time.perf_counter() - measuring))
        record = {
            **{"schema": EMBEDDINGS.version, "kind": kind, "vsehub": __version__, "command": " ".join(sys.argv)},
            **{"versions": versions(), "git": code_version(), "hardware": hardware(), "started": started},
            "seconds": {"look_through": measuring - checking, **measured.seconds},
            "queries": described["queries"],
            "items": described["items"],
            "reference": describe_reference(given, criteria, described.get("reference"), shared),
            "k": cfg.k,
            "truth": describe_truth(cfg.truth, given.truth),
            **figures(measured, criteria, inductive, given.query_names, given.item_names, cfg.seed),
            "index": None,
        }
        require_unchanged(given, parts)
        yield Found(given, measured, record, out, parts, began)


def finish(found: Found) -> list[str]:
    """Write the page and, last, the record; remove the parts. Returns the names of what was written.

    Raises InputError, and leaves no record, where a file of vectors has changed since it was opened.
    """
    from vsehub.report.pages.embeddings import write_embeddings_report

    try:
        require_unchanged(found.given, found.parts)
    except InputError:
        found.out.begin(())  # which takes the ranking away again
        raise
    found.record["seconds"]["total"] = time.perf_counter() - found.began
    write_embeddings_report(found.record, found.out.folder)
    write_json(found.out / RESULT, found.record)
    found.parts.remove()  # before the folder passes for finished: a kill in between leaves nothing lying about
    found.out.finish()
    return [RESULT, PAGE]


def chosen_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one; InputError for what is no device here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        tried = torch.zeros(1, device=str(name))
        tried.cpu()  # of "meta" nothing comes back
        return tried.device
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device is {name!r}, which is not available on this machine; give auto, cpu or cuda"
        ) from error


def work_settings(
    cfg: DictConfig, given: Given, criteria: Mapping[str, Criterion], device: torch.device
) -> dict[str, Any]:
    """All that the found lists depend on: a command that differs in none of it may go on with them."""
    return {
        "vsehub": __version__,
        "queries": identity(given.queries),
        "items": identity(given.items),
        "reference": None if given.reference is None else identity(given.reference),
        "normalize": cfg.normalize,
        "criteria": {
            name: [type(criterion).__name__, repr(criterion.parameters())] for name, criterion in criteria.items()
        },
        "device": device.type,
    }


def describe(vectors: VectorFile, norms: Norms) -> dict[str, Any]:
    """A side in the record."""
    return {
        "path": vectors.path,
        "rows": len(vectors),
        "dim": vectors.shape[1],
        "dtype": str(vectors.dtype).removeprefix("torch."),
        "fingerprint": vectors.fingerprint(),
        "norms": asdict(norms),
    }


def describe_reference(
    given: Given, criteria: Mapping[str, Criterion], described: dict[str, Any] | None, shared: int
) -> dict[str, Any]:
    """Whose scores the criteria saw, in the record."""
    kinds = {reference_kind(criterion, described is not None) for criterion in criteria.values()} - {"none"}
    if not kinds:
        return {"kind": "none", "set": "none"}
    if described is None:
        return {"kind": "transductive", "set": "the queries themselves", "rows": len(given.queries)}
    return {"kind": "inductive", "set": described["path"], **described, "queries_in_it": shared}


def describe_truth(path: str | None, truth: Positives | None) -> dict[str, Any] | None:
    """Which pairs the figures are measured by, in the record."""
    if truth is None:
        return None
    measured = int((truth.counts > 0).sum())
    return {
        "path": str(path),
        "pairs": len(truth.query),
        "measured_queries": measured,
        "queries_without": truth.queries - measured,
    }
