"""Train several losses with several seeds, evaluate each under several criteria, and report.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python -m experiments compare --out runs/mine --losses sum max hal hal+mb --seeds 0 1 2 -- data.size=large
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from experiments.beside import beside
from experiments.running import run, run_all, training, typed
from experiments.study import DRY_RUN, SEEDS, Given, option, run_folder, verb


@dataclass(frozen=True)
class Comparison:
    """What is compared: runs of `losses` ("hal+mb" is HAL with the memory bank) x `seeds`, all with `overrides`.

    title: the page's; None: the report's own.
    """

    out: Path
    losses: list[str]
    seeds: list[int]
    overrides: list[str]
    criteria: list[str]
    references: list[str]
    paper: str | None = None
    table: str | None = None
    title: str | None = None

    def runs(self) -> dict[Path, list[str]]:
        """Each run's folder and its overrides."""
        return {
            run_folder(self.out, label, seed): [
                *(*loss_overrides(label), f"seed={seed}", f"study={self.out.name}", *self.overrides)
            ]
            for seed in self.seeds
            for label in self.losses
        }

    def commands(self) -> list[list[str]]:
        """All that is still to be done, in order; the report comes last and always."""
        found = []
        for folder, overrides in self.runs().items():
            found += [command for command in [training(folder, overrides)] if command]
            found += [
                [
                    "evaluate",
                    f"checkpoint={folder / 'checkpoints' / 'best.safetensors'}",
                    f"criterion={criterion}",
                    f"reference={reference}",
                ]
                for criterion in self.criteria
                for reference in self.references
                if not done(folder, criterion, reference)
            ]
        shown = [f'title="{self.title}"'] if self.title else []  # in quotes, for its commas
        return [*found, ["report", str(self.out / "runs"), f"out={self.out / 'report'}", "overwrite=true", *shown]]

    def beside(self) -> None:
        """Put the runs beside the published table, where one is named."""
        if self.paper and self.table:
            files = beside([self.out / "runs"], self.paper, self.table, self.out / "beside", overwrite=True)
            print(files["published.txt"].read_text(encoding="utf-8"))

    def carry_out(self, dry_run: bool = False) -> None:
        """Run the commands one after the other; stops at the first that fails."""
        commands = self.commands()
        start = time.perf_counter()
        if dry_run:
            run_all(commands, dry_run)
            return
        for number, command in enumerate(commands, 1):
            if not run(command, f"[{number}/{len(commands)}]"):
                sys.exit(f"this command failed: {typed(command)}")
        self.beside()
        print(f"{(time.perf_counter() - start) / 60:.1f} minutes; the page: {self.out / 'report' / 'index.html'}")


def loss_overrides(label: str) -> list[str]:
    """The choices behind a label of the papers' tables."""
    loss, _, bank = label.partition("+")
    return [f"loss={loss}", "bank=memory" if bank == "mb" else "bank=none"]


def done(folder: Path, criterion: str, reference: str) -> bool:
    """Whether the test split was measured so."""
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
    """Train, evaluate and report what is missing."""
    names = ("out", "losses", "overrides", "criteria", "references", "paper", "table", "title")
    Comparison(seeds=given.seeds or [0], **{name: getattr(given, name) for name in names}).carry_out(given.dry_run)
