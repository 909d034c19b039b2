"""Comparison of two rankings of the same queries and items: hubs before and after, and queries gained and lost."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vsehub.checks import one_of, require
from vsehub.criteria.base import Criterion
from vsehub.evaluation.evaluate import corrected_blocks, rank
from vsehub.evaluation.scores import DirectedScores
from vsehub.metrics.occurrences import KS


class Hub(NamedTuple):
    """N_k and bad N_k of an item, each (before, after).

    occurrences: the number of queries with the item among their k nearest. wrong: the number of these that the item
    does not answer.
    """

    item: int
    occurrences: tuple[int, int]
    wrong: tuple[int, int]


class Listed(NamedTuple):
    """An item in a query's list, and whether it answers the query."""

    item: int
    right: bool


class Turned(NamedTuple):
    """A query and its nearest items before and after."""

    query: int
    before: list[Listed]
    after: list[Listed]


@dataclass(frozen=True)
class Compared:
    """Two rankings of the same queries and items in one direction; pairs are (before, after).

    hubs: the items with the largest N_k before, largest first. largest: the largest N_k. never: items with N_k = 0.
    answered: queries whose first item answers them, of `measured`. gained, lost: how many queries changed from a wrong
    first item to a right one, and the reverse. some_gained, some_lost: examples of them.
    """

    k: int
    queries: int
    items: int
    hubs: list[Hub]
    largest: tuple[int, int]
    never: tuple[int, int]
    answered: tuple[int, int]
    measured: int
    gained: int
    lost: int
    some_gained: list[Turned]
    some_lost: list[Turned]


@torch.no_grad()
def compare(
    before: tuple[DirectedScores, Criterion],
    after: tuple[DirectedScores, Criterion],
    k: int = 10,
    hubs: int = 6,
    examples: int = 3,
    shown: int = 5,
    seed: int = 0,
) -> Compared:
    """Compare two rankings, each given as scores and a criterion, by the metrics of `evaluate`.

    k: one of `KS`. examples: the number of gained and of lost queries that are drawn by `seed`. shown: the length of
    their lists, in which wrong items come first among equal scores, as for R@k. Raises InputError for another k, or if
    the two have different queries, items or positives.
    """
    one_of("k", k, KS)
    positives, others = before[0].positives, after[0].positives
    require(
        (positives.queries, positives.items) == (others.queries, others.items)
        and torch.equal(positives.query, others.query)
        and torch.equal(positives.item, others.item),
        "before and after rank other queries or items, or other items answer them; compare rankings of one split",
    )
    rankings = [rank(*one) for one in (before, after)]
    counts = [ranking[k].occurrences[k] for ranking in rankings]
    wrong = [ranking[k].bad[k] for ranking in rankings]
    worst = counts[0].argsort(descending=True, stable=True)[:hubs].tolist()
    first = [ranking[1].ranks == 1 for ranking in rankings]
    turned = [(first[1] & ~first[0]).nonzero().flatten(), (first[0] & ~first[1]).nonzero().flatten()]
    generator = torch.Generator().manual_seed(seed)
    drawn = [queries.cpu()[torch.randperm(len(queries), generator=generator)[:examples]] for queries in turned]
    lists = [nearest(*one, torch.cat(drawn), shown) for one in (before, after)]
    gained, lost = [[Turned(query, lists[0][query], lists[1][query]) for query in some.tolist()] for some in drawn]
    return Compared(
        k=k,
        queries=positives.queries,
        items=positives.items,
        hubs=[Hub(item, _pair(count[item] for count in counts), _pair(bad[item] for bad in wrong)) for item in worst],
        largest=_pair(count.max() for count in counts),
        never=_pair((count == 0).sum() for count in counts),
        answered=_pair(one.sum() for one in first),
        measured=int(rankings[0][1].measured.sum()),
        gained=len(turned[0]),
        lost=len(turned[1]),
        some_gained=gained,
        some_lost=lost,
    )


def nearest(scores: DirectedScores, criterion: Criterion, queries: Tensor, shown: int) -> dict[int, list[Listed]]:
    """The nearest items of some queries (n,) under a criterion, nearest first; among equal scores wrong items first.

    A criterion that matches ranks by its matching for k = 1, as for R@1.
    """
    found = {}
    for first, block in corrected_blocks(scores, criterion, scores.fit(criterion)):
        for query in queries[(queries >= first) & (queries < first + len(block))].tolist():
            row = block[query - first]
            right = torch.zeros(len(row), dtype=torch.bool, device=row.device)
            right[scores.positives.item[scores.positives.query == query]] = True
            wrong_first = torch.cat([(~right).nonzero(), right.nonzero()]).flatten()
            order = wrong_first[row[wrong_first].argsort(descending=True, stable=True)][:shown]
            found[query] = [Listed(*one) for one in zip(order.tolist(), right[order].tolist(), strict=True)]
    return found


def _pair(values: Iterable[Tensor]) -> tuple[int, int]:
    before, after = (int(value) for value in values)
    return before, after
