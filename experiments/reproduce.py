"""A published table: train its rows, measure them as printed, and put the figures beside the published ones.

    python experiments/reproduce.py aaai2020/2 --coco FOLDER --seeds 0,1,2
    python experiments/reproduce.py emnlp2019-submission/4 acl-srw2019/4          the same losses and criteria on scenes
    python experiments/reproduce.py aaai2020/1 --data flickr8k --root FOLDER

On COCO and Flickr30k each row runs as its file in conf/experiment says. On other data the rows keep loss, similarity,
learning rate and criterion, and the size of training is that data's; rows that become one training are trained once.
What is finished is not done again, and a killed run goes on: run the same command again. A command that fails is named
at the end, and the others go on.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compare import VSEHUB, status
from features_needed import missing
from row_files import Row, elsewhere, folder_name, rows

from vsehub.files import write_text
from vsehub.report import published
from vsehub.report.latex import latex
from vsehub.report.reproduction import occurrence_table, reproduced
from vsehub.report.tables import COLUMNS, markdown

TABLES = {
    "aaai2020/1": None,
    "aaai2020/2": None,
    "acl-srw2019/1": None,
    "acl-srw2019/2": None,
    "acl-srw2019/4": None,
    "acl-srw2019/5": "shares of N_1; of the lines of ACL's tables 2 and 4 that are on COCO with ResNet152",
    "emnlp2019-submission/1": None,
    "emnlp2019-submission/2": None,
    "emnlp2019-submission/4": None,
}
OCCURRENCES = "acl-srw2019/5"
OCCURRENCE_LINES = ("2.4", "2.5", "2.6", "3.5", "3.6")


@dataclass(frozen=True)
class Job:
    """A row with one seed: the run it is measured on, and what trains that."""

    row: Row
    seed: int
    folder: Path
    overrides: list[str]

    def training(self) -> list[str] | None:
        """The command that trains or goes on, None where the run is finished."""
        state = status(self.folder)
        if state == "finished":
            return None
        return ["train", *([f"resume={self.folder}"] if state else [*self.overrides, f"hydra.run.dir={self.folder}"])]

    def measuring(self) -> list[str] | None:
        """The command that measures the run as the row says, None where that is done."""
        if self.found() is not None:
            return None
        own = [f"criterion={self.row.criterion}", f"protocol={self.row.protocol}"] + ["fit=true"] * self.row.fit
        return ["evaluate", f"checkpoint={self.folder / 'checkpoints' / 'best.ckpt'}", *own]

    def found(self) -> dict | None:
        """The evaluation of this row, with its run's name, loss and seed; None where it was not made."""
        for path in sorted((self.folder / "evaluations").glob(f"test-*-{self.row.criterion}*.json")):
            one = json.loads(path.read_text())
            as_asked = (one["criterion"], one["protocol"], bool(one["fit"])) == (
                self.row.criterion,
                self.row.protocol,
                self.row.fit,
            )
            if as_asked and one["reference"] != "inductive":
                run = json.loads((self.folder / "run.json").read_text())
                return one | {key: run[key] for key in ("dataset", "architecture", "label", "seed")}
        return None


def jobs(table: str, arguments: argparse.Namespace, left_out: dict[str, str]) -> Iterator[Job]:
    """What is to be done for a table; what cannot be goes to `left_out`, line by line with the reason."""
    paper, _, number = table.partition("/")
    occurrences = table == OCCURRENCES
    found, others = rows(paper, number) if not occurrences else occurrence_rows()
    for line in others:
        left_out[line] = "another paper's architecture"
    for row in found:
        if arguments.lines and row.line not in arguments.lines:
            continue
        settings = place(row, arguments)
        if isinstance(settings, str):
            left_out[row.line] = settings
            continue
        small = arguments.data is not None
        protocol = "single" if small else ("full5k" if occurrences else row.protocol)
        measured = Row(**(vars(row) | {"protocol": protocol, "fit": row.fit and not occurrences}))
        for seed in arguments.seeds:
            overrides = [*settings, *arguments.overrides]
            folder = arguments.out / "runs" / folder_name(overrides, seed)
            yield Job(measured, seed, folder, [*overrides, f"seed={seed}"])


def occurrence_rows() -> tuple[list[Row], list[str]]:
    """The rows that ACL table 5 is made of here."""
    found = [*rows("acl-srw2019", "2")[0], *rows("acl-srw2019", "4")[0]]
    return [row for row in found if row.line in OCCURRENCE_LINES], []


def place(row: Row, arguments: argparse.Namespace) -> list[str] | str:
    """The settings that train a row on the data at hand, or why that cannot be."""
    if arguments.data is None:
        base = {"coco": arguments.coco, "flickr30k": arguments.flickr30k}[row.dataset]
        if base is None:
            return f"give --{row.dataset} FOLDER"
        reason = missing(row.dataset, base, row.features)
        return reason or [f"experiment={row.trained}", f"data.root={base / row.features}"]
    settings = elsewhere(row.trained)
    if settings is None:
        return f"{row.architecture} compares regions, which {arguments.data} has none of"
    if arguments.data == "scenes":
        return ["experiment=demo", *settings]
    return ["data=precomp", f"data.root={arguments.root}", f"data.name={arguments.data}", *settings]


def carry_out(work: list[Job], dry_run: bool) -> list[str]:
    """Train and measure, each once; the commands that failed."""
    failed, broken, printed = [], set(), set()
    for number, job in enumerate(work, 1):
        for command in (job.training, job.measuring):
            arguments = None if job.folder in broken else command()
            line = shlex.join(["vsehub", *arguments]) if arguments else None
            if line is None or line in printed:  # printed already: a dry run, or an evaluation that failed
                continue
            printed.add(line)
            print(f"[{number}/{len(work)}] {job.row.name}, seed {job.seed}: {line}", flush=True)
            if not dry_run and subprocess.run([VSEHUB, *arguments]).returncode:
                failed.append(line)
                broken |= {job.folder} if command == job.training else set()
    return failed


def write(table: str, work: list[Job], left_out: dict[str, str], out: Path) -> str:
    """Write table.md, table.csv and table.tex of a published table below `out`; the markdown."""
    paper, _, number = table.partition("/")
    measured: dict[str, list[dict]] = {}
    for job in work:
        found = job.found()
        measured.setdefault(job.row.line, []).extend([found] if found else [])
    numeric = [column.heading for column in COLUMNS]
    if table == OCCURRENCES:
        told = {line: evaluations for line, evaluations in measured.items() if evaluations}
        frame = shown = occurrence_table(told)
        sentences = ["ACL prints this table without the figures at hand here: measured figures alone."]
    else:
        frame = reproduced(paper, number, measured)
        shown, sentences = published.display(frame), published.remarks(frame)
    for reason in dict.fromkeys(left_out.values()):
        lines = ", ".join(line for line, why in left_out.items() if why == reason)
        sentences.append(f"Left out: {lines} ({reason}).")
    title = f"{paper}, table {number}: measured beside published"
    text = f"# {title}\n\n" + "".join(f"- {one}\n" for one in sentences) + f"\n{markdown(shown)}"
    folder = out / table.replace("/", "-table")
    write_text(folder / "table.md", text)
    write_text(folder / "table.csv", frame.to_csv(index=False, lineterminator="\n"))
    write_text(folder / "table.tex", latex(shown, f"{title}. {' '.join(sentences)}", numeric))
    return f"{text}\nfiles: {folder}/table.md, table.csv, table.tex"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=list(TABLES), metavar="PAPER/TABLE", help=", ".join(TABLES))
    parser.add_argument("--data", help="scenes (the default without --coco and --flickr30k), or a name, with --root")
    parser.add_argument("--root", type=Path, help="with --data: the folder of its features, one vector an image")
    parser.add_argument("--coco", type=Path, help="folder of COCO's features, a subfolder an architecture")
    parser.add_argument("--flickr30k", type=Path, help="the same of Flickr30k")
    parser.add_argument("--seeds", default="0", help="e.g. 0,1,2; default %(default)s")
    parser.add_argument("--lines", default="", help="these rows alone, e.g. 2.1,2.4")
    parser.add_argument("--out", type=Path, help="default: runs/reproduce-DATA; runs are shared by all tables there")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument(
        "--set", nargs="+", default=[], dest="overrides", metavar="KEY=VALUE", help="for every training"
    )
    arguments = parser.parse_args()
    if arguments.data is None and arguments.coco is None and arguments.flickr30k is None:
        arguments.data = "scenes"
    if arguments.data not in (None, "scenes") and (arguments.root is None or not arguments.root.is_dir()):
        parser.error(f"--data {arguments.data} needs --root, the folder of its features; {arguments.root} is no folder")
    arguments.out = arguments.out or Path("runs") / f"reproduce-{arguments.data or 'papers'}"
    arguments.seeds = [int(seed) for seed in arguments.seeds.split(",")]
    arguments.lines = [line for line in arguments.lines.split(",") if line]

    left_out: dict[str, dict[str, str]] = {table: {} for table in arguments.tables}
    work = {table: list(jobs(table, arguments, left_out[table])) for table in arguments.tables}
    for table, reasons in left_out.items():
        if not work[table]:
            sys.exit(f"nothing of {table} can be run:\n" + "\n".join(sorted(set(reasons.values()))))
    failed = carry_out([job for several in work.values() for job in several], arguments.dry_run)
    if not arguments.dry_run:
        for table in arguments.tables:
            print(f"\n{write(table, work[table], left_out[table], arguments.out)}")
    if failed:
        sys.exit("\n".join([f"{len(failed)} commands failed:", *failed]))


if __name__ == "__main__":
    main()
