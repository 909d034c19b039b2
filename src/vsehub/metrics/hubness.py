"""How unevenly the nearest-neighbour lists are shared out among the items (Radovanović 2010)."""

import torch
from torch import Tensor

from vsehub.checks import matrix, positive
from vsehub.metrics.topk import top_k

KS = (1, 5, 10)
SHARES = (1, 2, 5, 10)


def hubness(scores: Tensor, ks: tuple[int, ...] = KS) -> dict[str, float]:
    """Hubness of both directions of images x texts.

    scores: (I, T), higher is closer. ks: neighbourhood sizes. Returns what `occurrence_metrics` does for each
    direction under "i2t/" (items are texts) and "t2i/" (items are images), and "hs_sum", the sum of all skews.
    Raises InputError where scores is no matrix or a k is not positive.
    """
    matrix("scores", scores)
    both = {}
    for direction, queries in (("i2t", scores), ("t2i", scores.T)):
        counts = k_occurrences(queries, ks)
        both |= {f"{direction}/{name}": value for name, value in occurrence_metrics(counts).items()}
    return both | {"hs_sum": skew_sum(both)}


def k_occurrences(scores: Tensor, ks: tuple[int, ...] = KS) -> dict[int, Tensor]:
    """N_k of each item for each k: scores (Q, M) -> (M,) counts; of equal scores the lower item is nearer."""
    for k in ks:
        positive("k", k)
    nearest = top_k(scores, min(max(ks), scores.shape[1]))[1]
    return {k: torch.bincount(nearest[:, :k].flatten(), minlength=scores.shape[1]) for k in ks}


def occurrence_metrics(occurrences: dict[int, Tensor]) -> dict[str, float]:
    """Figures of N_k, each key ending in its k.

    occurrences: for each k the (M,) counts. Per k: "skew_k" (population skewness), "robin_hood_k" (share of the
    neighbour slots that would have to move for all items to be equal), "antihub_rate_k" (share of items with N_k = 0),
    "hub_occurrence_k" (share of the slots held by hubs, items with N_k >= 2k), "largest_hub_k". With k = 1 also
    "share_0" (items with N_1 = 0) and "share_1" (= 1), "share_2", "share_5", "share_10" (>= 2, 5, 10) of ACL table 5.
    Shares are fractions of 1.
    """
    metrics = {}
    for k, counts in occurrences.items():
        n = counts.double()
        total = n.sum().clamp(min=1)
        metrics |= {
            f"skew_{k}": skewness(n),
            f"robin_hood_{k}": ((n - n.mean()).abs().sum() / (2 * total)).item(),
            f"antihub_rate_{k}": (n == 0).double().mean().item(),
            f"hub_occurrence_{k}": (n[n >= 2 * k].sum() / total).item(),
            f"largest_hub_{k}": n.max().item(),
        }
        if k == 1:
            metrics["share_0"] = (n == 0).double().mean().item()
            metrics["share_1"] = (n == 1).double().mean().item()
            metrics |= {f"share_{least}": (n >= least).double().mean().item() for least in SHARES[1:]}
    return metrics


def skewness(counts: Tensor) -> float:
    """Population skewness m3 / m2^1.5 of the counts (M,); 0 where all are equal."""
    centred = counts.double() - counts.double().mean()
    variance = centred.square().mean()
    return (centred.pow(3).mean() / variance.pow(1.5)).item() if variance > 0 else 0.0


def skew_sum(metrics: dict[str, float]) -> float:
    """hs_sum: the sum of all skews among the metrics of both directions."""
    return sum(value for name, value in metrics.items() if "/skew_" in name)


def histogram(counts: Tensor) -> dict[str, list[int]]:
    """The distribution of N_k: {"occurrences": distinct counts, rising, "items": how many items have each}."""
    occurrences, items = counts.unique(return_counts=True)
    return {"occurrences": occurrences.tolist(), "items": items.tolist()}
