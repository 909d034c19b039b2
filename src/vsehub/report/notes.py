"""The sentences around the tables: what was measured on what, and what a reader must be warned of."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from vsehub.report.recipes import noise_text
from vsehub.report.runs import Run
from vsehub.report.tables import KEYS, Setting, parameters_text, parted


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
