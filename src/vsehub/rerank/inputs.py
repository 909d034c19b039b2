"""Opening and checking the inputs of a comparison of rankings: vectors, names of their rows, true pairs."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import existing, fail, require
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors, same_space
from vsehub.data.vectors.paths import Stamps, stamps
from vsehub.io.rows import listed
from vsehub.io.text import read_lines, stays_inside
from vsehub.metrics.positives import Positives
from vsehub.neighbors.vectors import VectorSource, row_digests
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

_LOOKED = 100  # ids whose images are looked for at the start
ALLOWED = 0.01  # share of queries in the reference: two people may write the same caption
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
    cannot name other files. Absolute paths are allowed, since only the machine's owner can know them. All files are
    only opened as pictures. Raises InputError naming the line of a relative path that leads outside.
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


@dataclass(frozen=True)
class Range:
    """The smallest and the largest of given scores."""

    least: float
    most: float


@dataclass(frozen=True)
class CheckedInputs:
    """Results of reading all rows.

    norms: of each side; of given scores their range. shared: the number of queries that are in the reference.
    """

    norms: Mapping[str, Norms | Range]
    shared: int


@dataclass(frozen=True)
class Inputs:
    """Opened inputs. reference, reference_items: None if queries and items serve as their own. truth: None if unknown.

    truth_path: the file from which `truth` was read. stamps: size, modification time and inode of each file of vectors,
    taken before it was opened. files: those of vectors by their names: "queries", "items" and, if given,
    "reference", "reference_items".
    """

    queries: VectorSource
    items: VectorSource
    reference: VectorSource | None
    reference_items: VectorSource | None
    query_names: Names
    item_names: Names
    truth: Positives | None
    truth_path: str | None
    stamps: Stamps
    files: dict[str, VectorFile]

    @property
    def sides(self) -> Sides:
        """What is compared."""
        return Sides(self.queries, self.items, self.reference, self.reference_items, self.truth)

    def check(self, look: Callable[[VectorFile], Norms] = look_through) -> CheckedInputs:
        """Read every row once. Raises InputError for unusable rows, and for a reference that holds the queries.

        look: what looks through the items; the other sides are looked through in this process.
        """
        norms = {name: (look if name == "items" else look_through)(file) for name, file in self.files.items()}
        return CheckedInputs(norms, 0 if self.reference is None else refuse_shared(self.queries, self.reference))

    def identity(self) -> dict[str, Any]:
        """JSON that identifies the vectors: hash of a sample, shape, sizes and modification times of the files."""
        normalize = next(iter(self.files.values())).normalize
        found: dict[str, Any] = {"reference": None, "reference_items": None, "normalize": normalize}
        for name, side in self.files.items():
            files = [stamp and list(stamp[:2]) for stamp in side.stamps.values()]
            found[name] = [side.fingerprint(), *side.shape, files]
        return found

    def changed(self) -> list[Path]:
        """The files of vectors that have changed or been replaced since they were opened."""
        now = stamps(self.stamps)
        return [file for file, before in self.stamps.items() if now[file] != before]


def open_inputs(
    queries: str | VectorFile,
    items: str | VectorFile,
    reference: str | None = None,
    reference_items: str | None = None,
    *,
    normalize: bool | None = None,
    skip_unreadable: bool = False,
    fetched: bool = True,
    truth: str | None = None,
    query_ids: str | None = None,
    item_ids: str | None = None,
    query_labels: str | None = None,
    item_labels: str | None = None,
    item_images: str | None = None,
) -> Inputs:
    """Open the files. Raises InputError if one cannot be read, or they do not fit each other.

    queries, items, reference, reference_items: files of vectors, see `open_vectors`; the first two may be open already.
    Ids and labels in text files replace those that come with the vectors. skip_unreadable: leave out shards of a folder
    that cannot be read; then truth must give ids. fetched: whether items behind a URI are fetched, see `open_vectors`.
    """
    how: dict[str, Any] = {"normalize": normalize, "skip_unreadable": skip_unreadable}
    asked = queries if isinstance(queries, VectorFile) else open_vectors(queries, "queries", **how)
    among = items if isinstance(items, VectorFile) else open_vectors(items, "items", **how, fetched=fetched)
    seen = None if reference is None else _open_reference(reference, queries, **how)
    bank = None if reference_items is None else open_vectors(reference_items, "reference_items", **how)
    same_space(asked, among, seen)
    same_space(asked, among, bank)
    if (asked.fingerprint(), asked.shape) == (among.fingerprint(), among.shape):
        log.warning("queries and items are the same vectors: each finds itself first, which counts as any other hit")
    images = None if item_images is None else read_images(item_images, "item_images")
    query_names = Names("queries", len(asked), *_names(asked, "query", query_ids, query_labels))
    item_names = Names("items", len(among), *_names(among, "item", item_ids, item_labels), images)
    positives = None
    if truth is not None:
        _refuse_row_numbers(asked, query_names)
        _refuse_row_numbers(among, item_names)
        sizes = (len(asked), len(among))
        pairs = read_truth(truth, *sizes, query_names.ids, item_names.ids)
        positives = Positives.from_pairs(*pairs, *sizes, complete=False)
    given = {"queries": asked, "items": among, "reference": seen, "reference_items": bank}
    files = {name: side for name, side in given.items() if side is not None}
    return Inputs(asked, among, seen, bank, query_names, item_names, positives, truth, stamps_of(files), files)


def _refuse_row_numbers(vectors: VectorFile, names: Names) -> None:
    """Raise InputError if truth would give row numbers of vectors of which shards were left out."""
    require(
        names.ids is not None or not vectors.left_out,
        f"truth: {vectors} lacks the rows of {listed([shard.name for shard in vectors.left_out])}, so row numbers "
        "name other rows. Give the shards ids, or omit truth or skip_unreadable",
    )


def _open_reference(path: str, queries: str | VectorFile, **how: Any) -> VectorFile:
    reference = open_vectors(path, "reference", **how)
    require(
        isinstance(queries, VectorFile) or Path(path).resolve() != Path(queries).resolve(),
        f"reference: {path} is the queries' own file. Leave reference out: the queries themselves are then taken "
        "(transductive), and the record says so",
    )
    return reference


def _names(
    vectors: VectorFile, side: str, ids: str | None, labels: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """The ids and the labels of a side."""
    return (
        vectors.ids if ids is None else read_ids(ids, f"{side}_ids"),
        vectors.labels if labels is None else read_labels(labels, f"{side}_labels"),
    )


def stamps_of(files: Mapping[str, VectorFile]) -> Stamps:
    """Those of all files."""
    return {file: stamp for side in files.values() for file, stamp in side.stamps.items()}


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
