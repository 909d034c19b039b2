"""The page of `vsehub report`: notes on the runs, the metadata of each setting, the origin of all values."""

from collections.abc import Sequence

import pandas as pd

from vsehub.report.recipes import CODE, Series, differing
from vsehub.report.results import KEYS
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, Section, code_text, duration, hardware_text, versions_text

NEAR_CHANCE = 1.2  # times the rsum of random rankings
LOSS_KEYS = ("loss", "bank", f"{CODE}loss", f"{CODE}bank")  # settings that are expected to differ between losses


def run_notes(
    runs: Sequence[Run], frame: pd.DataFrame, series_by_run: dict[str, Series], recipes: dict[Series, dict[str, str]]
) -> list[str]:
    """The notes that are needed to read the report's values correctly; `frame` is `results` of the runs."""
    notes = []
    for run in runs:
        notes += notes_of_run(run, series_by_run[run.path].title if run.path in series_by_run else run.record["label"])
    last = (frame["best_epoch"] + 1 == frame["epochs"]) & (frame["epochs"] > 1)
    rising = frame.loc[last, "run"].nunique()
    if rising:
        notes.append(
            f"still rising at the last epoch, so that more epochs may change the order: {rising} of "
            f"{frame['run'].nunique()} runs, marked in the table of runs"
        )
    twice = frame[frame.duplicated([*KEYS, "seed"], keep=False)]
    for key, group in twice.groupby(["label", "criterion", "protocol", "dataset"], sort=False):
        names, paths = ", ".join(key), ", ".join(sorted(set(group["run"])))
        notes.append(f"a seed counted more than once, ± is not over seeds only, not tested: {names} ({paths})")
    for pair in dict.fromkeys((series.dataset, series.architecture) for series in recipes):
        keys = differing(settings for series, settings in recipes.items() if series[:2] == pair)
        others = [key for key in keys if key.partition(".")[0] not in LOSS_KEYS]
        if others:
            notes.append(f"recipes differ in more than the loss ({' · '.join(pair)}): {', '.join(others)}")
    return notes


def notes_of_run(run: Run, title: str) -> list[str]:
    """The notes that are needed to read the values of a run correctly."""
    notes = []
    record = run.record
    about = f"{title}, seed {record['seed']} ({run.path}, status {record['status']})"
    if collapse := record.get("collapsed"):
        notes.append(
            f"collapsed, so that a lead over it proves nothing: {about}: "
            f"since step {collapse['step']} {' and '.join(collapse['seen'])}"
        )
    chance, best = record.get("chance_rsum", 0), (record.get("best") or {}).get("val/rsum")
    if best is not None and best < NEAR_CHANCE * chance:
        notes.append(
            f"hardly above random rankings, so that a comparison tells nothing: {about}: val rsum {best:.1f}, "
            f"{chance:.1f} by chance"
        )
    if not run.evaluations:
        notes.append(f"{'not evaluated' if run.finished else 'unfinished'}, in no table: {about}")
    elif not run.finished:
        notes.append(f"unfinished, values of the part that ran: {about}")
    if run.stale:
        notes.append(f"evaluations of other checkpoints than the best, in no table: {about}: {', '.join(run.stale)}")
    return notes


def setting_facts(lines: pd.DataFrame) -> list[tuple[str, str]]:
    """Sizes and references of one setting; `lines` are its rows of `results`."""
    sizes = [
        f"{images:,} images and {texts:,} texts, {'one ranking' if folds == 1 else f'mean over {folds} folds'}"
        for images, texts, folds in lines[["images", "texts", "folds"]].drop_duplicates().itertuples(index=False)
    ]
    referenced = lines[lines["reference"] != "none"]
    references = (referenced["criterion"] + " " + referenced["reference"] + ": " + referenced["reference_set"]).unique()
    return [
        (name, "; ".join(texts))
        for name, texts in {"measured on": sizes, "references": references}.items()
        if len(texts)
    ]


def _best_epoch(record: dict) -> str:
    best = (record.get("best") or {}).get("epoch")
    if best is None:
        return "–"
    is_last = best + 1 == record.get("epochs")
    return f"{best + 1}, the last" if is_last else str(best + 1)


def origin_sections(
    runs: Sequence[Run], series_by_run: dict[str, Series], recipes: dict[Series, dict[str, str]]
) -> list[Section]:
    """The sections of the differences between recipes and of the runs."""
    keys = differing(recipes.values())
    names = [" · ".join((series.dataset, series.architecture, series.title)) for series in recipes]
    rows = [[key, *(settings.get(key, "–") for settings in recipes.values())] for key in keys]
    # text_left: more than the columns, so that all are text.
    recipe = Section("Recipes", tables=[ReportTable(["setting", *names], rows, "Settings that differ.", text_left=99)])
    lines = [
        {
            "loss": series_by_run[run.path].title if run.path in series_by_run else run.record["label"],
            "seed": run.record["seed"],
            "command": run.record.get("command") or "–",
            "status": run.record["status"] + (", collapsed" if run.record.get("collapsed") else ""),
            "best epoch": _best_epoch(run.record),
            "folder": run.path,
            "data": run.record["dataset"],
            "wall time": duration(run.record.get("wall_seconds")),
            "started": run.record.get("started", "–"),
            "code": code_text(run.record),
        }
        for run in runs
    ]
    texts = [("hardware", hardware_text(run.record.get("hardware"))) for run in runs]
    texts += [("versions", versions_text(run.record.get("versions"))) for run in runs]
    return [
        *([recipe] if rows else []),
        Section(
            "Runs", tables=[ReportTable.from_frame(pd.DataFrame(lines), text_left=99)], facts=list(dict.fromkeys(texts))
        ),
    ]
