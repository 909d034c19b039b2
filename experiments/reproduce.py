"""A published table: train its rows, measure them as printed, and put the values beside the published ones.

    python -m experiments.reproduce aaai2020/2 --coco FOLDER --seeds 0,1,2
    python -m experiments.reproduce emnlp2019-submission/4 acl-srw2019/4          the same losses and criteria on scenes
    python -m experiments.reproduce aaai2020/1 --data flickr8k --root FOLDER trainer.max_epochs=8

On COCO and Flickr30k each row runs as its file in conf/experiment says. On other data the rows keep loss, similarity,
criterion and, except on scenes, the learning rate (there it is that of experiment=demo); the size of training is that
data's, and rows that become one training are trained once.
What is finished is not done again, and a killed run goes on: run the same command again. A command that fails is named
at the end, and the others go on.
"""

import argparse
import sys
from pathlib import Path

from experiments.published import published_beside_table, short_published_table
from experiments.reproduced import OCCURRENCE_PLACE, occurrence_remarks, occurrence_table, remarks, reproduced
from experiments.row_jobs import OCCURRENCES, Job, LeftOut, Places, jobs
from experiments.running import duration, run, typed
from experiments.study import integers
from vsehub.io.files import write_text
from vsehub.report.tables import ReportTable, bullets

TABLES = (
    "aaai2020/1",
    "aaai2020/2",
    "acl-srw2019/1",
    "acl-srw2019/2",
    "acl-srw2019/4",
    OCCURRENCES,
    "emnlp2019-submission/1",
    "emnlp2019-submission/2",
    "emnlp2019-submission/4",
)


def carry_out(work: list[Job]) -> list[str]:
    """Train and measure, each once; the commands that failed."""
    failed: dict[str, None] = {}
    for number, job in enumerate(work, 1):
        for step in (job.training, job.measuring):
            command = step()
            title = f"[{number}/{len(work)}] {job.row.line} {job.row.name}, seed {job.seed}:"
            if command and (typed(command) in failed or not run(command, title)):
                failed[typed(command)] = None
                break
    return list(failed)


def plan(work: list[Job], options: argparse.Namespace) -> str:
    """How much `carry_out` has to do, how long it takes, with which encoders, and which rows share a training.

    With --dry-run, the commands follow.
    """
    commands: dict[str, list[str]] = {}
    rows: dict[Path, dict[str, None]] = {}
    for job in work:
        rows.setdefault(job.folder, {})[f"{job.row.name.partition('/')[0]} {job.row.line}"] = None
        for command in job.to_do():
            commands.setdefault(typed(command), [f"{job.row.line} {job.row.name}, seed {job.seed}:", *command])
    words = [command[1:] for command in commands.values()]
    trainings = sum(command[0] == "train" for command in words)
    about = {
        "scenes": f"{duration(words)} on two cores. Image encoder of all rows: image_cnn, small, not the published",
        None: "hours on a GPU (not measured). Encoders and features as published",
    }
    other = (
        f"time not known for these data. All rows: the features in {options.root}, not those of the published network"
    )
    lines = [f"{trainings} trainings, {len(words) - trainings} evaluations: {about.get(options.data, other)}"]
    shared = dict.fromkeys(", ".join(names) for names in rows.values() if len(names) > 1)
    lines += [f"these rows share one training here: {names}" for names in shared]
    return "\n".join([*lines, *(f"{command[0]} {line}" for line, command in commands.items() if options.dry_run)])


def write(table: str, work: list[Job], left_out: dict[str, LeftOut], overrides: list[str], out: Path) -> str:
    """Write table.md, table.csv and table.tex of a published table to its folder below `out`; what is printed of it."""
    folder = out / table.replace("/", "-table")
    paper, _, number = table.partition("/")
    measured: dict[str, list[dict]] = {}
    for job in work:
        evaluation = job.evaluation()
        measured.setdefault(job.row.line, []).extend([evaluation] if evaluation else [])
    if table == OCCURRENCES:
        frame, notes = occurrence_table(measured), occurrence_remarks(measured)
        shown = printed = ReportTable.from_frame(frame, text_left=len(OCCURRENCE_PLACE))
    else:
        frame = reproduced(paper, number, measured)
        shown, printed, notes = published_beside_table(frame), short_published_table(frame, "rsum"), remarks(frame)
    notes += [f"every training was changed by {', '.join(overrides)}"] if overrides else []
    reasons = {line: str(reason) for line, reason in left_out.items()}
    for reason in dict.fromkeys(reasons.values()):
        lines = ", ".join(line for line, why in reasons.items() if why == reason)
        notes.append(f"left out: {lines} ({reason})")
    title = f"{paper}, table {number}: measured beside published"
    write_text(folder / "table.md", f"# {title}\n\n{bullets(notes)}\n\n{shown.markdown()}\n")
    write_text(folder / "table.csv", frame.to_csv(index=False, lineterminator="\n"))
    write_text(folder / "table.tex", shown._replace(caption=f"{title}. {'; '.join(notes)}.").latex())
    return f"{title}\n\n{bullets(notes)}\n\n{printed.terminal()}\n\nfiles: {folder}/table.md, table.csv, table.tex"


def arguments() -> argparse.Namespace:
    """The command line, read and checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="PAPER/TABLE", help=", ".join(TABLES))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of every training")
    parser.add_argument("--data", help="scenes (the default without --coco and --flickr30k), or a name, with --root")
    parser.add_argument("--root", type=Path, help="with --data: its features, or their subfolders global and grid")
    parser.add_argument("--coco", type=Path, help="folder of COCO's features, a subfolder an architecture")
    parser.add_argument("--flickr30k", type=Path, help="the same of Flickr30k")
    parser.add_argument("--seeds", default="0", type=integers, help="e.g. 0,1,2; default %(default)s")
    parser.add_argument("--lines", default="", help="these rows alone, by number, e.g. 2.1,2.4")
    parser.add_argument("--out", type=Path, help="default: runs/reproduce-DATA; runs are shared by all tables there")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    options = parser.parse_intermixed_args()
    words = [*options.tables, *options.overrides]
    options.tables = [word for word in words if "=" not in word]
    options.overrides = [word for word in words if "=" in word]
    unknown = [table for table in options.tables if table not in TABLES]
    if unknown or not options.tables:
        parser.error(f"no table {', '.join(unknown)}; choose among {', '.join(TABLES)}")
    on_papers = options.coco is not None or options.flickr30k is not None
    if on_papers and options.data is not None:
        parser.error(f"--data {options.data} does not go with --coco and --flickr30k; give the one or the others")
    options.data = options.data or (None if on_papers else "scenes")
    if options.data not in (None, "scenes") and (options.root is None or not options.root.is_dir()):
        parser.error(f"--data {options.data} needs --root, the folder of its features; {options.root} is no folder")
    options.out = options.out or Path("runs") / f"reproduce-{options.data or 'papers'}"
    options.lines = [line for line in options.lines.split(",") if line]
    return options


def main() -> None:
    """Run the tables; exit status 1 where a command failed or nothing can be run."""
    options = arguments()
    places = Places(options.data, options.root, options.coco, options.flickr30k)
    jobs_of = {
        table: jobs(table, places, options.seeds, options.lines, options.overrides, options.out)
        for table in options.tables
    }
    advice: dict[str, list[str]] = {}
    for table, (_, left_out) in jobs_of.items():
        for line, why in left_out.items():
            advice.setdefault(why.advice, []).append(f"{table.partition('/')[0]} {line}")
    print("".join(f"left out: {', '.join(lines)}: {text}\n" for text, lines in advice.items()), end="", flush=True)
    if not any(work for work, _ in jobs_of.values()):
        sys.exit(
            f"nothing of {', '.join([*options.tables, *options.lines])} can be run; paper_tables.csv lists the rows"
        )
    together = [job for work, _ in jobs_of.values() for job in work]
    print(plan(together, options), flush=True)
    if options.dry_run:
        return
    failed = carry_out(together)
    for table, (work, left_out) in jobs_of.items():
        if work or left_out:
            print(f"\n{write(table, work, left_out, options.overrides, options.out)}")
    if failed:
        sys.exit("\n".join([f"{len(failed)} commands failed:", *failed]))


if __name__ == "__main__":
    main()
