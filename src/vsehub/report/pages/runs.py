"""The page of `vsehub report`: notes on the runs, the metadata of each setting, the origin of all values."""

from collections.abc import Sequence

import pandas as pd

from vsehub.report.pages.sections import Section
from vsehub.report.recipes import Series, differing, noise_text
from vsehub.report.results import DIRECTIONS, HEADINGS, KEYS, RANKS, Setting, by_parameters, display, parameters_text
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, code_text, duration, hardware_text, versions_text

LOSS_KEYS = ("loss", "bank")  # settings that are expected to differ between losses


def run_notes(runs: Sequence[Run], frame: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> list[str]:
    """The notes that are needed to read the report's values correctly; `frame` is `results` of the runs."""
    notes = []
    for run in runs:
        epochs = run.history["epoch"].dropna() if "epoch" in run.history else pd.Series(dtype=float)
        progress = "no epoch logged" if epochs.empty else f"last epoch logged {int(epochs.max())}"
        about = f"{run.record['name']} ({run.path}, status {run.record['status']}, {progress})"
        if not run.evaluations:
            notes.append(f"{'not evaluated' if run.finished else 'unfinished'}, in no table: {about}")
        elif not run.finished:
            notes.append(f"unfinished, values of the part that ran: {about}")
        if run.stale:
            notes.append(
                f"evaluations of other checkpoints than the best, in no table: {about}: {', '.join(run.stale)}"
            )
    # A repeated seed: the standard deviation is not over seeds only.
    for _, group in by_parameters(frame).groupby(KEYS, sort=False):
        twice = sorted(set(group["seed"][group["seed"].duplicated()]))
        if twice:
            place = ", ".join(group.iloc[0][["label", "criterion", "protocol", "dataset"]])
            notes.append(
                f"seed {', '.join(map(str, twice))} counted more than once, ± is not over seeds only, not tested: "
                f"{place} ({', '.join(sorted(set(group['run'])))})"
            )
    for key, group in frame.groupby(["dataset", "criterion", *Setting._fields[1:], "reference"], sort=False):
        texts = sorted(set(group.apply(parameters_text, axis=1)))
        if len(texts) > 1 and not group.duplicated("run").any():
            notes.append(f"parameters of {key[1]} differ between runs on {key[0]}: {'; '.join(texts)}")
    dirty = [run.record["name"] for run in runs if (run.record.get("git") or {}).get("dirty")]
    if dirty:
        notes.append(f"uncommitted changes in the code of {len(dirty)} of {len(runs)} runs: {', '.join(dirty)}")
    for pair in dict.fromkeys(series[:2] for series in recipes):
        keys = differing(settings for series, settings in recipes.items() if series[:2] == pair)
        others = [key for key in keys if key.partition(".")[0] not in LOSS_KEYS]
        if others:
            notes.append(f"recipes differ in more than the loss ({' · '.join(pair)}): {', '.join(others)}")
    return notes


def setting_facts(lines: pd.DataFrame, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Sizes, references and data of one setting; `lines` are its rows of `results`."""
    sizes = [
        f"{int(images):,} images and {int(texts):,} texts, "
        + ("one ranking" if folds == 1 else f"mean over {int(folds)} folds")
        for images, texts, folds in lines[["images", "texts", "folds"]].drop_duplicates().dropna().itertuples(False)
    ]
    seen = lines[lines["reference"] != "none"]
    references = (seen["criterion"] + " " + seen["reference"] + ": " + seen["reference_set"]).unique()
    data = data_facts([run for run in runs if run.path in set(lines["run"])])
    facts = [("measured on", sizes), ("references", references), ("data", data)]
    return [(name, "; ".join(texts)) for name, texts in facts if len(texts)]


def data_facts(runs: Sequence[Run]) -> list[str]:
    """Sizes and fingerprint of every split used by the runs: "train 2,000 images, 10,000 captions (ab12)"."""
    found: dict[str, None] = {}
    for run in runs:
        for split, facts in (run.record.get("data") or {}).items():
            facts = facts or {}
            sizes = ", ".join(f"{facts[key]:,} {key}" for key in ("images", "captions") if key in facts)
            name = str(facts.get("fingerprint", "no fingerprint"))[:12]
            if split == "train" and "noise" in run.record:  # each seed has different noise
                name = f"{run.record['noise']['clean_fingerprint'][:12]}, noise of protocol {noise_text(run)}"
            found[f"{split} {sizes} ({name})"] = None
    return list(found) or ["not recorded"]


def page_table(rows: pd.DataFrame) -> ReportTable:
    """The results of one setting as pages show them: the loss first, ranks grouped by direction.

    A phone only shows the first columns at once. The setting is the section's heading.
    """
    shown = display(rows).drop(columns=list(Setting._fields))
    last = ["seeds", HEADINGS["wall_seconds"]]
    shown = shown[[*shown.columns.drop(last), *last]]
    ranks = {f"{side} {heading}": (DIRECTIONS[side], heading) for side in DIRECTIONS for _, heading in RANKS}
    over, head = zip(*(ranks.get(name, ("", name)) for name in shown), strict=True)
    keys = shown[["criterion", "reference"]]
    return ReportTable(
        head,
        shown.to_numpy(dtype=str).tolist(),
        words=shown.columns.get_loc("reference") + 1,
        notes=2,
        over=over,
        starts=(keys != keys.shift()).any(axis=1).tolist(),
        caption="Mean over the seeds, ± one sample standard deviation.",
    )


def origin(runs: Sequence[Run], series: dict[str, Series], recipes: dict[Series, dict[str, str]]) -> list[Section]:
    """The sections of the differences between recipes and of the runs."""
    keys = differing(recipes.values())
    names = [" · ".join((*one[:2], one.title)) for one in recipes]
    rows = [[key, *(settings.get(key, "–") for settings in recipes.values())] for key in keys]
    recipe = Section("Recipes", tables=[ReportTable(["setting", *names], rows, "Settings that differ.", 99, wrap=True)])
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
        }
        for run in runs
    ]
    table = ReportTable.of(pd.DataFrame(lines), words=99)
    texts = [("hardware", hardware_text(run.record.get("hardware"))) for run in runs]
    texts += [("versions", versions_text(run.record.get("versions"))) for run in runs]
    return [*([recipe] if rows else []), Section("Runs", tables=[table], facts=list(dict.fromkeys(texts)))]
