"""Reading run folders: run.json, metrics.csv and evaluations/*.json, exactly as training and evaluation wrote them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vsehub.checks import InputError, existing, is_finite, regular, require
from vsehub.io.files import require_links_inside
from vsehub.io.records import EVALUATION, RUN, read_record
from vsehub.io.text import unescaped


@dataclass(frozen=True)
class Run:
    """One run folder.

    path: its path relative to the folder that holds all runs of the report. record: run.json. evaluations: file stem ->
    its JSON, for evaluations of the run's best checkpoint or an ensemble with it. history: metrics.csv, sparse, empty
    if the run wrote none. stale: the omitted evaluations of other checkpoints.
    """

    path: str
    record: dict
    evaluations: dict[str, dict]
    history: pd.DataFrame
    stale: Sequence[str] = ()

    @property
    def finished(self) -> bool:
        """True if training has finished."""
        return self.record["status"] == "finished"


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Every run in or below `folders`, each once, ordered by path.

    Raises InputError: a folder is absent, no run.json is found, a file is cut short or of another schema, or a
    protocol's name stands for different folds, whose values are not comparable.
    """
    paths = find_runs(folders)
    root = os.path.commonpath([path.parent for path in paths])
    runs = [read_run(path, path.relative_to(root).as_posix()) for path in paths]
    folds: dict[tuple[str, str], tuple] = {}
    for run in runs:
        for name, evaluation in run.evaluations.items():
            size = evaluation["folds"], evaluation["fold_images"]
            require(
                folds.setdefault((evaluation["split"], evaluation["protocol"]), size) == size,
                f"{run.path}/evaluations/{name}: the protocol {evaluation['protocol']} has other folds than in another "
                "evaluation. Give your protocols different names (protocol.name=NAME), or report the runs separately",
            )
    return runs


def find_runs(folders: Sequence[str | Path]) -> list[Path]:
    """The resolved folders with a run.json, in or below `folders`; links to folders are not followed."""
    hint = "Give a folder that `vsehub train` wrote, or a parent of such folders"
    paths = {
        Path(path).resolve()
        for folder in folders
        for path, _, names in os.walk(existing("run folder", folder, hint))
        if "run.json" in names
    }
    searched = ", ".join(map(str, folders))
    require(bool(paths), f"no runs: there is no run.json in or below {searched} (links are not followed). {hint}")
    return sorted(paths)


def read_run(folder: Path, path: str) -> Run:
    """The run in `folder`, named `path` in the report. Raises InputError if a file cannot be used."""
    require_links_inside(folder)
    record = read_record(folder / "run.json", RUN, "Train the run again, or take its folder out of the report")
    evaluations = {file.stem: _evaluation(file) for file in sorted((folder / "evaluations").glob("*.json"))}
    best = (record.get("best") or {}).get("sha256")
    # Of an earlier best checkpoint: the run continued after it was measured.
    stale = [
        name for name, evaluation in evaluations.items() if best is not None and best not in evaluation["checkpoints"]
    ]
    current = {name: evaluation for name, evaluation in evaluations.items() if name not in stale}
    return Run(path, record, current, read_history(folder / "metrics.csv"), stale)


def _evaluation(file: Path) -> dict:
    """The evaluation; an ensemble's criterion names its members' losses, so that its values stay separate."""
    evaluation = read_record(file, EVALUATION, "Delete that file and evaluate the run again")
    contributions, members = evaluation.get("contributions"), evaluation.get("ensemble")
    require(
        contributions is None or (len(contributions) == evaluation["images"] and all(map(is_finite, contributions))),
        f"{file} has contributions that are not one number for each image: it was changed by hand",
    )
    if members:
        losses = " + ".join(str(member["label"]) for member in members)
        evaluation["criterion"] += f", ensemble of {len(members)} ({losses})"
    return evaluation


def read_history(file: Path) -> pd.DataFrame:
    """The rows of metrics.csv; an empty frame if the file is absent or empty."""
    if not file.exists() or not regular(file).read_bytes().strip():
        return pd.DataFrame()
    try:
        return pd.read_csv(file, dtype=float).rename(columns=unescaped)
    except ValueError as error:  # pandas' ParserError and UnicodeDecodeError are such
        raise InputError(
            f"{file} is not a table of numbers ({error}). Delete it to report without its curve"
        ) from error
