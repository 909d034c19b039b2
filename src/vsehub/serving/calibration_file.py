"""The record of `vsehub calibrate`: a calibration, and the items, criterion and settings that it holds for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vsehub.checks import InputError, existing, require
from vsehub.data.vectors.embeddings import VectorFile
from vsehub.io.records import CALIBRATION, read_record
from vsehub.serving.calibration import Calibration, stored

_SCORES = ("null_scores", "best_scores")
_AGAIN = "Write it again with `vsehub calibrate`"


@dataclass(frozen=True)
class CalibrationFile:
    """A calibration from the file `path`, with the record in which it was written."""

    path: str
    calibration: Calibration
    record: dict[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The calibration in a file. Raises InputError if it is absent, damaged or of something else."""
        file = existing("calibration", path, "Give the calibration.json that `vsehub calibrate` wrote")
        record = read_record(file, CALIBRATION, _AGAIN)
        rates = [one.get("false_accept") if isinstance(one, dict) else one for one in record["rates"]]
        numbers = all(
            type(one) in (int, float) for part in (*(record[name] for name in _SCORES), rates) for one in part
        )
        require(numbers, f"calibration: {path} holds scores or rates that are no numbers. {_AGAIN}")
        try:
            found = cls(str(path), Calibration(*(torch.tensor(record[name]).double() for name in _SCORES)), record)
            for rate in found.rates:
                found.calibration.require_rate(rate)
            return found
        except (InputError, OverflowError) as error:
            raise InputError(f"calibration: {path}: {error}. {_AGAIN}") from error

    @property
    def rates(self) -> list[float]:
        """The rates of false accepts that were asked for."""
        return [one["false_accept"] for one in self.record["rates"]]

    def require_fits(
        self, criterion: str, parameters: Mapping[str, Any], files: Mapping[str, VectorFile], normalize: bool | None
    ) -> None:
        """Raise InputError unless these items are ranked by what was calibrated.

        criterion, parameters: its name and settings. files: "items" and, where the criterion takes one, "reference".
        """
        plain = json.loads(json.dumps(dict(parameters)))
        here = {"criterion": criterion, "parameters": plain, "normalize": normalize}
        here |= {
            side: files[side].fingerprint(whole=True) if side in files else None for side in ("items", "reference")
        }
        there = {name: self.record[name] for name in ("criterion", "parameters", "normalize")}
        there |= {side: (self.record[side] or {}).get("fingerprint") for side in ("items", "reference")}
        other = [name for name, value in here.items() if value != there[name]]
        require(
            not other,
            f"calibration: {self.path} holds for other {' and other '.join(other)} "
            f"({', '.join(f'{one} {there[one]!r} there, {here[one]!r} here' for one in other)}). Calibrate again with "
            "the items, the reference and the settings of this ranking",
        )

    def applied(self, best_scores: Tensor, accept: float | None) -> tuple[Tensor, dict[str, Any]]:
        """The p values (Q,) of queries' best scores (Q,), and what the record of their ranking says of them.

        accept: a rate of false accepts; None for p values only.
        """
        p_values = self.calibration.p_values(best_scores)
        rates = sorted({*self.rates, *(() if accept is None else (accept,))})
        return p_values, {
            "path": self.path,
            "score": self.record.get("score"),
            "accept": accept,
            "threshold": None if accept is None else self.calibration.threshold(accept),
            "accepted": None if accept is None else int((p_values <= accept).sum()),
            **stored(self.calibration, rates),
        }


def calibration_record(calibration: Calibration, rates: list[float]) -> dict[str, Any]:
    """The part of a record that holds a calibration, with the threshold of each rate."""
    return {
        "calibration_queries": len(calibration),
        "rates": [
            {
                "false_accept": rate,
                "threshold": calibration.threshold(rate),
                "accepted": calibration.accepted_share(rate),
                "interval": calibration.accepted_interval(rate),
            }
            for rate in rates
        ],
        "no_better": calibration.no_better(rates),
        **{name: getattr(calibration, name).tolist() for name in _SCORES},
    }
