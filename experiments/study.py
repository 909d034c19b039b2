"""The class of a study, and the verbs that all studies share.

A study is a folder with study.py, which declares `STUDY`, and README.md; `python -m experiments NAME VERB` runs it:

    train DATA      train each case with each seed, as far as that is not done
    evaluate        measure the trained runs on the test split as the study asks
    collect         write the table of what the runs reached, a row a run
    render          draw the figures and the README's generated parts from the tables

A study has the verbs that follow from what it declares, and those of its own.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.running import results, run_all, status, training
from vsehub.checks import InputError, require
from vsehub.io.files import write_text

if TYPE_CHECKING:  # the embeddings' demonstration is installed without pandas
    import pandas as pd

ROOT = Path(__file__).parents[1]
SCENES = "scenes"
FEATURES = ("data=precomp", "data.root={data}", "data.name={name}")
Given = argparse.Namespace
Option = tuple[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Verb:
    """A command's function with its arguments; the first line of the function's docstring is its help."""

    run: Callable[[Given], None]
    options: tuple[Option, ...]

    def __call__(self, options: Given) -> None:
        self.run(options)

    @property
    def about(self) -> str:
        """The function's docstring."""
        return self.run.__doc__ or ""


def option(*names: str, **settings: Any) -> Option:
    """An argument of a verb, as `ArgumentParser.add_argument` takes it."""
    return names, settings


def verb(*options: Option) -> Callable[[Callable[[Given], None]], Verb]:
    """The decorator that makes a function a verb with these arguments."""
    return lambda function: Verb(function, options)


def integers(text: str) -> list[int]:
    """The numbers in "0,1,2"."""
    return [int(number) for number in text.split(",")]


DATA = option("data", metavar="DATA", help="folder of *_ims.npy and *_caps.txt, or scenes where the study has them")
OUT = option("--out", type=Path, help="folder of the runs; default: runs/STUDY, of other parts runs/STUDY-PART")
FOLDER = option("folder", nargs="?", type=Path, help="of the study's tables and page; default: the study's own")
TO = option(
    "--to", dest="folder", type=Path, metavar="FOLDER", help="where tables are written; default: the study's own"
)
RUNS = option("runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders of them")
MEASURED = option("--out", dest="measured", type=Path, required=True, help="folder of the measurements")
DATA_ROOT = option("--root", help="where the data lies now, if elsewhere than at training")
MORE_SETS = option("--more", nargs="*", type=Path, default=[], metavar="FILE.npz", help="further sets")
SEEDS = option("--seeds", nargs="+", type=integers, metavar="SEED", help="0 1 2, or 0,1,2; default: the study's own")
CASES = option("--cases", nargs="+", metavar="CASE", help="these alone; * stands for anything: --cases 'hal*'")
DRY_RUN = option("--dry-run", action="store_true", help="print the commands, run nothing")
NAME = option("--name", default="flickr8k", help="what reports call the data; default: %(default)s")
MORE = option("--settings", nargs="+", default=[], metavar="KEY=VALUE", help="further settings of every run")


@dataclass(frozen=True)
class Trainings:
    """Runs of each case with each seed.

    cases: the settings of each case, or what gives them. settings: those of every run; in both "{data}" and "{name}"
    stand for the data's folder and name, "{out}" for that of the runs. own_seeds: of single cases. evaluations: what
    `evaluate` measures of each run. row: the columns of a finished run in the table, None where there are none yet;
    column: the one that names the case. table: the whole table from the folder of the runs, where it is not a row a
    run. scenes: what is trained on the built-in scenes instead.
    """

    cases: Mapping[str, Sequence[str]] | Callable[[], Mapping[str, Sequence[str]]]
    settings: Sequence[str] = FEATURES
    seeds: Sequence[int] = (0, 1, 2)
    own_seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    evaluations: Sequence[Sequence[str]] = ()
    row: Callable[[Path], dict[str, Any] | None] = results
    column: str = "case"
    table: "Callable[[Path], pd.DataFrame] | None" = None
    scenes: "Trainings | None" = None

    def on(self, data: str) -> "Trainings":
        """The trainings on `data`, a folder or SCENES. Raises InputError where scenes are not trained on."""
        trainings = self.scenes if data == SCENES else self
        if trainings is None:
            raise InputError("this is not trained on scenes; give the folder of extracted features")
        return trainings

    def chosen(self, patterns: Sequence[str] | None) -> dict[str, Sequence[str]]:
        """The cases that fit one of the patterns; None: all. Raises InputError where a pattern fits none."""
        cases = dict(self.cases() if callable(self.cases) else self.cases)
        unknown = [pattern for pattern in patterns or () if not any(fnmatch(case, pattern) for case in cases)]
        require(not unknown, f"no case {', '.join(unknown)}; there are {', '.join(cases)}")
        return {
            case: settings
            for case, settings in cases.items()
            if patterns is None or any(fnmatch(case, pattern) for pattern in patterns)
        }

    def runs(
        self, out: Path, patterns: Sequence[str] | None = None, seeds: Sequence[int] | None = None
    ) -> dict[Path, tuple[str, Sequence[str]]]:
        """Each run's folder, its case and its own settings, seed by seed."""
        cases = self.chosen(patterns)
        own_seeds = {case: seeds or self.own_seeds.get(case, self.seeds) for case in cases}
        every = seeds or sorted({seed for seeds_of in own_seeds.values() for seed in seeds_of})
        return {
            run_folder(out, case, seed): (case, [*settings, f"seed={seed}"])
            for seed in every
            for case, settings in cases.items()
            if seed in own_seeds[case]
        }

    def rows(self, out: Path) -> "pd.DataFrame":
        """A row for each finished run in `out`, whatever its seed, in the order of the cases."""
        import pandas as pd

        folders = [
            {self.column: case} | row
            for case in self.chosen(None)
            for path in sorted(run_folder(out, case, "*").parent.glob(run_folder(out, case, "[0-9]*").name))
            if (row := self.row(path))
        ]
        return pd.DataFrame(folders)


def run_folder(out: Path, case: str, seed: int | str) -> Path:
    """The folder of a run."""
    return out / "runs" / f"{case.replace(', ', '+').replace(' ', '-')}-{seed}"


@dataclass(frozen=True)
class Study:
    """A study: its trainings, the page that is rendered from its tables, and verbs of its own.

    file: study.py, whose folder has the tables and the page. trainings: by the name of the table that `collect` makes
    of them. verbs: a study's own, which take the place of shared ones of the same name.
    """

    file: str
    trainings: Mapping[str, Trainings] = field(default_factory=dict)
    render: Callable[[Path], None] | None = None
    verbs: Mapping[str, Verb] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of its tables and its page."""
        return Path(self.file).parent

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.folder.name

    def all_verbs(self) -> dict[str, Verb]:
        """The verbs that it has, by name."""
        parts = list(self.trainings)
        part = [option("--part", choices=parts, default=parts[0], help="default: %(default)s")] if parts[1:] else []
        verbs: dict[str, Verb] = {}
        if parts:
            verbs["train"] = verb(DATA, OUT, *part, CASES, SEEDS, NAME, MORE, DRY_RUN)(self.train)
            verbs["collect"] = verb(OUT, *part, TO)(self.collect)
        if any(trainings.evaluations for trainings in self.trainings.values()):
            verbs["evaluate"] = verb(OUT, *part, CASES, SEEDS, DRY_RUN)(self.evaluate)
        verbs |= self.verbs
        if self.render is not None:
            verbs["render"] = verb(FOLDER)(self.draw)
        return verbs

    def part(self, options: Given) -> tuple[str, Trainings]:
        """The trainings that a command is of, with their table's name."""
        name = getattr(options, "part", None) or next(iter(self.trainings))
        return name, self.trainings[name]

    def train(self, options: Given) -> None:
        """Train each case with each seed; what is finished is not done again, and a killed run goes on."""
        _, part = self.part(options)
        require(
            options.data == SCENES or Path(options.data).is_dir(),
            f"DATA is {options.data}, which is no folder; give the folder of extracted features",
        )
        part = part.on(options.data)
        every = [*part.settings, f"study={self.name}"]
        runs = part.runs(options.out, options.cases, options.seeds)
        commands = [
            training(folder, [*(filled(setting, options) for setting in (*every, *settings)), *options.settings])
            for folder, (_, settings) in runs.items()
        ]
        waiting = [command for command in commands if command]
        # A study's own classes, which its configuration may name, are found by the trainings too.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        print(f"{len(runs)} runs, {len(runs) - len(waiting)} of them finished before", flush=True)
        finish(run_all(waiting, options.dry_run), "run")

    def evaluate(self, options: Given) -> None:
        """Measure the finished runs on the test split, as far as that is not done."""
        _, part = self.part(options)
        commands = [
            ["evaluate", f"checkpoint={folder / 'checkpoints' / 'best.safetensors'}", *wanted]
            for folder in part.runs(options.out, options.cases, options.seeds)
            if status(folder) == "finished"
            for wanted in part.evaluations
            if not evaluated(folder, wanted)
        ]
        finish(run_all(commands, options.dry_run), "evaluation")

    def collect(self, options: Given) -> None:
        """Write the table of the finished runs; rows of runs that are not there stay."""
        import pandas as pd

        name, part = self.part(options)
        path = options.folder / f"{name}.csv"
        finished = any(status(record.parent) == "finished" for record in (options.out / "runs").rglob("run.json"))
        require(finished, f"{options.out} has no finished run of {self.name}; train first")
        frame = part.rows(options.out) if part.table is None else part.table(options.out)
        if part.table is None and path.is_file():
            frame = joined(pd.read_csv(path), frame, part.column, list(part.chosen(None)))
        write_text(path, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
        print(f"{len(frame)} rows in {path}")

    def draw(self, options: Given) -> None:
        """Draw the figures and the README's generated parts from the tables."""
        assert self.render is not None
        self.render(options.folder)


def filled(setting: str, options: Given) -> str:
    """A setting with the data's folder and name in it, and the folder of the study's runs."""
    return (
        setting.replace("{data}", str(options.data)).replace("{name}", options.name).replace("{out}", str(options.out))
    )


def finish(failed: list[str], what: str) -> None:
    """End with status 1 where commands failed, and name them."""
    if failed:
        sys.exit("\n".join([f"{len(failed)} {what}s failed:", *failed]))


def evaluated(folder: Path, wanted: Sequence[str]) -> bool:
    """True if a run's test split was measured by these settings of `vsehub evaluate`."""
    settings = dict(setting.split("=", 1) for setting in wanted)
    wanted_kind = (
        settings.get("criterion", "nns"),
        settings.get("reference") == "train",
        settings.get("tune") == "true",
    )
    records = (json.loads(path.read_text()) for path in (folder / "evaluations").glob("test-*.json"))
    return any(
        (record["criterion"], record["reference"] == "inductive", bool(record["tuned"])) == wanted_kind
        for record in records
    )


def joined(old: "pd.DataFrame", new: "pd.DataFrame", column: str, cases: Sequence[str]) -> "pd.DataFrame":
    """The rows of both tables, the new one where both have a run; in the order of the cases and seeds."""
    import pandas as pd

    frame = pd.concat([old, new]).drop_duplicates([column, "seed"], keep="last")
    frame = frame[frame[column].isin(cases)]
    return frame.assign(place=frame[column].map(list(cases).index)).sort_values(["place", "seed"]).drop(columns="place")


def headings(folder: Path) -> Iterator[tuple[str, str]]:
    """Each study below `folder` with the title of its page."""
    for path in sorted(folder.glob("*/study.py")):
        yield path.parent.name, (path.parent / "README.md").read_text().partition("\n")[0].strip("# ")
