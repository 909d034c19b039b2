"""The papers' figures in numbers: epochs to the plateau, the runs of one figure, correlation."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from vsehub.checks import require

TOLERANCE = 0.01
SWEPT = {"batch_size": "loader.batch_size", "k": "loss.k", "bank": "bank.fraction"}
PAPERS = {"k": 3.0, "bank": 0.05}  # the papers' values: of several runs of a loss, those that stand for it
OF_THE_LOSS = ("loss.", "bank.", "optimizer.")  # what may differ between two losses that are compared
NAMES = ("study",)


class Correlation(NamedTuple):
    """Pearson's r, Spearman's ρ, its two-sided p by 10,000 permutations, and the points; NaN if undefined."""

    pearson: float
    spearman: float
    p: float
    points: int


def plateau(curve: Sequence[float], tolerance: float = TOLERANCE) -> int:
    """The first epoch, counted from 1, whose value is within `tolerance`, a share, of the curve's best.

    Raises InputError for a value that is not finite.
    """
    values = np.asarray(curve, dtype=float)
    require(bool(np.isfinite(values).all()), "the curve holds a value that is not finite; leave that run out")
    best = values.max()
    return int(np.argmax(values >= best - tolerance * abs(best))) + 1


def correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Correlation of x and y.

    Fewer than three points, or a side whose values are all equal, have no correlation.
    """
    both = pd.DataFrame({"x": np.asarray(x, dtype=float), "y": np.asarray(y, dtype=float)}).dropna()
    if len(both) < 3 or both["x"].nunique() == 1 or both["y"].nunique() == 1:
        return Correlation(np.nan, np.nan, np.nan, len(both))
    x, y = both.rank().to_numpy().T
    pearson = np.corrcoef(both["x"], both["y"])[0, 1]
    spearman = stats.permutation_test(
        (x,), lambda ranks: np.corrcoef(ranks, y)[0, 1], permutation_type="pairings", n_resamples=10_000, rng=0
    )
    return Correlation(float(pearson), float(spearman.statistic), float(spearman.pvalue), len(both))


def digest(settings: Mapping[str, str], without: Collection[str] = ()) -> str:
    """Eight letters for a recipe. A setting that is null counts as absent, so that older configurations agree."""
    relevant = {key: value for key, value in settings.items() if value != "None" and key not in (*without, *NAMES)}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:8]


def place(settings: Mapping[str, str]) -> dict[str, str | float | None]:
    """Keys of a recipe: its digest, that of its budget (all but the loss's own), those without a swept setting,
    under `rest_NAME`, and the swept settings' values.
    """
    of_loss = [key for key in settings if key.startswith(OF_THE_LOSS)]
    return (
        {"recipe": digest(settings), "budget": digest(settings, of_loss)}
        | {f"rest_{name}": digest(settings, [key]) for name, key in SWEPT.items()}
        | {name: float(settings[key]) if key in settings else None for name, key in SWEPT.items()}
    )


def compared(runs: pd.DataFrame) -> pd.Index:
    """The index of the runs that compare the losses: those of one budget, a recipe a loss.

    runs: a row each; `place`'s columns, loss, seed and epochs. The budget is the one with most losses; of equal ones
    that with more runs, then with more epochs. Among a loss's recipes it is the one with the papers' values, then
    the one with most seeds.
    """
    if runs.empty:
        return runs.index
    budgets = runs.groupby("budget").agg(losses=("loss", "nunique"), runs=("seed", "size"), epochs=("epochs", "max"))
    order = budgets.reset_index().sort_values(["losses", "runs", "epochs", "budget"], ascending=False)
    inside = runs[runs["budget"] == order["budget"].iloc[0]]
    recipes = inside.groupby(["loss", "recipe"]).agg(seeds=("seed", "nunique"), **{n: (n, "first") for n in PAPERS})
    recipes["off"] = sum(
        (recipes[name].notna() & (recipes[name] != paper)).astype(int) for name, paper in PAPERS.items()
    )
    recipes = recipes.reset_index().sort_values(["loss", "off", "seeds", "recipe"], ascending=[True, True, False, True])
    return inside.index[inside["recipe"].isin(recipes.drop_duplicates("loss")["recipe"])]


def swept(runs: pd.DataFrame, name: str) -> pd.Index:
    """The index of the runs that differ in nothing but the setting `name` (one of SWEPT) and their seeds.

    For each loss those with the most values of it; of equal ones those with more runs. Losses of one value have none.
    """
    rows_left: list = []
    for _, of_loss in runs[runs[name].notna()].groupby("loss"):
        groups = of_loss.groupby(f"rest_{name}").agg(values=(name, "nunique"), runs=("seed", "size"))
        order = groups.reset_index().sort_values(["values", "runs", f"rest_{name}"], ascending=False)
        if order["values"].iloc[0] > 1:
            rows_left += list(of_loss.index[of_loss[f"rest_{name}"] == order[f"rest_{name}"].iloc[0]])
    return runs.index[runs.index.isin(rows_left)]
