"""Recalls, ranks and hubness of an encoded split under a criterion and a protocol, in blocks of bounded memory."""

from dataclasses import dataclass
from typing import Any

import torch

from vsehub.checks import require
from vsehub.evaluation.contributions import image_contributions
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.ranking import figures, rank
from vsehub.evaluation.scores import DIRECTIONS, DirectedScores, both_directions
from vsehub.metrics.hubness import KS, histogram, skew_sum
from vsehub.metrics.ranks import Ranking
from vsehub.metrics.recall import rsum
from vsehub.types import Similarity

Fold = dict[str, DirectedScores]


@dataclass(frozen=True)
class Evaluation:
    """metrics: "i2t/r1" ... "rsum", "hubness/hs_sum", "hubness/i2t/skew_1" ...: means over the folds.

    histograms: direction -> k -> the distribution of N_k over all folds' items. contributions: each
    image's part of rsum, fold after fold; their mean is rsum.
    """

    metrics: dict[str, float]
    histograms: dict[str, dict[str, dict[str, list[int]]]]
    contributions: list[float]


def evaluate(
    split: EncodedSplit,
    similarity: Similarity,
    criterion: Any,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
) -> Evaluation:
    """The figures of a split under a criterion of `vsehub.criteria`, a chain of two or a matching one.

    reference: the split whose images and texts the criterion takes as reference queries (inductive); None takes each
    fold's own queries (transductive). Raises InputError where the protocol asks for more images than there are, or a
    reference is given to a criterion that has no inductive form.
    """
    return measured(folds_of(split, similarity, protocol, reference), criterion, reference is not None)


def folds_of(
    split: EncodedSplit, similarity: Similarity, protocol: Protocol, reference: EncodedSplit | None
) -> list[Fold]:
    """Both directions' scores of every fold of a split; arguments as in `evaluate`."""
    folds = [split.fold(images) for images in protocol.slices(len(split.images))]
    return [both_directions(fold, similarity, reference or fold) for fold in folds]


@torch.no_grad()
def measured(folds: list[Fold], criterion: Any, inductive: bool) -> Evaluation:
    """The figures of folds under a criterion, means over the folds; as `evaluate`, of scores that others may share."""
    require(not inductive or criterion.inductive, transductive_only(type(criterion).__name__))
    rankings = [{direction: rank(scores, criterion) for direction, scores in fold.items()} for fold in folds]
    found = [fold_metrics(ranking) for ranking in rankings]
    metrics = {name: sum(fold[name] for fold in found) / len(found) for name in found[0]}
    histograms = {
        direction: {
            str(k): histogram(torch.cat([ranking[direction][k].occurrences[k] for ranking in rankings])) for k in KS
        }
        for direction in DIRECTIONS
    }
    parts = [image_contributions(one, fold["t2i"].positives) for one, fold in zip(rankings, folds, strict=True)]
    return Evaluation(metrics, histograms, torch.cat(parts).tolist())


def fold_metrics(rankings: dict[str, dict[int, Ranking]]) -> dict[str, float]:
    """All figures of one fold from both directions' rankings."""
    recalls, hubs = {}, {}
    for direction, ranking in rankings.items():
        own, hubness = figures(ranking)
        recalls |= {f"{direction}/{name}": value for name, value in own.items()}
        hubs |= {f"{direction}/{name}": value for name, value in hubness.items()}
    hubs["hs_sum"] = skew_sum(hubs)
    return recalls | {"rsum": rsum(recalls)} | {f"hubness/{name}": value for name, value in hubs.items()}


def transductive_only(name: str) -> str:
    """Why a criterion that matches takes no reference."""
    return (
        f"{name} matches the queries that are ranked against each other, so it has no inductive form; "
        "leave the reference away (reference=queries)"
    )
