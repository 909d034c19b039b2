"""Choose each loss's settings for the grid: four short trainings a loss, compared on the validation split alone.

Every loss gets the same budget: two learning rates x two settings of its own, those its papers print where they print
two. What is finished is not done again.

    python experiments/grid/pilot.py DATA --out runs/grid-pilot
    python experiments/grid/pilot.py --collect --out runs/grid-pilot

The second writes pilot.csv (all that was tried) and settings.csv (what was chosen) beside this file.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.checks import existing, require
from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import loss_overrides  # noqa: E402 (beside this folder, found by the line above)
from running import run_all, status, training  # noqa: E402

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
    "infonce": (["loss.learnable=true"], ["loss.learnable=false"]),
    "siglip": (["loss.bias=-10"], ["loss.bias=-5"]),
}
SETTINGS = [
    "experiment=papers",
    "embedding_dim=512",
    "trainer.max_epochs=5",
    "scheduler.step_size=4",
    "seed=0",
    "final_split=val",
]


def runs(out: Path) -> dict[Path, tuple[str, str, list[str]]]:
    """Each run's folder; its loss, its rate and its own settings."""
    return {
        out / f"{loss}-{number}-{rate}": (loss, rate, own)
        for loss, choices in OWN.items()
        for number, own in enumerate(choices)
        for rate in RATES
    }


def overrides(loss: str, rate: str, own: list[str]) -> list[str]:
    """What `vsehub train` is told of a loss; own settings that name the loss itself take the label's place."""
    named = [one for one in own if one.startswith("loss=")]
    rest = [one for one in own if one not in named]
    return [*([*named, "bank=none"] if named else loss_overrides(loss)), f"optimizer.lr={rate}", *rest]


def settings(data: Path, loss: str, rate: str, own: list[str]) -> list[str]:
    """The overrides that train one run."""
    return [*overrides(loss, rate, own), "data=precomp", f"data.root={data}", "data.name=flickr8k", *SETTINGS]


def tried(out: Path) -> pd.DataFrame:
    """A row a run: loss, learning rate, all overrides, and what it reached on val. InputError where one is missing."""
    rows = []
    for folder, (loss, rate, own) in runs(out).items():
        require(status(folder) == "finished", f"{folder} is not finished; run the pilot to its end before --collect")
        record = json.loads((folder / "run.json").read_text())
        best = record["best"]
        told = {"loss": loss, "rate": rate, "overrides": " ".join(overrides(loss, rate, own)), "seed": record["seed"]}
        rows.append(told | {"epochs": record["epochs"], "best_epoch": best["epoch"], "val_rsum": best["val/rsum"]})
    return pd.DataFrame(rows)


def best_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of each loss with the largest rsum on val; of equal ones the first tried."""
    return frame.loc[frame.groupby("loss", sort=False)["val_rsum"].idxmax()]


def chosen(path: Path = HERE / "settings.csv") -> dict[str, list[str]]:
    """What `vsehub train` is told of each loss of the grid, by the pilot's choice."""
    hint = "Run experiments/grid/pilot.py, then again with --collect"
    frame = pd.read_csv(existing("settings", path, hint), dtype=str)
    return {row["loss"]: row["overrides"].split() for _, row in frame.iterrows()}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, metavar="DATA", help="folder of *_ims.npy and *_caps.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--losses", nargs="+", default=list(OWN), choices=list(OWN))
    parser.add_argument("--collect", action="store_true", help="train nothing, write the tables")
    arguments = parser.parse_args()
    if arguments.collect:
        frame = tried(arguments.out)
        write_text(HERE / "pilot.csv", frame.to_csv(index=False, float_format="%.6g"))
        write_text(HERE / "settings.csv", best_of(frame).to_csv(index=False, float_format="%.6g"))
        return
    if arguments.data is None:
        parser.error("give DATA, the folder of the features, or --collect")
    wanted = {folder: one for folder, one in runs(arguments.out).items() if one[0] in arguments.losses}
    commands = [training(folder, settings(arguments.data, *one)) for folder, one in wanted.items()]
    failed = run_all([command for command in commands if command])
    if failed:
        sys.exit("\n".join(["these runs failed:", *failed]))


if __name__ == "__main__":
    main()
