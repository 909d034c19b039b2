"""The grid's pilot: each loss's settings by four short trainings a loss, compared on the validation split alone.

Every loss gets the same budget: two learning rates x two settings of its own, those its papers print where they print
two.
"""

import json
from pathlib import Path

import pandas as pd

from experiments.compare import loss_overrides
from experiments.running import status
from experiments.study import run_folder
from vsehub.checks import existing, require

HERE = Path(__file__).parent

RATES = ("0.0005", "0.001")
MARGINS = (["loss.margin=0.05"], ["loss.margin=0.2"])  # AAAI table 3: Flickr30k, COCO
WEIGHTS = (["loss.gamma=60", "loss.epsilon=0.7"], ["loss.gamma=30", "loss.epsilon=0.3"])  # Flickr30k, COCO
OWN = {
    "sum": MARGINS,
    "max": MARGINS,
    "knn_margin": MARGINS,
    "rescaled": (["loss=rescaled_sum"], ["loss=rescaled_max"]),
    "hal": WEIGHTS,
    "hal+mb": WEIGHTS,
    "infonce": (["+loss.learnable=true"], ["+loss.learnable=false"]),
    "siglip": (["+loss.bias=-10"], ["+loss.bias=-5"]),
}
PILOT = ("embedding_dim=512", "trainer.max_epochs=5", "scheduler.step_size=4", "final_split=val")


def tries() -> dict[str, tuple[str, str, list[str]]]:
    """Each try of the pilot: its loss, its rate and its own settings."""
    return {
        f"{loss}-{number}-{rate}": (loss, rate, settings)
        for loss, choices in OWN.items()
        for number, settings in enumerate(choices)
        for rate in RATES
    }


def overrides(loss: str, rate: str, settings: list[str]) -> list[str]:
    """Overrides of `vsehub train` for a loss; settings that name the loss replace its label."""
    named = [setting for setting in settings if setting.startswith("loss=")]
    rest = [setting for setting in settings if setting not in named]
    return [*([*named, "bank=none"] if named else loss_overrides(loss)), f"optimizer.lr={rate}", *rest]


def tried(out: Path) -> pd.DataFrame:
    """A row a run: loss, learning rate, all overrides, and what it reached on val. InputError where one is missing."""
    rows = []
    for name, (loss, rate, settings) in tries().items():
        folder = run_folder(out, name, 0)
        require(status(folder) == "finished", f"{folder} is not finished; run the pilot to its end")
        record = json.loads((folder / "run.json").read_text())
        best = record["best"]
        row = {
            "loss": loss,
            "rate": rate,
            "overrides": " ".join(overrides(loss, rate, settings)),
            "seed": record["seed"],
        }
        rows.append(row | {"epochs": record["epochs"], "best_epoch": best["epoch"], "val_rsum": best["val/rsum"]})
    return pd.DataFrame(rows)


def best_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of each loss with the largest rsum on val; of equal ones the first tried."""
    return frame.loc[frame.groupby("loss", sort=False)["val_rsum"].idxmax()]


def chosen(path: Path = HERE / "settings.csv") -> dict[str, list[str]]:
    """Overrides of `vsehub train` for each loss of the grid, by the pilot's choice."""
    hint = "Run `python -m experiments grid train DATA --part pilot`, then choose"
    frame = pd.read_csv(existing("settings", path, hint), dtype=str)
    return {row["loss"]: row["overrides"].split() for _, row in frame.iterrows()}
