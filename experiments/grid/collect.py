"""results.csv, comparisons.csv and recipes.csv of the grid from measurements.

comparisons.csv holds two kinds of family of paired tests: all pairs of losses under nns, and within each loss every
cell against nns, without the cells that are another's (`repeated`). recipes.csv has the settings in which the losses'
trainings differ.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.grid.tables import LOSSES, repeated
from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.recipes import differing, label_rank, recipe
from vsehub.report.runs import Run
from vsehub.report.statistics import compare

SIDES = ("i2t", "t2i")
METRICS = {f"{side}_r{k}": f"{side}/r{k}" for side in SIDES for k in (1, 5, 10)} | {
    "rsum": "rsum",
    "map_r_i2t": "i2t/map_r",
    "map_r_t2i": "t2i/map_r",
    "meanr_i2t": "i2t/meanr",
    "meanr_t2i": "t2i/meanr",
    "hs_sum": "hubness/hs_sum",
}
CELL = ["criterion", "reference", "settings"]


def collect(measured: Path, folder: Path) -> None:
    """Write the three tables into `folder`. Raises InputError where nothing is measured or measurements do not fit."""
    records = read(measured)
    frame = results(records)
    tables = {"results": frame, "comparisons": comparisons(records, frame), "recipes": recipes(records)}
    for name, table in tables.items():
        write_text(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))


def read(measured: Path) -> list[dict]:
    """All measurements, the papers' losses first. Raises InputError where they are not of one test split."""
    records = [json.loads(file.read_text()) for file in sorted(measured.glob("*/*.json"))]
    require(bool(records), f"{measured} holds no measurements; run `python -m experiments grid measure` first")
    for record in records:
        run, rsum = record["run"], record["metrics"]["rsum"]
        mean = sum(record["contributions"]) / len(record["contributions"])
        name = f"{run['label']}-{run['seed']}, {record['criterion']}"
        require(abs(mean - rsum) < 1e-3, f"{name}: the images' parts have mean {mean}, rsum is {rsum}; measure it anew")
    splits = {(record["run"]["data"]["test"]["fingerprint"], record["protocol"]) for record in records}
    require(len(splits) == 1, f"measurements of several test splits or protocols, {sorted(splits)}; keep them apart")
    return sorted(
        records, key=lambda record: (label_rank(record["run"]["label"]), record["run"]["seed"], *cell(record))
    )


def cell(record: dict) -> tuple[str, str, str]:
    """Criterion, reference and settings of a measurement, as CELL names them."""
    return record["criterion"], record["reference"], "tuned" if record["tuned"] else "default"


def results(records: list[dict]) -> pd.DataFrame:
    """One row a measurement, with what its training took."""
    rows = []
    for record in records:
        run = record["run"]
        rows.append(
            {"loss": run["label"], "seed": run["seed"]}
            | dict(zip(CELL, cell(record), strict=True))
            | {
                "parameters": json.dumps(record["parameters"]),
                "val_rsum": record["tuned"]["rsum"] if record["tuned"] else None,
                "inductive_form": record["inductive_form"],
                "dataset": run["dataset"],
                "architecture": run["architecture"],
                "split": record["split"],
                "images": record["images"],
                "texts": record["texts"],
                "protocol": record["protocol"],
                "seconds": record["ranking_seconds"],
                "train_seconds": run["wall_seconds"],
                "epochs": run["epochs"],
                "best_epoch": run["best"]["epoch"],
                "hardware": run["hardware"]["gpu"] or run["hardware"]["cpu"],
            }
            | {name: record["metrics"][key] for name, key in METRICS.items()}
        )
    return pd.DataFrame(rows)


def comparisons(records: list[dict], frame: pd.DataFrame) -> pd.DataFrame:
    """Both families' paired tests, the column `family` naming theirs: LOSSES, or "criteria after LOSS"."""
    parts: dict[tuple, dict[int, np.ndarray]] = {}
    for record in records:
        part_of = parts.setdefault((record["run"]["label"], *cell(record)), {})
        part_of[record["run"]["seed"]] = np.array(record["contributions"])
    plain = ("nns", "none", "default")
    rsum = frame[frame["criterion"] == "nns"].groupby("loss", sort=False)["rsum"].mean()
    losses = list(rsum.sort_values(ascending=False, kind="stable").index)
    cases = {loss: parts[loss, *plain] for loss in losses}
    families = [(LOSSES, compare(cases, list(itertools.combinations(losses, 2))))]
    for loss in rsum.index:
        cases = {
            " ".join(rest): part_of
            for (label, *rest), part_of in parts.items()
            if label == loss and not repeated(*rest[:2])
        }
        pairs = [(name, " ".join(plain)) for name in cases if name != " ".join(plain)]
        families.append((f"criteria after {loss}", compare(cases, pairs)))
    return pd.concat([table.assign(family=family) for family, table in families], ignore_index=True)


def recipes(records: list[dict]) -> pd.DataFrame:
    """A row a setting in which losses differ, a column a loss. InputError where the seeds of one loss do."""
    recipes_of: dict[str, dict[str, str]] = {}
    for record in records:
        label = record["run"]["label"]
        settings = recipe(Run(label, record["run"], {}, pd.DataFrame()))
        known = recipes_of.setdefault(label, settings)
        keys = differing([known, settings])
        require(not keys, f"{label} was trained in several ways: {', '.join(keys)} differ; keep them apart")
    rows = [[key, *(settings.get(key) for settings in recipes_of.values())] for key in differing(recipes_of.values())]
    return pd.DataFrame(rows, columns=["setting", *recipes_of])
