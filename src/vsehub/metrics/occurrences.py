"""Hubness: how unevenly the places in nearest-neighbour lists are distributed over the items (Radovanović 2010)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.neighbors.topk import top_k
from vsehub.positives import Positives, checked_positions

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
    masks: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if positives is not None:
        matrix("positives", positives, *scores.shape)
        masks = (positives, positives.T)
    both: dict[str, float] = {}
    for direction, oriented, mask in (("i2t", scores, masks[0]), ("t2i", scores.T, masks[1])):
        occurrences = _count(oriented, ks, mask)
        measured = occurrence_metrics(occurrences.counts, None if mask is None else occurrences.bad)
        both |= {f"{direction}/{name}": value for name, value in measured.items()}
    return both | {"hs_sum": skew_sum(both)}


def k_occurrences(scores: Tensor, ks: tuple[int, ...] = KS) -> dict[int, Tensor]:
    """N_k of each item for each k: scores (Q, M) -> (M,) counts. Among equal scores the lower item is nearer.

    Raises InputError if scores is not a matrix, is empty or holds NaN, or a k is not positive.
    """
    return {k: counts.dense() for k, counts in _count(scores, ks).counts.items()}


def _count(scores: Tensor, ks: tuple[int, ...], mask: Tensor | None = None) -> "Occurrences":
    """The occurrences of the items by scores (Q, M). mask: (Q, M) boolean, the positives."""
    matrix("scores", scores)
    require(scores.numel() > 0, f"scores has shape {tuple(scores.shape)}; expected at least one query and one item")
    deepest = max((whole("k", k) for k in ks), default=1)
    largest, nearest = top_k(scores, min(deepest, scores.shape[1]))
    require(not largest[:, 0].isnan().any(), "scores hold NaN; look for NaN or infinite embeddings")
    return count_occurrences(nearest, scores.shape[1], ks, None if mask is None else Positives.from_mask(mask))


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """The counts of M items, stored sparsely: only for items that were counted.

    items: M. positions: (n,) the counted items, ascending. amounts: (n,) int64 above 0. For a billion items and ten
    thousand queries that find ten each, this takes less than two megabytes.
    """

    items: int
    positions: Tensor
    amounts: Tensor

    @classmethod
    def from_lists(cls, items: int, positions: Tensor) -> Self:
        """The counts of M items in lists of positions, of any shape."""
        return cls(items, *positions.unique(return_counts=True))

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, item: int) -> int:
        if not 0 <= item < self.items:  # without this error, a loop over the counts would not end
            raise IndexError(item)
        return int(self.amounts[self.positions == item].sum())

    @property
    def absent(self) -> int:
        """The number of items that were never counted."""
        return self.items - len(self.positions)

    def dense(self) -> Tensor:
        """The counts (M,)."""
        return torch.zeros(self.items, dtype=torch.int64).index_put_((self.positions,), self.amounts)

    def largest(self, count: int) -> Tensor:
        """The items with the largest counts above 0, at most `count` of them; of equal counts the lower item first."""
        return self.positions[self.amounts.argsort(descending=True, stable=True)[:count]]

    def absent_items(self, numbers: Tensor) -> Tensor:
        """Some of the items that were never counted: in their ascending list, those at positions `numbers` (n,)."""
        # Before the i-th of the positions, i from 0, lie position - i items that were never counted.
        before = self.positions - torch.arange(len(self.positions))
        return numbers + torch.searchsorted(before, numbers, right=True)


def occurrence_metrics(
    occurrences: Mapping[int, Tensor | ItemCounts],
    bad: Mapping[int, Tensor | ItemCounts] | None = None,
    judged: int | None = None,
) -> dict[str, float]:
    """Hubness metrics of N_k, each key ending in its k.

    occurrences: counts (M,) for each k. Per k: "skew_k" (population skewness), "robin_hood_k" (share of the
    neighbour slots that would have to move for all items to be equal), "gini_k" (Gini index), "atkinson_k" (Atkinson
    index, ε = 1/2), "antihub_rate_k" (share of items with N_k = 0), "hub_occurrence_k" (share of the slots held by
    hubs, items with N_k >= 2k), "largest_hub_k". With k = 1 also "share_0" (items with N_1 = 0) and "share_1" (= 1),
    "share_2", "share_5", "share_10" (>= 2, 5, 10) of ACL table 5. Shares are fractions of 1.

    bad: counts BN_k (M,) for each k: the lists that hold the item as a negative. If given, also
    per k: "bad_share_k" (share of the slots that are wrong), "bad_skew_k" and "largest_bad_hub_k". judged: the number
    of queries over which bad was counted; None: all.
    """
    metrics: dict[str, float] = {}
    for k, counts in occurrences.items():
        n, frequency = _distribution(counts)
        size, total = frequency.sum(), (n * frequency).sum()
        slots = total.clamp(min=1)
        metrics |= {
            f"skew_{k}": skewness(counts),
            f"robin_hood_{k}": (((n - total / size).abs() * frequency).sum() / (2 * slots)).item(),
            f"gini_{k}": gini(counts),
            f"atkinson_{k}": atkinson(counts),
            f"antihub_rate_{k}": (frequency[n == 0].sum() / size).item(),
            f"hub_occurrence_{k}": ((n * frequency)[n >= 2 * k].sum() / slots).item(),
            f"largest_hub_{k}": n.max().item(),
        }
        if k == 1:
            metrics["share_0"] = (frequency[n == 0].sum() / size).item()
            metrics["share_1"] = (frequency[n == 1].sum() / size).item()
            metrics |= {f"share_{least}": (frequency[n >= least].sum() / size).item() for least in SHARES[1:]}
        if bad is not None:
            wrong, frequency = _distribution(bad[k])
            judged_slots = slots.item() if judged is None else judged * min(k, len(counts))
            metrics |= {
                f"bad_share_{k}": (wrong * frequency).sum().item() / max(1, judged_slots),
                f"bad_skew_{k}": skewness(bad[k]),
                f"largest_bad_hub_{k}": wrong.max().item(),
            }
    return metrics


def gini(counts: Tensor | ItemCounts) -> float:
    """Gini index Σ_ij |n_i - n_j| / (2 M Σ n) of the counts (M,); 0 if all are equal, 1 - 1/M if one has all.

    Raises InputError for empty counts, and for counts that are negative, NaN or infinite.
    """
    n, frequency = _distribution(counts)
    total = (n * frequency).sum()
    # Gini is Σ_i (2i - M - 1) n_i / (M Σ n) over the sorted counts, i from 1; the factors of equal counts are added up.
    factors = frequency * (2 * frequency.cumsum(0) - frequency - frequency.sum())
    return ((factors * n).sum() / (frequency.sum() * total)).item() if total > 0 else 0.0


def atkinson(counts: Tensor | ItemCounts) -> float:
    """Atkinson index 1 - mean(√n)² / mean(n), ε = 1/2, of the counts (M,); 0 if all are equal.

    Raises InputError for empty counts, and for counts that are negative, NaN or infinite.
    """
    n, frequency = _distribution(counts)
    if not n.any():
        return 0.0
    size, roots = frequency.sum(), n.sqrt()
    # Computed as a variance, which avoids subtracting two nearly equal numbers.
    variance = ((roots - (roots * frequency).sum() / size).square() * frequency).sum() / size
    return (variance / ((n * frequency).sum() / size)).item()


def skewness(counts: Tensor | ItemCounts) -> float:
    """Population skewness m3 / m2^1.5 of the counts (M,); 0 if all are equal.

    Raises InputError for empty counts, and for counts that are negative, NaN or infinite.
    """
    n, frequency = _distribution(counts)
    size = frequency.sum()
    centred = n - (n * frequency).sum() / size
    variance = (centred.square() * frequency).sum() / size
    return ((centred.pow(3) * frequency).sum() / size / variance.pow(1.5)).item() if variance > 0 else 0.0


def skew_sum(metrics: dict[str, float]) -> float:
    """hs_sum: the sum of all skews among the metrics of both directions."""
    return sum(value for name, value in metrics.items() if "/skew_" in name)


def _distribution(counts: Tensor | ItemCounts) -> tuple[Tensor, Tensor]:
    """Distinct counts, ascending, and how many items have each, both float64.

    Raises InputError for empty or invalid counts.
    """
    if isinstance(counts, ItemCounts):
        n, frequency = counts.amounts.double().unique(return_counts=True)
        if counts.absent:
            n = torch.cat([n.new_zeros(1), n])
            frequency = torch.cat([frequency.new_tensor([counts.absent]), frequency])
        return n, frequency.double()
    require(counts.ndim == 1 and len(counts) > 0, f"counts has shape {tuple(counts.shape)}; expected (M,), with M > 0")
    n, frequency = counts.double().unique(return_counts=True)
    least, most = n.aminmax()
    require(
        bool((least >= 0) & (most < torch.inf)),
        f"counts lie between {least.item():g} and {most.item():g}; expected how often each item occurs, 0 or more",
    )
    return n, frequency.double()


def histogram(counts: Tensor | ItemCounts) -> dict[str, list[int]]:
    """The distribution of N_k: {"occurrences": distinct counts, rising, "items": how many items have each}."""
    n, frequency = _distribution(counts)
    return {"occurrences": n.long().tolist(), "items": frequency.long().tolist()}


class Occurrences(NamedTuple):
    """N_k of M items for several k, and how many of them are wrong (Radovanović 2010: N_k = GN_k + BN_k).

    counts: N_k for each k. bad: BN_k for each k: the number of judged queries that have the item, a negative of theirs,
    among their k nearest. judged: the number of judged queries.
    """

    counts: dict[int, ItemCounts]
    bad: dict[int, ItemCounts]
    judged: int


def count_occurrences(
    nearest: Tensor, items: int, ks: tuple[int, ...] = KS, positives: Positives | None = None
) -> Occurrences:
    """The occurrences of M items in lists, judged by the queries' positives if these are known.

    nearest: (Q, K) positions of each query's nearest items, nearest first. items: M. ks: neighbourhood sizes. Queries
    without a positive are counted, but not judged. Memory does not depend on M. Raises InputError if items or a k is
    not positive, and if the lists are shorter than the smaller of the largest k and M or hold a position outside of 0
    to M - 1.
    """
    whole("items", items)
    depth = min(max((whole("k", k) for k in ks), default=0), items)
    judged = 0
    matrix("nearest", nearest, rows=None if positives is None else positives.queries)
    require(
        nearest.shape[1] >= depth,
        f"nearest lists {nearest.shape[1]} items per query; expected at least {depth}, the largest k",
    )
    nearest = checked_positions("nearest", nearest[:, :depth], items)
    wrong = torch.zeros_like(nearest, dtype=torch.bool)
    if positives is not None:
        known = positives.counts > 0
        wrong = ~positives.hits(nearest.to(known.device)) & known[:, None]
        judged = int(known.sum())
    nearest, wrong = nearest.cpu(), wrong.cpu()
    counts = {k: ItemCounts.from_lists(items, nearest[:, :k]) for k in ks}
    bad = {k: ItemCounts.from_lists(items, nearest[:, :k][wrong[:, :k]]) for k in ks}
    return Occurrences(counts, bad, judged)
