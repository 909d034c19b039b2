"""Measuring a model on a split: shared by `train` at its end, `evaluate` and the studies."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vsehub import __version__
from vsehub.checks import one_of, require
from vsehub.cli.build import fitting, restore_model, trained_source
from vsehub.criteria.base import Criterion
from vsehub.data.overlap import warn_of_shared
from vsehub.data.sources import SPLITS
from vsehub.evaluation.checkpoint import Model, checkpoint_file
from vsehub.evaluation.encode import EncodedSplit, encode_split
from vsehub.evaluation.ensemble import MeanSimilarity, together
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.tune import tune
from vsehub.io.records import EVALUATION
from vsehub.training.datamodule import RetrievalDataModule

REFERENCES = {
    "queries": ("transductive", "the {split} queries themselves, fold by fold"),
    "train": ("inductive", "all training queries"),
}


class Encodings:
    """The splits of a data module as a model encodes them, each encoded once when first asked for.

    checkpoint: the model's file, by whose SHA-256 records name it. sha256: as it was when the model was read, where it
    may have been replaced since.
    """

    def __init__(
        self,
        model: Model,
        data: RetrievalDataModule,
        checkpoint: str | Path,
        accelerator: str = "auto",
        sha256: str | None = None,
    ):
        model.to(_device(accelerator)).eval()
        self.model, self.data, self.similarity = model, data, model.similarity
        self.checkpoint, self._sha256 = Path(checkpoint), sha256
        self._found: dict[str, EncodedSplit] = {}

    def __call__(self, split: str) -> EncodedSplit:
        if split not in self._found:
            encoders = self.model.image_encoder, self.model.text_encoder
            loaded, table = self.data.load(split)
            batch_size = self.data.eval_batch_size
            self._found[split] = encode_split(*encoders, fitting(self.model, loaded), table, batch_size, True)
        return self._found[split]

    @cached_property
    def sha256(self) -> list[str]:
        """Of the checkpoint."""
        if self._sha256 is not None:
            return [self._sha256]
        with self.checkpoint.open("rb") as file:
            return [hashlib.file_digest(file, "sha256").hexdigest()]


class EnsembleEncodings:
    """The splits as each of several models encodes them; `Encodings` of one source, whose splits are loaded once."""

    def __init__(self, members: Sequence[Encodings]):
        self.members, self.data = members, members[0].data
        self.similarity = MeanSimilarity([member.similarity for member in members])

    def __call__(self, split: str) -> EncodedSplit:
        return together([member(split) for member in self.members])

    @cached_property
    def sha256(self) -> list[str]:
        """Of the checkpoints, in an order of their own: an ensemble is the same in any."""
        return sorted(sha256 for member in self.members for sha256 in member.sha256)


def encodings_of(
    checkpoint: str | Path, changes: Any = None, batch_size: int = 256, trust: Any = None, like: Encodings | None = None
) -> Encodings:
    """The splits that a checkpoint was trained on, as its model encodes them.

    changes: settings of its data that have changed since, e.g. {"root": FOLDER}. like: encodings of the same data by
    another model, whose loaded splits are taken. Raises InputError where the checkpoint or a change cannot be used.
    """
    path = checkpoint_file(checkpoint)
    before = _stamp(path)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    model, trained, vocabulary = restore_model(checkpoint, trust)
    require(
        _stamp(path) == before,
        f"checkpoint: {path} changed while it was read. Give the command again when nothing writes to it any more",
    )
    source = trained_source(trained, changes or {}, trust) if like is None else like.data.source
    data = RetrievalDataModule(source, eval_batch_size=batch_size, max_words=trained["loader"]["max_words"])
    data.use_vocabulary(vocabulary)
    if like is not None:
        data.splits = like.data.splits
    return Encodings(model, data, checkpoint, sha256=sha256)


def _stamp(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


@dataclass(frozen=True)
class Measurement:
    """What is to be measured: a split under a criterion, which reports call `name`, and a protocol.

    reference: "queries" lets the criterion see the queries (transductive), "train" the training queries (inductive).
    tuned: the criterion's settings are chosen on the validation split first. Raises InputError where that is the split
    to measure, or the reference holds the queries themselves.
    """

    split: str
    criterion: Criterion
    name: str
    protocol: Protocol
    reference: str = "queries"
    tuned: bool = False

    def __post_init__(self):
        one_of("split", self.split, SPLITS)
        one_of("reference", self.reference, tuple(REFERENCES))
        for name, text in (("criterion_name", self.name), ("protocol.name", self.protocol.name)):
            require(
                isinstance(text, str) and text.strip(".") != "" and "/" not in text and "\0" not in text,
                f"{name} is {text!r}; expected a name that can be part of a file's name, without /",
            )
        require(not (self.tuned and self.split == "val"), "split=val is what tune=true chooses on; measure split=test")
        require(
            not (self.inductive and self.split == "train"),
            "reference=train with split=train: the reference holds the queries themselves, which is transductive; "
            "give reference=queries, or another split",
        )

    @property
    def inductive(self) -> bool:
        """Whether the criterion takes training queries as its reference."""
        return self.reference == "train" and self.criterion.needs_reference

    @property
    def seen(self) -> tuple[str, str]:
        """Whose scores the criterion sees: "transductive", "inductive" or "none", and in words."""
        asked = self.criterion.needs_reference or self.criterion.matching is not None
        kind, words = REFERENCES["train" if self.inductive else "queries"] if asked else ("none", "none")
        return kind, words.format(split=self.split)

    def settings(self, encodings: Encodings | EnsembleEncodings) -> dict[str, Any]:
        """All that decides the figures, in plain values: equal settings are the same measurement."""
        used = [self.split, *(["train"] if self.inductive else []), *(["val"] if self.tuned else [])]
        return {
            "vsehub": __version__,
            "split": self.split,
            "protocol": asdict(self.protocol),
            "criterion": [self.name, type(self.criterion).__name__, self.criterion.parameters()],
            "tuned": self.tuned,
            "reference": self.seen[0],
            "checkpoints": encodings.sha256,
            "data": {split: encodings.data.load(split)[0].fingerprint() for split in used},
        }

    def file(self, encodings: Encodings | EnsembleEncodings, folder: Path) -> Path:
        """Where the record of this measurement belongs, by a digest of all its settings.

        Raises InputError where the split has too few images for the protocol.
        """
        self.protocol.slices(len(encodings.data.load(self.split)[0].images))
        text = json.dumps(self.settings(encodings), sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        named = [self.split, self.protocol.name, self.name, *(["tuned"] if self.tuned else [])]
        kind, models = self.seen[0], len(encodings.sha256)
        named += ([] if kind == "none" else [kind]) + ([f"ensemble-of-{models}"] if models > 1 else [])
        return folder / f"{'-'.join(named)}-{digest}.json"


def measure(encodings: Encodings | EnsembleEncodings, asked: Measurement, each_image: bool = False) -> dict:
    """The record of a measurement: what was measured, how, and the figures.

    each_image: the record also has "contributions", each image's part of rsum. Raises InputError where the split does
    not fit the protocol.
    """
    start = time.perf_counter()
    criterion, protocol, similarity = asked.criterion, asked.protocol, encodings.similarity
    loaded = encodings.data.load(asked.split)[0]
    protocol.slices(len(loaded.images))  # too few images are said before the work
    bank = encodings("train") if asked.inductive else None
    if asked.inductive:  # queries that stand in their own reference make the figures too good
        warn_of_shared({"train": encodings.data.load("train")[0], asked.split: loaded})
    choice = None
    if asked.tuned:
        found = tune(criterion, encodings("val"), similarity, protocol, bank, progress=True)
        criterion = found.criterion
        choice = {"split": "val", "rsum": found.rsum, "tried": [[settings, rsum] for settings, rsum in found.tried]}
    queries = encodings(asked.split)
    ranked = time.perf_counter()
    result = evaluate(queries, similarity, criterion, protocol, bank)
    kind, words = asked.seen
    images = protocol.images(len(loaded.images))
    return {
        "schema": EVALUATION.version,
        "vsehub": __version__,
        "split": asked.split,
        "protocol": protocol.name,
        "fold_images": protocol.fold_images,
        "folds": protocol.folds,
        "criterion": asked.name,
        "parameters": criterion.parameters(),
        "tuned": choice,
        "reference": kind,
        "reference_set": words,
        "images": images,
        "texts": len(loaded.captions) if images == len(loaded.images) else int((loaded.image_index < images).sum()),
        "checkpoints": encodings.sha256,
        "seconds": time.perf_counter() - start,
        "ranking_seconds": time.perf_counter() - ranked,
        "metrics": result.metrics,
        "histograms": result.histograms,
    } | ({"contributions": result.contributions} if each_image else {})


def table(record: dict) -> str:
    """The figures as a small table for the terminal."""
    figures = record["metrics"]
    lines = [
        f"{record['split']}: {record['images']} images, {record['texts']} texts, protocol {record['protocol']}, "
        f"criterion {record['criterion']}"
        + (f", ensemble of {len(record['ensemble'])}" if record.get("ensemble") else "")
        + ("" if record["reference"] == "none" else f" ({record['reference']}: {record['reference_set']})"),
        "               R@1    R@5   R@10  Med r  Mean r  skew N_10",
    ]
    for direction, name in (("i2t", "image to text"), ("t2i", "text to image")):
        recalls = "".join(f"{figures[f'{direction}/r{k}']:7.1f}" for k in (1, 5, 10))
        rest = f"{figures[f'{direction}/medr']:7.1f}{figures[f'{direction}/meanr']:8.1f}"
        lines.append(f"{name:<13}{recalls}{rest}{figures[f'hubness/{direction}/skew_10']:11.2f}")
    return "\n".join([*lines, f"rsum {figures['rsum']:.1f}   hs_sum {figures['hubness/hs_sum']:.2f}"])


def _device(accelerator: str) -> torch.device:
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")
