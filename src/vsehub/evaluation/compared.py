"""Two rankings of the same queries and items side by side: the first one's hubs, and the queries that turned."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from vsehub.checks import require
from vsehub.evaluation.ranking import corrected_blocks
from vsehub.evaluation.scores import DirectedScores
from vsehub.metrics.occurrences import Occurrences
from vsehub.metrics.positives import Positives
from vsehub.metrics.topk import top_k


class Hub(NamedTuple):
    """An item, among the k nearest of how many queries it is before and after, and of how many that it answers not."""

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
    """What two rankings of one direction make of the same queries and items; pairs are (before, after).

    hubs: the items in most lists before, most first. largest: in how many lists the most found item is. never: items
    in no list. answered: queries whose first item answers them, of `measured`. gained, lost: queries that turned from
    a wrong first item to a right one and back, and some of them.
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


class Lists:
    """The lists that a criterion gives the queries of one direction, both (Q, ...), nearest first.

    counts: what is in the k nearest of how many queries. first: the nearest `shown` items, by which a query counts as
    answered; a criterion that matches gives them by a matching of its own, as for R@1. right: which of them answer.
    """

    def __init__(self, scores: DirectedScores, rule: Any, k: int, shown: int):
        positives, items = scores.positives, len(scores.items)
        terms = rule.correction.fit(scores.columns)
        self.counts = Occurrences(items, (k,), positives.query.device)
        nearest = []
        for first, block in corrected_blocks(scores, rule, terms, k):
            columns = top_k(block, min(max(k, shown), items))[1]
            self.counts.add_judged(columns, positives, first)
            nearest.append(columns)
        if rule.matching is not None:
            blocks = corrected_blocks(scores, rule, terms, 1)
            nearest = [top_k(block, min(shown, items))[1] for _, block in blocks]
        self.first = torch.cat(nearest)[:, :shown]
        self.right = positives.hits(self.first)

    def of(self, query: int) -> list[Listed]:
        """The nearest items of a query."""
        return [Listed(*one) for one in zip(self.first[query].tolist(), self.right[query].tolist(), strict=True)]


@torch.no_grad()
def compare(
    before: tuple[DirectedScores, Any],
    after: tuple[DirectedScores, Any],
    k: int = 10,
    hubs: int = 6,
    examples: int = 3,
    shown: int = 5,
    seed: int = 0,
) -> Compared:
    """Compare two rankings, each scores and a criterion; of equal scores the lower item comes first.

    examples: how many of the queries that turned, each way, are drawn by `seed`. shown: items of their lists. Raises
    InputError where the two rank other queries or items, or other items answer the queries.
    """
    positives = before[0].positives
    require(
        _same(positives, after[0].positives),
        "before and after rank other queries or items, or other items answer them; compare rankings of one split",
    )
    lists = [Lists(*one, k, shown) for one in (before, after)]
    counts = [one.counts.counts[k] for one in lists]
    wrong = [one.counts.bad[k] for one in lists]
    worst = counts[0].argsort(descending=True, stable=True)[:hubs].tolist()
    known = positives.counts > 0
    first = [one.right[:, 0] & known for one in lists]
    turned = [(first[1] & ~first[0]).nonzero().flatten(), (first[0] & ~first[1]).nonzero().flatten()]
    generator = torch.Generator().manual_seed(seed)
    drawn = [queries.cpu()[torch.randperm(len(queries), generator=generator)[:examples]] for queries in turned]
    gained, lost = [[Turned(query, *(one.of(query) for one in lists)) for query in some.tolist()] for some in drawn]
    return Compared(
        k=k,
        queries=positives.queries,
        items=positives.items,
        hubs=[Hub(item, _pair(count[item] for count in counts), _pair(bad[item] for bad in wrong)) for item in worst],
        largest=_pair(count.max() for count in counts),
        never=_pair((count == 0).sum() for count in counts),
        answered=_pair(one.sum() for one in first),
        measured=int(known.sum()),
        gained=len(turned[0]),
        lost=len(turned[1]),
        some_gained=gained,
        some_lost=lost,
    )


def _same(one: Positives, other: Positives) -> bool:
    sizes = (one.queries, one.items) == (other.queries, other.items)
    return sizes and torch.equal(one.query, other.query) and torch.equal(one.item, other.item)


def _pair(values: Any) -> tuple[int, int]:
    before, after = (int(value) for value in values)
    return before, after
