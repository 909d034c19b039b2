"""Losses x criteria x {transductive, inductive} x seeds under one recipe, tested, on one page.

    python experiments/grid/grid.py
    python experiments/grid/grid.py --data DATA --seeds 0,1,2 --out runs/grid

DATA: a folder of extracted features (*_ims.npy, *_caps.txt), whose losses train with the settings that the pilot chose
(settings.csv). Without it scenes, painted on the spot, with fewer epochs and the demo's learning rates: a trial of
the machinery that needs no data. Trains what is missing, encodes each checkpoint once, measures every criterion, then
writes tables, figures and page to OUT/grid. What is finished is not done again; a killed command goes on where it was.
"""

import argparse
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from collect import collect  # noqa: E402 (beside this file)
from compare import Comparison, loss_overrides  # noqa: E402 (found by the line above)
from measure import measure_runs  # noqa: E402
from pilot import OWN, chosen  # noqa: E402
from render import render  # noqa: E402

RECIPE = ["experiment=papers", "embedding_dim=512", "trainer.max_epochs=13", "scheduler.step_size=8"]
SCENES = {label: loss_overrides("rescaled_sum" if label == "rescaled" else label) for label in OWN}


class GridRuns(Comparison):
    """The grid's trainings; each loss's settings, the loss itself among them, are in `own`."""

    def runs(self) -> dict[Path, list[str]]:
        """Each run's folder and its overrides."""
        return {
            self.out / "runs" / f"{label}-{seed}": [*self.own[label], *self.overrides, f"seed={seed}"]
            for seed in self.seeds
            for label in self.losses
        }


def grid_runs(data: str, name: str, out: Path, losses: list[str], seeds: list[int], more: list[str]) -> GridRuns:
    """What is to be trained on `data`: "scenes", or a folder that reports call `name`."""
    if data == "scenes":
        return GridRuns(out, losses, seeds, ["experiment=demo", *more], [], [], own=SCENES)
    place = ["data=precomp", f"data.root={data}", f"data.name={name}"]
    return GridRuns(out, losses, seeds, [*place, *RECIPE, *more], [], [], own=chosen())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes", help="folder of features; default: %(default)s")
    parser.add_argument("--name", default="flickr8k", help="what reports call a folder's data; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/grid"), help="default: %(default)s")
    parser.add_argument("--seeds", default="0,1,2", help="default: %(default)s")
    parser.add_argument("--losses", nargs="+", default=list(OWN), choices=list(OWN), help="default: all")
    parser.add_argument("--no-training", action="store_true", help="measure the finished runs of OUT/runs alone")
    parser.add_argument("--dry-run", action="store_true", help="print the trainings, run nothing")
    parser.add_argument("overrides", nargs="*", help="more settings for every run, after --")
    arguments = parser.parse_args()
    if arguments.data != "scenes" and not Path(arguments.data).is_dir():
        parser.error(f"--data is {arguments.data}, which is no folder; give a folder of features, or scenes")
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    out = arguments.out
    runs = grid_runs(arguments.data, arguments.name, out, arguments.losses, seeds, arguments.overrides)
    if not arguments.no_training:
        runs.carry_out(arguments.dry_run)
    if not arguments.dry_run:
        trained = [folder for folder in runs.runs() if (folder / "run.json").is_file()]
        for folder in runs.runs().keys() - trained:
            print(f"{folder.name} is not trained: left out")
        measure_runs(trained, out / "measured", root=None if arguments.data == "scenes" else arguments.data)
        collect(out / "measured", out / "grid")
        shutil.copy(HERE / "expected.csv", out / "grid" / "expected.csv")
        render(out / "grid", out / "grid" / "index.html")
        print(f"the page: {out / 'grid' / 'index.html'}")


if __name__ == "__main__":
    main()
