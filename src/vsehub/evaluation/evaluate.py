"""Recalls, ranks and hubness of an encoded split under a criterion and a protocol, in blocks of bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.scores import DIRECTIONS, DirectedScores, both_directions
from vsehub.metrics import Ranking, histogram, occurrence_metrics, rank_blocks, rank_metrics, rsum
from vsehub.metrics.occurrences import KS, skew_sum
from vsehub.metrics.ranks import RECALLS
from vsehub.models.encode import EncodedSplit
from vsehub.positives import Positives
from vsehub.types import Similarity


def image_contributions(rankings: dict[str, dict[int, Ranking]], text_positives: Positives) -> Tensor:
    """Each image's part of a fold's rsum, (I,) float64; their mean is the rsum.

    rankings: the ranking for R@k, for both directions and each k. text_positives: the images of each text, the
    positives of "t2i"; each text has at least one. An image gets 100 for each of R@1, R@5 and R@10 at which it is a hit
    as a query, plus the hits of its texts divided by T/I, the mean number of texts per image. The hits of a text that
    belongs to several images are divided among them.
    """
    image_hits = hits_of(rankings["i2t"])
    text_hits = hits_of(rankings["t2i"])
    shares = (text_hits / text_positives.counts)[text_positives.query]
    from_texts = torch.zeros_like(image_hits).index_add_(0, text_positives.item, shares)
    return 100.0 * (image_hits + from_texts * len(image_hits) / len(text_hits))


def hits_of(ranking: dict[int, Ranking]) -> Tensor:
    """The number of R@1, R@5 and R@10 at which each query is a hit, (Q,) float64."""
    return torch.stack([ranking[k].ranks <= k for k in RECALLS]).sum(dim=0).double()


def rank(scores: DirectedScores, criterion: Criterion) -> dict[int, Ranking]:
    """The ranking for R@k and N_k, for each k of `KS`.

    It is the same for all k, except that a matching criterion makes one matching per k (EMNLP algorithm 1).
    """
    terms = scores.fit(criterion)
    if criterion.matching is None:
        return dict.fromkeys(KS, rank_blocks(corrected_blocks(scores, criterion, terms), scores.positives, KS))
    return {k: rank_blocks(corrected_blocks(scores, criterion, terms, k), scores.positives, (k,)) for k in KS}


def corrected_blocks(
    scores: DirectedScores, criterion: Criterion, terms: Terms, k: int = 1
) -> Iterator[tuple[int, Tensor]]:
    """(first query, scores (b, M) in the criterion's order) over all queries in order.

    terms: the item terms of the criterion's correction. k: the number of items that a matching gives each query.
    """
    correction = criterion.correction
    if criterion.matching is None:
        yield from ((first, correction.apply(block, terms)) for first, block in scores.blocks())
        return

    def rows(index: Tensor | slice) -> Tensor:
        return correction.apply(scores.rows(index), terms)

    first, items = 0, len(scores.items)
    for _, lifted in criterion.matching.lifted(rows, len(scores.queries), items, min(k, items)):
        yield first, lifted
        first += len(lifted)


Fold = dict[str, DirectedScores]


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    metrics: "i2t/r1" ... "rsum", "hubness/hs_sum", "hubness/i2t/skew_1" ...: means over the folds. histograms:
    direction -> k -> the distribution of N_k over all folds' items. contributions: each image's part of rsum, fold
    after fold; their mean is rsum.
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

    reference: the split whose images and texts are the criterion's reference queries and, if it takes them, reference
    items (inductive); None takes each fold's own (transductive). Raises InputError if the protocol needs more images
    than there are, if a reference is given for a criterion that has no inductive form, or if a criterion takes scores
    of items with items and the similarity has none.
    """
    return measure_folds(folds_of(split, similarity, protocol, reference), criterion, reference is not None)


def folds_of(
    split: EncodedSplit,
    similarity: Similarity,
    protocol: Protocol,
    reference: EncodedSplit | None,
) -> list[Fold]:
    """The scores of both directions for every fold of a split; arguments as in `evaluate`."""
    folds = [split.fold(images) for images in protocol.slices(len(split.images))]
    return [both_directions(fold, similarity, reference or fold) for fold in folds]


@torch.no_grad()
def measure_folds(folds: list[Fold], criterion: Criterion, inductive: bool) -> Evaluation:
    """The metrics of folds under a criterion, as `evaluate`, from scores that several criteria may share."""
    require(
        not inductive or criterion.inductive,
        f"{type(criterion).__name__} matches the queries that are ranked against each other, so it has no inductive "
        "form; leave the reference out (reference=queries)",
    )
    by_fold, contributions = [], []
    counts: dict[str, dict[int, list[Tensor]]] = {side: {k: [] for k in KS} for side in DIRECTIONS}
    for fold in folds:
        rankings = {side: rank(scores, criterion) for side, scores in fold.items()}
        by_fold.append(fold_metrics(rankings))
        contributions.append(image_contributions(rankings, fold["t2i"].positives))
        for side, by_k in rankings.items():
            for k, ranking in by_k.items():
                counts[side][k].append(ranking.occurrences[k])
    metrics = {name: sum(fold[name] for fold in by_fold) / len(by_fold) for name in by_fold[0]}
    histograms = {
        side: {str(k): histogram(torch.cat(of_folds)) for k, of_folds in by_k.items()} for side, by_k in counts.items()
    }
    return Evaluation(metrics, histograms, torch.cat(contributions).tolist())


def fold_metrics(rankings: dict[str, dict[int, Ranking]]) -> dict[str, float]:
    """All metrics of one fold from both directions' rankings; metrics without a k come from the largest k."""
    recalls: dict[str, float] = {}
    hubs: dict[str, float] = {}
    for direction, by_k in rankings.items():
        deepest = by_k[max(by_k)]
        ranks = rank_metrics(deepest) | {f"r{k}": rank_metrics(ranking)[f"r{k}"] for k, ranking in by_k.items()}
        counts = {k: ranking.occurrences[k] for k, ranking in by_k.items()}
        bad = {k: ranking.bad[k] for k, ranking in by_k.items()}
        hubness = occurrence_metrics(counts, bad, int(deepest.measured.sum()))
        recalls |= {f"{direction}/{name}": value for name, value in ranks.items()}
        hubs |= {f"{direction}/{name}": value for name, value in hubness.items()}
    hubs["hs_sum"] = skew_sum(hubs)
    return recalls | {"rsum": rsum(recalls)} | {f"hubness/{name}": value for name, value in hubs.items()}
