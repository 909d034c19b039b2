"""Is the memory bank a regulariser? HAL with and without it, at two settings, with and without regularisation.

    python experiments/bank/study.py DATA --out runs/bank --seeds 0,1,2,3,4
    python experiments/bank/study.py DATA --out runs/bank --seeds 0,1,2 --ablation

DATA: a folder of extracted features (*_ims.npy, *_caps.txt). Trains seed by seed what is missing and writes results.csv
(with --ablation ablation.csv) beside this file, a row for each finished run; `render.py` draws it. What is finished is
not done again; a killed command goes on where it was.

Statistics of a pair's neighbours come from the bank, from the batch alone ("batch"), or from nowhere ("none"). The
ablation varies the bank's size, its k and how often it is refilled (stale.py), one at a time.
"""

import argparse
import itertools
import os
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from running import results, run_all, training  # noqa: E402 (beside this folder, found by the line above)

COMMON = [
    *("loss=hal", "embedding_dim=256", "text_encoder.bidirectional=false", "loader.max_words=20"),
    *("loader.batch_size=128", "trainer.max_epochs=7", "scheduler=cosine"),
]
WEIGHTS = {30: ["loss.gamma=30", "loss.epsilon=0.3"], 60: ["loss.gamma=60", "loss.epsilon=0.7"]}
STATISTICS = {"none": ["bank=none"], "bank": ["bank=memory"], "batch": ["bank=none", "loss.statistics=batch"]}
RECIPES = {
    "plain": ["embedding_dropout=0", "text_encoder.word_dropout=0", "callbacks=default"],
    "regularised": [],  # the defaults
}
# What the ablation varies; the study's own bank holds 0.05 of the pairs, has k = 13 and is refilled in every epoch.
SIZES = (0.01, 0.2)  # k follows the size: 10 and 53
NEIGHBOURS = (1, 100)
AGES = (2, 6)  # epochs between two refills; 6: the bank of the second epoch to the end


def grid() -> dict[str, list[str]]:
    """The cases of the study."""
    return {
        f"gamma {gamma}, {statistics}, {recipe}": [*WEIGHTS[gamma], *STATISTICS[statistics], *RECIPES[recipe]]
        for gamma, statistics, recipe in itertools.product(WEIGHTS, STATISTICS, RECIPES)
    }


def ablation() -> dict[str, list[str]]:
    """The bank's size, its k and its age one at a time, at gamma 30 without regularisation, where it does most."""
    base = [*WEIGHTS[30], *RECIPES["plain"]]
    cases = {f"share {share:g}": [*STATISTICS["bank"], f"bank.fraction={share}"] for share in SIZES}
    cases |= {f"k {k}": [*STATISTICS["bank"], f"bank.k={k}"] for k in NEIGHBOURS}
    cases |= {f"every {age}": [f"--config-dir={HERE / 'conf'}", "bank=stale", f"bank.every={age}"] for age in AGES}
    return {case: [*base, *own] for case, own in cases.items()}


def folder(out: Path, case: str, seed: int) -> Path:
    """The folder of a run."""
    return out / f"{case.replace(', ', '+').replace(' ', '-')}-{seed}"


def collected(out: Path, cases: dict[str, list[str]], seeds: list[int]) -> pd.DataFrame:
    """A row for each finished run."""
    found = {(case, seed): results(folder(out, case, seed)) for case, seed in itertools.product(cases, seeds)}
    return pd.DataFrame([{"case": case} | one for (case, _), one in found.items() if one])


def main() -> None:
    """Read the command line, train, collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--name", default="flickr8k", help="what reports call the data; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("runs/bank"), help="default: %(default)s")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="default: %(default)s")
    parser.add_argument("--ablation", action="store_true", help="the bank's size, k and age instead")
    parser.add_argument("--dry-run", action="store_true", help="print the trainings, run nothing")
    arguments = parser.parse_args()
    cases, seeds = (ablation() if arguments.ablation else grid()), [int(one) for one in arguments.seeds.split(",")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))  # stale.py
    place = ["data=precomp", f"data.root={arguments.data}", f"data.name={arguments.name}"]
    commands = [
        training(folder(arguments.out, case, seed), [*COMMON, *place, *own, f"seed={seed}"])
        for seed in seeds
        for case, own in cases.items()
    ]
    failed = run_all([command for command in commands if command], arguments.dry_run)
    if not arguments.dry_run:
        table = collected(arguments.out, cases, seeds)
        name = "ablation.csv" if arguments.ablation else "results.csv"
        write_text(HERE / name, table.to_csv(index=False, float_format="%.6g"))
    if failed:
        sys.exit("\n".join(["these runs failed:", *failed]))


if __name__ == "__main__":
    main()
