"""Evaluating a module on a split: shared by `train` at its end and `evaluate`."""

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from vsehub.checks import one_of, require
from vsehub.cli.build import fitting
from vsehub.criteria.parameters import parameters
from vsehub.evaluation.encode import EncodedSplit, encode_split
from vsehub.evaluation.ensemble import MeanSimilarity, together
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.fit import fit
from vsehub.files import write_json
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

SCHEMA = 1
REFERENCES = {
    "queries": ("transductive", "the {split} queries themselves, fold by fold"),
    "train": ("inductive", "all training queries"),
}


class Encodings:
    """The splits of a data module as a module encodes them, each encoded once when first asked for."""

    def __init__(self, module: RetrievalModule, data: RetrievalDataModule, accelerator: str = "auto"):
        module.to(_device(accelerator)).eval()
        self.module, self.data, self.similarity = module, data, module.similarity
        self._found: dict[str, EncodedSplit] = {}

    def __call__(self, split: str) -> EncodedSplit:
        if split not in self._found:
            encoders = self.module.image_encoder, self.module.text_encoder
            loaded, table = self.data.load(split)
            batch_size = self.data.eval_batch_size
            self._found[split] = encode_split(*encoders, fitting(self.module, loaded), table, batch_size, True)
        return self._found[split]


class EnsembleEncodings:
    """The splits as each of several models encodes them; `Encodings` of one source, whose splits are loaded once."""

    def __init__(self, members: Sequence[Encodings]):
        self.members, self.data = members, members[0].data
        self.similarity = MeanSimilarity([member.similarity for member in members])

    def __call__(self, split: str) -> EncodedSplit:
        return together([member(split) for member in self.members])


def measure(
    encodings: Encodings | EnsembleEncodings,
    split: str,
    criterion: DictConfig,
    criterion_name: str,
    protocol: DictConfig,
    reference: str,
    fitted: bool = False,
    each_image: bool = False,
) -> dict:
    """The evaluation record of a split: what was measured, how, and the figures.

    reference: "queries" lets the criterion see the queries (transductive), "train" the training queries (inductive).
    fitted: the criterion's settings are chosen on the validation split first. each_image: the record also has
    "contributions", each image's part of rsum. Raises InputError where the split does not fit the protocol, is
    validation itself although settings are fitted there, or is the reference itself.
    """
    one_of("reference", reference, tuple(REFERENCES))
    require(not (fitted and split == "val"), "split=val is what fit=true chooses on; measure split=test")
    rule, folds = instantiate(criterion), instantiate(protocol)
    inductive = reference == "train" and rule.needs_reference
    require(
        not (inductive and split == "train"),
        "reference=train with split=train: the reference holds the queries themselves, which is transductive; "
        "give reference=queries, or another split",
    )
    start = time.perf_counter()
    loaded = encodings.data.load(split)[0]
    folds.slices(len(loaded.images))  # too few images are said before the work
    bank, similarity = encodings("train") if inductive else None, encodings.similarity
    choice = None
    if fitted:
        found = fit(rule, encodings("val"), similarity, folds, bank, progress=True)
        rule = found.criterion
        choice = {"split": "val", "rsum": found.rsum, "tried": [[settings, rsum] for settings, rsum in found.tried]}
    queries = encodings(split)
    ranked = time.perf_counter()
    result = evaluate(queries, similarity, rule, folds, bank)
    kind, words = REFERENCES[reference] if rule.needs_reference else ("none", "none")
    if rule.matching is not None:  # the queries are matched with each other in view
        kind, words = REFERENCES["queries"]
    return {
        "schema": SCHEMA,
        "split": split,
        "protocol": folds.name,
        "criterion": criterion_name,
        "parameters": parameters(rule),
        "fit": choice,
        "reference": kind,
        "reference_set": words.format(split=split),
        "images": len(loaded.images),
        "texts": len(loaded.captions),
        "folds": folds.folds,
        "seconds": time.perf_counter() - start,
        "ranking_seconds": time.perf_counter() - ranked,
        "metrics": result.metrics,
        "histograms": result.histograms,
    } | ({"contributions": result.contributions} if each_image else {})


def save(record: dict, folder: Path) -> Path:
    """Write a record under a name that tells what it measured, and for an ensemble which models did."""
    settings = "".join(f"-{name}{_in_a_name(value)}" for name, value in record["parameters"].items())
    fitted = "-fitted" if record["fit"] else ""
    kind = "" if record["reference"] == "none" else f"-{record['reference']}"
    path = folder / (
        f"{record['split']}-{record['protocol']}-{record['criterion']}{settings}{fitted}{kind}{_members(record)}.json"
    )
    write_json(path, record)
    return path


def _members(record: dict) -> str:
    """ "-ensemble-of-2-1a2b3c": the same for the same checkpoints in any order."""
    members = record.get("ensemble")
    if not members:
        return ""
    names = "\n".join(sorted(member["checkpoint"] for member in members))
    return f"-ensemble-of-{len(members)}-{hashlib.sha256(names.encode()).hexdigest()[:6]}"


def _in_a_name(value: Any) -> str:
    """A setting's value in a file's name: "0.5", "-proportional", "1_2-5_1.5" for one value each k."""
    if isinstance(value, dict):
        return "-".join(f"{k}_{_in_a_name(one)}" for k, one in value.items())
    return f"{value:g}" if isinstance(value, int | float) else f"-{re.sub('[^A-Za-z0-9.]+', '_', str(value))}"


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
