"""Opening and checking given scores, of a model that compares pairs: inputs that have no vectors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vsehub.checks import InputError, fail, require
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors
from vsehub.io.progress import byte_bar
from vsehub.io.rows import UnusableRows
from vsehub.metrics.positives import Positives
from vsehub.neighbors.given import UnitVectors
from vsehub.rerank.inputs import CheckedInputs, Inputs, Names, Range, read_images, refuse_shared, stamps_of

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
        """Columns `start` to `stop` - 1: (N, stop - start). Of a mapped file nothing else is read."""
        whole = self._file.source
        cuts = (whole[first : first + ROWS][:, start:stop] for first in range(0, len(self), ROWS))
        return torch.cat([replace(self._file, source=cut, ids=None).rows(0, len(cut)) for cut in cuts])


@dataclass(frozen=True)
class ScoreInputs(Inputs):
    """Inputs of given scores: queries and reference are a `ScoreFile`, items are `UnitVectors`.

    files: "scores" and, if given, "reference_scores".
    """

    def check(self, look: Callable[[VectorFile], Norms] = look_through) -> CheckedInputs:
        """Read every row once. Raises InputError for NaN and infinity, and for a reference that holds the queries."""
        ranges = {name: look_through_scores(file) for name, file in self.files.items()}
        if self.reference is None:
            return CheckedInputs(ranges, 0)
        return CheckedInputs(ranges, refuse_shared(self.queries, self.reference, "reference_scores"))


def open_scores(
    scores: str,
    reference_scores: str | None = None,
    *,
    truth: str | None = None,
    query_ids: str | None = None,
    item_ids: str | None = None,
    query_labels: str | None = None,
    item_labels: str | None = None,
    item_images: str | None = None,
) -> ScoreInputs:
    """Open the files. Raises InputError if one cannot be read, or they do not fit each other.

    scores: (Q, M), of Q queries with M items, higher being closer. reference_scores: (R, M), of other queries with the
    same items; None: the queries themselves. Files as for `open_vectors`; `ids` in the file are those of the queries.
    """
    asked = open_vectors(scores, "scores", normalize=False)
    sides = {"scores": asked}
    if reference_scores is not None:
        sides["reference_scores"] = _open_reference(reference_scores, scores, asked)
    ids = (
        asked.ids if query_ids is None else read_ids(query_ids, "query_ids"),
        None if item_ids is None else read_ids(item_ids, "item_ids"),
    )
    labels = (
        None if query_labels is None else read_labels(query_labels, "query_labels"),
        None if item_labels is None else read_labels(item_labels, "item_labels"),
    )
    images = None if item_images is None else read_images(item_images, "item_images")

    def named(queries: int, items: int) -> tuple[Names, Names, Positives | None]:
        both = Names("queries", queries, ids[0], labels[0]), Names("items", items, ids[1], labels[1], images)
        if truth is None:
            return *both, None
        pairs = read_truth(truth, queries, items, *ids)
        return *both, Positives.from_pairs(*pairs, queries, items, complete=False)

    try:
        names = named(*asked.shape)
    except InputError as error:
        items, queries = asked.shape
        advice = ""
        try:
            named(queries, items)
        except InputError:
            pass
        else:
            advice = ". They fit the other way round: save scores.T, one row per query and one column per item"
        fail(f"{asked} has {asked.shape[0]} rows (queries) and {asked.shape[1]} columns (items): {error}{advice}")
    reference = ScoreFile(sides["reference_scores"]) if "reference_scores" in sides else None
    among = UnitVectors(asked.shape[1])
    return ScoreInputs(ScoreFile(asked), among, reference, None, *names, truth, stamps_of(sides), sides)


def _open_reference(path: str, scores: str, asked: VectorFile) -> VectorFile:
    require(
        Path(path).resolve() != Path(scores).resolve(),
        f"reference_scores: {path} is the file of the scores themselves. Leave reference_scores out: the queries "
        "themselves are then taken (transductive), and the record says so",
    )
    reference = open_vectors(path, "reference_scores", normalize=False)
    items, (rows, columns) = asked.shape[1], reference.shape
    advice = f". It looks transposed: save array.T, {items} columns" if rows == items else ""
    require(
        columns == items,
        f"{reference} has {columns} columns, {asked} {items}; expected the scores of other queries with the same "
        f"items{advice}",
    )
    return reference


def look_through_scores(scores: VectorFile) -> Range:
    """The range of all scores, which are read once. Raises InputError naming rows that hold NaN or infinite scores."""
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
