"""Lightning's CSV logger, whose file is whole at any time: a signal or a kill costs at most rows not yet written."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import rank_zero_experiment
from pytorch_lightning.core.saving import save_hparams_to_yaml
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter

from vsehub.io.files import write_text


class CSVRows(ExperimentWriter):
    """The rows of metrics.csv in a folder, which are appended; the file is replaced where a row has further columns.

    rows: those that the file has from the start. Lightning's writer empties the file before it writes it anew.
    """

    def __init__(self, folder: str, rows: Sequence[Mapping[str, Any]] = ()):
        self.metrics: list[dict[str, Any]] = []
        self.hparams: dict[str, Any] = {}
        self.log_dir = folder
        self._file = Path(folder) / ExperimentWriter.NAME_METRICS_FILE
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._columns: list[str] = []
        self._count = self._size = 0  # rows and bytes that are there for certain
        if rows:
            self._replace(rows)

    def save(self) -> None:
        """Write the rows that were logged since the last time. Broken off and called again, it writes each once."""
        if self.hparams:
            save_hparams_to_yaml(os.path.join(self.log_dir, self.NAME_HPARAMS_FILE), self.hparams)
        if not self.metrics:
            return
        if set().union(*self.metrics) <= set(self._columns):
            text = _text(self._columns, self.metrics).encode()
            with self._file.open("r+b") as file:
                file.seek(self._size)
                file.truncate()
                file.write(text)
            self._count, self._size = self._count + len(self.metrics), self._size + len(text)
        else:
            self._replace([*self._written(), *self.metrics])
        self.metrics = []

    def _written(self) -> list[dict[str, str]]:
        if not self._count:
            return []
        with self._file.open(newline="", encoding="utf-8") as file:
            return [row for row, _ in zip(csv.DictReader(file), range(self._count), strict=False)]

    def _replace(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = sorted(set().union(*rows))
        write_text(self._file, _text(columns, [dict(zip(columns, columns, strict=True)), *rows]))
        self._columns, self._count, self._size = columns, len(rows), os.path.getsize(self._file)


def _text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns).writerows(rows)
    return text.getvalue()


class WholeCSVLogger(CSVLogger):
    """`CSVLogger` that writes by `CSVRows`: to a new version below the folder `name` of `save_dir`."""

    def __init__(self, save_dir: str, name: str = "csv"):
        super().__init__(save_dir, name)

    @property
    @rank_zero_experiment
    def experiment(self) -> CSVRows:
        """The rows of this run."""
        if not isinstance(self._experiment, CSVRows):
            self._experiment = CSVRows(self.log_dir)
        return self._experiment

    def go_on(self, version: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Continue an earlier version's file, of which these rows are kept."""
        self._version = version
        self._experiment = CSVRows(self.log_dir, rows)
