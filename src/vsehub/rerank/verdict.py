"""Whether the plain ranking is healthy: ok, warn or fail, for people and for pipelines."""

import math
from collections.abc import Sequence
from typing import Any

from vsehub.rerank.suspects import Suspect

LEVELS = ("ok", "warn", "fail")
# Check -> what it is, and the values above which it warns and fails.
CHECKS: dict[str, tuple[str, float, float]] = {
    # 1.4: high hubness in Feldbauer, Leodolter, Plant and Flexer (2018).
    "skewness": ("skewness of N_{k}", 1.4, 5.0),
    "largest_hub": ("share of the queries whose {k} nearest hold the largest hub", 0.1, 0.3),
    "antihubs": ("share of the items that no query finds, beyond chance", 0.2, 0.5),
    "suspects": ("items that look planted", math.inf, 0.0),
}


def verdict(hubness: dict[str, float], k: int, queries: int, items: int, planted: Sequence[Suspect]) -> dict[str, Any]:
    """{"level", "checks"}: each check's name, meaning, value, thresholds and level; the worst level is the verdict.

    hubness: of the plain ranking, as `metrics.occurrence_metrics` gives it. The largest hub is judged beyond what all
    items would have if all were equal, k / items. An item is found by no query by chance with probability
    e^(-k · queries / items).
    """
    values = {
        "skewness": hubness[f"skew_{k}"],
        "largest_hub": hubness[f"largest_hub_{k}"] / queries - k / items,
        "antihubs": hubness[f"antihub_rate_{k}"] - math.exp(-k * queries / items),
        "suspects": float(len(planted)),
    }
    checks = []
    for name, (meaning, warn, fail) in CHECKS.items():
        level = LEVELS[2] if values[name] > fail else LEVELS[1] if values[name] > warn else LEVELS[0]
        thresholds = {"warn": None if math.isinf(warn) else warn, "fail": fail}
        checks.append(
            {"name": name, "meaning": meaning.format(k=k), "value": values[name], **thresholds, "level": level}
        )
    return {"level": max((str(one["level"]) for one in checks), key=LEVELS.index), "checks": checks}
