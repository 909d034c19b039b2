"""Recalls, ranks and hubness of an encoded split under a criterion and a protocol, in blocks of bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.criteria.base import ItemBias
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.protocols import Protocol
from vsehub.metrics.hubness import KS, histogram, occurrence_metrics, skew_sum
from vsehub.metrics.ranks import Positives, Ranking, rank_blocks
from vsehub.metrics.recall import rank_metrics, rsum
from vsehub.types import Similarity

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
DIRECTIONS = ("i2t", "t2i")


@dataclass(frozen=True)
class Evaluation:
    """metrics: "i2t/r1" ... "rsum", "hubness/hs_sum", "hubness/i2t/skew_1" ...: means over the folds.

    histograms: direction -> k -> the distribution of N_k over all folds' items.
    """

    metrics: dict[str, float]
    histograms: dict[str, dict[str, dict[str, list[int]]]]


@torch.no_grad()
def evaluate(
    split: EncodedSplit,
    similarity: Similarity,
    criterion: ItemBias,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
) -> Evaluation:
    """The figures of a split.

    reference: the split whose images and texts the criterion takes as reference queries (inductive); None takes each
    fold's own queries (transductive). Raises InputError where the protocol asks for more images than there are.
    """
    folds = [split.fold(images) for images in protocol.slices(len(split.images))]
    rankings = [
        {direction: rank(fold, direction, similarity, criterion, reference or fold) for direction in DIRECTIONS}
        for fold in folds
    ]
    figures = [fold_metrics(ranking) for ranking in rankings]
    metrics = {name: sum(figure[name] for figure in figures) / len(figures) for name in figures[0]}
    histograms = {
        direction: {
            str(k): histogram(torch.cat([ranking[direction].occurrences[k] for ranking in rankings])) for k in KS
        }
        for direction in DIRECTIONS
    }
    return Evaluation(metrics, histograms)


def rank(
    fold: EncodedSplit, direction: str, similarity: Similarity, criterion: ItemBias, reference: EncodedSplit
) -> Ranking:
    """Ranks and k-occurrences of one direction: "i2t" has images as queries, "t2i" texts."""
    image_ids = torch.arange(len(fold.images), device=fold.images.device)
    ids = (image_ids, fold.image_index) if direction == "i2t" else (fold.image_index, image_ids)
    bias = None
    if criterion.needs_reference:
        bias = criterion.item_bias(_columns(reference, fold, direction, similarity))
    blocks = (
        (first, scores if bias is None else criterion.scale * scores - bias)
        for first, scores in _rows(fold, direction, similarity)
    )
    return rank_blocks(blocks, Positives.from_ids(*ids), KS)


def fold_metrics(rankings: dict[str, Ranking]) -> dict[str, float]:
    """All figures of one fold from both directions' rankings."""
    recalls, hubs = {}, {}
    for direction, ranking in rankings.items():
        recalls |= {f"{direction}/{name}": value for name, value in rank_metrics(ranking).items()}
        figures = occurrence_metrics(ranking.occurrences, ranking.bad, int(ranking.measured.sum()))
        hubs |= {f"{direction}/{name}": value for name, value in figures.items()}
    hubs["hs_sum"] = skew_sum(hubs)
    return recalls | {"rsum": rsum(recalls)} | {f"hubness/{name}": value for name, value in hubs.items()}


def _rows(split: EncodedSplit, direction: str, similarity: Similarity) -> Iterator[tuple[int, Tensor]]:
    """Blocks (first query, scores (b, items)) over all queries of a direction."""
    queries, items = (split.images, split.texts) if direction == "i2t" else (split.texts, split.images)
    size = max(1, BLOCK_ELEMENTS // len(items))
    inner = hasattr(similarity, "vectors")
    if inner:
        items = similarity.vectors(items)
    for first in range(0, len(queries), size):
        block = queries[first : first + size]
        if inner:
            yield first, similarity.vectors(block) @ items.T
        else:
            yield first, similarity(block, items) if direction == "i2t" else similarity(items, block).T


def _columns(reference: EncodedSplit, split: EncodedSplit, direction: str, similarity: Similarity) -> Iterator[Tensor]:
    """Blocks (reference queries, m) over all items of a direction."""
    queries = reference.images if direction == "i2t" else reference.texts
    items = split.texts if direction == "i2t" else split.images
    inner = hasattr(similarity, "vectors")
    if inner:
        queries = similarity.vectors(queries)  # once, not for each of the many narrow blocks
    for block in items.split(max(1, BLOCK_ELEMENTS // len(queries))):
        if inner:
            yield queries @ similarity.vectors(block).T
        else:
            yield similarity(queries, block) if direction == "i2t" else similarity(block, queries).T
