"""Scores of a model that compares pairs, read from a file."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vsehub.data.vectors.embeddings import VectorFile
from vsehub.io.progress import byte_bar
from vsehub.io.rows import UnusableRows

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
