"""Opened inputs of a comparison of rankings: vectors or scores, names of their rows, true pairs."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from vsehub.checks import InputError, require
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors, same_space
from vsehub.data.vectors.paths import stamps
from vsehub.metrics.positives import Positives
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import VectorSource, as_vectors, row_digests, sampled
from vsehub.rerank.names import Names, read_names, read_positives
from vsehub.rerank.scores import Range, ScoreFile, look_through_scores
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

VECTORS = ("queries", "items", "reference", "reference_items")
OTHER_DOMAIN = 0.75  # of `farther`
SAMPLE, MOST_COMPARED = 500, 20_000  # queries and reference queries that are compared
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
    "reference_scores". given: the settings that `open_inputs` opens again. tuning: queries with their answers, by which
    `criterion=auto` chooses; None: a share of the ranked queries.
    """

    sides: Sides
    query_names: Names
    item_names: Names
    files: Mapping[str, VectorFile] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    tuning: tuple[VectorFile, Positives] | None = None

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
        if not self.sides.given:
            farther(self.sides.queries, self.sides.reference)
        return CheckedInputs(norms, refuse_shared(self.sides.queries, self.sides.reference, setting))

    def changed(self) -> list[Path]:
        """The files of vectors that have changed or been replaced since they were opened."""
        opened = {file: stamp for side in self.files.values() for file, stamp in side.origin.stamps.items()}
        now = stamps(opened)
        return [file for file, before in opened.items() if now[file] != before]


def open_inputs(given: Mapping[str, Any], normalize: bool | None = None) -> Inputs:
    """Open vectors, or scores. Raises InputError if a file cannot be read, or the sides do not fit each other.

    given: setting -> file, as `vsehub rerank` takes them; vectors may be open already, such as those of a collection.
    Of scores, those of a model that compares pairs, (Q, M) of Q queries with M items, higher being closer; `ids` in
    their file are those of the queries. Queries and reference become a `ScoreFile`, items `UnitVectors`. normalize: of
    vectors that are not open yet.
    """
    settings = {name: one for name, one in given.items() if isinstance(one, str)} | {"normalize": normalize}
    if "scores" in given:
        return replace(_open_scores(given), given=settings)
    if "reference" in given:
        _require_other("reference", given["reference"], given["queries"], "queries' own file")
    files = {name: _opened(name, given[name], normalize) for name in VECTORS if name in given}
    queries, items, bank = files["queries"], files["items"], files.get("reference_items")
    same_space(queries, items, files.get("reference"))
    same_space(queries, items, bank)
    if (queries.fingerprint(), queries.shape) == (items.fingerprint(), items.shape):
        log.warning("queries and items are the same vectors: each finds itself first, which counts as any other hit")
    names, positives = _names(given, queries, items)
    sides = Sides(queries, items, files.get("reference"), bank, positives)
    return Inputs(sides, *names, files, settings, _tuning(given, normalize, items, names[1]))


def _opened(name: str, given: Any, normalize: bool | None) -> VectorFile:
    return given if isinstance(given, VectorFile) else open_vectors(given, name, normalize)


def _names(
    given: Mapping[str, Any], queries: VectorSource, items: VectorSource
) -> tuple[tuple[Names, Names], Positives | None]:
    """The names of both sides, and the true pairs."""
    asked, among = (
        read_names(name, len(side), given, getattr(side, "ids", None), getattr(side, "labels", None))
        for name, side in (("queries", queries), ("items", items))
    )
    return (asked, among), read_positives(given["truth"], asked, among) if "truth" in given else None


def _tuning(
    given: Mapping[str, Any], normalize: bool | None, items: VectorFile, names: Names
) -> tuple[VectorFile, Positives] | None:
    """The queries of a separate file, with their answers."""
    if "tune_queries" not in given:
        return None
    asked = open_vectors(given["tune_queries"], "tune_queries", normalize)
    same_space(asked, items)
    return asked, read_positives(given["tune_truth"], Names("tune_queries", len(asked), asked.ids), names)


def _open_scores(given: Mapping[str, Any]) -> Inputs:
    files = {"scores": open_vectors(given["scores"], "scores", normalize=False)}
    scores, reference = files["scores"], None
    if "reference_scores" in given:
        path = given["reference_scores"]
        _require_other("reference_scores", path, given["scores"], "file of the scores themselves")
        files["reference_scores"] = open_vectors(path, "reference_scores", normalize=False)
        _require_same_items(files["reference_scores"], scores)
        reference = ScoreFile(files["reference_scores"])
    items = UnitVectors(scores.shape[1])
    try:
        names, positives = _names(given, replace(scores, labels=None), items)
    except InputError as error:
        turned = "queries, a row each, and items, a column each; if they are the other way round, save scores.T"
        raise InputError(f"{error}. {scores} is {scores.shape[0]} x {scores.shape[1]}: {turned}") from error
    return Inputs(Sides(ScoreFile(scores), items, reference, None, positives), *names, files)


def _require_other(name: str, reference: Any, own: Any, what: str) -> None:
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


def farther(queries: VectorSource, reference: VectorSource, seed: int = 0) -> float:
    """The probability that a query is less similar to the reference than its own rows are to each other.

    0.5: both come from one distribution. Compared are the similarities to the tenth nearest of one half of the
    reference, of a sample of the queries and of one of the other half: captions of one image lie closer. More than
    `OTHER_DOMAIN` is logged as a warning. 0.5 for fewer than 40 reference queries, which tell nothing.
    """
    rows, _ = sampled(reference, MOST_COMPARED, seed)
    half = as_vectors("reference", rows[::2])
    if len(rows) < 40:
        return 0.5
    of_queries, of_own = (
        nearest(as_vectors("queries", sampled(asked, SAMPLE, seed)[0]), half, 10)[0][0][:, -1].cpu().numpy()
        for asked in (queries, as_vectors("reference", rows[1::2]))
    )
    share = 1 - float(stats.mannwhitneyu(of_queries, of_own).statistic) / (len(of_queries) * len(of_own))
    if share > OTHER_DOMAIN:
        log.warning(
            "reference: it looks like queries of another domain, which can lower recall: their similarity to its tenth "
            "nearest row is %.3f, that of its own rows %.3f (medians). Give queries like those that are ranked",
            *(np.median(of_queries), np.median(of_own)),
        )
    return share


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
