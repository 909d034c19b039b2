"""Recipes of runs: those of one loss that were trained differently are shown separately, never averaged."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vsehub.recipes import flatten, in_recipe
from vsehub.report.runs import Run

LABEL_ORDER = ("sum", "max", "knn_margin", "hal", "hal+mb", "rescaled_sum", "rescaled_max")
NOISE = "noise"  # the recipe's key: what data.noise did, whether the configuration is older than that setting or not
FINGERPRINT = "fingerprint of "
LOSS_KEYS = ("loss", "bank")  # what a loss owns by its nature: expected to differ between losses
NAMED_KEYS = 2  # a variant that differs in more keys is called "recipe 1", "recipe 2" ...; the page lists the keys


class Series(NamedTuple):
    """The runs that differ only by their seed; `variant` is empty unless the loss was trained in several ways."""

    dataset: str
    architecture: str
    label: str
    variant: str

    @property
    def title(self) -> str:
        """The loss with its variant, as plots and tables name it."""
        return f"{self.label} ({self.variant})" if self.variant else self.label


def label_rank(label: str) -> tuple[int, str]:
    """Sorting key: the losses of the papers in their order, then the others by name."""
    return (LABEL_ORDER.index(label) if label in LABEL_ORDER else len(LABEL_ORDER), label)


def series_rank(series: Series) -> tuple:
    """Sorting key of a series."""
    return (series.dataset, series.architecture, label_rank(series.label), series.variant)


def recipe(run: Run) -> dict[str, str]:
    """What decided a run's outcome besides its seed: its config's leaves as text, and its data's fingerprints."""
    settings = {key: str(value) for key, value in flatten(run.record["config"]).items() if in_recipe(key)}
    for split, facts in sorted((run.record.get("data") or {}).items()):
        settings[f"{FINGERPRINT}{split}"] = str((facts or {}).get("fingerprint", "unknown"))[:12]
    settings[NOISE] = noise_text(run) or "none"
    if "noise" in run.record:  # drawn again by each seed, of the same data
        settings[f"{FINGERPRINT}train"] = run.record["noise"]["clean_fingerprint"][:12]
    if "precision" in run.record:  # the one used; the config may say "auto"
        settings["trainer.precision"] = str(run.record["precision"])
    return settings


def noise_text(run: Run) -> str:
    """The noise in the training captions, "captions 0.2", with the index's hash where a file was given; "" if none."""
    noise = run.record.get("noise")
    if not noise:
        return ""
    drawn = noise["index"] is None
    return f"{noise['protocol']} {noise['rate']:g}" + ("" if drawn else f" of index {noise['fingerprint'][:12]}")


def differing(recipes: Iterable[dict[str, str]]) -> list[str]:
    """The keys, sorted, on which the recipes do not all agree."""
    recipes = list(recipes)
    keys = sorted({key for settings in recipes for key in settings})
    return [key for key in keys if len({settings.get(key, "absent") for settings in recipes}) > 1]


def data_keys(keys: Iterable[str]) -> list[str]:
    """Those of a recipe's keys that say which data a run saw."""
    return [key for key in keys if key == NOISE or key.startswith(FINGERPRINT)]


def series_of(runs: Sequence[Run]) -> dict[str, Series]:
    """The series of each run, by the run's path."""
    groups = defaultdict(list)
    for run in runs:
        groups[run.record["dataset"], run.record["architecture"], run.record["label"]].append(run)
    return {
        run.path: Series(str(dataset), str(architecture), str(label), variant)
        for (dataset, architecture, label), members in groups.items()
        for run, variant in zip(members, variants([recipe(run) for run in members]), strict=True)
    }


def variants(recipes: Sequence[dict[str, str]]) -> list[str]:
    """A short name of each recipe among its peers: what differs, "recipe n" where much does, "" if nothing does."""
    keys = differing(recipes)
    values = [tuple(settings.get(key, "absent") for key in keys) for settings in recipes]
    short = [tuple(map(_short, row)) for row in values]
    values = short if len(set(short)) == len(set(values)) else values
    if len(keys) > NAMED_KEYS:
        distinct = sorted(set(values))
        return [f"recipe {distinct.index(row) + 1}" for row in values]
    return [", ".join(f"{key} {value}" for key, value in zip(keys, row, strict=True)) for row in values]


def _short(text: str) -> str:
    """Four digits of a number that has many, as a search draws them."""
    return f"{float(text):.4g}" if re.fullmatch(r"-?\d+\.\d{5,}", text) else text


def recipes_by_series(runs: Sequence[Run], series: dict[str, Series]) -> dict[Series, dict[str, str]]:
    """The recipe of each series, in the order of the report."""
    recipes = {series[run.path]: recipe(run) for run in runs}
    return {key: recipes[key] for key in sorted(recipes, key=series_rank)}
