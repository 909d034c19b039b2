"""Opened inputs of a comparison of rankings: vectors or scores, names of their rows, true pairs."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsehub.checks import InputError, fail, require
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors, same_space
from vsehub.data.vectors.paths import stamps
from vsehub.metrics.positives import Positives
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource, row_digests
from vsehub.rerank.names import Annotations, Names
from vsehub.rerank.scores import Range, ScoreFile, look_through_scores
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

ALLOWED = 0.01  # share of queries in the reference: two people may write the same caption


@dataclass(frozen=True)
class CheckedInputs:
    """Results of reading all rows.

    norms: of each side; of given scores their range. shared: the number of queries that are in the reference.
    """

    norms: Mapping[str, Norms | Range]
    shared: int


@dataclass(frozen=True)
class Inputs:
    """What is compared, the names of its rows, and the files of vectors that it was opened from.

    files: "queries", "items" and, if given, "reference", "reference_items"; of given scores "scores" and, if given,
    "reference_scores". truth_path: the file of the true pairs, None if they are unknown.
    """

    sides: Sides
    query_names: Names
    item_names: Names
    files: Mapping[str, VectorFile]
    truth_path: str | None

    def check(self, look: Callable[[VectorFile], Norms] = look_through) -> CheckedInputs:
        """Read every row once. Raises InputError for unusable rows, and for a reference that contains the queries.

        look: reads the items; the other sides are always read by this process.
        """
        looks: dict[str, Callable[[VectorFile], Norms | Range]] = {"items": look}
        others = look_through_scores if self.sides.given else look_through
        norms = {name: looks.get(name, others)(file) for name, file in self.files.items()}
        if self.sides.reference is None:
            return CheckedInputs(norms, 0)
        setting = "reference_scores" if self.sides.given else "reference"
        return CheckedInputs(norms, refuse_shared(self.sides.queries, self.sides.reference, setting))

    def changed(self) -> list[Path]:
        """The files of vectors that have changed or been replaced since they were opened."""
        opened = {file: stamp for side in self.files.values() for file, stamp in side.origin.stamps.items()}
        now = stamps(opened)
        return [file for file, before in opened.items() if now[file] != before]


def open_inputs(
    given: Mapping[str, str | VectorFile], annotations: Annotations | None = None, normalize: bool | None = None
) -> Inputs:
    """Open vectors. Raises InputError if a file cannot be read, or the sides do not fit each other.

    given: "queries", "items" and perhaps "reference", "reference_items": files, or vectors that are open already, such
    as those of a collection. normalize: of vectors that are not open yet.
    """
    annotations = annotations or Annotations()
    if "reference" in given:
        _require_other("reference", given["reference"], given["queries"], "queries' own file")
    files = {
        name: one if isinstance(one, VectorFile) else open_vectors(one, name, normalize) for name, one in given.items()
    }
    queries, items, bank = files["queries"], files["items"], files.get("reference_items")
    same_space(queries, items, files.get("reference"))
    same_space(queries, items, bank)
    if (queries.fingerprint(), queries.shape) == (items.fingerprint(), items.shape):
        log.warning("queries and items are the same vectors: each finds itself first, which counts as any other hit")
    names = (
        annotations.query_names(len(queries), queries.ids, queries.labels),
        annotations.item_names(len(items), items.ids, items.labels),
    )
    sides = Sides(queries, items, files.get("reference"), bank, annotations.positives(*names))
    return Inputs(sides, *names, files, annotations.truth)


def open_scores(given: Mapping[str, str], annotations: Annotations | None = None) -> Inputs:
    """Open scores of a model that compares pairs. Raises InputError as `open_inputs`.

    given: the files "scores", (Q, M) of Q queries with M items, higher being closer, and perhaps "reference_scores",
    (R, M) of other queries with the same items. `ids` in a file are those of the queries. Queries and reference become
    a `ScoreFile`, items `UnitVectors`.
    """
    annotations = annotations or Annotations()
    files = {"scores": open_vectors(given["scores"], "scores", normalize=False)}
    scores, reference = files["scores"], None
    if "reference_scores" in given:
        path = given["reference_scores"]
        _require_other("reference_scores", path, given["scores"], "file of the scores themselves")
        files["reference_scores"] = open_vectors(path, "reference_scores", normalize=False)
        _require_same_items(files["reference_scores"], scores)
        reference = ScoreFile(files["reference_scores"])

    def annotated(queries: int, items: int) -> tuple[Names, Names, Positives | None]:
        names = annotations.query_names(queries, scores.ids), annotations.item_names(items)
        return *names, annotations.positives(*names)

    rows, columns = scores.shape
    try:
        query_names, item_names, positives = annotated(rows, columns)
    except InputError as error:
        advice = ""
        try:
            annotated(columns, rows)
        except InputError:
            pass
        else:
            advice = ". They fit the other way round: save scores.T, one row per query and one column per item"
        fail(f"{scores} has {rows} rows (queries) and {columns} columns (items): {error}{advice}")
    sides = Sides(ScoreFile(scores), UnitVectors(columns), reference, None, positives)
    return Inputs(sides, query_names, item_names, files, annotations.truth)


def _require_other(name: str, reference: str | VectorFile, own: str | VectorFile, what: str) -> None:
    """Raise InputError if a reference is the file that is ranked."""
    files = isinstance(reference, str) and isinstance(own, str)
    require(
        not files or Path(str(reference)).resolve() != Path(str(own)).resolve(),
        f"{name}: {reference} is the {what}. Leave {name} out: the queries themselves are then taken (transductive), "
        "and the record says so",
    )


def _require_same_items(reference: VectorFile, scores: VectorFile) -> None:
    """Raise InputError if scores of other queries have another number of items."""
    items, (rows, columns) = scores.shape[1], reference.shape
    advice = f". It looks transposed: save array.T, {items} columns" if rows == items else ""
    require(
        columns == items,
        f"{reference} has {columns} columns, {scores} {items}; expected the scores of other queries with the same "
        f"items{advice}",
    )


def shared_rows(queries: VectorSource, reference: VectorSource) -> int:
    """The number of queries (Q, D) that are also in the reference (R, D), bit for bit as they are read.

    Only 64-bit hashes of the rows are held.
    """
    return int(np.isin(row_digests(queries), row_digests(reference)).sum())


def refuse_shared(queries: VectorSource, reference: VectorSource, name: str = "reference") -> int:
    """The number of queries that the reference holds. Raises InputError if they are more than `ALLOWED` of them.

    Fewer are logged as a warning. name: the setting that names the reference.
    """
    count = shared_rows(queries, reference)
    said = f"{name}: {count} of {len(queries)} queries ({count / len(queries):.1%}) are in {reference} bit for bit"
    require(
        count <= ALLOWED * len(queries),
        f"{said}, more than {ALLOWED:.0%}: results would be called inductive and be transductive. Give other queries, "
        f"e.g. training queries, or leave {name} out: the queries themselves are then taken, and the record says so",
    )
    if count:
        log.warning("%s; the criterion has seen them", said)
    return count
