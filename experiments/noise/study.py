"""Train the losses on captions of which a share belongs to wrong images: both protocols, three rates.

    python experiments/noise/study.py DATA --out RUNS [--clean FOLDER] [--seeds 0 1 2]

DATA: "scenes", or a folder in the layout of VSE++ with one vector an image. Seed by seed, and within a seed rate by
rate, so that a part is of use. What is finished is not done again, and a killed run goes on from its last epoch: run
the same command again. A run that fails is named at the end, and the others go on. --clean: a folder of LOSS-SEED run
folders that were trained without noise by the same recipe; else they are trained here.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from vsehub.checks import existing

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import Comparison, train_all  # noqa: E402 (beside this folder, found by the line above)

SEEDS = (0, 1, 2)
LOSSES = ("sum", "max", "knn_margin", "hal", "hal+mb")
PROTOCOLS = ("captions", "images")
RATES = (0.2, 0.4, 0.6)
CLEAN = "clean"
SETTINGS = HERE.parent / "grid" / "settings.csv"
FEATURES = (
    "experiment=papers",
    "data=precomp",
    "data.root={}",
    "data.name=flickr8k",
    "embedding_dim=256",
    "trainer.max_epochs=8",
    "scheduler.step_size=6",
)
# A few minutes on two cores: it shows that all works, and no more.
SCENES = (
    "experiment=demo",
    "embedding_dim=64",
    "image_encoder.width=8",
    "text_encoder.word_dim=64",
    "trainer.max_epochs=4",
    "scheduler.step_size=3",
)


def chosen(losses: list[str]) -> dict[str, list[str]]:
    """Each loss's own settings: those that the grid's pilot chose on the clean validation split."""
    path = existing("settings", SETTINGS, "Run experiments/grid/pilot.py, then again with --collect")
    overrides = pd.read_csv(path, index_col="loss")["overrides"]
    made_by_label = ("loss=", "bank=")
    return {loss: [one for one in overrides[loss].split() if not one.startswith(made_by_label)] for loss in losses}


def comparisons(arguments: argparse.Namespace) -> list[Comparison]:
    """One Comparison for each seed, rate and protocol, in the order of training; without noise first."""
    scenes = arguments.data == "scenes"
    cases = [] if arguments.clean is not None else [(CLEAN, [])]
    cases += [
        (f"{protocol}-{rate:g}", [f"data.noise.protocol={protocol}", f"data.noise.rate={rate:g}"])
        for rate in arguments.rates
        for protocol in PROTOCOLS
    ]
    settings = [setting.format(arguments.data) for setting in (SCENES if scenes else FEATURES)]
    return [
        Comparison(
            out=arguments.out / name,
            losses=arguments.losses,
            seeds=[seed],
            overrides=[*settings, *noise, *arguments.settings],
            criteria=[],
            references=[],
            study="noise",
            own={"max": ["optimizer.lr=0.0005"]} if scenes else chosen(arguments.losses),
        )
        for seed in arguments.seeds
        for name, noise in cases
    ]


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", help="scenes, or the folder of *_ims.npy and *_caps.txt")
    parser.add_argument("--out", type=Path, required=True, metavar="RUNS")
    parser.add_argument("--clean", type=Path, metavar="FOLDER", help="of LOSS-SEED runs without noise")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("--settings", nargs="+", default=[], metavar="KEY=VALUE", help="more, for every run")
    arguments = parser.parse_args()
    if arguments.data != "scenes" and not Path(arguments.data).is_dir():
        parser.error(f"DATA is {arguments.data}, which is no folder; give scenes, or the folder of extracted features")
    train_all(comparisons(arguments), arguments.dry_run)


if __name__ == "__main__":
    main()
