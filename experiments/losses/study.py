"""Seven losses, each with the recipe that an equal search chose for it, three with HAL's too, and several seeds.

    python experiments/losses/study.py tune DATA --out runs/losses        a sweep a loss: 16 short trainings, then 2
    python experiments/losses/study.py choose --out runs/losses           trials.csv and settings.csv beside this file
    python experiments/losses/study.py train DATA --out runs/losses --seeds 0,1,2,3,4

DATA: a folder of extracted features (*_ims.npy, *_caps.txt). The third trains by settings.csv, seed by seed, and writes
results.csv, a row for each finished run; `render.py` draws it. What is finished is not done again; a killed command
goes on where it was.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from vsehub.checks import existing
from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import Comparison, loss_overrides  # noqa: E402 (beside this folder, found by the line above)
from running import results, run_all, training  # noqa: E402

LOSSES = ("sum", "max", "knn_margin", "infonce", "siglip", "hal", "hal+mb")
BORROWED = {"sum-as-hal": "sum", "knn_margin-as-hal": "knn_margin", "siglip-as-hal": "siglip"}  # with HAL's recipe
COMMON = ["text_encoder.bidirectional=false", "loader.max_words=20", "loader.batch_size=128"]
TUNED = ["sweep=tune_loss", "embedding_dim=256", "hydra.sweeper.epochs=[3,7]", "hydra.sweeper.trials=[16,2]"]
TRAINED = ["embedding_dim=512", "trainer.max_epochs=7", "scheduler=cosine"]


def main() -> None:
    """Read the command line and do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    for name in ("tune", "choose", "train"):
        step = steps.add_parser(name, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name != "choose":
            step.add_argument("data", type=Path, metavar="DATA", help="folder of *_ims.npy and *_caps.txt")
            step.add_argument("--name", default="flickr8k", help="what reports call the data; default: %(default)s")
            step.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
        step.add_argument("--out", type=Path, default=Path("runs/losses"), help="default: %(default)s")
        cases = [*LOSSES, *(BORROWED if name == "train" else ())]
        step.add_argument("--losses", nargs="+", default=cases, choices=cases, help="default: all")
        if name == "train":
            step.add_argument("--seeds", default="0,1,2,3,4", help="default: %(default)s")
    arguments = parser.parse_args()
    {"tune": tune, "choose": choose, "train": train}[arguments.step](arguments)


def data(arguments: argparse.Namespace) -> list[str]:
    """Where the data lie."""
    return ["data=precomp", f"data.root={arguments.data}", f"data.name={arguments.name}", *COMMON]


def tune(arguments: argparse.Namespace) -> None:
    """One sweep a loss."""
    commands = [
        [
            *("train", "-m", *TUNED, *data(arguments), *loss_overrides(label), f"study=tune-{label.replace('+', '-')}"),
            f"hydra.sweep.dir={arguments.out / 'tune' / label}",
        ]
        for label in arguments.losses
    ]
    failed = run_all(commands, arguments.dry_run)
    if failed:
        sys.exit("\n".join(["these sweeps failed:", *failed]))


def choose(arguments: argparse.Namespace) -> None:
    """Write what was tried, and of each loss's last round the settings with the largest rsum on val."""
    tried = pd.concat([trials(arguments.out, label) for label in arguments.losses], ignore_index=True)
    write_text(HERE / "trials.csv", tried.to_csv(index=False))
    write_text(HERE / "settings.csv", chosen(tried).to_csv(index=False))


def trials(out: Path, label: str) -> pd.DataFrame:
    """A row for each trial of a loss, round by round."""
    path = existing("tune", out / "tune" / label / "halving.csv", "Run experiments/losses/study.py tune first")
    frame = pd.read_csv(path)
    return frame.assign(loss=label)[["loss", "epochs", "val_rsum", "settings"]]


def chosen(tried: pd.DataFrame) -> pd.DataFrame:
    """The row of each loss that is best on val among those of its longest trainings; of equal ones the first."""
    longest = tried[tried["epochs"] == tried.groupby("loss")["epochs"].transform("max")]
    return longest.loc[longest.groupby("loss", sort=False)["val_rsum"].idxmax()]


def settings() -> dict[str, list[str]]:
    """What `vsehub train` is told of each case, by settings.csv; borrowed is all but the loss's own settings."""
    path = existing("settings", HERE / "settings.csv", "Run experiments/losses/study.py tune, then choose")
    frame = pd.read_csv(path)
    chosen_ones = {row["loss"]: row["settings"].split() for _, row in frame.iterrows()}
    recipe = [one for one in chosen_ones["hal"] if not one.startswith("loss.")]
    told = {label: [*loss_overrides(label), *found] for label, found in chosen_ones.items()}
    for label, loss in BORROWED.items():
        own = [one for one in chosen_ones[loss] if one.startswith("loss.")]
        told[label] = [*loss_overrides(loss), *recipe, *own]
    return told


def train(arguments: argparse.Namespace) -> None:
    """Train what is missing, write the table."""
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    own = {label: one for label, one in settings().items() if label in arguments.losses}
    runs = Comparison(arguments.out, list(own), seeds, [*data(arguments), *TRAINED], [], [], own=own).runs()
    failed = run_all([one for folder, told in runs.items() if (one := training(folder, told))], arguments.dry_run)
    if not arguments.dry_run:
        rows = [{"loss": folder.name.rpartition("-")[0]} | found for folder in runs if (found := results(folder))]
        write_text(HERE / "results.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))
    if failed:
        sys.exit("\n".join(["these runs failed:", *failed]))


if __name__ == "__main__":
    main()
