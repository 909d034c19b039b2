"""The page of `vsehub report`: notes on the runs, the metadata of each setting, the origin of all values."""

from collections.abc import Sequence

import pandas as pd

from vsehub.report.pages.sections import Section
from vsehub.report.recipes import Series, differing
from vsehub.report.results import KEYS
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, code_text, duration, hardware_text, versions_text

LOSS_KEYS = ("loss", "bank")  # settings that are expected to differ between losses


def run_notes(runs: Sequence[Run], frame: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> list[str]:
    """The notes that are needed to read the report's values correctly; `frame` is `results` of the runs."""
    notes = []
    for run in runs:
        about = f"{run.record['name']} ({run.path}, status {run.record['status']})"
        if not run.evaluations:
            notes.append(f"{'not evaluated' if run.finished else 'unfinished'}, in no table: {about}")
        elif not run.finished:
            notes.append(f"unfinished, values of the part that ran: {about}")
        if run.stale:
            notes.append(
                f"evaluations of other checkpoints than the best, in no table: {about}: {', '.join(run.stale)}"
            )
    twice = frame[frame.duplicated([*KEYS, "seed"], keep=False)]
    for place, group in twice.groupby(["label", "criterion", "protocol", "dataset"], sort=False):
        names, paths = ", ".join(place), ", ".join(sorted(set(group["run"])))
        notes.append(f"a seed counted more than once, ± is not over seeds only, not tested: {names} ({paths})")
    for pair in dict.fromkeys(series[:2] for series in recipes):
        keys = differing(settings for series, settings in recipes.items() if series[:2] == pair)
        others = [key for key in keys if key.partition(".")[0] not in LOSS_KEYS]
        if others:
            notes.append(f"recipes differ in more than the loss ({' · '.join(pair)}): {', '.join(others)}")
    return notes


def setting_facts(lines: pd.DataFrame) -> list[tuple[str, str]]:
    """Sizes and references of one setting; `lines` are its rows of `results`."""
    sizes = [
        f"{images:,} images and {texts:,} texts, {'one ranking' if folds == 1 else f'mean over {folds} folds'}"
        for images, texts, folds in lines[["images", "texts", "folds"]].drop_duplicates().itertuples(index=False)
    ]
    seen = lines[lines["reference"] != "none"]
    references = (seen["criterion"] + " " + seen["reference"] + ": " + seen["reference_set"]).unique()
    facts = [("measured on", sizes), ("references", references)]
    return [(name, "; ".join(texts)) for name, texts in facts if len(texts)]


def origin(runs: Sequence[Run], series: dict[str, Series], recipes: dict[Series, dict[str, str]]) -> list[Section]:
    """The sections of the differences between recipes and of the runs."""
    keys = differing(recipes.values())
    names = [" · ".join((*one[:2], one.title)) for one in recipes]
    rows = [[key, *(settings.get(key, "–") for settings in recipes.values())] for key in keys]
    recipe = Section("Recipes", tables=[ReportTable(["setting", *names], rows, "Settings that differ.", 99)])
    lines = [
        {
            "run": run.path,
            "name": run.record["name"],
            "loss": series[run.path].title if run.path in series else run.record["label"],
            "seed": run.record["seed"],
            "status": run.record["status"],
            "best epoch": (run.record.get("best") or {}).get("epoch", "–"),
            "wall time": duration(run.record.get("wall_seconds")),
            "started": run.record.get("started", "–"),
            "code": code_text(run.record),
            "command": run.record.get("command") or "–",
        }
        for run in runs
    ]
    table = ReportTable.of(pd.DataFrame(lines), words=99)
    texts = [("hardware", hardware_text(run.record.get("hardware"))) for run in runs]
    texts += [("versions", versions_text(run.record.get("versions"))) for run in runs]
    return [*([recipe] if rows else []), Section("Runs", tables=[table], facts=list(dict.fromkeys(texts)))]
