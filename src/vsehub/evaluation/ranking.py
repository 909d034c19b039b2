"""One direction of a split ranked under a criterion."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vsehub.criteria.base import Terms
from vsehub.evaluation.scores import DirectedScores
from vsehub.metrics.hubness import KS, occurrence_metrics
from vsehub.metrics.ranks import Ranking, rank_blocks
from vsehub.metrics.recall import rank_metrics


def rank(scores: DirectedScores, rule: Any) -> dict[int, Ranking]:
    """For each k of `KS` the ranking that R@k and N_k are taken from.

    It is one and the same, but for criteria that match: they make a matching for each k (EMNLP algorithm 1).
    """
    terms = rule.correction.fit(scores.columns)
    if rule.matching is None:
        return dict.fromkeys(KS, rank_blocks(corrected_blocks(scores, rule, terms), scores.positives, KS))
    return {k: rank_blocks(corrected_blocks(scores, rule, terms, k), scores.positives, (k,)) for k in KS}


def corrected_blocks(scores: DirectedScores, rule: Any, terms: Terms, k: int = 1) -> Iterator[tuple[int, Tensor]]:
    """(first query, scores (b, M) whose order is the criterion's) over all queries in order.

    terms: of the items, by the rule's correction. k: of a rule that matches, how many items a query is matched with.
    """
    correction = rule.correction
    if rule.matching is None:
        yield from ((first, correction.apply(block, terms)) for first, block in scores.blocks())
        return

    def rows(index: Tensor | slice) -> Tensor:
        return correction.apply(scores.rows(index), terms)

    pairs = rule.matching.match_rows(rows, len(scores.queries), len(scores.items), min(k, len(scores.items)))
    # Queries of one block lie together once the pairs are sorted by query.
    pairs = pairs[pairs[:, 0].argsort(stable=True)]
    ends = torch.bincount(pairs[:, 0], minlength=len(scores.queries)).cumsum(0)
    for first, block in scores.blocks():
        yield first, rule.matching.lift(correction.apply(block, terms), _of(pairs, ends, first, len(block)))


def _of(pairs: Tensor, ends: Tensor, first: int, rows: int) -> Tensor:
    """The pairs of a block's queries, which are counted from its first."""
    start = ends[first - 1] if first else 0
    return pairs[start : ends[first + rows - 1]] - pairs.new_tensor([first, 0])


def figures(rankings: dict[int, Ranking]) -> tuple[dict[str, float], dict[str, float]]:
    """Recalls and ranks, and hubness, of one direction; what belongs to no k is that of the largest."""
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
