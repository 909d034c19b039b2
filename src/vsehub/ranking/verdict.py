"""The verdict on the plain ranking, ok, warn or fail, for people and for pipelines."""

import math
from bisect import bisect_left
from typing import Any

import torch

LEVELS = ("ok", "warn", "fail")
# Check -> its description, and the excess over chance at which it warns and fails.
CHECKS: dict[str, tuple[str, float, float]] = {
    # 1.4: high hubness in Feldbauer, Leodolter, Plant and Flexer (2018).
    "skewness": ("skewness of N_{k}", 1.4, 5.0),
    "largest_hub": ("share of the queries whose {k} nearest hold the largest hub", 0.1, 0.3),
    "antihubs": ("share of the items that no query finds", 0.2, 0.5),
}
RARE = 0.01  # the probability that random lists hold some item more often than `chance_levels` says


def verdict(hubness: dict[str, float], k: int, queries: int, items: int) -> dict[str, Any]:
    """{"level", "checks"}: each check's name, meaning, value, chance, thresholds and level; the worst is the verdict.

    hubness: metrics of the plain ranking, as `metrics.occurrence_metrics` gives it. "chance": see `chance_levels`.
    "warn", "fail": by how much the value may exceed chance.
    """
    values = {
        "skewness": hubness[f"skew_{k}"],
        "largest_hub": hubness[f"largest_hub_{k}"] / queries,
        "antihubs": hubness[f"antihub_rate_{k}"],
    }
    chances = chance_levels(k, queries, items)
    checks = []
    for name, (meaning, warn, fail) in CHECKS.items():
        excess = values[name] - chances[name]
        checks.append(
            {
                "name": name,
                "meaning": meaning.format(k=k),
                "value": values[name],
                "chance": chances[name],
                "warn": warn,
                "fail": fail,
                "level": LEVELS[bisect_left((warn, fail), excess)],  # by the number of thresholds below the excess
            }
        )
    return {"level": max((str(check["level"]) for check in checks), key=LEVELS.index), "checks": checks}


def hub_level(k: int, queries: int, items: int) -> float:
    """The least N_k of a hub: twice the mean, and more than lists drawn by chance would give to any of the items.

    The mean is k · queries / items (Feldbauer et al. 2018 call an item with N_k of 2k or more a hub if every item is a
    query too). For chance see `chance_levels`: with few queries for many items a single find exceeds twice the mean.
    """
    return max(2 * k * queries / items, round(chance_levels(k, queries, items)["largest_hub"] * queries) + 1)


def chance_levels(k: int, queries: int, items: int) -> dict[str, float]:
    """The value of each check where each query's k items are drawn at random: N_k is binomial, with p = k / items.

    Its skewness is (1 - 2p) / √(queries · p · (1 - p)), which is about √(items / (k · queries)) where few of many items
    can be found: 10 for 1,000 queries and a million items. The largest hub has the share that any of the items exceeds
    with probability 1 % at most. An item is found by no query with probability (1 - p)^queries.
    """
    p = k / items
    mean = int(p * queries)
    # Counts from the mean on, up to those that have a probability below 1e-40.
    counts = torch.arange(mean, min(queries, mean + 20 * math.isqrt(mean) + 50) + 1).double()
    others = queries - counts
    log_ways = math.lgamma(queries + 1) - torch.lgamma(counts + 1) - torch.lgamma(others + 1)
    # The probability of at least each count, from the largest count down to the mean.
    at_least = (log_ways + torch.xlogy(counts, p) + torch.special.xlog1py(others, -p)).exp().flip(0).cumsum(0)
    # The least count that an item exceeds with a probability of at most RARE / items.
    rare = mean - 1 + int((at_least > RARE / items).sum())
    spread = math.sqrt(queries * p * (1 - p))
    return {
        "skewness": (1 - 2 * p) / spread if spread else 0.0,
        "largest_hub": rare / queries,
        "antihubs": (1 - p) ** queries,
    }
