"""The lists of the plain ranking and of all corrected ones, kept in parts as they are found."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from vsehub.criteria.base import Criterion, Terms, fit_all
from vsehub.neighbors.rows import Rows
from vsehub.neighbors.tiles import nearest_blocks
from vsehub.retrieval.parts import Parts, Pieces, kept

log = logging.getLogger(__name__)

# (k) -> values and positions (b, k) of some queries' lists, best first
Found = Callable[[int], tuple[Tensor, Tensor]]


class Moved:
    """Rows that are handed out on another device."""

    def __init__(self, vectors: Rows, device: torch.device):
        self._vectors, self._device = vectors, device
        self.shape = vectors.shape

    def __len__(self) -> int:
        return len(self._vectors)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1 on the device."""
        return self._vectors.rows(start, stop).to(self._device)


def fitted(
    rules: Mapping[str, Criterion], items: Rows, reference: Rows, parts: Parts | None, progress: bool
) -> tuple[dict[str, Terms], float]:
    """The item terms of each criterion, and the seconds; those that go by column share one product."""
    together = [name for name, rule in rules.items() if rule.columnwise and rule.needs_reference]
    groups = [together] * bool(together) + [[name] for name in rules if name not in together]
    terms, total = {}, 0.0
    for group in groups:
        find = _fit([rules[name] for name in group], items, reference, progress)
        found, seconds = kept(parts, f"terms-{'-'.join(group)}", find)
        terms |= dict(zip(group, found, strict=True))
        total += seconds
    return terms, total


def _fit(rules: list[Criterion], items: Rows, reference: Rows, progress: bool) -> Callable[[], Pieces]:
    return lambda: fit_all(rules, items, reference, progress)


def matched(
    rule: Any, name: str, queries: Rows, items: Rows, depths: set[int], parts: Parts | None
) -> tuple[dict[int, tuple[Tensor, Tensor]], float]:
    """Values and positions (Q, k) of a matching for each k of depths, which is another matching each time."""
    lists, total = {}, 0.0
    for k in sorted(depths):
        log.info("%s: matching %d queries and %d items, k = %d", name, len(queries), len(items), k)
        (found,), seconds = kept(parts, f"matched-{name}-{k}", _match(rule, queries, items, k))
        lists[k] = tuple(side.cpu() for side in found)
        total += seconds
    return lists, total


def _match(rule: Any, queries: Rows, items: Rows, k: int) -> Callable[[], Pieces]:
    return lambda: [rule.search(queries, items, k=k)]


def found_blocks(
    queries: Rows,
    items: Rows,
    depth: int,
    rules: Mapping[str, Criterion],
    terms: Mapping[str, Terms],
    parts: Parts | None,
    progress: bool,
) -> Iterator[tuple[int, Pieces, float]]:
    """(first query, lists of the plain ranking and of each criterion, seconds) for one stretch of queries at a time.

    Each of the lists is values and positions (b, depth) on the CPU. What parts hold is not searched again.
    """
    start = 0
    while parts is not None and start < len(queries):
        stored = parts.get(_name(depth, start))
        if stored is None:
            break
        yield start, *stored
        start += len(stored[0][0][0])
    if start == len(queries):
        return
    if start:
        log.info("going on from query %d of %d", start, len(queries))
    began = time.perf_counter()
    device = queries.rows(0, 1).device
    corrections = [
        rule.over(queries, items, tuple(term.to(device) for term in terms[name])) for name, rule in rules.items()
    ]
    blocks = nearest_blocks(queries, items, depth, [None, *corrections], "searching" if progress else None, start=start)
    for first, found in blocks:
        lists = [tuple(side.cpu() for side in one) for one in found]
        seconds = time.perf_counter() - began
        if parts is not None:
            parts.put(_name(depth, first), lists, seconds)
        yield first, lists, seconds
        began = time.perf_counter()


def _name(depth: int, first: int) -> str:
    return f"lists-{depth}-{first}"
