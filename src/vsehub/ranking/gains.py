"""The gain in R@1 of one ranking over another, with an interval and a test for few changes and grouped queries."""

import numpy as np
from torch import Tensor

from vsehub.positives import Positives

LEVEL = 0.95
_STEPS = 721  # points of half an ellipse


def r1_gain(before: Tensor, after: Tensor, positives: Positives) -> dict[str, float]:
    """The gain in R@1 of a ranking over another, in points, with its 95 % interval and p value.

    before, after: lists (Q, k) of both, of which only the first items count. Queries without a positive are left out.
    Queries that the same item answers, such as the captions of an image, are one group, since they gain and lose
    together; a query with several positives is in the group of the first.
    """
    known = positives.counts > 0
    was = positives.hits(before[:, :1])[known, 0].cpu().numpy()
    now = positives.hits(after[:, :1])[known, 0].cpu().numpy()
    starts = (positives.counts.cumsum(0) - positives.counts)[known]
    return paired_gain(was, now, positives.item[starts].cpu().numpy())


def paired_gain(before: np.ndarray, after: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """The gain in R@1 of one ranking over another, in points, with its interval and test.

    before, after: (n,) boolean, whether each query is a hit in each ranking. groups: (n,) labels; queries with one
    label gain and lose together.

    "queries": n. "groups": how many there are. "r1": the gain. "p": two-sided, of the exact sign test (McNemar) over
    the queries that changed. "low", "high": the 95 % interval, which leaves 0 out where p is below 0.05. The gain is
    the share of queries that changed times (2 · the share of these that gained - 1). Each share has the interval of
    Clopper and Pearson (1934), and the limits are the least and the largest product of the two factors on the ellipse
    around them whose half axes reach to their limits. Where a group has several queries, all counts are divided by the
    design effect, the variance of the gain over groups against that over queries (Korn and Graubard 1998), for the test
    too.
    """
    change = after.astype(int) - before.astype(int)
    queries, up, down = len(change), int((change > 0).sum()), int((change < 0).sum())
    _, group = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group)
    effect = _design_effect(change, group, sizes)
    effective_queries, gains, losses = queries / effect, up / effect, down / effect
    share = (up + down) / queries
    share_limits = _interval(gains + losses, effective_queries - gains - losses)
    direction = (up - down) / max(up + down, 1)
    least, largest = (2 * limit - 1 for limit in _interval(gains, losses))
    # Where nothing changed, both directions are equally likely: the limits are those of the share of changes.
    limits = (
        _products(direction, (least, largest), share, share_limits) if share else (-share_limits[1], share_limits[1])
    )
    p = min(1.0, 2 * float(min(_tail(gains, losses), _tail(losses, gains))))
    return {
        "queries": queries,
        "groups": len(sizes),
        "r1": 100 * (up - down) / queries,
        "low": 100 * limits[0],
        "high": 100 * limits[1],
        "p": p,
    }


def _design_effect(change: np.ndarray, group: np.ndarray, sizes: np.ndarray) -> float:
    """The divisor of the counts: 1 where each group has one query, infinite where there is a single group."""
    queries, groups = len(change), len(sizes)
    if groups == queries:
        return 1.0
    if groups == 1:
        return np.inf
    from scipy import special  # 0.2 s, which a comparison without known answers does not need

    deviation = change - change.mean()
    over_queries = (deviation**2).sum()
    largest = float((sizes**2).sum()) / queries  # that of groups whose queries all change alike
    over_groups = (np.bincount(group, weights=deviation) ** 2).sum() * groups / (groups - 1)
    effect = max(1.0, over_groups / over_queries) if over_queries > 0 else largest
    # Few groups estimate a variance badly.
    t_over_normal = special.stdtrit(groups - 1, (1 + LEVEL) / 2) / special.ndtri((1 + LEVEL) / 2)
    return float(effect * t_over_normal**2)


def _tail(many: float, few: float) -> float:
    """The probability of at least `many` out of many + few trials at even odds; exact for whole numbers."""
    from scipy import special

    return float(special.betainc(many, few + 1, 0.5)) if many > 0 else 1.0


def _interval(hits: float, misses: float) -> tuple[float, float]:
    """The interval of Clopper and Pearson for the share of hits; counts need not be whole numbers."""
    from scipy import special

    tail = (1 - LEVEL) / 2
    low = float(special.betaincinv(hits, misses + 1, tail)) if hits > 0 else 0.0
    return low, float(special.betaincinv(hits + 1, misses, 1 - tail)) if misses > 0 else 1.0


def _products(
    value: float, limits: tuple[float, float], factor: float, factor_limits: tuple[float, float]
) -> tuple[float, float]:
    """The least and the largest product on the ellipse around two values, its half axes reaching to their limits.

    factor: at least 0, so that a product has the sign of `value`.
    """
    angle = np.linspace(-np.pi / 2, np.pi / 2, _STEPS)
    outward, aside = np.cos(angle), np.sin(angle)
    factors = factor + np.where(aside < 0, factor - factor_limits[0], factor_limits[1] - factor) * aside
    products = [(value + (limit - value) * outward) * factors for limit in limits]
    return float(products[0].min()), float(products[1].max())
