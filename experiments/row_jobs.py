"""The jobs of a published table: runs, each trained once, and the measurements of its rows upon them."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.features_needed import missing
from experiments.row_files import Row, criterion_settings, elsewhere, read, rows
from experiments.running import status, training

OCCURRENCES = "acl-srw2019/5"  # N_1 of rows of ACL's other tables, in one ranking of all test images
OCCURRENCE_LINES = ("2.4", "2.5", "2.6", "3.5", "3.6")  # COCO, ResNet152: sum, max, kNN-margin; with is and csls


class LeftOut(Exception):
    """Why a row cannot be run here; `advice`: what would help, where there is more to say than the reason."""

    def __init__(self, reason: str, advice: str | None = None):
        super().__init__(reason)
        self.advice = advice or reason


@dataclass(frozen=True)
class Places:
    """Folders of the data: the papers' data sets, or `data`, the name of another ("scenes" needs no folder)."""

    data: str | None
    root: Path | None
    coco: Path | None
    flickr30k: Path | None

    def settings(self, row: Row) -> list[str]:
        """The settings that train a row on the data at hand. Raises LeftOut."""
        if self.data is None:
            base = getattr(self, row.dataset)
            if base is None:
                raise LeftOut(f"no features of {row.dataset} given", f"give {row.dataset.upper()}=FOLDER")
            advice = missing(row.dataset, base, row.features)
            if advice:
                raise LeftOut(f"no features of {row.dataset}, {row.features}, at hand", advice)
            return [f"experiment={row.trained}", f"data.root={base / row.features}"]
        regions = row.features == "regions"
        if self.data == "scenes":
            overrides = elsewhere(row.trained, published_rate=False)
            if regions:  # the places of the network's last map
                overrides = [setting for setting in overrides if not setting.startswith("image_encoder=")] + [
                    "image_encoder.pooling=none"
                ]
            return ["experiment=demo", *overrides]
        folder = features_folder(self.root, 3 if regions else 2)
        if folder is None:
            kind, subfolder = ("several regions", "grid") if regions else ("one vector", "global")
            raise LeftOut(
                f"no features of {self.data} with {kind} an image",
                f"{self.root} and {self.root / subfolder} have no train_ims.npy with {kind} an image",
            )
        place = ["experiment=papers", "data=precomp", f"data.root={folder}", f"data.name={self.data}"]
        return [*place, *elsewhere(row.trained)]


def features_folder(root: Path, dimensions: int) -> Path | None:
    """`root`, or that of its subfolders, whose train_ims.npy has 2 (images, F) or 3 (images, regions, F) dimensions."""
    for folder in (root, root / "global", root / "grid"):
        path = folder / "train_ims.npy"
        if path.is_file() and np.load(path, mmap_mode="r").ndim == dimensions:
            return folder
    return None


@dataclass(frozen=True)
class Job:
    """A row with one seed: the run that it is measured on, and what trains that.

    measured_by: the criterion and protocol that training measures by as it ends.
    """

    row: Row
    seed: int
    folder: Path
    overrides: list[str]
    measured_by: tuple[str, str]

    def to_do(self) -> list[list[str]]:
        """The commands that are left, as far as can be told before the first of them is run."""
        training, measuring = self.training(), self.measuring()
        row = self.row
        if training and (row.criterion, row.protocol, row.tuned) == (*self.measured_by, False):
            measuring = None
        return [command for command in (training, measuring) if command]

    def training(self) -> list[str] | None:
        """The command that trains or goes on, None where the run is finished."""
        return training(self.folder, self.overrides)

    def measuring(self) -> list[str] | None:
        """The command that measures the run as the row says, None where that is done."""
        if self.evaluation() is not None:
            return None
        settings = [f"criterion={self.row.criterion}", f"protocol={self.row.protocol}", f"tune={self.row.tuned}"]
        return ["evaluate", f"checkpoint={self.folder / 'checkpoints' / 'best.safetensors'}", *settings]

    def evaluation(self) -> dict | None:
        """The evaluation of this row, with its run's name, loss and seed; None where it was not made."""
        if status(self.folder) != "finished":
            return None
        for path in sorted((self.folder / "evaluations").glob(f"test-*-{self.row.criterion}*.json")):
            record = json.loads(path.read_text())
            if self._is_of_row(record):
                run = json.loads((self.folder / "run.json").read_text())
                return record | {key: run[key] for key in ("dataset", "architecture", "label", "seed")}
        return None

    def _is_of_row(self, record: dict) -> bool:
        """True if an evaluation is the row's: not an ensemble's, inductive or of other settings."""
        row = self.row
        same = (record["criterion"], record["protocol"], bool(record["tuned"])) == (
            row.criterion,
            row.protocol,
            bool(row.tuned),
        )
        plain = record["reference"] != "inductive" and "ensemble" not in record
        fixed = criterion_settings(row.criterion).items()  # all but what the row chooses on validation
        return (
            same and plain and all(record["parameters"][name] == value for name, value in fixed if name != "relaxation")
        )


def jobs(
    table: str, places: Places, seeds: list[int], lines: list[str], overrides: list[str], out: Path
) -> tuple[list[Job], dict[str, LeftOut]]:
    """The jobs of a table ("aaai2020/2"), seed by seed, and the lines that are left out, with the reason.

    lines: these rows alone; an empty list takes all. Runs go below out/runs, named by their settings.
    """
    paper, _, number = table.partition("/")
    table_rows, others = rows(paper, number) if table != OCCURRENCES else (occurrence_rows(), [])
    left_out = {line: LeftOut("another paper's architecture") for line in others if not lines or line in lines}
    work = []
    for seed in seeds:
        for row in table_rows:
            if lines and row.line not in lines:
                continue
            try:
                settings = [*places.settings(row), *overrides]
            except LeftOut as reason:
                left_out[row.line] = reason
                continue
            at_the_end, measured = ("nns", "single"), replace(row, protocol="single")
            if places.data is None:
                at_the_end = ("nns", read(row.trained)[1]["protocol"])
                measured = replace(row, protocol="full5k") if table == OCCURRENCES else row
            folder = out / "runs" / folder_name(settings, seed)
            work.append(Job(measured, seed, folder, [*settings, f"seed={seed}"], at_the_end))
    return work, left_out


def occurrence_rows() -> list[Row]:
    """The rows that ACL table 5 is made of here."""
    candidates = [*rows("acl-srw2019", "2")[0], *rows("acl-srw2019", "4")[0]]
    return [row for row in candidates if row.line in OCCURRENCE_LINES]


def folder_name(overrides: list[str], seed: int) -> str:
    """A run folder's name: the loss or the row, a digest of the overrides and of the experiment's file, the seed."""
    groups = dict(setting.split("=", 1) for setting in overrides)
    written = json.dumps([sorted(overrides), read(groups["experiment"]) if "experiment" in groups else None])
    digest = hashlib.sha256(written.encode()).hexdigest()[:8]
    return f"{groups.get('loss') or groups['experiment'].replace('/', '-')}-{digest}-{seed}"
