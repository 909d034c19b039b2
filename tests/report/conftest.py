"""Synthetic run folders, as training and evaluation write them."""

import json
from pathlib import Path

import numpy as np
import pytest

from vsehub.io.records import EVALUATION, RUN

DIRECTIONS = ("i2t", "t2i")


def histogram(rng: np.random.Generator, queries: int, items: int, k: int) -> dict:
    """The k-occurrences of `items` of which some are much more popular than others."""
    popularity = rng.lognormal(sigma=1.2, size=items)
    counts = np.bincount(rng.choice(items, size=queries * k, p=popularity / popularity.sum()), minlength=items)
    occurrences, number = np.unique(counts, return_counts=True)
    return {"occurrences": occurrences.tolist(), "items": number.tolist()}


def evaluation(rsum: float, seed: int = 0, criterion: str = "nns", **changes) -> dict:
    """An evaluation of 500 images and 2,500 texts whose recalls follow from rsum."""
    rng = np.random.default_rng(seed)
    metrics: dict[str, float] = {"rsum": rsum, "hubness/hs_sum": 2000 / rsum}
    for side, share in zip(DIRECTIONS, (1.1, 0.9), strict=True):
        for rank, weight in (("r1", 0.5), ("r5", 1.1), ("r10", 1.4)):
            metrics[f"{side}/{rank}"] = rsum / 6 * share * weight
        metrics |= {f"{side}/medr": 3.0, f"{side}/meanr": 4000 / rsum, f"hubness/{side}/skew_1": 2.5}
    return {
        "schema": EVALUATION.version,
        "split": "test",
        "protocol": "single",
        "criterion": criterion,
        "parameters": {},
        "reference": "none",
        "reference_set": None,
        "images": 500,
        "texts": 2500,
        "fold_images": None,
        "folds": 1,
        "checkpoints": ["5a5a"],
        "seconds": 1.2,
        "metrics": metrics,
        "histograms": {
            side: {str(k): histogram(rng, *sizes, k) for k in (1, 5, 10)}
            for side, sizes in {"i2t": (500, 2500), "t2i": (2500, 500)}.items()
        },
    } | changes


@pytest.fixture
def write_run(tmp_path):
    """A function that writes a run folder below tmp_path / "runs" and returns its path."""

    def write(
        label="hal", seed=0, rsums=(300.0,), epochs=4, config=None, folder=None, evaluations=None, **changes
    ) -> Path:
        name = changes.get("name", f"scenes-{label}-{seed}")
        path = tmp_path / "runs" / (folder or name)
        (path / "evaluations").mkdir(parents=True)
        data = {"images": 2000, "captions": 10000, "fingerprint": "ab12cd34ef56"}
        record = {
            "schema": RUN.version,
            "status": "finished",
            "name": name,
            "label": label,
            "dataset": "scenes",
            "architecture": "gru+image_cnn",
            "seed": seed,
            "vsehub": "0.1.0",
            "git": {"sha": "0123456789abcdef", "dirty": False},
            "versions": {"torch": "2.11.0", "python": "3.11.2"},
            "hardware": {"cpu": "Some CPU", "cores": 2, "gpu": None, "memory_gb": 23},
            "started": "2025-01-02T03:04:05",
            "wall_seconds": 60.0 + seed,
            "epochs": epochs,
            "command": f"vsehub train loss={label} seed={seed}",
            "config": {
                "seed": seed,
                "run_name": name,
                "run_folder": str(path),
                "logger": {"save_dir": str(path)},
                "bank": {"seed": seed},
                "loss": {"_target_": f"vsehub.losses.{label}"},
                "optimizer": {"lr": 0.001},
                "trainer": {"max_epochs": epochs, "accelerator": f"gpu{seed}"},
                "data": {"batch_size": 128},
            }
            | (config or {}),
            "data": {"train": data, "test": {"images": 500, "captions": 2500, "fingerprint": "99aa"}},
            "best": {"epoch": epochs - 1, "val/rsum": rsums[0] if rsums else None},
            "metrics": {},
        } | changes
        (path / "run.json").write_text(json.dumps(record))
        if evaluations is None:
            evaluations = [evaluation(rsum, seed) for rsum in rsums]
        for number, entry in enumerate(evaluations):
            (path / "evaluations" / f"{entry['split']}-{entry['criterion']}-{number}.json").write_text(
                json.dumps(entry)
            )
        lines = ["epoch,step,train/loss,val/rsum"]
        for epoch in range(epochs):
            reached = (rsums[0] if rsums else 200.0) * (1 - 0.6 * 0.5**epoch) + seed
            lines += [f"{epoch},{epoch * 10},{1 / (epoch + 1)},", f"{epoch},{epoch * 10 + 9},,{reached}"]
        (path / "metrics.csv").write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture(scope="session")
def make_evaluation():
    """The function `evaluation`."""
    return evaluation
