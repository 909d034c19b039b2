"""An engine for items in shards: workers make two passes over the shards, for item terms and for lists.

The results of the shards are merged in the order of the items, by the functions that the engine of one machine uses.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from vsehub.checks import fail, require
from vsehub.criteria.base import Correction, Criterion, Terms, finite_terms, joined
from vsehub.data.vectors.embeddings import Norms, VectorFile
from vsehub.io.progress import bar
from vsehub.metrics.topk import Best, merged
from vsehub.neighbors.tiles import held_at_once
from vsehub.neighbors.vectors import VectorSource
from vsehub.rerank import shards
from vsehub.rerank.shards import Arrays, Shard, as_arrays, as_terms, divided
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

# the arguments of the function for each job
Jobs = Sequence[tuple[Any, ...]]
# A criterion that overrides one of these methods needs all items at once, and cannot work on shards.
WHOLE = ("fit", "over", "query_terms")


class Workers(Protocol):
    """Processes that carry out the functions of `rerank.shards`. device: where they compute, "cpu" or "cuda"."""

    device: str

    def share(self, array: np.ndarray) -> Any:
        """A stand-in for an array among the arguments, so that the array is sent to each machine only once."""

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, tuple[Any, ...]]]
    ) -> Iterator[tuple[int, Any]]:
        """(number, result) of each job, as they are done; see `shards.carried_out`. jobs: (number, arguments)."""


def refuse_unsharded(criteria: Mapping[str, Criterion], reference_items: bool) -> None:
    """Raise InputError for a criterion that needs all items at once. reference_items: whether there are any."""
    for name, criterion in criteria.items():
        require(
            criterion.matching is None,
            f"{name} matches queries and items with each other, which needs all scores on one machine. Use "
            "engine=local, or a criterion that corrects scores, e.g. csls",
        )
        require(
            criterion.correction.reference_items_as != "rows" or reference_items,
            f"{name} compares the items with each other, and no worker has them all. Give reference_items=FILE, for "
            "example a sample of the items, or use engine=local",
        )
        own = [one for one in WHOLE if getattr(type(criterion), one) is not getattr(Correction, one)]
        require(
            not own,
            f"{name} has its own {' and '.join(own)}, which cannot take items in parts. Write `part` and "
            "`merged_terms`, `query_part` and `merged_query_terms`, or use engine=local",
        )


@dataclass(frozen=True)
class Distributed:
    """The engine that divides items in files among workers; see `engines.Engine`.

    shard_rows: rows of a shard at most; None: see `divided`.
    """

    workers: Workers
    shard_rows: int | None = None
    rounded: ClassVar[bool] = False

    @property
    def device(self) -> torch.device:
        """Where workers compute."""
        return torch.device(self.workers.device)

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion that needs all items at once."""
        refuse_unsharded(criteria, sides.reference_items is not None)

    def look_through(self, items: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""
        among = divided(items, self.shard_rows)
        norms = list(self._answers(shards.looked_through, [(shard,) for shard in among], "checking"))
        return shards.together(norms, [len(shard) for shard in among])

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """See `Engine`."""
        among = self._divided(sides.items)
        bank = None if sides.reference_items is None else _array(sides.reference_items)
        rows = len(sides.seen), 0 if bank is None else len(bank)
        _log_memory("terms", shards.terms_bytes(sides.items.shape[1], *rows))
        seen = self.workers.share(_array(sides.seen))
        device = self.workers.device
        if criteria[0].columnwise:
            shared = None if bank is None else self.workers.share(bank)
            by_column = [(shard, list(criteria), seen, shared, device) for shard in among]
            of_shards = list(self._terms(shards.terms_by_column, by_column, "terms"))
            return [finite_terms(joined(terms[place] for terms in of_shards)) for place in range(len(criteria))]

        (criterion,) = criteria
        taken: list[Any] = list(among)
        if bank is not None and criterion.reference_items_as == "columns":
            taken.append(self.workers.share(bank))
        parts: list[Terms] = [() for _ in taken]
        state: Terms = ()
        for number in range(criterion.passes):
            jobs = [
                (side, criterion, number, as_arrays(state), as_arrays(own), seen, device)
                for side, own in zip(taken, parts, strict=True)
            ]
            parts = [terms[0] for terms in self._terms(shards.terms_in_passes, jobs, f"pass {number + 1}")]
            if number < criterion.passes - 1:
                state = criterion.shared(parts, number)
        of_bank = parts.pop() if len(taken) > len(among) else None
        return [finite_terms(criterion.merged_terms(parts, of_bank))]

    def matched(self, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Raises InputError: `require` refuses such criteria."""
        fail(f"{criterion} matches queries and items with each other; use engine=local")

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
    ) -> Iterator[tuple[int, list[Best]]]:
        """See `Engine`."""
        queries, among, device = sides.queries, self._divided(sides.items), self.workers.device
        sizes = sides.items.shape[1], len(queries), depth, 1 + len(criteria)
        own_terms = any(criterion.query_terms_rank for criterion in criteria)
        _log_memory("lists", shards.lists_bytes(*sizes, own_terms, device == "cuda"))
        height = held_at_once(queries)
        own = [[as_arrays(tuple(term[shard.place] for term in one)) for one in terms] for shard in among]
        for first in range(0, len(queries), height):
            block = self.workers.share(queries.rows(first, min(first + height, len(queries))).cpu().numpy())
            query_terms = self._query_terms(among, block, criteria, own)
            jobs = [
                (shard, block, depth, list(criteria), item_terms, query_terms, device)
                for shard, item_terms in zip(among, own, strict=True)
            ]
            best: list[Best | None] = [None] * (1 + len(criteria))
            for part in self._terms(shards.lists, jobs, "lists"):
                best = [merged(one, (values, places), depth) for one, (values, places) in zip(best, part, strict=True)]
            yield first, [one for one in best if one is not None]

    def _query_terms(
        self, among: list[Shard], block: Any, criteria: Sequence[Correction], own: list[list[Arrays]]
    ) -> list[Arrays]:
        """The terms of a block of queries that change their ranking, () for a criterion without any."""
        places = [place for place, criterion in enumerate(criteria) if criterion.query_terms_rank]
        terms: list[Arrays] = [() for _ in criteria]
        if not places:
            return terms
        ranking = [criteria[place] for place in places]
        jobs = [
            (shard, block, ranking, [item_terms[place] for place in places], self.workers.device)
            for shard, item_terms in zip(among, own, strict=True)
        ]
        of_shards = list(self._terms(shards.query_parts, jobs, "queries"))
        for at, place in enumerate(places):
            merged_terms = criteria[place].merged_query_terms([part[at] for part in of_shards])
            terms[place] = as_arrays(finite_terms(merged_terms))
        return terms

    def _divided(self, items: VectorSource) -> list[Shard]:
        require(isinstance(items, VectorFile), "items in shards must lie in files; give a file, a folder or a URI")
        assert isinstance(items, VectorFile)
        return divided(items, self.shard_rows)

    def _terms(self, function: Callable[..., Any], jobs: Jobs, label: str) -> Iterator[list[Terms]]:
        """The terms that each job returns, in the order of the jobs."""
        for arrays in self._answers(function, jobs, label):
            yield [as_terms(one, "cpu") for one in arrays]

    def _answers(self, function: Callable[..., Any], jobs: Jobs, label: str) -> Iterator[Any]:
        """The result of each job, in the order of the jobs; a result that comes early waits for its turn."""
        early: dict[int, Any] = {}
        turn = 0
        with bar(label, total=len(jobs), unit=" shards") as steps:
            for number, answer in self.workers.run(function, enumerate(jobs)):
                early[number] = answer
                steps.update()
                while turn in early:
                    yield early.pop(turn)
                    turn += 1


def _log_memory(what: str, needed: int) -> None:
    log.info("%s: a worker takes at most %d MB of memory", what, needed >> 20)


def _array(rows: VectorSource) -> np.ndarray:
    return rows.rows(0, len(rows)).cpu().numpy()
