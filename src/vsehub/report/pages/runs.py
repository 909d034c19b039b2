"""The page of `vsehub report`: notes on the runs, the facts of each setting, the origin of all values."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from vsehub.report.pages.sections import Section
from vsehub.report.recipes import Series, differing, noise_text
from vsehub.report.results import DIRECTIONS, HEADINGS, KEYS, RANKS, Setting, by_parameters, parameters_text
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, code_text, duration, hardware_text, versions_text


def run_notes(runs: Sequence[Run], frame: pd.DataFrame) -> list[str]:
    """The notes that are needed to read the report's values correctly; `frame` is `results` of the runs."""
    return [
        *unfinished(runs),
        *stale(runs),
        *repeated_seeds(frame),
        *varied_parameters(frame),
        *code_versions(runs),
    ]


def unfinished(runs: Sequence[Run]) -> list[str]:
    """One note per run that was not evaluated, or that was evaluated although its training did not finish."""
    notes = []
    for run in runs:
        epochs = run.history["epoch"].dropna() if "epoch" in run.history else pd.Series(dtype=float)
        progress = "no epoch logged" if epochs.empty else f"last epoch logged {int(epochs.max())}"
        about = f"{run.record['name']} ({run.path}, status {run.record['status']}, {progress})"
        if not run.evaluations:
            notes.append(f"{'not evaluated' if run.finished else 'unfinished'}, in no table: {about}")
        elif not run.finished:
            notes.append(f"unfinished, values of the part that ran: {about}")
    return notes


def stale(runs: Sequence[Run]) -> list[str]:
    """One note per run with evaluations of checkpoints other than its best."""
    return [
        f"stale evaluations left out, of other checkpoints than the best: {run.record['name']} ({run.path}): "
        f"{', '.join(run.stale)}"
        for run in runs
        if run.stale
    ]


def repeated_seeds(frame: pd.DataFrame) -> list[str]:
    """Notes on rows that count a seed twice: their standard deviation is not over seeds only."""
    notes = []
    for key, group in by_parameters(frame).groupby(KEYS, sort=False):
        twice = sorted(seed for seed, count in Counter(group["seed"]).items() if count > 1)
        if twice:
            row = dict(zip(KEYS, key, strict=True))
            place = ", ".join(str(row[name]) for name in ("label", "criterion", "protocol", "dataset"))
            notes.append(
                f"seed {', '.join(map(str, twice))} counted more than once, ± is not over seeds only, not tested: "
                f"{place} ({', '.join(sorted(set(group['run'])))})"
            )
    return notes


def varied_parameters(frame: pd.DataFrame) -> list[str]:
    """Notes on criteria whose parameters differ between the runs of one row or comparison."""
    notes = []
    place = [*Setting._fields, "criterion", "reference"]
    for key, group in frame.groupby(place, sort=False):
        texts = sorted({parameters_text(line) for _, line in group.iterrows()})
        if len(texts) > 1 and not group.duplicated("run").any():
            row = dict(zip(place, key, strict=True))
            notes.append(
                f"parameters of {row['criterion']} differ between runs on {row['dataset']}: {'; '.join(texts)}"
            )
    return notes


def code_versions(runs: Sequence[Run]) -> list[str]:
    """Notes on runs from several versions of the code, or with uncommitted changes."""
    versions = sorted({code_text(run.record) for run in runs})
    notes = [f"{len(versions)} versions of the code: {'; '.join(versions)}"] if len(versions) > 1 else []
    dirty = [run.record["name"] for run in runs if (run.record.get("git") or {}).get("dirty")]
    if dirty:
        notes.append(f"uncommitted changes in the code of {len(dirty)} of {len(runs)} runs: {', '.join(dirty)}")
    return notes


def setting_facts(setting: Setting, frame: pd.DataFrame, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Protocol, criteria, seeds, data and hardware of one setting; `frame` is `results` of all runs."""
    lines = frame[(frame[list(Setting._fields)] == list(setting)).all(axis=1)]
    members = [run for run in runs if run.path in set(lines["run"])]
    seeds = sorted(set(lines["seed"]))
    return [
        ("protocol", f"{setting.protocol}, {setting.split} split: {'; '.join(_sizes(lines))}"),
        ("criteria", "; ".join(_criteria(lines))),
        ("seeds", ", ".join(map(str, seeds)) + ("; ± one sample standard deviation" if len(seeds) > 1 else "")),
        ("data", "; ".join(data_facts(members))),
        ("hardware", "; ".join(dict.fromkeys(hardware_text(run.record.get("hardware")) for run in members))),
    ]


def _sizes(lines: pd.DataFrame) -> list[str]:
    kinds = lines[["images", "texts", "folds"]].drop_duplicates().dropna()
    return [
        f"{int(images):,} images and {int(texts):,} texts, "
        + ("one ranking" if folds == 1 else f"mean over {int(folds)} folds")
        for images, texts, folds in kinds.itertuples(index=False)
    ] or ["sizes not recorded"]


def _criteria(lines: pd.DataFrame) -> list[str]:
    found: dict[str, None] = {}
    for _, line in lines.sort_values(["criterion", "reference"]).iterrows():
        facts = [parameters_text(line)] if parameters_text(line) else []
        if line["reference"] != "none":
            facts.append(f"{line['reference']}, reference: {line['reference_set']}")
        found[f"{line['criterion']} ({'; '.join(facts)})" if facts else line["criterion"]] = None
    return list(found)


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


def page_table(table: ReportTable) -> ReportTable:
    """A table of results as pages show it: the loss first, ranks grouped by direction, without constant columns.

    A phone only shows the first columns at once. Columns that the section's heading or facts repeat are omitted.
    """
    frame = table.frame()
    published = "line" in frame
    named = Setting._fields if published else (*Setting._fields, "criterion", "reference")
    constant = [name for name in named if name in frame and frame[name].nunique() == 1]
    last = [] if published else [name for name in ("seeds", HEADINGS["wall_seconds"]) if name in frame]
    loss = HEADINGS["label"]
    names = [loss, *(name for name in frame.columns if name not in (*constant, loss, *last)), *last]
    ranked = {f"{side} {heading}": (DIRECTIONS[side], heading) for side in DIRECTIONS for _, heading in RANKS}
    keys = [name for name in (["line"] if published else ["criterion", "reference"]) if name in frame]
    return ReportTable(
        head=[ranked[name][1] if name in ranked else name for name in names],
        rows=frame[names].to_numpy(dtype=str).tolist(),
        caption=table.caption,
        words=min(place for place, name in enumerate(names) if name in ranked),
        notes=len(last) + table.notes,
        over=[ranked[name][0] if name in ranked else "" for name in names],
        starts=(frame[keys] != frame[keys].shift()).any(axis=1).tolist(),
    )


def origin(
    runs: Sequence[Run], series: dict[str, Series], recipes: dict[Series, dict[str, str]], notes: Sequence[str]
) -> list[Section]:
    """The section of the runs and the differences between their recipes; notes: on these differences."""
    keys = differing(recipes.values())
    one_place = len({one[:2] for one in recipes}) == 1
    names = [one.title if one_place else f"{one.dataset} · {one.architecture} · {one.title}" for one in recipes]
    differences = [[key, *(settings.get(key, "–") for settings in recipes.values())] for key in keys]
    lines = [_run_line(run, series) for run in runs]
    facts = [("hardware", text) for text in _distinct(hardware_text(run.record.get("hardware")) for run in runs)]
    facts += [("versions", text) for text in _distinct(versions_text(run.record.get("versions")) for run in runs)]
    recipe = Section(
        "Recipes", notes, [ReportTable(["setting", *names], differences, "Settings that differ.", 99, wrap=True)]
    )
    own = ReportTable(list(lines[0]), [list(map(str, line.values())) for line in lines], words=99)
    return [*([recipe] if differences else []), Section("Runs", tables=[own], facts=facts)]


def _run_line(run: Run, series: dict[str, Series]) -> dict[str, object]:
    record = run.record
    return {
        "run": run.path,
        "name": record["name"],
        "loss": series[run.path].title if run.path in series else record["label"],
        "seed": record["seed"],
        "status": record["status"],
        "best epoch": (record.get("best") or {}).get("epoch", "–"),
        "wall time": duration(record.get("wall_seconds")),
        "started": record.get("started", "–"),
        "code": code_text(record),
    }


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
