"""What the measured differences allow one to say: a lead counts only when it is larger than the spread of the seeds."""

import pandas as pd

from vsehub.report.published import is_own_setting
from vsehub.report.recipes import NOISE, Series, differing
from vsehub.report.tables import Setting, criterion_text

COMPARED = [*Setting._fields, "criterion", "parameters", "reference"]
LOSS_KEYS = ("loss", "bank")  # what a loss owns by its nature: expected to differ between losses
FINGERPRINT = "fingerprint of "


def verdicts(table: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> dict[Setting, list[str]]:
    """One sentence for each group of the aggregated `table` in which several losses were measured alike."""
    sentences: dict[Setting, list[str]] = {}
    for key, group in table.groupby(COMPARED, sort=False):
        group = group.dropna(subset="rsum")
        if len(group) > 1:
            *place, criterion, parameters, reference = key
            name = criterion_text(criterion, parameters)
            name += "" if reference == "none" else f", {reference} reference"
            sentences.setdefault(Setting(*place), []).append(f"{name}: {verdict(group, recipes)}")
    return sentences


def verdict(group: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> str:
    """Whether the best mean rsum of a group leads the second by more than the spread of the seeds.

    The spread is the sum of the two sample standard deviations: beyond it, the two "mean ± std" do not overlap.
    """
    (_, best), (_, second) = list(group.nlargest(2, "rsum").iterrows())
    first, other = (_series(row) for row in (best, second))
    lead = best["rsum"] - second["rsum"]
    told = f"{first.title} leads {other.title} by {lead:.1f} rsum"
    differences = differing([recipes[first], recipes[other]])
    data = [key for key in differences if key.startswith(FINGERPRINT) or key == NOISE]
    if data:
        return f"{told}, on different data ({', '.join(key.removeprefix(FINGERPRINT) for key in data)}): no claim."
    if min(best["n"], second["n"]) < 2:
        return f"{told}; one seed: no claim."
    spread = best["rsum std"] + second["rsum std"]
    if lead <= spread:
        return f"{told}, within the spread of the seeds ({spread:.1f}): no winner."
    return f"{told}, more than the spread of the seeds ({spread:.1f})."


def _series(row: pd.Series) -> Series:
    return Series(*(row[field] for field in Series._fields))


def recipe_differences(recipes: dict[Series, dict[str, str]]) -> list[str]:
    """For each data set and architecture, what besides the loss was not the same for all its losses."""
    sentences = []
    for place in dict.fromkeys((series.dataset, series.architecture) for series in recipes):
        members = {series: settings for series, settings in recipes.items() if series[:2] == place}
        keys = [key for key in differing(members.values()) if key.partition(".")[0] not in LOSS_KEYS]
        if keys:
            described = "; ".join(_described(key, members) for key in keys)
            sentences.append(f"On {place[0]} with {place[1]} the recipes differ in more than the loss: {described}.")
    return sentences


def _described(key: str, members: dict[Series, dict[str, str]]) -> str:
    values: dict[str, list[Series]] = {}
    for series, settings in members.items():
        values.setdefault(settings.get(key, "absent"), []).append(series)
    told = ", ".join(f"{value} ({', '.join(s.title for s in owners)})" for value, owners in values.items())
    own = all(is_own_setting(s.label, key, value) for value, owners in values.items() for s in owners)
    return f"{key} {told}" + (", each loss's own published setting" if own else "")
