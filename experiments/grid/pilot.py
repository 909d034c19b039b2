"""Choose each loss's settings for the grid: four short trainings a loss, compared on the validation split alone.

Every loss gets the same budget: two learning rates x two settings of its own, those its papers print where they print
two. What is finished is not done again.

    python experiments/grid/pilot.py DATA --out runs/grid-pilot

writes pilot.csv beside this file.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import VSEHUB, loss_overrides, status  # noqa: E402 (beside this folder, found by the line above)

RATES = ("0.0005", "0.001")
MARGINS = (["loss.margin=0.05"], ["loss.margin=0.2"])  # AAAI table 3: Flickr30k, COCO
WEIGHTS = (["loss.gamma=60", "loss.epsilon=0.7"], ["loss.gamma=30", "loss.epsilon=0.3"])  # Flickr30k, COCO
OWN = {
    "sum": MARGINS,
    "max": MARGINS,
    "hal": WEIGHTS,
    "hal+mb": WEIGHTS,
    "knn_margin": MARGINS,
    "rescaled": (["loss=rescaled_sum"], ["loss=rescaled_max"]),
    "infonce": (["loss.learnable=true"], ["loss.learnable=false"]),
    "siglip": (["loss.bias=-10"], ["loss.bias=-5"]),
}
SETTINGS = [
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


def command(data: Path, folder: Path, loss: str, rate: str, own: list[str]) -> list[str]:
    """What trains one run."""
    chosen = loss_overrides("rescaled_sum" if loss == "rescaled" else loss)
    settings = [*chosen, *SETTINGS, f"optimizer.lr={rate}", *own]
    rest = [one for one in settings if not any(one.startswith("loss=") and other is not one and
            other.startswith("loss=") for other in own)]
    return ["train", "data=precomp", f"data.root={data}", "data.name=flickr8k", *rest, f"hydra.run.dir={folder}"]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of *_ims.npy and *_caps.txt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--losses", nargs="+", default=list(OWN), choices=list(OWN))
    arguments = parser.parse_args()
    for folder, (loss, rate, own) in runs(arguments.out).items():
        if loss in arguments.losses and status(folder) != "finished":
            subprocess.run([VSEHUB, *command(arguments.data, folder, loss, rate, own)], check=True)


if __name__ == "__main__":
    main()
