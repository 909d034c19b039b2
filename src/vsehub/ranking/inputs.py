"""The inputs of a comparison: vectors or scores, the names of their rows, and the true pairs, opened from files."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from vsehub.checks import InputError, existing, fail, require
from vsehub.criteria.base import as_sides
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors, same_space
from vsehub.data.vectors.paths import stamps
from vsehub.io.arrays import UnusableRows
from vsehub.io.progress import byte_bar
from vsehub.io.text import read_lines, stays_inside
from vsehub.metrics.positives import Positives
from vsehub.neighbors.given import UnitVectors, moved
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import VectorSource, as_vectors, row_digests, sampled

log = logging.getLogger(__name__)

VECTORS = ("queries", "items", "reference", "reference_items")
OTHER_DOMAIN = 0.75  # of `farther`
SAMPLE, MOST_COMPARED = 500, 20_000  # queries and reference queries that are compared
ALLOWED = 0.01  # share of queries in the reference: two people may write the same caption
_LOOKED = 100  # ids whose images must exist at the start
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


@dataclass(frozen=True)
class Names:
    """The ids, labels and images of n rows, each None if not given.

    images: one file per row, or a folder in which a row's image is named after its id; symbolic links in it are
    followed. Raises InputError if there is not one id, label or file per row, if a folder is given without ids or with
    ids that lead outside it, or if it has no image for any of the first ids.
    """

    side: str
    rows: int
    ids: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    images: Sequence[str] | Path | None = None

    def __post_init__(self) -> None:
        for what in ("ids", "labels", "images"):
            given = getattr(self, what)
            count = self.rows if given is None or isinstance(given, Path) else len(given)
            require(
                count == self.rows,
                f"{self.side} has {self.rows} rows, but there are {count} {what}; expected one per row",
            )
        if isinstance(self.images, Path):
            if self.ids is None:
                fail(
                    f"the images in {self.images} are found by ids, which {self.side} does not have: give the ids, or "
                    "a text file with the path of an image on each line"
                )
            if self.rows:
                self._require_images(self.images, self.ids)

    def of(self, row: int) -> dict[str, str | None]:
        """The "id" and "label" of a row, None if it has none."""
        return {
            "id": None if self.ids is None else self.ids[row],
            "label": None if self.labels is None else self.labels[row],
        }

    def image(self, row: int) -> str | None:
        """The row's image file, None if there is none."""
        if not isinstance(self.images, Path) or self.ids is None:
            return self.images[row] if isinstance(self.images, Sequence) else None
        name, folder = str(self.ids[row]), self.images
        candidates = [name, *(name + suffix for one in SUFFIXES for suffix in (one, one.upper()))]
        return next((str(folder / one) for one in candidates if (folder / one).is_file()), None)

    def _require_images(self, folder: Path, ids: Sequence[str]) -> None:
        """Raise InputError unless all ids name files inside the folder, and one of the first files exists."""
        outside = [row for row, one in enumerate(ids) if not stays_inside(str(one))]
        if outside:
            fail(
                f"the images of {self.side} are looked for in {folder} by ids, but {len(outside)} ids lead outside "
                f"it, the first {str(ids[outside[0]])!r} (row {outside[0]}). Correct the ids, or give a "
                "text file with the path of an image on each line"
            )
        looked = min(self.rows, _LOOKED)
        require(
            any(self.image(row) is not None for row in range(looked)),
            f"{folder} has an image of none of the first {looked} ids of {self.side}: there is neither "
            f"{str(ids[0])!r} nor that name with {', '.join(SUFFIXES)}. Give the folder whose files are named after "
            "the ids, or a text file with the path of an image on each line",
        )


def read_images(path: str | Path, name: str = "images") -> Path | list[str]:
    """A folder unchanged, or the paths listed in a text file, one per line.

    Relative paths start from the folder of the text file and must stay in it, so that a list that comes with a data set
    cannot name other files. Absolute paths are allowed, since only the machine's owner can know them. Every
    file is opened as a picture only. Raises InputError naming the line of a relative path that leads outside.
    """
    path = existing(name, path, "Give a folder of images named after their ids, or a text file with one path per line")
    if path.is_dir():
        return path
    lines = read_lines(path, "path")
    for number, line in enumerate(lines, 1):
        require(
            os.path.isabs(line) or stays_inside(line),
            f"{name}: {path}:{number}: {line!r} leads outside the folder of the list. Move the list to a folder above "
            "the images, or write absolute paths",
        )
    return [str(path.parent / line) for line in lines]


def read_names(
    side: str, rows: int, given: Mapping[str, Any], ids: list[str] | None = None, labels: list[str] | None = None
) -> Names:
    """The names of a side's rows. given: setting -> file, such as "item_ids"; others are as in `ids`, `labels`.

    side: "queries" or "items". Raises InputError for a file that cannot be read.
    """
    one = {"queries": "query", "items": "item"}[side]
    files = {what: given.get(f"{one}_{what}") for what in ("ids", "labels", "images")}
    ids = ids if files["ids"] is None else read_ids(files["ids"], f"{one}_ids")
    labels = labels if files["labels"] is None else read_labels(files["labels"], f"{one}_labels")
    images = None if files["images"] is None else read_images(files["images"], f"{one}_images")
    return Names(side, rows, ids, labels, images)


def read_positives(path: str, queries: Names, items: Names) -> Positives:
    """The pairs of a table, which names rows by ids where a side has them; see `read_truth`."""
    pairs = read_truth(path, queries.rows, items.rows, queries.ids, items.ids)
    return Positives.from_pairs(*pairs, queries.rows, items.rows, complete=False)


ROWS = 4096  # whose scores are cut together


class ScoreFile:
    """Scores (N, M) of a file, as `GivenScores`: float32 blocks of rows or of columns, on the CPU."""

    def __init__(self, file: VectorFile):
        self._file = file
        self.shape = file.shape

    def __len__(self) -> int:
        return len(self._file)

    def __str__(self) -> str:
        return str(self._file)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1, a copy."""
        return self._file.rows(start, stop)

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` - 1: (N, stop - start). Nothing else of a mapped file is read."""
        whole = self._file.source
        cuts = (whole[first : first + ROWS][:, start:stop] for first in range(0, len(self), ROWS))
        return torch.cat([replace(self._file, source=cut, ids=None).rows(0, len(cut)) for cut in cuts])


@dataclass(frozen=True)
class Range:
    """The smallest and the largest score."""

    least: float
    most: float


def look_through_scores(scores: VectorFile) -> Range:
    """The range of all scores, in one reading. Raises InputError naming rows that hold NaN or infinite scores."""
    unusable = UnusableRows()
    least, most = float("inf"), float("-inf")
    row_bytes = scores.dtype.itemsize * scores.shape[1]
    with byte_bar(f"checking {scores}", row_bytes * len(scores)) as bar:
        for first, rows in scores.blocks():
            low, high = rows.amin(dim=1), rows.amax(dim=1)  # both are NaN where one score is
            # A row of zeros is as good as any other.
            unusable.add(first, 1 + torch.maximum(low.abs(), high.abs()).numpy())
            least, most = min(least, low.min().item()), max(most, high.max().item())
            bar.update(row_bytes * len(rows))
    as_what = " as float32" if scores.dtype == torch.float64 else ""
    unusable.refuse(
        f"{scores}: of {len(scores)} rows{as_what}, counted from 0:",
        "Score these queries again, or leave them out; give pairs that were not scored a score below all others",
    )
    return Range(least, most)


@dataclass(frozen=True, eq=False)
class Sides:
    """Checked sides of a comparison; make one by `Sides.of`.

    reference: other queries, from which criteria are fitted; None: the queries themselves (transductive).
    reference_items: for criteria that take them; None: the items themselves. positives: which items answer which query;
    None: unknown.
    """

    queries: VectorSource
    items: VectorSource
    reference: VectorSource | None = None
    reference_items: VectorSource | None = None
    positives: Positives | None = None

    @classmethod
    def of(
        cls,
        queries: Any,
        items: Any,
        reference: Any = None,
        reference_items: Any = None,
        positives: Positives | None = None,
    ) -> Self:
        """Sides (Q, D), (M, D), (R, D), (G, D): tensors, numpy arrays, memory maps, or open files (`data.vectors`).

        Instead of vectors, `GivenScores` are queries and reference, and `UnitVectors` are items. Raises InputError if
        dimensions differ, a side is empty or positives are those of other sizes.
        """
        asked, among, seen = as_sides(queries, items, reference)
        bank = None
        if reference_items is not None:
            bank = as_vectors("reference_items", reference_items, columns=among.shape[1])
        require(
            positives is None or (positives.queries, positives.items) == (len(asked), len(among)),
            f"positives is of another number of queries or items; expected {len(asked)} queries and {len(among)} items",
        )
        return cls(asked, among, None if reference is None else seen, bank, positives)

    @property
    def inductive(self) -> bool:
        """True if criteria are fitted on queries other than the ranked ones."""
        return self.reference is not None

    @property
    def given(self) -> bool:
        """True if the inputs are precomputed scores instead of vectors."""
        return isinstance(self.items, UnitVectors)

    @property
    def seen(self) -> VectorSource:
        """The queries from which criteria are fitted."""
        return self.queries if self.reference is None else self.reference

    def on(self, device: torch.device | None) -> Self:
        """The same sides with queries and reference on a device, where scores are then computed; None: unchanged."""
        if device is None:
            return self
        reference = None if self.reference is None else moved(self.reference, device)
        return replace(self, queries=moved(self.queries, device), reference=reference)


@dataclass(frozen=True)
class CheckedInputs:
    """Results of reading all rows.

    norms: of each side; of precomputed scores their range. shared: the number of queries that are in the reference.
    """

    norms: Mapping[str, Norms | Range]
    shared: int


@dataclass(frozen=True)
class Inputs:
    """The inputs of a comparison: both sides, the names of their rows, and the files that they come from.

    files: "queries", "items", perhaps "reference" and "reference_items"; of precomputed scores "scores" and, if given,
    "reference_scores". given: the settings that `open_inputs` opens again. tuning: queries with their answers that
    `criterion=auto` chooses by; None: a share of the ranked queries.
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
