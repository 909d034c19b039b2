"""Train several losses with several seeds, evaluate each under several criteria, and report.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python experiments/compare.py --out runs/mine --losses sum max hal hal+mb --seeds 0 1 2 -- data.size=large
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from beside import beside
from running import run, run_all, training, typed


@dataclass(frozen=True)
class Comparison:
    """What is compared: runs of `losses` ("hal+mb" is HAL with the memory bank) x `seeds`, all with `overrides`.

    own: further settings of single losses, and of other labels the loss and bank that they stand for. study: the name
    that groups the runs; None: that of `out`. title: the page's; None: the report's own.
    """

    out: Path
    losses: list[str]
    seeds: list[int]
    overrides: list[str]
    criteria: list[str]
    references: list[str]
    paper: str | None = None
    table: str | None = None
    own: dict[str, list[str]] = field(default_factory=dict)
    study: str | None = None
    title: str | None = None

    def runs(self) -> dict[Path, list[str]]:
        """Each run's folder and its overrides."""
        chosen = {label for label, own in self.own.items() if any(one.startswith("loss=") for one in own)}
        return {
            self.out / "runs" / f"{label}-{seed}": [
                *(loss_overrides(label) if label not in chosen else ()),
                f"seed={seed}",
                f"study={self.study or self.out.name}",
                *self.overrides,
                *self.own.get(label, []),
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


def train_all(comparisons: Sequence[Comparison], dry_run: bool) -> None:
    """Train what is not finished, in order; a run that fails is named at the end, and the others go on."""
    waiting = [command for one in comparisons for command in one.commands() if command[0] == "train"]
    total = sum(len(one.runs()) for one in comparisons)
    print(f"{total} runs, {total - len(waiting)} of them finished before")
    failed = run_all(waiting, dry_run)
    if failed:
        sys.exit("\n".join([f"{len(failed)} of {len(waiting)} runs failed:", *failed]))


def loss_overrides(label: str) -> list[str]:
    """The choices behind a label of the papers' tables."""
    loss, _, bank = label.partition("+")
    return [f"loss={loss}", "bank=memory" if bank == "mb" else "bank=none"]


def done(folder: Path, criterion: str, reference: str) -> bool:
    """Whether the test split was measured so."""
    kind = {"queries": "transductive", "train": "inductive"}[reference]
    return any((folder / "evaluations").glob(f"test-*-{criterion}-{kind}-*.json"))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and the report")
    parser.add_argument("--losses", nargs="+", default=["sum", "max", "hal", "hal+mb"], help="%(default)s")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="%(default)s")
    parser.add_argument("--criteria", nargs="*", default=[], help="beside nns, e.g. csls is")
    parser.add_argument(
        "--references",
        nargs="*",
        default=["queries"],
        choices=["queries", "train"],
        help="whose scores a criterion sees: queries (transductive), train (inductive)",
    )
    parser.add_argument("--paper", help="print this paper's figures beside, e.g. aaai2020")
    parser.add_argument("--table", help="its table, e.g. 2")
    parser.add_argument("--title", help="the page's title")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("overrides", nargs="*", help="settings of every run, after --, e.g. -- data.size=large")
    arguments = vars(parser.parse_args())
    dry_run = arguments.pop("dry_run")
    Comparison(**arguments).carry_out(dry_run)


if __name__ == "__main__":
    main()
