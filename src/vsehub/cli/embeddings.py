"""What `rerank`, `diagnose` and `export` share: checked settings, opened inputs, and the end of a comparison."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from omegaconf import DictConfig, ListConfig

from vsehub.checks import InputError, boolean, precision_word, require, whole, whole_seed
from vsehub.cli.nodes import build, device_named
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import write_json
from vsehub.io.outputs import Output
from vsehub.io.progress import stage

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.rerank.compare import Comparison
    from vsehub.rerank.engines import Local
    from vsehub.rerank.inputs import Inputs
    from vsehub.serving.databases.engines import Place

log = logging.getLogger(__name__)

RESULT, PAGE = "result.json", "index.html"
VECTORS, SCORES = ("queries", "items", "reference", "reference_items"), ("scores", "reference_scores")
ANNOTATIONS = ("truth", "query_ids", "item_ids", "query_labels", "item_labels", "item_images")
FILES = (*VECTORS, *SCORES, *ANNOTATIONS)


@dataclass(frozen=True)
class Settings:
    """The settings that these commands have.

    command: its name. kind: what it writes ("a diagnosis"). written: the names of the files that it writes. files: each
    of FILES, None if not given. place: a collection in a database that holds the items, and queries if no file of them
    is given. Raises InputError for everything that can be refused before anything is read, such as an output folder
    that cannot be written to or a missing file of vectors.
    """

    command: str
    kind: str
    written: tuple[str, ...]
    files: dict[str, Any]
    k: int
    normalize: bool | None
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
        # Not all commands have all of them.
        files = {name: None if cfg.get(name) is None else str(cfg[name]) for name in FILES}
        return cls(
            command,
            kind,
            written,
            files,
            k=cfg.k,
            normalize=cfg.normalize,
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
        whole_seed("seed", self.seed)
        _ = self.output  # opens it
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

    def local(self, criteria: Mapping[str, Any]) -> "Local":
        """The engine of this process, for these criteria."""
        from vsehub.rerank.engines import Local

        return Local.of(device_named(self.device), self.precision, criteria, self.scored)

    @cached_property
    def output(self) -> Output:
        """The folder `out`. Raises InputError if it holds other files, or a result that must not be replaced."""
        return Output(self.out, self.kind, self.written, self.overwrite)


def built(name: str, node: DictConfig | ListConfig) -> Any:
    """The criterion of a configuration node; `name` begins the message of whatever its constructor refuses."""
    try:
        return build("criterion", node)
    except InputError as error:
        raise InputError(f"criterion {name}: {error}") from error


def opened(settings: Settings, criteria: Mapping[str, Any]) -> "Inputs":
    """The inputs, of vectors or of scores, without a reference that no criterion reads."""
    stage(log, "loading torch and opening the vectors")

    from vsehub.rerank.inputs import open_inputs, open_scores
    from vsehub.rerank.names import Annotations

    annotations = Annotations(**{name: settings.files[name] for name in ANNOTATIONS})
    given = {name: settings.files[name] for name in (*VECTORS, *SCORES)}
    sides: dict[str, Any] = {name: path for name, path in given.items() if path is not None}
    reference = "reference_scores" if settings.scored else "reference"
    reads = any(one.needs_reference or one.matching is not None for one in criteria.values())
    if reference in sides and not reads:
        log.warning("%s is not read: none of these criteria uses reference queries", reference)
        del sides[reference]
    if settings.scored:
        return open_scores(sides, annotations)
    if settings.place is not None:
        held = of_collection(settings.place)
        require(
            "queries" in sides | held,
            f"queries is not set, and none are kept beside {settings.place.address}; give them",
        )
        sides = held | sides
    return open_inputs(sides, annotations, settings.normalize)


def of_collection(place: "Place") -> "dict[str, VectorFile]":
    """The sides that a collection in a database holds: its items and, as queries, the reference kept beside it."""
    import torch

    from vsehub.data.vectors.embeddings import Origin, VectorFile
    from vsehub.serving.databases.collection import open_collection

    with open_collection(place) as collection:
        normalize = collection.metadata.normalize
        vectors, _, ids, labels = collection.items()
        shown = labels if any(labels) else None
        held = {"items": VectorFile("items", vectors, torch.float32, ids, shown, normalize, Origin(place.address))}
        if collection.metadata.reference_rows:
            origin = Origin(f"the reference beside {place.address}")
            reference = collection.reference
            held["queries"] = VectorFile("queries", reference, torch.float32, None, None, normalize, origin)
        return held


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
