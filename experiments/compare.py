"""Train several losses with several seeds, evaluate each under several criteria, and report.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python -m experiments compare --out runs/mine --losses sum max hal hal+mb --seeds 0 1 2 -- data.size=large
"""

import shutil
import signal
import sys
import time
from itertools import chain, product
from pathlib import Path

from experiments.running import cores, duration, run, run_all, run_chains, training, typed
from experiments.study import DRY_RUN, Given, evaluated, integers, option, run_folder, verb


def chains(options: Given) -> dict[str, list[list[str]]]:
    """What is still to be done of each run, by its name: training, then one command for all evaluations."""
    commands_of = {}
    wanted = [[f"criterion={name}", f"reference={ref}"] for name in options.criteria for ref in options.references]
    for seed, label in product(options.seeds, options.losses):
        folder = run_folder(options.out, label, seed)
        overrides = [*loss_overrides(label), f"seed={seed}", f"study={options.out.name}", *options.overrides]
        evaluation = [
            "evaluate",
            "-m",
            f"checkpoint={folder / 'checkpoints' / 'best.safetensors'}",
            f"criterion={','.join(options.criteria)}",
            f"reference={','.join(options.references)}",
            f"hydra.sweep.dir={folder / 'evaluations'}",
        ]
        missing = [settings for settings in wanted if not evaluated(folder, settings)]
        commands = [training(folder, overrides), evaluation if missing else None]
        commands_of[folder.name] = [command for command in commands if command]
    return {name: commands for name, commands in commands_of.items() if commands}


def loss_overrides(label: str) -> list[str]:
    """The choices behind a label of the papers' tables."""
    loss, _, bank = label.partition("+")
    return [f"loss={loss}", "bank=memory" if bank == "mb" else "bank=none"]


def lesson(report: Path, labels: list[str]) -> list[str]:
    """Differences in plain search from the first loss, and of a bank from the same loss without it: a sentence each."""
    import pandas as pd

    table, pairs = (pd.read_csv(report / name) for name in ("table.csv", "paired.csv"))
    hubs = table[(table["criterion"] == "nns") & (table["split"] == "test")].set_index("label")["hubness/hs_sum"]
    bare = {label: label.removesuffix("+mb") for label in labels}
    wanted = [
        {label, bare[label] if bare[label] != label and bare[label] in labels else labels[0]} for label in labels[1:]
    ]
    return [
        f"{row.one} against {row.other}: recall {row.difference:+.1f} (rsum; 95 % over the images {row.low:+.1f} to "
        f"{row.high:+.1f}{', may be chance' if row.low <= 0 <= row.high else ''}), hubs "
        f"{hubs[row.one] - hubs[row.other]:+.1f} (hs_sum; fewer are better); {row.outcome}"
        for row in pairs[pairs["family"] == "losses under nns"].itertuples()
        if {row.one, row.other} in wanted and hubs.index.is_unique  # unlike that of runs on several data sets
    ]


@verb(
    option("--out", type=Path, required=True, help="folder of the runs and the report"),
    option("--losses", nargs="+", default=["sum", "max", "hal", "hal+mb"], help="default: sum max hal hal+mb"),
    option("--seeds", nargs="+", type=integers, default=[[0]], metavar="SEED", help="0 1 2, or 0,1,2; default: 0"),
    option("--criteria", nargs="*", default=[], help="beside nns, e.g. csls is"),
    option(
        "--references",
        nargs="*",
        default=["queries"],
        choices=["queries", "train"],
        help="whose scores a criterion sees: queries (transductive), train (inductive)",
    ),
    option("--title", help="the page's title"),
    option("--jobs", type=int, help="runs at once, one thread each; default: the cores, 1 where a GPU is seen"),
    DRY_RUN,
    option("overrides", nargs="*", help="settings of every run, after --, e.g. -- data.size=large"),
)
def main(options: Given) -> None:
    """Train, evaluate and report what is missing; stops at the first command that fails."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the commands, as Ctrl-C does
    start, work = time.perf_counter(), chains(options)
    title = [f'title="{options.title}"'] if options.title else []  # in quotes, for its commas
    report = ["report", str(options.out / "runs"), f"out={options.out / 'report'}", "overwrite=true", *title]
    commands = [*chain.from_iterable(work.values()), report]
    if options.dry_run:
        run_all(commands, True)
        return
    jobs = max(1, min(options.jobs or (1 if shutil.which("nvidia-smi") else cores()), len(work)))
    known = f", {duration(commands, jobs)}" if options.overrides == ["experiment=demo"] else ""
    print(f"commands to run: {len(commands)}, {jobs} at a time{known}", flush=True)
    failed = run_chains(work, jobs, len(commands))
    if failed or not run(report, f"[{len(commands)}/{len(commands)}]"):
        sys.exit(f"this command failed: {(failed or [typed(report)])[0]}")
    print("\n".join(["", *lesson(options.out / "report", options.losses)]))
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes; the page: {options.out / 'report' / 'index.html'}")
