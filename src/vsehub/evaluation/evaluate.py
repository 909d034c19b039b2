"""Recalls, ranks and hubness of an encoded split under a criterion and a protocol, in blocks of bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.scores import DIRECTIONS, DirectedScores, both_directions
from vsehub.metrics.occurrences import KS, histogram, occurrence_metrics, skew_sum
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import Ranking, rank_blocks
from vsehub.metrics.recall import rank_metrics, rsum
from vsehub.metrics.relevance import RECALLS
from vsehub.types import Similarity


def image_contributions(rankings: dict[str, dict[int, Ranking]], texts: Positives) -> Tensor:
    """Each image's part of a fold's rsum, (I,) float64, whose mean is the rsum.

    rankings: of both directions, for each k the ranking that R@k is taken from. texts: the positives of "t2i", whose
    queries are the texts; at least one each. An image has 100 for each of R@1, R@5 and R@10 that it hits as a query,
    and the mean of what its texts hit; where images have unlike numbers of texts, their sum divided by T/I, the number
    on average. A text that belongs to several images is shared out among them.
    """
    own, found = (
        torch.stack([side[k].ranks <= k for k in RECALLS]).sum(dim=0).double()
        for side in (rankings["i2t"], rankings["t2i"])
    )
    shares = (found / texts.counts)[texts.query]
    of_texts = torch.zeros_like(own).index_add_(0, texts.item, shares)
    return 100.0 * (own + of_texts * len(own) / len(found))


def rank(scores: DirectedScores, criterion: Criterion) -> dict[int, Ranking]:
    """For each k of `KS` the ranking that R@k and N_k are taken from.

    It is one and the same, but for criteria that match: they make a matching for each k (EMNLP algorithm 1).
    """
    terms = criterion.correction.fit(scores.columns)
    if criterion.matching is None:
        return dict.fromkeys(KS, rank_blocks(corrected_blocks(scores, criterion, terms), scores.positives, KS))
    return {k: rank_blocks(corrected_blocks(scores, criterion, terms, k), scores.positives, (k,)) for k in KS}


def corrected_blocks(
    scores: DirectedScores, criterion: Criterion, terms: Terms, k: int = 1
) -> Iterator[tuple[int, Tensor]]:
    """(first query, scores (b, M) whose order is the criterion's) over all queries in order.

    terms: of the items, by the criterion's correction. k: with how many items a criterion that matches matches a query.
    """
    correction = criterion.correction
    if criterion.matching is None:
        yield from ((first, correction.apply(block, terms)) for first, block in scores.blocks())
        return

    def rows(index: Tensor | slice) -> Tensor:
        return correction.apply(scores.rows(index), terms)

    pairs = criterion.matching.match_rows(rows, len(scores.queries), len(scores.items), min(k, len(scores.items)))
    # Queries of one block lie together once the pairs are sorted by query.
    pairs = pairs[pairs[:, 0].argsort(stable=True)]
    ends = torch.bincount(pairs[:, 0], minlength=len(scores.queries)).cumsum(0)
    for first, block in scores.blocks():
        yield first, criterion.matching.lift(correction.apply(block, terms), _of(pairs, ends, first, len(block)))


def _of(pairs: Tensor, ends: Tensor, first: int, rows: int) -> Tensor:
    """The pairs of a block's queries, which are counted from its first."""
    start = ends[first - 1] if first else 0
    return pairs[start : ends[first + rows - 1]] - pairs.new_tensor([first, 0])


def direction_metrics(rankings: dict[int, Ranking]) -> tuple[dict[str, float], dict[str, float]]:
    """Recalls and ranks, and hubness, of one direction; metrics that belong to no k are those of the largest."""
    distinct = {id(ranking): ranking for ranking in rankings.values()}
    measured = {key: rank_metrics(ranking) for key, ranking in distinct.items()}
    recalls = measured[id(rankings[max(rankings)])] | {
        f"r{k}": measured[id(one)][f"r{k}"] for k, one in rankings.items()
    }
    hubs = occurrence_metrics(
        {k: one.occurrences[k] for k, one in rankings.items()},
        {k: one.bad[k] for k, one in rankings.items()},
        int(rankings[max(rankings)].measured.sum()),
    )
    return recalls, hubs


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
    criterion: Criterion,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
) -> Evaluation:
    """The metrics of a split under a criterion of `vsehub.criteria`.

    reference: the split whose images and texts the criterion takes as reference queries (inductive); None takes each
    fold's own queries (transductive). Raises InputError if the protocol asks for more images than there are, or a
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
def measured(folds: list[Fold], criterion: Criterion, inductive: bool) -> Evaluation:
    """The metrics of folds under a criterion, means over the folds; as `evaluate`, of scores that others may share."""
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
    """All metrics of one fold from both directions' rankings."""
    recalls: dict[str, float] = {}
    hubs: dict[str, float] = {}
    for direction, ranking in rankings.items():
        own, hubness = direction_metrics(ranking)
        recalls |= {f"{direction}/{name}": value for name, value in own.items()}
        hubs |= {f"{direction}/{name}": value for name, value in hubness.items()}
    hubs["hs_sum"] = skew_sum(hubs)
    return recalls | {"rsum": rsum(recalls)} | {f"hubness/{name}": value for name, value in hubs.items()}


def transductive_only(name: str) -> str:
    """Why a criterion that matches takes no reference."""
    return (
        f"{name} matches the queries that are ranked against each other, so it has no inductive form; "
        "leave the reference out (reference=queries)"
    )
