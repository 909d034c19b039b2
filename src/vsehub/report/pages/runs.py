"""The page: one HTML file that carries its figures and needs no network."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from vsehub.report.pages.comparison import Comparison, comparison_values
from vsehub.report.pages.study import Part
from vsehub.report.pages.templates import render_page
from vsehub.report.plots import Picture
from vsehub.report.recipes import Series, differing, noise_text
from vsehub.report.runs import Run
from vsehub.report.tables import DIRECTIONS, HEADINGS, KEYS, RANKS, Setting, duration, parameters_text, parted


def warnings(runs: Sequence[Run], frame: pd.DataFrame) -> list[str]:
    """What must be known before a figure of the report is believed; `frame` is `tables.results` of the runs."""
    return [*unfinished(runs), *stale(runs), *repeated_seeds(frame), *varied_parameters(frame), *code_versions(runs)]


def unfinished(runs: Sequence[Run]) -> list[str]:
    """One sentence for each run that was not evaluated, or was evaluated although its training did not finish."""
    sentences = []
    for run in runs:
        told = f"Run {run.record['name']} ({run.path}, status {run.record['status']}, {_progress(run)})"
        if not run.evaluations:
            missing = "finished but was not evaluated" if run.finished else "is unfinished"
            sentences.append(f"{told} {missing}: it is in no table.")
        elif not run.finished:
            sentences.append(f"{told} did not finish its training: its figures are those of the part that ran.")
    return sentences


def stale(runs: Sequence[Run]) -> list[str]:
    """One sentence for each run with evaluations of other checkpoints than its best."""
    return [
        f"Run {run.record['name']} ({run.path}) has {len(run.stale)} evaluations of other checkpoints than its best, "
        f"left out: {', '.join(run.stale)}."
        for run in runs
        if run.stale
    ]


def _progress(run: Run) -> str:
    epochs = run.history["epoch"].dropna() if "epoch" in run.history else pd.Series(dtype=float)
    return "no epoch logged" if epochs.empty else f"last epoch logged {int(epochs.max())}"


def repeated_seeds(frame: pd.DataFrame) -> list[str]:
    """Rows in which a seed was counted twice: their standard deviation is not a spread of seeds."""
    sentences = []
    for key, group in parted(frame).groupby(KEYS, sort=False):
        twice = sorted(seed for seed, count in Counter(group["seed"]).items() if count > 1)
        if twice:
            row = dict(zip(KEYS, key, strict=True))
            told = ", ".join(str(seed) for seed in twice)
            sentences.append(
                f"Seed {told} is counted more than once in {row['label']}, {row['criterion']}, protocol "
                f"{row['protocol']} on {row['dataset']} ({', '.join(sorted(set(group['run'])))}): the ± there is not "
                "a spread of seeds alone."
            )
    return sentences


def varied_parameters(frame: pd.DataFrame) -> list[str]:
    """Criteria whose parameters were not the same in all the runs that one row or comparison covers."""
    sentences = []
    place = [*Setting._fields, "criterion", "reference"]
    for key, group in frame.groupby(place, sort=False):
        texts = sorted({parameters_text(line) for _, line in group.iterrows()})
        if len(texts) > 1 and not group.duplicated("run").any():
            row = dict(zip(place, key, strict=True))
            sentences.append(
                f"The parameters of {row['criterion']} differ between runs on {row['dataset']}: {'; '.join(texts)}."
            )
    return sentences


def code_versions(runs: Sequence[Run]) -> list[str]:
    """A sentence when the runs came from several versions of the code, or from one with uncommitted changes."""
    versions = sorted({code_version(run) for run in runs})
    sentences = (
        [f"The runs come from {len(versions)} versions of the code: {'; '.join(versions)}."] if versions[1:] else []
    )
    dirty = [run.record["name"] for run in runs if (run.record.get("git") or {}).get("dirty")]
    if dirty:
        sentences.append(
            f"Uncommitted changes were in the code of {len(dirty)} of {len(runs)} runs: {', '.join(dirty)}."
        )
    return sentences


def code_version(run: Run) -> str:
    """ "vsehub 0.1.0, git 1a2b3c4d", as far as the run recorded it."""
    return code_text(run.record)


def code_text(record: dict) -> str:
    """The code's version of any record that has "vsehub" and "git"."""
    sha = (record.get("git") or {}).get("sha")
    told = [f"{name} {fact}" for name, fact in (("vsehub", record.get("vsehub")), ("git", sha and sha[:8])) if fact]
    return ", ".join(told) or "not recorded"


def setting_sentences(setting: Setting, frame: pd.DataFrame, runs: Sequence[Run]) -> list[str]:
    """Protocol, criteria, seeds, data and hardware of one setting; `frame` is `tables.results` of all runs."""
    lines = frame[(frame[list(Setting._fields)] == list(setting)).all(axis=1)]
    members = [run for run in runs if run.path in set(lines["run"])]
    seeds = sorted(set(lines["seed"]))
    return [
        f"Protocol {setting.protocol} on the {setting.split} split: {'; '.join(_sizes(lines))}.",
        f"Criteria: {'; '.join(_criteria(lines))}.",
        f"Seeds: {', '.join(map(str, seeds))}" + (", ± one sample standard deviation." if len(seeds) > 1 else "."),
        f"Data: {'; '.join(data_facts(members))}.",
        f"Hardware: {'; '.join(dict.fromkeys(hardware(run) for run in members))}.",
    ]


def _sizes(lines: pd.DataFrame) -> list[str]:
    kinds = lines[["images", "texts", "folds"]].drop_duplicates().dropna()
    return [
        f"{int(images):,} images and {int(texts):,} texts, "
        + ("one ranking" if folds == 1 else f"mean over {int(folds)} folds")
        for images, texts, folds in kinds.itertuples(index=False)
    ] or ["sizes not recorded"]


def _criteria(lines: pd.DataFrame) -> list[str]:
    told = {}
    for _, line in lines.sort_values(["criterion", "reference"]).iterrows():
        facts = [parameters_text(line)] if parameters_text(line) else []
        if line["reference"] != "none":
            facts.append(f"{line['reference']}, reference: {line['reference_set']}")
        told[f"{line['criterion']} ({'; '.join(facts)})" if facts else line["criterion"]] = None
    return list(told)


def data_facts(runs: Sequence[Run]) -> list[str]:
    """Sizes and fingerprint of every split the runs used: "train 2,000 images, 10,000 captions (ab12)"."""
    told = {}
    for run in runs:
        for split, facts in (run.record.get("data") or {}).items():
            facts = facts or {}
            sizes = ", ".join(f"{facts[key]:,} {key}" for key in ("images", "captions") if key in facts)
            name = str(facts.get("fingerprint", "no fingerprint"))[:12]
            if split == "train" and "noise" in run.record:  # each seed's noise is another
                name = f"{run.record['noise']['clean_fingerprint'][:12]}, noise of protocol {noise_text(run)}"
            told[f"{split} {sizes} ({name})"] = None
    return list(told) or ["not recorded"]


def hardware(run: Run) -> str:
    """The machine a run recorded, in one phrase."""
    return hardware_text(run.record.get("hardware") or {})


def hardware_text(facts: dict) -> str:
    """A machine of {"cpu", "cores", "memory_gb", "gpu"} in one phrase."""
    memory = facts.get("memory_gb")
    told = [facts.get("cpu"), facts.get("cores") and f"{facts['cores']} cores", memory and f"{memory:g} GB memory"]
    told.append(facts.get("gpu") or "no GPU")
    return ", ".join(str(fact) for fact in told if fact) if facts else "not recorded"


def versions_text(versions: dict | None) -> str:
    """Installed versions in one phrase, by name; empty where none were recorded."""
    return ", ".join(f"{name} {version}" for name, version in sorted((versions or {}).items()))


class Section(NamedTuple):
    """One setting of the page: its rows as text, the sentences below them, the verdicts and the figures."""

    setting: Setting
    table: pd.DataFrame
    sentences: list[str]
    verdicts: list[str]
    pictures: list[Picture]


class Published(NamedTuple):
    """The table beside the published figures: its heading, its rows as text, its sentences."""

    heading: str
    table: pd.DataFrame
    sentences: list[str]


def page(
    title: str,
    summary: str,
    warnings: Sequence[str],
    sections: Sequence[Section],
    recipe_notes: Sequence[str],
    training: Sequence[Picture],
    published: Published | None,
    provenance: dict,
    comparison: Comparison | None = None,
    swept: Sequence[Part] = (),
) -> str:
    """The whole page. `provenance` is that of `provenance`; every text is escaped."""
    return render_page(
        "page.html.j2",
        {"grid": grid},
        title=title,
        summary=summary,
        warnings=warnings,
        sections=sections,
        recipe_notes=recipe_notes,
        training=training,
        published=published,
        provenance=provenance,
        compared=None if comparison is None else comparison_values(comparison),
        swept=swept,
    )


def grid(table: pd.DataFrame) -> dict:
    """A frame of text for the template: two heading rows, and cells parted into mean and deviation.

    The ten columns of ranks are gathered under their directions; columns that the section's heading or its sentences
    already say are left out, and the loss comes first. On a phone the first columns alone are seen at once.
    """
    told = Setting._fields if "line" in table else (*Setting._fields, "criterion", "reference")
    said = [name for name in told if name in table and table[name].nunique() == 1]
    last = () if "line" in table else ("seeds", HEADINGS["wall_seconds"])
    names = [HEADINGS["label"], *(name for name in table.columns if name not in (*said, HEADINGS["label"], *last))]
    names += [name for name in last if name in table]
    ranked = {f"{side} {heading}": (side, heading) for side in DIRECTIONS for _, heading in RANKS}
    groups: list[list] = []
    for name in names:
        over = DIRECTIONS[ranked[name][0]] if name in ranked else ""
        if groups and over and groups[-1][0] == over:
            groups[-1][1] += 1
        else:
            groups.append([over, 1])
    numeric = {*ranked, "rsum", "hs_sum", HEADINGS["wall_seconds"]}
    return {
        "groups": groups,
        "names": [ranked[name][1] if name in ranked else name for name in names],
        "numeric": [name in numeric for name in names],
        "rows": [[_parted(cell) for cell in row] for row in table[names].itertuples(index=False, name=None)],
        "starts": _starts(table),
    }


def _parted(cell: str) -> tuple[str, str]:
    """A mean, and its deviation as it stands beside it in small type."""
    mean, sign, deviation = cell.partition(" ± ")
    return mean, f"± {deviation}" if sign else ""


def _starts(table: pd.DataFrame) -> list[bool]:
    """Which rows begin a group of rows that belong together: a published line, or a criterion and its reference."""
    keys = [name for name in (["line"] if "line" in table else ["criterion", "reference"]) if name in table]
    return (table[keys] != table[keys].shift()).any(axis=1).tolist()


def provenance(runs: Sequence[Run], series: dict[str, Series], recipes: dict[Series, dict[str, str]]) -> dict:
    """What the page says about where the figures come from: the runs, their commands, what differs between recipes."""
    keys = differing(recipes.values())
    one_place = len({one[:2] for one in recipes}) == 1
    return {
        "runs": [_run_line(run, series) for run in runs],
        "versions": _distinct(versions_text(run.record.get("versions")) for run in runs),
        "hardware": _distinct(hardware(run) for run in runs),
        "commands": [(run.path, str(run.record["command"])) for run in runs if run.record.get("command")],
        "series": [one.title if one_place else f"{one.dataset} · {one.architecture} · {one.title}" for one in recipes],
        "differences": [(key, [settings.get(key, "–") for settings in recipes.values()]) for key in keys],
    }


def _run_line(run: Run, series: dict[str, Series]) -> dict[str, str]:
    record = run.record
    best = record.get("best") or {}
    return {
        "run": run.path,
        "name": record["name"],
        "loss": series[run.path].title if run.path in series else record["label"],
        "seed": record["seed"],
        "status": record["status"],
        "best epoch": best.get("epoch", "–"),
        "wall time": duration(record.get("wall_seconds")),
        "started": record.get("started", "–"),
        "code": code_version(run),
    }


def _distinct(texts: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
