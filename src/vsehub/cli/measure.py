"""Evaluating a module on a split: shared by `train` at its end and `evaluate`."""

import time
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from vsehub.checks import one_of
from vsehub.cli.build import plain
from vsehub.evaluation.encode import encode_split
from vsehub.evaluation.evaluate import evaluate
from vsehub.files import write_json
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

SCHEMA = 1
REFERENCES = {
    "queries": ("transductive", "the {split} queries themselves, fold by fold"),
    "train": ("inductive", "all training queries"),
}


def measure(
    module: RetrievalModule,
    data: RetrievalDataModule,
    split: str,
    criterion: DictConfig,
    criterion_name: str,
    protocol: DictConfig,
    reference: str,
    accelerator: str = "auto",
) -> dict:
    """The evaluation record of a split: what was measured, how, and the figures.

    reference: "queries" lets the criterion see the queries (transductive), "train" the training queries (inductive).
    Raises InputError where the split does not fit the protocol.
    """
    one_of("reference", reference, tuple(REFERENCES))
    rule, folds = instantiate(criterion), instantiate(protocol)
    start = time.perf_counter()
    module.to(_device(accelerator)).eval()

    def encoded(name: str):
        return encode_split(module.image_encoder, module.text_encoder, *data.load(name), data.eval_batch_size, True)

    loaded = data.load(split)[0]
    folds.slices(len(loaded.images))  # too few images are said before the work
    inductive = reference == "train" and rule.needs_reference
    result = evaluate(encoded(split), module.similarity, rule, folds, encoded("train") if inductive else None)
    kind, words = REFERENCES[reference] if rule.needs_reference else ("none", "none")
    return {
        "schema": SCHEMA,
        "split": split,
        "protocol": folds.name,
        "criterion": criterion_name,
        "parameters": {name: value for name, value in plain(criterion).items() if name != "_target_"},
        "reference": kind,
        "reference_set": words.format(split=split),
        "images": len(loaded.images),
        "texts": len(loaded.captions),
        "folds": folds.folds,
        "seconds": time.perf_counter() - start,
        "metrics": result.metrics,
        "histograms": result.histograms,
    }


def save(record: dict, folder: Path) -> Path:
    """Write a record under a name that tells what it measured."""
    settings = "".join(
        f"-{name}{value:g}" if isinstance(value, int | float) else f"-{name}-{value}"
        for name, value in record["parameters"].items()
    )
    kind = "" if record["reference"] == "none" else f"-{record['reference']}"
    path = folder / f"{record['split']}-{record['protocol']}-{record['criterion']}{settings}{kind}.json"
    write_json(path, record)
    return path


def table(record: dict) -> str:
    """The figures as a small table for the terminal."""
    figures = record["metrics"]
    lines = [
        f"{record['split']}: {record['images']} images, {record['texts']} texts, protocol {record['protocol']}, "
        f"criterion {record['criterion']}"
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
