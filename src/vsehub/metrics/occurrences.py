"""Hubness: how unevenly the places in nearest-neighbour lists are distributed over the items (Radovanović 2010)."""

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.metrics.positives import Positives, checked_positions
from vsehub.metrics.topk import top_k

KS = (1, 5, 10)
SHARES = (1, 2, 5, 10)


def hubness(scores: Tensor, ks: tuple[int, ...] = KS, positives: Tensor | None = None) -> dict[str, float]:
    """Hubness metrics of both directions of images x texts.

    scores: (I, T), higher is closer. ks: neighbourhood sizes. positives: (I, T) boolean, at least one in every row and
    column; None leaves out the metrics of bad hubs. Returns what `occurrence_metrics` does for each direction under
    "i2t/" (items are texts) and "t2i/" (items are images), and "hs_sum", the sum of all skews. Raises InputError if
    scores is not a matrix, is empty or holds NaN, positives is not a mask of its shape or a k is not positive.
    """
    matrix("scores", scores)
    if positives is not None:
        matrix("positives", positives, *scores.shape)
    both: dict[str, float] = {}
    for direction, queries, mask in (
        ("i2t", scores, positives),
        ("t2i", scores.T, None if positives is None else positives.T),
    ):
        found = _counted(queries, ks, None if mask is None else Positives.from_mask(mask))
        measured = occurrence_metrics(found.counts, None if mask is None else found.bad)
        both |= {f"{direction}/{name}": value for name, value in measured.items()}
    return both | {"hs_sum": skew_sum(both)}


def k_occurrences(scores: Tensor, ks: tuple[int, ...] = KS) -> dict[int, Tensor]:
    """N_k of each item for each k: scores (Q, M) -> (M,) counts. Among equal scores the lower item is nearer.

    Raises InputError if scores is not a matrix, is empty or holds NaN, or a k is not positive.
    """
    return _counted(scores, ks).counts


def _counted(scores: Tensor, ks: tuple[int, ...], positives: Positives | None = None) -> "Occurrences":
    matrix("scores", scores)
    require(scores.numel() > 0, f"scores has shape {tuple(scores.shape)}; expected at least one query and one item")
    found = Occurrences(scores.shape[1], ks, scores.device)
    largest, nearest = top_k(scores, min(max(ks, default=1), scores.shape[1]))
    require(not largest[:, 0].isnan().any(), "scores hold NaN; look for NaN or infinite embeddings")
    if positives is None:
        found.add(nearest)
    else:
        found.add_judged(nearest, positives)
    return found


def occurrence_metrics(
    occurrences: dict[int, Tensor], bad: dict[int, Tensor] | None = None, judged: int | None = None
) -> dict[str, float]:
    """Hubness metrics of N_k, each key ending in its k.

    occurrences: for each k the (M,) counts. Per k: "skew_k" (population skewness), "robin_hood_k" (share of the
    neighbour slots that would have to move for all items to be equal), "gini_k" (Gini index), "atkinson_k" (Atkinson
    index, ε = 1/2), "antihub_rate_k" (share of items with N_k = 0), "hub_occurrence_k" (share of the slots held by
    hubs, items with N_k >= 2k), "largest_hub_k". With k = 1 also "share_0" (items with N_1 = 0) and "share_1" (= 1),
    "share_2", "share_5", "share_10" (>= 2, 5, 10) of ACL table 5. Shares are fractions of 1.

    bad: for each k the (M,) counts BN_k of the slots in which an item is not a positive of the query. If given, also
    per k: "bad_share_k" (share of the slots that are wrong), "bad_skew_k" and "largest_bad_hub_k". judged: the number
    of queries over which bad was counted; None: all.
    """
    metrics: dict[str, float] = {}
    for k, counts in occurrences.items():
        n = _checked(counts)
        total = n.sum().clamp(min=1)
        metrics |= {
            f"skew_{k}": skewness(n),
            f"robin_hood_{k}": ((n - n.mean()).abs().sum() / (2 * total)).item(),
            f"gini_{k}": gini(n),
            f"atkinson_{k}": atkinson(n),
            f"antihub_rate_{k}": (n == 0).double().mean().item(),
            f"hub_occurrence_{k}": (n[n >= 2 * k].sum() / total).item(),
            f"largest_hub_{k}": n.max().item(),
        }
        if k == 1:
            metrics["share_0"] = (n == 0).double().mean().item()
            metrics["share_1"] = (n == 1).double().mean().item()
            metrics |= {f"share_{least}": (n >= least).double().mean().item() for least in SHARES[1:]}
        if bad is not None:
            slots = total.item() if judged is None else judged * min(k, len(n))
            metrics |= {
                f"bad_share_{k}": bad[k].sum().item() / max(1, slots),
                f"bad_skew_{k}": skewness(bad[k]),
                f"largest_bad_hub_{k}": float(bad[k].max()),
            }
    return metrics


def gini(counts: Tensor) -> float:
    """Gini index Σ_ij |n_i - n_j| / (2 M Σ n) of the counts (M,); 0 if all are equal, 1 - 1/M if one has all.

    Raises InputError for counts that are negative, NaN or infinite, or if there are none.
    """
    n = _checked(counts).sort().values
    places = torch.arange(1 - len(n), len(n), 2, dtype=n.dtype, device=n.device)  # 2i - M - 1 of the i-th smallest
    return ((places * n).sum() / (len(n) * n.sum())).item() if n.any() else 0.0


def atkinson(counts: Tensor) -> float:
    """Atkinson index 1 - mean(√n)² / mean(n), ε = 1/2, of the counts (M,); 0 if all are equal.

    Raises InputError for counts that are negative, NaN or infinite, or if there are none.
    """
    n = _checked(counts)
    # Computed as a variance, which avoids subtracting two nearly equal numbers.
    return (n.sqrt().var(correction=0) / n.mean()).item() if n.any() else 0.0


def skewness(counts: Tensor) -> float:
    """Population skewness m3 / m2^1.5 of the counts (M,); 0 if all are equal.

    Raises InputError for counts that are negative, NaN or infinite, or if there are none.
    """
    n = _checked(counts)
    centred = n - n.mean()
    variance = centred.square().mean()
    return (centred.pow(3).mean() / variance.pow(1.5)).item() if variance > 0 else 0.0


def skew_sum(metrics: dict[str, float]) -> float:
    """hs_sum: the sum of all skews among the metrics of both directions."""
    return sum(value for name, value in metrics.items() if "/skew_" in name)


def _checked(counts: Tensor) -> Tensor:
    """The counts in float64. Raises InputError if they are none."""
    require(counts.ndim == 1 and len(counts) > 0, f"counts has shape {tuple(counts.shape)}; expected (M,), with M > 0")
    n = counts.double()
    least, most = n.aminmax()
    require(
        bool((least >= 0) & (most < torch.inf)),
        f"counts lie between {least.item():g} and {most.item():g}; expected how often each item occurs, 0 or more",
    )
    return n


def histogram(counts: Tensor) -> dict[str, list[int]]:
    """The distribution of N_k: {"occurrences": distinct counts, rising, "items": how many items have each}."""
    occurrences, items = counts.unique(return_counts=True)
    return {"occurrences": occurrences.tolist(), "items": items.tolist()}


class Occurrences:
    """N_k of M items for several k, and how many of them are wrong (Radovanović 2010: N_k = GN_k + BN_k).

    items: M. ks: neighbourhood sizes. counts: for each k the (M,) N_k of the queries added so far. bad: for each k the
    (M,) BN_k, the number of judged queries that have the item among their k nearest although it is not a positive of
    theirs. judged: the number of judged queries. Raises InputError if items or a k is not positive.
    """

    def __init__(self, items: int, ks: tuple[int, ...] = KS, device: torch.device | str = "cpu"):
        whole("items", items)
        for k in ks:
            whole("k", k)
        self.items = items
        self.counts, self.bad = (
            {k: torch.zeros(items, dtype=torch.int64, device=device) for k in ks} for _ in range(2)
        )
        self.judged = 0
        self._depth = min(max(ks, default=0), items)
        self._device = device

    def add(self, nearest: Tensor, wrong: Tensor | None = None) -> None:
        """Count the lists of some queries.

        nearest: (b, K) positions of each query's nearest items, nearest first. wrong: (b, K) boolean, True where the
        item is not a positive of the query; None if unknown. Raises InputError if the lists are shorter than the
        smaller of the largest k and M, hold a position outside of 0 to M - 1, or if wrong has another shape.
        """
        matrix("nearest", nearest)
        require(
            nearest.shape[1] >= self._depth,
            f"nearest lists {nearest.shape[1]} items per query; expected at least {self._depth}, the largest k",
        )
        if wrong is not None:
            require(
                wrong.dtype == torch.bool and wrong.shape == nearest.shape,
                f"wrong is {wrong.dtype} {tuple(wrong.shape)}; expected a boolean matrix {tuple(nearest.shape)}",
            )
        nearest = checked_positions("nearest", nearest[:, : self._depth], self.items).to(self._device)
        _add(self.counts, nearest, torch.ones_like(nearest))
        if wrong is not None:
            self.judged += len(nearest)
            _add(self.bad, nearest, wrong[:, : self._depth].to(self._device, torch.int64))

    def add_judged(self, nearest: Tensor, positives: Positives, first: int = 0) -> None:
        """Count the lists (b, K) of queries `first`, `first` + 1, ..., judged by their positives.

        Queries without a positive are counted, but not judged. Raises what `add` and `Positives.hits` raise.
        """
        nearest = nearest.to(positives.query.device)
        wrong = ~positives.hits(nearest, first)
        known = positives.counts[first : first + len(nearest)] > 0
        if known.all():
            self.add(nearest, wrong)
        else:
            self.add(nearest[known], wrong[known])
            self.add(nearest[~known])


def _add(counts: dict[int, Tensor], nearest: Tensor, amounts: Tensor) -> None:
    """Add the amounts (b, K) of each list's first k entries to the items' counts, in time independent of M."""
    for k, count in counts.items():
        count.index_add_(0, nearest[:, :k].flatten(), amounts[:, :k].flatten())
