"""The inputs of a comparison: vectors or scores, the names of their rows, and the true pairs, opened from files."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.criteria.base import as_sides
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import VectorFile, check_vectors, open_vectors, require_same_dimension
from vsehub.data.vectors.paths import stamps
from vsehub.io.arrays import listed, refuse_unusable
from vsehub.io.text import read_lines, stays_inside
from vsehub.neighbors.topk import joined
from vsehub.neighbors.vectors import (
    Moved,
    Subset,
    UnitVectors,
    VectorSource,
    as_vectors,
    row_digests,
    sample_positions,
    sample_rows,
)
from vsehub.positives import Positives

log = logging.getLogger(__name__)

VECTORS = ("queries", "items", "reference", "reference_items")
SCORES = ("scores", "reference_scores")
# Thresholds of `other_domain`. Measured: 28 pairs of sets from one domain reach at most 0.64 (reference) and 0.62
# (queries). Other topics of one set reach 0.75 (reference), noise reaches 1.00 (queries).
FARTHER_THAN_REFERENCE, FARTHER_THAN_QUERIES, FEWEST = 0.7, 0.9, 100
MOST_COMPARED, SAMPLE = 20_000, 500  # rows of each side, and rows whose similarities to the others are computed
ENDINGS = ("", ".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG", ".webp", ".WEBP", ".gif", ".GIF", ".bmp", ".BMP")
ROWS = 4096  # rows of scores from which columns are read at a time


@dataclass(frozen=True)
class Names:
    """The ids, labels and images of n rows, each None if not given.

    images: one file per row, or a folder in which a row's image is named after its id, or after its number without ids;
    symbolic links in it are followed. Raises InputError if there is not one id, label or file per row.
    """

    side: str
    rows: int
    ids: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    images: Sequence[str] | Path | None = None

    def __post_init__(self) -> None:
        for kind, values in (("ids", self.ids), ("labels", self.labels), ("images", self.images)):
            count = self.rows if values is None or isinstance(values, Path) else len(values)
            require(count == self.rows, f"{self.side} has {self.rows} rows, but there are {count} {kind}")

    def of(self, row: int) -> dict[str, str | None]:
        """The "id" and "label" of a row, None if it has none."""
        return {
            "id": None if self.ids is None else self.ids[row],
            "label": None if self.labels is None else self.labels[row],
        }

    def image(self, row: int) -> str | None:
        """The row's image file; None if it is missing, or if the id leads outside the folder."""
        if self.images is None or not isinstance(self.images, Path):
            return None if self.images is None else self.images[row]
        name = str(row if self.ids is None else self.ids[row])
        files = [self.images / f"{name}{ending}" for ending in ENDINGS]
        return next((str(file) for file in files if stays_inside(name) and file.is_file()), None)


def read_images(path: str | Path, name: str = "images") -> Path | list[str]:
    """A folder unchanged, or the paths listed in a text file, one per line.

    Relative paths start from the folder of the text file and must stay in it, so that a list that comes with a data set
    cannot name other files. Absolute paths are allowed, since only the machine's owner can know them. Every
    file is opened as a picture only. Raises InputError naming relative paths that lead outside.
    """
    path = existing(name, path, "Give a folder of images named after their ids, or a text file with one path per line")
    if path.is_dir():
        return path
    lines = read_lines(path, "path")
    outside = [line for line in lines if not (os.path.isabs(line) or stays_inside(line))]
    require(
        not outside, f"{name}: {path}: {listed(outside)} leads outside the folder of the list; write absolute paths"
    )
    return [str(path.parent / line) for line in lines]


def read_names(side: str, vectors: VectorFile | UnitVectors, settings: Mapping[str, Any]) -> Names:
    """The names of the rows of a side: those of its file, unless the settings have "query_ids" or the like."""
    name = {"queries": "query", "items": "item"}[side]
    ids, labels, images = (settings.get(f"{name}_{kind}") for kind in ("ids", "labels", "images"))
    return Names(
        side,
        len(vectors),
        vectors.ids if ids is None else read_ids(ids, f"{name}_ids"),
        vectors.labels if labels is None else read_labels(labels, f"{name}_labels"),
        None if images is None else read_images(images, f"{name}_images"),
    )


def read_positives(path: str, queries: Names, items: Names) -> Positives:
    """The pairs of a table, which names rows by ids where a side has them; see `read_truth`."""
    pairs = read_truth(path, queries.rows, items.rows, queries.ids, items.ids)
    return Positives.from_pairs(*pairs, queries.rows, items.rows, complete=False)


class ScoreFile(VectorFile):
    """Scores (N, M) of a file, float32 blocks of rows or of columns, on the CPU."""

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` - 1: (N, stop - start). Nothing else of a mapped file is read."""
        cuts = (self.source[first : first + ROWS][:, start:stop] for first in range(0, len(self), ROWS))
        return torch.cat([self._ready(cut) for cut in cuts])


def look_through_scores(scores: VectorFile) -> dict[str, float]:
    """The "least" and the "most" of all scores, in one reading.

    Raises InputError naming rows that hold NaN or infinite scores.
    """
    low, high = joined(rows.aminmax(dim=1) for _, rows in scores.blocks())  # both are NaN where one score is
    refuse_unusable(
        f"{scores}: of {len(scores)} rows, counted from 0:",
        1 + torch.maximum(low.abs(), high.abs()).numpy(),  # + 1: zeros would be refused, but are valid
        "Score these queries again, or leave them out; give pairs that were not scored a score below all others",
    )
    return {"least": low.min().item(), "most": high.max().item()}


@dataclass(frozen=True, eq=False)
class Sides:
    """Checked sides of a comparison; make one by `Sides.from_arrays`.

    reference: reference queries of the criteria, without the ranked ones; None: the queries themselves (transductive).
    reference_items: reference items of the criteria that take them; None: the items themselves. positives: the known
    answers; None: unknown. left_out: the number of reference queries that were left out, since they are ranked.
    exclude_self: True if the queries are the items, and each item searches among the others.
    """

    queries: VectorSource
    items: VectorSource
    reference: VectorSource | None = None
    reference_items: VectorSource | None = None
    positives: Positives | None = None
    left_out: int = 0
    exclude_self: bool = False

    @classmethod
    def from_arrays(
        cls,
        queries: Any,
        items: Any,
        reference: Any = None,
        reference_items: Any = None,
        positives: Positives | None = None,
    ) -> Self:
        """Sides (Q, D), (M, D), (R, D), (G, D): tensors, numpy arrays, memory maps, or open files (`data.vectors`).

        Instead of vectors, precomputed scores are queries and reference, and `UnitVectors` are items. Rows of the
        reference that equal a query, bit for bit, are left out. Raises InputError if dimensions differ, a side is
        empty, no row of the reference is left or positives are those of other sizes.
        """
        query_rows, item_rows, reference_rows = as_sides(queries, items, reference)
        further_items = (
            None if reference_items is None else as_vectors("reference_items", reference_items, item_rows.shape[1])
        )
        sizes = len(query_rows), len(item_rows)
        require(
            positives is None or (positives.queries, positives.items) == sizes,
            f"positives is of another number of queries or items; expected {sizes[0]} queries and {sizes[1]} items",
        )
        sides = cls(query_rows, item_rows, reference_rows, further_items, positives)
        return replace(sides, reference=None) if reference is None else sides.without_ranked_queries()

    def without_ranked_queries(self) -> Self:
        """The same sides without the reference queries that equal a ranked query, bit for bit."""
        if self.reference is None:
            return self
        rows = rows_not_in(self.reference, self.queries)
        require(
            len(rows) > 0,
            f"reference: each of its {len(self.reference)} rows equals a query; give other rows in one of the two. "
            "Without reference, rerank takes the ranked queries themselves",
        )
        left_out = len(self.reference) - len(rows)
        return replace(self, reference=Subset(self.reference, rows), left_out=left_out) if left_out else self

    @property
    def inductive(self) -> bool:
        """True if criteria are fitted on queries other than the ranked ones."""
        return self.reference is not None

    @property
    def precomputed(self) -> bool:
        """True if the inputs are precomputed scores instead of vectors."""
        return isinstance(self.items, UnitVectors)

    @property
    def reference_queries(self) -> VectorSource:
        """The reference queries of the criteria."""
        return self.queries if self.reference is None else self.reference

    def on(self, device: torch.device | None) -> Self:
        """The same sides with queries and reference on a device, where scores are then computed; None: unchanged."""
        if device is None:
            return self
        reference = None if self.reference is None else Moved(self.reference, device)
        return replace(self, queries=Moved(self.queries, device), reference=reference)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a comparison: both sides, the names of their rows, and the files that they come from.

    files: "queries", "items", perhaps "reference" and "reference_items"; of precomputed scores "scores" and, if given,
    "reference_scores". settings: the settings that `open_inputs` opens again. tuning: queries with their answers that
    `criterion=auto` chooses by; None: the ranked queries with known answers.
    """

    sides: Sides
    query_names: Names
    item_names: Names
    files: Mapping[str, VectorFile] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tuning: tuple[VectorFile, Positives] | None = None
    warnings: list[str] = field(default_factory=list)

    def warn(self, warning: str | None) -> None:
        """Log a warning, if there is one, and keep it for the record."""
        if warning:
            self.warnings.append(warning)
            log.warning(warning)

    def check(self) -> dict[str, dict[str, float]]:
        """The norms of each file, of precomputed scores their range. Raises InputError for unusable rows."""
        sides = self.sides
        if self.tuning is not None:
            check_vectors(self.tuning[0])
        if sides.precomputed:
            return {name: look_through_scores(file) for name, file in self.files.items()}
        norms = {name: check_vectors(file) for name, file in self.files.items()}
        if sides.reference is not None:
            self.warn(other_domain(sides.queries, sides.reference))
        return norms

    def changed(self) -> list[Path]:
        """The files of vectors that have changed or been replaced since they were opened."""
        opened = {file: stamp for side in self.files.values() for file, stamp in side.origin.stamps.items()}
        now = stamps(opened)
        return [file for file, before in opened.items() if now[file] != before]


def open_inputs(settings: Mapping[str, Any], normalize: bool | None = None) -> Inputs:
    """Open vectors, or scores. Raises InputError if a file cannot be read, or the sides do not fit each other.

    settings: setting -> file, as `vsehub rerank` takes them; vectors may be open already, such as a collection's.
    Without "queries" the items search among themselves, with their names. With "scores" the inputs are precomputed
    scores (Q, M) of a model that compares pairs, higher being closer; `ids` in their file are the ids of the queries,
    queries and reference become a `ScoreFile`, and items `UnitVectors`. normalize: as in `open_vectors`, for files that
    are not open yet.
    """
    recorded = {name: value for name, value in settings.items() if isinstance(value, str)} | {"normalize": normalize}
    scored = "scores" in settings
    paths = {name: settings[name] for name in (*(SCORES if scored else VECTORS), "tune_queries") if name in settings}
    files = {
        name: path if isinstance(path, VectorFile) else open_vectors(path, name, False if scored else normalize)
        for name, path in paths.items()
    }
    first, *others = files.values()
    for other in others:
        require_same_dimension(first, other)
    tune = files.pop("tune_queries", None)
    exclude_self = not scored and "queries" not in files
    sides: list[Any] = [files.get(name) for name in VECTORS]
    if scored:
        # Files of vectors as files of scores: the same fields, and columns can be read too.
        scores, reference = (ScoreFile(**vars(files[name])) if name in files else None for name in SCORES)
        sides = [scores, UnitVectors(first.shape[1]), reference, None]
    elif exclude_self:
        sides[0] = files["items"]
    elif first.shape == files["items"].shape and first.fingerprint() == files["items"].fingerprint():
        log.warning("queries and items are the same vectors: each finds itself first. Without queries= it is left out")
    items = read_names("items", sides[1], settings)
    queries = items if exclude_self else read_names("queries", sides[0], settings)
    positives = read_positives(settings["truth"], queries, items) if "truth" in settings else None
    require(
        not exclude_self or positives is None or not (positives.query == positives.item).any(),
        "truth: it has pairs of an item with itself, which is left out of its own list; leave them out",
    )
    checked = replace(Sides(*sides), positives=positives, exclude_self=exclude_self).without_ranked_queries()
    inputs = Inputs(checked, queries, items, files, recorded)
    if tune is None:
        return inputs
    answers = read_positives(settings["tune_truth"], Names("tune_queries", len(tune), tune.ids), items)
    rows = rows_not_in(tune, sides[0])
    if len(rows) < len(tune):
        inputs.warn(f"tune_queries: {len(tune) - len(rows)} of {len(tune)} are ranked queries, and left out")
        usable = torch.isin(answers.query, rows)
        require(bool(usable.any()), "tune_queries: all with a known answer are ranked queries; give others")
        answers = Positives.from_pairs(
            answers.query[usable], answers.item[usable], len(tune), items.rows, complete=False
        )
    return replace(inputs, tuning=(tune, answers))


def other_domain(queries: VectorSource, reference: VectorSource, seed: int = 0) -> str | None:
    """A warning if the queries are farther from the reference than its rows, or the queries, are from each other.

    The second comparison detects a reference of noise, whose rows are as far from each other as from the queries. The
    similarity of a row to a set is the 80th percentile over the set; the largest ones belong to captions of the same
    image. Two samples of similarities are compared by the probability that a value of the first is below a value of the
    second: 0.5 where both come from one distribution. None for a reference of fewer than `FEWEST` rows; the second
    comparison needs as many queries.
    """
    query_rows, reference_rows = (sample_rows(side, MOST_COMPARED, seed)[0].float() for side in (queries, reference))
    if len(reference_rows) < FEWEST:
        return None
    few = len(query_rows) < FEWEST
    # Rows are compared with rows other than themselves: with the other half of their set.
    judged = query_rows if few else query_rows[1::2]

    def similarities(rows: Tensor, others: Tensor) -> np.ndarray:
        return (rows[sample_positions(len(rows), SAMPLE, seed)] @ others.T).quantile(0.8, dim=1).numpy()

    to_reference = similarities(judged, reference_rows[::2])
    among_reference = similarities(reference_rows[1::2], reference_rows[::2])
    among_queries = similarities(judged, query_rows[::2])
    farther_than_reference = (1 + np.sign(among_reference[:, None] - to_reference).mean()) / 2
    farther_than_queries = (1 + np.sign(among_queries[:, None] - to_reference).mean()) / 2
    if farther_than_reference <= FARTHER_THAN_REFERENCE and (few or farther_than_queries <= FARTHER_THAN_QUERIES):
        return None
    return (
        "reference: it looks like queries of another domain, which can lower recall: the similarity of the queries to "
        "the nearest fifth of it is {:.3f}, that of its own rows {:.3f}, that among the queries {:.3f} (medians). Give "
        "queries like those that are ranked"
    ).format(*map(np.median, (to_reference, among_reference, among_queries)))


def rows_not_in(rows: VectorSource, queries: VectorSource) -> Tensor:
    """The positions (n,), ascending, of the rows (R, D) that equal none of the queries (Q, D) bit for bit, as read.

    Only 64-bit hashes of the rows are held.
    """
    return torch.from_numpy(np.flatnonzero(~np.isin(row_digests(rows), row_digests(queries))))
