"""Recipes of runs: runs of one loss with different recipes are shown separately, never averaged."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from vsehub.recipes import flatten, in_recipe
from vsehub.report.runs import Run

LABEL_ORDER = ("sum", "max", "knn_margin", "hal", "hal+mb", "rescaled_sum", "rescaled_max")
NOISE = "noise"  # the recipe's key for the effect of data.noise, also for configurations older than that setting
FINGERPRINT = "fingerprint of "
CODE = "code of "
SYMBOLS = {"loss.gamma": "γ", "loss.epsilon": "ε"}  # of settings in the names of variants
NAMED_KEYS = 3  # a variant that differs in more keys is called "recipe 1", "recipe 2" ...; the page lists the keys


class Series(NamedTuple):
    """The runs that differ only by their seed; `variant` is empty unless the loss was trained in several ways."""

    dataset: str
    architecture: str
    label: str
    variant: str

    @property
    def title(self) -> str:
        """The name of the loss and its variant in plots and tables."""
        return f"{self.label} ({self.variant})" if self.variant else self.label


def label_rank(label: str) -> tuple[int, str]:
    """Sorting key: the losses of the papers in their order, then others by name."""
    return (LABEL_ORDER.index(label) if label in LABEL_ORDER else len(LABEL_ORDER), label)


def series_rank(series: Series) -> tuple:
    """Sorting key of a series."""
    return (series.dataset, series.architecture, label_rank(series.label), series.variant)


def recipe(run: Run) -> dict[str, str]:
    """The recipe of a run: the settings that affect its result, except seeds, as text.

    With the fingerprints of its data and the digests of its code and teachers.
    """
    values = {key: value for key, value in flatten(run.record["config"]).items() if in_recipe(key)}
    integers = {key: int(value) for key, value in values.items() if isinstance(value, float) and value.is_integer()}
    settings = {key: str(value) for key, value in (values | integers).items()}  # 60.0 equals 60
    for split, metadata in sorted((run.record.get("data") or {}).items()):
        settings[f"{FINGERPRINT}{split}"] = str((metadata or {}).get("fingerprint", "unknown"))[:12]
    for group, modules in run.record.get("code", {}).items():
        # The name of a criterion or protocol stands for the code of vsehub's own.
        files = {name: file for name, file in modules.items() if in_recipe(group) or not name.startswith("vsehub.")}
        if files:
            settings[f"{CODE}{group}"] = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:8]
    if teachers := run.record.get("teacher"):
        settings["sha256 of teacher"] = " ".join(file["sha256"][:12] for file in teachers)
    noise = run.record.get("noise")
    settings[NOISE] = f"{noise['protocol']} {noise['rate']:g}" if noise else "none"
    if noise:
        settings[NOISE] += "" if noise["index"] is None else f" of index {noise['fingerprint'][:12]}"
        settings[f"{FINGERPRINT}train"] = noise["clean_fingerprint"][:12]  # each seed draws other noise
    if "precision" in run.record:  # the one used; the config may say "auto"
        settings["trainer.precision"] = str(run.record["precision"])
    return settings


def differing(recipes: Iterable[dict[str, str]]) -> list[str]:
    """The keys, sorted, that differ between the recipes."""
    recipes = list(recipes)
    keys = sorted({key for settings in recipes for key in settings})
    return [key for key in keys if len({settings.get(key, "absent") for settings in recipes}) > 1]


def name_test_sets(runs: Sequence[Run]) -> list[Run]:
    """The runs with longer data-set names where one name stands for several test sets.

    The name then ends in the fingerprints of the splits that runs are measured on or, if there are none, of all splits
    but the training split: "scenes (test 1a2b3c4d5e6f)", "unknown" if the record lacks it.
    """
    fingerprints = {}
    distinct = defaultdict(set)
    measured = {evaluation["split"] for run in runs for evaluation in run.evaluations.values()}
    for run in runs:
        settings = recipe(run)
        loaded = run.record["data"].keys() - {"train"}
        evaluated = {evaluation["split"] for evaluation in run.evaluations.values()}
        splits = (evaluated | (loaded & measured)) or loaded
        fingerprints[run.path] = [(split, settings.get(f"{FINGERPRINT}{split}", "unknown")) for split in sorted(splits)]
        for split, fingerprint in fingerprints[run.path]:
            distinct[run.record["dataset"], split].add(fingerprint)
    names: dict[str, str] = {}
    for run in runs:
        dataset = run.record["dataset"]
        several = [f"{split} {text}" for split, text in fingerprints[run.path] if len(distinct[dataset, split]) > 1]
        names[run.path] = f"{dataset} ({', '.join(several)})" if several else dataset
    return [replace(run, record=run.record | {"dataset": names[run.path]}) for run in runs]


def by_loss(runs: Sequence[Run]) -> dict[tuple[str, str, str], list[Run]]:
    """The runs of each data set, architecture and loss, in the order of the report."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.record["dataset"], run.record["architecture"], run.record["label"]].append(run)
    return {key: groups[key] for key in sorted(groups, key=lambda key: (*key[:2], label_rank(key[2])))}


def series_of(runs: Sequence[Run]) -> dict[str, Series]:
    """The series of each run, by the run's path."""
    return {
        run.path: Series(*key, variant)
        for key, members in by_loss(runs).items()
        for run, variant in zip(members, variants(list(map(recipe, members))), strict=True)
    }


def variants(recipes: Sequence[dict[str, str]]) -> list[str]:
    """A short name for each recipe: the settings that differ, "recipe n" if there are many, "" without a difference.

    Long numbers, as a search draws them, are rounded to four digits.
    """
    keys = differing(recipes)
    values = [tuple(settings.get(key, "absent") for key in keys) for settings in recipes]
    words = [SYMBOLS.get(key, key) for key in keys]
    names = [", ".join(f"{word} {_short(value)}" for word, value in zip(words, row, strict=True)) for row in values]
    distinct = sorted(set(values))
    if len(keys) > NAMED_KEYS or len(set(names)) < len(distinct):
        return [f"recipe {distinct.index(row) + 1}" for row in values]
    return names


def _short(text: str) -> str:
    return f"{float(text):.4g}" if re.fullmatch(r"-?\d+\.\d{5,}", text) else text


def recipes_by_series(runs: Sequence[Run], series_by_run: dict[str, Series]) -> dict[Series, dict[str, str]]:
    """The recipe of each series, in the order of the report."""
    return {
        series_by_run[run.path]: recipe(run)
        for run in sorted(runs, key=lambda run: series_rank(series_by_run[run.path]))
    }
