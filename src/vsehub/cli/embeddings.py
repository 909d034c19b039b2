"""The part that `rerank` and `diagnose` share: checked settings, the comparison of rankings, its record."""

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from omegaconf import DictConfig, ListConfig

from vsehub import __version__
from vsehub.checks import InputError, boolean, fail, precision_word, require, whole, whole_seed
from vsehub.cli.nodes import build, device_named
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import alone, write_json
from vsehub.io.outputs import Output
from vsehub.io.progress import stage
from vsehub.io.records import EMBEDDINGS

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    import torch

    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.cluster import Cluster
    from vsehub.rerank.inputs import Inputs
    from vsehub.rerank.measure import Measured
    from vsehub.rerank.parts import Parts
    from vsehub.serving.databases.engines import Place

log = logging.getLogger(__name__)

RESULT, PAGE = "result.json", "index.html"
PARTS = "parts"  # the folder of unfinished work
VECTORS, SCORES = ("queries", "items", "reference", "reference_items"), ("scores", "reference_scores")


@dataclass(frozen=True)
class Settings:
    """The settings that both commands have.

    command: its name. kind: what it writes ("a diagnosis"). written: the names of the files that it writes. files: the
    arguments of `open_inputs` or `open_scores` that name files, None if not given. place: a collection in a database
    that holds the items, and queries if no file of them is given. Raises InputError for everything
    that can be refused before anything is read, such as an output folder that cannot be written to or a missing file of
    vectors.
    """

    command: str
    kind: str
    written: tuple[str, ...]
    files: dict[str, Any]
    k: int
    normalize: bool | None
    skip_unreadable: bool
    out: str
    overwrite: bool
    seed: int
    device: str
    precision: str
    place: "Place | None" = None

    @classmethod
    def of(
        cls, cfg: DictConfig, command: str, kind: str, written: tuple[str, ...], place: "Place | None" = None
    ) -> Self:
        """The settings of a command's configuration."""
        files = {
            "queries": cfg.queries,
            "items": cfg["items"],
            "reference": cfg.reference,
            "reference_items": cfg.reference_items,
            "scores": cfg.scores,
            "reference_scores": cfg.reference_scores,
            "truth": cfg.truth,
            "query_ids": cfg.query_ids,
            "item_ids": cfg.item_ids,
            "query_labels": cfg.query_labels,
            "item_labels": cfg.item_labels,
            "item_images": cfg.item_images,
        }
        files = {name: None if path is None else str(path) for name, path in files.items()}
        return cls(
            command,
            kind,
            written,
            files,
            k=cfg.k,
            normalize=cfg.normalize,
            skip_unreadable=cfg.skip_unreadable,
            out=str(cfg.out),
            overwrite=cfg.overwrite,
            seed=cfg.seed,
            device=str(cfg.device),
            precision=precision_word(cfg.precision),
            place=place,
        )

    def __post_init__(self) -> None:
        whole("k", self.k)
        boolean("normalize", self.normalize, or_none=True)
        boolean("skip_unreadable", self.skip_unreadable)
        whole_seed("seed", self.seed)
        self.output()
        self._require_vectors_or_scores()
        for name in (*VECTORS, *SCORES):
            path = self.files[name]
            if path is not None:
                require_vectors(name, split_path(path)[0])

    @property
    def scored(self) -> bool:
        """Whether scores are given instead of vectors."""
        return self.files["scores"] is not None

    def _require_vectors_or_scores(self) -> None:
        if self.place is not None:
            both = [name for name in ("items", "item_ids", "item_labels", *SCORES) if self.files[name] is not None]
            require(
                not both, f"index and {', '.join(both)} are given; the items of a database have their own. Give one"
            )
            return
        if self.scored:
            both = [name for name in VECTORS if self.files[name] is not None]
            require(
                not both,
                f"scores and {', '.join(both)} are given; give queries and items, whose other queries are reference, "
                "or scores, whose other queries are reference_scores",
            )
            require(self.normalize is None, "normalize is for vectors; scores are taken as they are. Omit normalize")
            require(
                not self.skip_unreadable, "skip_unreadable is for folders of vectors; omit it, scores are read whole"
            )
            return
        for name in ("queries", "items"):
            require(
                self.files[name] is not None,
                f"{name} is not set; give {name}=FILE, one vector per row, or scores=FILE instead of queries and items",
            )
        require(
            self.files["reference_scores"] is None,
            "reference_scores goes with scores; the other queries of vectors are reference=FILE",
        )

    def output(self) -> Output:
        """The folder `out`. Raises InputError if it holds other files, or a result that must not be replaced."""
        return Output(self.out, self.kind, self.written, self.overwrite)


def built(name: str, node: DictConfig | ListConfig) -> Any:
    """The criterion of a configuration node; `name` begins the message of whatever its constructor refuses."""
    try:
        return build("criterion", node)
    except InputError as error:
        raise InputError(f"criterion {name}: {error}") from error


@dataclass(frozen=True)
class Comparison:
    """Measured rankings under `criteria`, their record and their output folder.

    began: the start, by `time.perf_counter`.
    """

    criteria: Mapping[str, Any]
    inputs: "Inputs"
    measured: "Measured"
    record: dict[str, Any]
    out: Output
    parts: "Parts"
    began: float

    def require_unchanged(self) -> None:
        """Raise InputError, and drop the unfinished work, if a file of vectors has changed since it was opened."""
        changed = self.inputs.changed()
        if changed:
            self.parts.remove()
            fail(
                f"{', '.join(map(str, changed))} changed while being read, so the result cannot be used. Run the "
                "command again when no other program writes to it"
            )

    def finish(self) -> list[str]:
        """Write the page, then the record, and remove the parts. Returns the names of the files.

        Raises InputError, and leaves no result, if a file of vectors has changed.
        """
        from vsehub.report.pages.embeddings import write_embeddings_report

        try:
            self.require_unchanged()
        except InputError:
            self.out.begin(())  # removes the ranking
            raise
        self.record["seconds"]["total"] = time.perf_counter() - self.began
        write_embeddings_report(self.record, self.out.folder)
        write_json(self.out / RESULT, self.record)
        self.parts.remove()  # before the folder counts as finished: a kill in between leaves no parts behind
        self.out.finish()
        return [RESULT, PAGE]


@contextmanager
def compared(
    settings: Settings,
    criteria: Mapping[str, Any],
    tuning: "Tuning | None" = None,
    cluster: "Cluster | None" = None,
) -> Iterator[Comparison]:
    """The measured plain ranking and those under `criteria`. All checks come before the measuring.

    tuning: what to choose the criterion by, where it is an `Auto`. cluster: whose workers divide the items; None: this
    process measures. This process holds the output folder until the block ends.
    """
    stage(log, "loading torch and opening the vectors")

    from vsehub.io.provenance import code_version, hardware, versions
    from vsehub.neighbors.rounded import uses_bf16
    from vsehub.rerank.choose import choice_record, choose_for
    from vsehub.rerank.distributed import refuse_unsharded
    from vsehub.rerank.gains import gained
    from vsehub.rerank.measure import PLAIN, check_criteria, float32_only, measure
    from vsehub.rerank.parts import Parts
    from vsehub.rerank.record import health, record

    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    device = device_named(settings.device)
    inputs = _opened(settings, any(map(_reads_queries, criteria.values())), fetched=cluster is None)
    sizes = len(inputs.queries), len(inputs.items)
    check_criteria(
        criteria,
        inputs.reference is not None,
        *sizes,
        settings.k,
        inputs.reference_items is not None,
        settings.scored,
    )
    obstacle = float32_only(criteria, settings.scored)
    bf16 = uses_bf16(settings.precision, device.type, "engine=ray computes in float32" if cluster else obstacle)
    if cluster is not None and tuning is None:
        refuse_unsharded(criteria, inputs.reference_items is not None)
    nothing = nullcontext((None, {"name": "local"}))
    with alone(Path(settings.out), "writing"), nothing if cluster is None else cluster.started() as (engine, named):
        out = settings.output()  # checked again: another process may have finished in the meantime
        stage(log, f"looking through {sizes[0]:,} queries and {sizes[1]:,} items")
        checking = time.perf_counter()
        checked = inputs.check({} if engine is None else {"items": engine.look_through(inputs.sides["items"])})
        choosing = time.perf_counter()
        choice = auto = None
        if tuning is not None:
            ((_, auto),) = criteria.items()
            choice, inputs = choose_for(auto, inputs, tuning, settings.seed, progress=True)
            name, criterion = auto.untuned if choice is None else (choice.name, choice.criterion)
            criteria = {} if name == PLAIN else {name: criterion}
            if engine is not None:
                refuse_unsharded(criteria, inputs.reference_items is not None)
        parts = Parts(out / PARTS, _work(inputs, criteria, device, bf16, cluster), settings.overwrite)
        stage(log, f"ranking under {', '.join([PLAIN, *criteria])}")
        measuring = time.perf_counter()
        measured = measure(
            inputs.queries,
            inputs.items,
            criteria,
            inputs.reference,
            settings.k,
            inputs.truth,
            parts,
            device,
            progress=True,
            reference_items=inputs.reference_items,
            bf16=bf16,
            seed=settings.seed,
            engine=engine,
        )
        # Add the time of an earlier run whose parts were reused.
        began -= max(0.0, sum(measured.seconds.values()) - (time.perf_counter() - measuring))
        whole_record = {
            "schema": EMBEDDINGS.version,
            "kind": settings.command,
            "vsehub": __version__,
            "command": " ".join(sys.argv),
            "versions": versions(),
            "git": code_version(),
            "hardware": hardware(),
            "engine": named,
            "started": started,
            "seconds": {"look_through": choosing - checking, **measured.seconds},
            **({"precision": "bf16"} if bf16 else {}),
            **record(inputs, checked, measured, criteria, settings.k, settings.seed),
            "choice": None,
            **health(inputs, measured.rankings[0], settings.seed),
            "index": None,
        }
        if auto is not None:
            whole_record["seconds"]["choosing"] = measuring - choosing
            rankings, truth = measured.rankings, inputs.truth
            first, last = rankings[0].positions, rankings[-1].positions
            found_gain = None if truth is None else gained(first, last, truth)
            whole_record["choice"] = choice_record(auto, choice, found_gain)
        found = Comparison(criteria, inputs, measured, whole_record, out, parts, began)
        found.require_unchanged()
        yield found


def _opened(settings: Settings, reads_queries: bool, fetched: bool) -> "Inputs":
    """The inputs, of vectors or of scores, without a reference that is not read. fetched: see `open_inputs`."""
    from vsehub.rerank.inputs import open_inputs
    from vsehub.rerank.scores import open_scores

    files: dict[str, Any] = {name: path for name, path in settings.files.items() if path is not None}
    reference = "reference_scores" if settings.scored else "reference"
    if reference in files and not reads_queries:
        log.warning("%s is not read: none of these criteria uses reference queries", reference)
        del files[reference]
    if settings.scored:
        return open_scores(**files)
    if settings.place is not None:
        files = of_collection(settings.place) | files
        require("queries" in files, f"queries is not set, and none are kept beside {settings.place.address}; give them")
    return open_inputs(**files, normalize=settings.normalize, skip_unreadable=settings.skip_unreadable, fetched=fetched)


def of_collection(place: "Place") -> dict[str, Any]:
    """The items of a collection in a database, and as queries the reference that is kept beside it, if there is one."""
    import torch

    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.serving.databases.living import opened

    with opened(place) as collection:
        facts = collection.facts
        vectors, ids, labels = collection.items()
        shown = labels if any(labels) else None
        held = {"items": VectorFile("items", vectors, torch.float32, ids, place.address, facts.normalize, shown)}
        if facts.reference_rows:
            name = f"the reference beside {place.address}"
            kept = VectorFile("queries", collection.kept.reference, torch.float32, None, name, facts.normalize)
            held["queries"] = kept
    return held


def _reads_queries(criterion: Any) -> bool:
    return criterion.needs_reference or criterion.matching is not None


def _work(
    inputs: "Inputs", criteria: Mapping[str, Any], device: "torch.device", bf16: bool, cluster: "Cluster | None"
) -> dict[str, Any]:
    """Everything that the lists depend on: a command with equal settings continues unfinished work."""
    shards = {} if cluster is None else {"engine": "ray", "shard_rows": cluster.shard_rows}
    return {
        "vsehub": __version__,
        **inputs.identity(),
        "criteria": {name: [type(one).__name__, repr(one.parameters())] for name, one in criteria.items()},
        "device": device.type if cluster is None else cluster.device,
        **({"precision": "bf16"} if bf16 else {}),
        **shards,
    }


TRUTH = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_r": "mAP@R", "r_precision": "R-Prec"}


def table(record: dict[str, Any]) -> str:
    """The rankings for the terminal: recalls if the truth is known, hubness, and changes to the plain ranking."""
    from vsehub.report.tables import Table

    k, rankings = record["ks"][-1], record["rankings"]
    queries, items = record["queries"], record["items"]
    columns = [
        (f"skew N_{k}", "hubness", f"skew_{k}", ".2f"),
        ("Gini", "hubness", f"gini_{k}", ".2f"),
        ("antihubs", "hubness", f"antihub_rate_{k}", ".1%"),
        ("largest hub", "hubness", f"largest_hub_{k}", ",.0f"),
    ]
    if record["truth"]:
        recalls = [(heading, "truth", key, ".1f") for key, heading in TRUTH.items()]
        columns = [*recalls, *columns, (f"wrong in top {k}", "hubness", f"bad_share_{k}", ".1%")]
    if len(rankings) > 1:
        columns += [
            ("1st moved", "changed", "first", ".1%"),
            (f"top {record['k']} kept", "changed", "overlap", ".1%"),
        ]
    rows = []
    for ranking in rankings:
        own = ranking if ranking is not rankings[0] else ranking | {"changed": {}}  # itself is not compared
        rows.append([ranking["criterion"], *(_cell(own[part].get(key), form) for _, part, key, form in columns)])
    seconds = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in record["seconds"].items())
    return "\n".join(
        [
            f"{queries['rows']:,} queries, {items['rows']:,} items, {_compared_by(record)}; {_reference(record)}",
            *_truth(record["truth"], record["choice"]),
            *_choice(record["choice"]),
            Table(["", *(heading for heading, *_ in columns)], rows).terminal(),
            *_rounding(record),
            *_verdict(record),
            *_index(record["index"]),
            f"a fair share is {k * queries['rows'] / items['rows']:.3g} queries per item; seconds: {seconds}",
        ]
    )


def _compared_by(record: dict[str, Any]) -> str:
    scores = record["scores"]
    return f"{record['items']['dim']} dimensions" if scores is None else f"scores of {scores['path']}"


def _reference(record: dict[str, Any]) -> str:
    reference = record["reference"]
    if reference["kind"] == "none":
        return "no reference"
    bank = record["reference_items"]
    further = "" if bank is None else f"; reference items: {bank['set']}, {bank['rows']:,}"
    return f"reference: {reference['set']}, {reference['rows']:,} ({reference['kind']}){further}"


def _truth(truth: dict[str, Any] | None, choice: dict[str, Any] | None) -> list[str]:
    if truth is None:
        return []
    from vsehub.report.health import queries_left_out

    left_out = "".join(f"; {one}" for one in queries_left_out(truth, choice))
    return [f"truth: {truth['pairs']:,} pairs of {truth['measured_queries']:,} queries{left_out}"]


def _verdict(record: dict[str, Any]) -> list[str]:
    """The verdict on plain search, with what is beyond a threshold, and the items that look planted."""
    from vsehub.report.health import suspect_text, verdict_text

    return [f"verdict: {verdict_text(record['verdict'])}", *map(suspect_text, record["suspects"])]


def _rounding(record: dict[str, Any]) -> list[str]:
    from vsehub.report.health import rounding_text

    rounded = [one for one in record["rankings"] if "rounding" in one]
    return [f"precision: {rounding_text(one['criterion'], one['rounding'])}" for one in rounded]


def _choice(choice: dict[str, Any] | None) -> list[str]:
    if choice is None:
        return []
    from vsehub.report.health import choice_text

    return [f"{name}: {text}" for name, text in choice_text(choice)]


def _index(index: dict[str, Any] | None) -> list[str]:
    if index is None:
        return []
    recall, times = index["recall"], index["milliseconds"]
    return [
        f"index ({index['kind']}): it finds {recall['corrected']:.1%} of the {recall['k']} best, "
        f"{recall['plain']:.1%} of the plain ranking's; {times['corrected']:.3g} ms a query, plain {times['plain']:.3g}"
    ]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
