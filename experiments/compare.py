"""Train several losses with several seeds, evaluate each under several criteria, and report.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python -m experiments compare --out runs/mine --losses sum max hal hal+mb --seeds 0 1 2 -- data.size=large
"""

import sys
import time
from pathlib import Path

from experiments.beside import beside
from experiments.running import run, run_all, training, typed
from experiments.study import DRY_RUN, SEEDS, Given, option, run_folder, verb


def commands(given: Given) -> list[list[str]]:
    """All that is still to be done, in order; the report comes last and always."""
    found = []
    runs = [(label, seed) for seed in given.seeds or [0] for label in given.losses]
    for label, seed in runs:
        folder = run_folder(given.out, label, seed)
        own = [*loss_overrides(label), f"seed={seed}", f"study={given.out.name}", *given.overrides]
        found += [command for command in [training(folder, own)] if command]
        found += [
            [
                "evaluate",
                f"checkpoint={folder / 'checkpoints' / 'best.safetensors'}",
                f"criterion={criterion}",
                f"reference={reference}",
            ]
            for criterion in given.criteria
            for reference in given.references
            if not done(folder, criterion, reference)
        ]
    shown = [f'title="{given.title}"'] if given.title else []  # in quotes, for its commas
    return [*found, ["report", str(given.out / "runs"), f"out={given.out / 'report'}", "overwrite=true", *shown]]


def loss_overrides(label: str) -> list[str]:
    """The choices behind a label of the papers' tables."""
    loss, _, bank = label.partition("+")
    return [f"loss={loss}", "bank=memory" if bank == "mb" else "bank=none"]


def done(folder: Path, criterion: str, reference: str) -> bool:
    """True if the test split was measured so."""
    kind = {"queries": "transductive", "train": "inductive"}[reference]
    return any((folder / "evaluations").glob(f"test-*-{criterion}-{kind}-*.json"))


@verb(
    option("--out", type=Path, required=True, help="folder of the runs and the report"),
    option("--losses", nargs="+", default=["sum", "max", "hal", "hal+mb"], help="%(default)s"),
    SEEDS,
    option("--criteria", nargs="*", default=[], help="beside nns, e.g. csls is"),
    option(
        "--references",
        nargs="*",
        default=["queries"],
        choices=["queries", "train"],
        help="whose scores a criterion sees: queries (transductive), train (inductive)",
    ),
    option("--paper", help="print this paper's figures beside, e.g. aaai2020"),
    option("--table", help="its table, e.g. 2"),
    option("--title", help="the page's title"),
    DRY_RUN,
    option("overrides", nargs="*", help="settings of every run, after --, e.g. -- data.size=large"),
)
def main(given: Given) -> None:
    """Train, evaluate and report what is missing; stops at the first command that fails."""
    start, all_commands = time.perf_counter(), commands(given)
    if given.dry_run:
        run_all(all_commands, True)
        return
    for number, command in enumerate(all_commands, 1):
        if not run(command, f"[{number}/{len(all_commands)}]"):
            sys.exit(f"this command failed: {typed(command)}")
    if given.paper and given.table:
        files = beside([given.out / "runs"], given.paper, given.table, given.out / "beside", overwrite=True)
        print(files["published.txt"].read_text(encoding="utf-8"))
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes; the page: {given.out / 'report' / 'index.html'}")
