"""Measuring a trained model: the settings of a measurement, and its record."""

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vsehub import __version__
from vsehub.checks import one_of, require
from vsehub.criteria import Auto, Criterion
from vsehub.data.contents import warn_of_shared
from vsehub.data.sources import SPLITS
from vsehub.evaluation.ensemble import Ensemble
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.tune import Tuned, choose, tune
from vsehub.io.records import EVALUATION
from vsehub.models.encode import EncodedSplit
from vsehub.models.trained import DataModel

REFERENCES = {
    "queries": ("transductive", "the {split} queries themselves, fold by fold"),
    "train": ("inductive", "all training queries"),
}
# The reference items of criteria that take them, by the same keys.
REFERENCE_ITEMS = {"queries": "the items themselves", "train": "all training items"}


@dataclass(frozen=True)
class Measurement:
    """The settings of a measurement: a split, a criterion, its `name` in reports, and a protocol.

    reference: "queries" fits the criterion on the queries (transductive), "train" on the training queries (inductive).
    tuned: first choose the criterion's settings on the validation split, as an `Auto` always does; "matching": only
    those of its matching. Raises InputError if validation is the split to choose on and to measure, or if the reference
    holds the queries themselves.
    """

    split: str
    criterion: Criterion
    name: str
    protocol: Protocol
    reference: str = "queries"
    tuned: bool | str = False

    def __post_init__(self) -> None:
        one_of("split", self.split, SPLITS)
        one_of("reference", self.reference, tuple(REFERENCES))
        one_of("tune", self.tuned, (False, True, "matching"))
        require(
            not (self.chooses and self.split == "val"),
            "split=val is what tune=true and criterion=auto choose on; measure split=test",
        )
        require(
            not (self.inductive and self.split == "train"),
            "reference=train with split=train: the reference holds the queries themselves, which is transductive; "
            "give reference=queries, or another split",
        )

    @property
    def chooses(self) -> bool:
        """True if settings or the criterion itself are chosen on the validation split."""
        return bool(self.tuned) or isinstance(self.criterion, Auto)

    @property
    def inductive(self) -> bool:
        """True if the criterion takes training queries as its reference."""
        return self.reference == "train" and self.criterion.needs_reference

    @property
    def reference_description(self) -> tuple[str, str]:
        """The reference of the criterion: "transductive", "inductive" or "none", and a description."""
        takes_reference = self.criterion.needs_reference or self.criterion.matching is not None
        key = "train" if self.inductive else "queries"
        kind, text = REFERENCES[key] if takes_reference else ("none", "none")
        if self.criterion.takes_reference_items:
            text += f"; {REFERENCE_ITEMS[key]}"
        return kind, text.format(split=self.split)

    def record_path(self, model: DataModel | Ensemble, folder: Path) -> Path:
        """The path of this measurement's record, named after a digest of everything that affects the metrics."""
        uses = {"train": self.inductive, "val": self.chooses, self.split: True}
        kind, models = self.reference_description[0], len(model.digests)
        settings = {
            "vsehub": __version__,
            "split": self.split,
            "protocol": asdict(self.protocol),
            "criterion": [self.name, type(self.criterion).__name__, self.criterion.parameters()],
            "tuned": self.tuned,
            "reference": kind,
            "checkpoints": model.digests,
            "data": {split: model.split(split).fingerprint() for split, used in uses.items() if used},
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:10]
        named = [
            self.split,
            self.protocol.name,
            self.name,
            "tuned" if self.tuned else "",
            "" if kind == "none" else kind,
            f"ensemble-of-{models}" if models > 1 else "",
            digest,
        ]
        return folder / f"{'-'.join(filter(None, named))}.json"


def measure(model: DataModel | Ensemble, measurement: Measurement) -> dict[str, Any]:
    """Measure a model; returns the record: settings, metrics and distributions.

    Its "contributions" are each image's part of rsum, for paired tests. Raises InputError if the split does not fit
    the protocol, or the criterion the similarity.
    """
    start = time.perf_counter()
    protocol = measurement.protocol
    loaded = model.split(measurement.split)
    protocol.slices(len(loaded.images))  # raises for too few images before the work begins
    reference = None
    if measurement.inductive:  # queries in their own reference make the metrics too good
        reference = model.encode("train")
        warn_of_shared({"train": model.split("train"), measurement.split: loaded})
    choice = choose_on_validation(model, measurement, reference) if measurement.chooses else None
    criterion = measurement.criterion if choice is None else choice.criterion
    encoded = model.encode(measurement.split)
    ranking_start = time.perf_counter()
    result = evaluate(encoded, model.similarity, criterion, protocol, reference)
    kind, reference_text = replace(measurement, criterion=criterion).reference_description  # of the chosen criterion
    images = protocol.image_count(len(loaded.images))
    return {
        "schema": EVALUATION.version,
        "vsehub": __version__,
        "split": measurement.split,
        "protocol": protocol.name,
        "fold_images": protocol.fold_images,
        "folds": protocol.folds,
        "criterion": measurement.name,
        "parameters": criterion.parameters() if choice is None else choice.parameters,
        "tuned": None if choice is None else {"split": "val", "rsum": choice.rsum, "tried": choice.tried},
        "matching": criterion.matching is not None,
        "reference": kind,
        "reference_set": reference_text,
        "images": images,
        "texts": len(np.unique(loaded.pairs[loaded.pairs[:, 0] < images, 1])),
        "checkpoints": model.digests,
        **model.description,
        "seconds": time.perf_counter() - start,
        "ranking_seconds": time.perf_counter() - ranking_start,
        "metrics": result.metrics,
        "histograms": result.histograms,
        "contributions": [round(part, 4) for part in result.contributions],
    }


def choose_on_validation(
    model: DataModel | Ensemble, measurement: Measurement, reference: EncodedSplit | None
) -> Tuned:
    """The criterion's settings, or for an `Auto` the criterion itself, chosen on the validation split."""
    validation = model.encode("val"), model.similarity, measurement.protocol, reference
    if isinstance(measurement.criterion, Auto):
        return choose(measurement.criterion, *validation)
    return tune(measurement.criterion, *validation, only_matching=measurement.tuned == "matching")


def table(record: dict[str, Any]) -> str:
    """The metrics as a table for the terminal."""
    metrics, tried = record["metrics"], record["tuned"]["tried"] if record["tuned"] else []
    chosen = {key for settings, _ in tried for key in settings}
    shown = ", ".join(f"{key} {value}" for key, value in record["parameters"].items() if key in chosen)
    how = f" (chosen on val: {shown.removeprefix('criterion ')})" if shown else ""
    ensemble = f", ensemble of {len(record['ensemble'])}" if record.get("ensemble") else ""
    reference = "" if record["reference"] == "none" else f" ({record['reference']}: {record['reference_set']})"
    lines = [
        f"{record['split']}: {record['images']} images, {record['texts']} texts, protocol {record['protocol']}, "
        f"criterion {record['criterion']}{how}{ensemble}{reference}",
        "               R@1    R@5   R@10  Med r  Mean r  skew N_10",
    ]
    for direction, name in (("i2t", "image to text"), ("t2i", "text to image")):
        recalls = "".join(f"{metrics[f'{direction}/r{k}']:7.1f}" for k in (1, 5, 10))
        rest = f"{metrics[f'{direction}/medr']:7.1f}{metrics[f'{direction}/meanr']:8.1f}"
        lines.append(f"{name:<13}{recalls}{rest}{metrics[f'hubness/{direction}/skew_10']:11.2f}")
    return "\n".join([*lines, f"rsum {metrics['rsum']:.1f}   hs_sum {metrics['hubness/hs_sum']:.2f}"])
