"""An engine for items in shards: workers make two passes over the shards, for item terms and for lists.

Each result of a worker is stored as a part of the unfinished work, so that a killed command computes only the missing
ones when it is run again. The results of the shards are merged in the order of the items, by the functions that the
engine of one machine uses.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, require
from vsehub.criteria.base import Correction, Criterion, Terms, finite_terms
from vsehub.data.vectors.embeddings import Norms, VectorFile
from vsehub.io.progress import bar
from vsehub.metrics.topk import Best, merged
from vsehub.neighbors.tiles import held_at_once
from vsehub.neighbors.vectors import VectorSource
from vsehub.rerank import shards
from vsehub.rerank.engines import Resumable
from vsehub.rerank.parts import Parts
from vsehub.rerank.shards import Arrays, Shard, as_arrays, divided
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

# (number, arguments of the function) of each job
Jobs = Iterable[tuple[int, tuple[Any, ...]]]
# A criterion that overrides one of these methods needs all items at once, and cannot work on shards.
WHOLE = ("fit", "over", "query_terms")


class Workers(Protocol):
    """Processes that carry out the functions of `rerank.shards`. device: where they compute, "cpu" or "cuda"."""

    device: str

    def share(self, array: np.ndarray) -> Any:
        """A stand-in for an array among the arguments, so that the array is sent to each machine only once."""

    def run(self, function: Callable[..., Any], jobs: Jobs) -> Iterator[tuple[int, Any, float]]:
        """(number, result, seconds) of each job, as they are done; see `shards.carried_out`."""


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

    shard_rows: rows of a shard at most; None: see `divided`. parts: the store of each shard's result, set by `keeping`.
    """

    workers: Workers
    shard_rows: int | None = None
    parts: Parts | None = None
    rounded: ClassVar[bool] = False
    keeps_terms: ClassVar[bool] = True
    spared: ClassVar[float] = 0.0

    @property
    def device(self) -> torch.device:
        """Where workers compute."""
        return torch.device(self.workers.device)

    @property
    def settings(self) -> dict[str, Any]:
        """The workers' type of device, and the size of shards: lists are merged from those of the shards."""
        return {"device": self.workers.device, "engine": "ray", "shard_rows": self.shard_rows}

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion that needs all items at once."""
        refuse_unsharded(criteria, sides.reference_items is not None)

    def keeping(self, parts: Parts) -> Resumable:
        """This engine with a store for results: of single shards first, then of all items."""
        return Resumable(replace(self, parts=parts), parts)

    def look_through(self, items: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""
        found = divided(items, self.shard_rows)
        jobs = ((number, (shard,)) for number, shard in enumerate(found))
        norms = {number: one for number, one, _ in self._watched(shards.looked_through, jobs, len(found), "checking")}
        return shards.together([norms[number] for number in range(len(found))], [len(one) for one in found])

    def item_terms(self, name: str, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """See `Engine`."""
        parts, among = self._kept(), self._divided(sides.items)
        bank = None if sides.reference_items is None else _array(sides.reference_items)
        rows = len(sides.seen), 0 if bank is None else len(bank)
        _log_memory("terms", shards.terms_bytes(sides.items.shape[1], *rows))
        seen = self.workers.share(_array(sides.seen))
        device = self.workers.device
        if criteria[0].columnwise:
            shared = None if bank is None else self.workers.share(bank)
            pass_ = _Pass(self, parts, f"terms-{name}", shards.terms_by_column, len(among))
            pass_.run(lambda number: (among[number], list(criteria), seen, shared, device))
            return [
                finite_terms(parts.joined((one[place] for one in pass_.results()), len(sides.items)))
                for place in range(len(criteria))
            ]

        (criterion,) = criteria
        taken: list[Any] = list(among)
        if bank is not None and criterion.reference_items_as == "columns":
            taken.append(self.workers.share(bank))
        before: _Pass | None = None
        state: Terms = ()
        for number in range(criterion.passes):
            pass_ = _Pass(self, parts, f"pass-{name}-{number}", shards.terms_in_passes, len(taken))
            stored = parts.get(f"shared-{name}-{number}")
            if stored is None:
                pass_.run(_arguments(taken, criterion, number, state, before, seen, device))
            if number < criterion.passes - 1:
                if stored is None:
                    state = criterion.shared((part[0] for part in pass_.results()), number)
                    parts.put(f"shared-{name}-{number}", [state], 0.0)
                else:
                    ((state,), _) = stored
            if before is not None:
                before.drop()
            before = pass_
        assert before is not None  # there is at least one pass
        of_bank = before.result(len(among))[0] if len(taken) > len(among) else None
        own = (before.result(number)[0] for number in range(len(among)))
        return [finite_terms(criterion.merged_terms(own, of_bank))]

    def matched(self, name: str, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Raises InputError: `require` refuses such criteria."""
        fail(f"{name} matches queries and items with each other; use engine=local")

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms], start: int = 0
    ) -> Iterator[tuple[int, list[Best]]]:
        """See `Engine`."""
        parts, queries = self._kept(), sides.queries
        among = self._divided(sides.items)
        sizes = sides.items.shape[1], len(queries), depth, 1 + len(criteria)
        own_terms = any(criterion.query_terms_rank for criterion in criteria)
        _log_memory("lists", shards.lists_bytes(*sizes, own_terms, self.workers.device == "cuda"))
        height = held_at_once(queries)
        own = [[as_arrays(tuple(term[shard.place] for term in one)) for one in terms] for shard in among]
        for first in range(start, len(queries), height):
            block = self.workers.share(queries.rows(first, min(first + height, len(queries))).cpu().numpy())
            query_terms, asked = self._query_terms(among, block, criteria, own, parts, first)
            pass_ = _Pass(self, parts, f"lists-{depth}-{first}-shard", shards.lists, len(among))
            before, after = (block, depth, list(criteria)), (query_terms, self.workers.device)
            arguments = [
                (shard, *before, terms_of_items, *after) for shard, terms_of_items in zip(among, own, strict=True)
            ]
            pass_.run(arguments.__getitem__)
            best: list[Best | None] = [None] * (1 + len(criteria))
            for part in pass_.results():
                best = [merged(one, (values, places), depth) for one, (values, places) in zip(best, part, strict=True)]
            yield first, [one for one in best if one is not None]
            pass_.drop()  # the lists of the block are stored by now
            asked.drop()

    def _query_terms(
        self,
        among: list[Shard],
        block: Any,
        criteria: Sequence[Correction],
        own: list[list[Arrays]],
        parts: Parts,
        first: int,
    ) -> tuple[list[Arrays], "_Pass"]:
        """The terms of a block of queries that change their ranking, () for a criterion without any; and their pass."""
        places = [place for place, criterion in enumerate(criteria) if criterion.query_terms_rank]
        ranking = [criteria[place] for place in places]
        pass_ = _Pass(self, parts, f"queries-{first}-shard", shards.query_parts, len(among) if places else 0)
        device = self.workers.device
        pass_.run(lambda number: (among[number], block, ranking, [own[number][place] for place in places], device))
        found = list(pass_.results())
        terms: list[Arrays] = [() for _ in criteria]
        for at, place in enumerate(places):
            merged_terms = criteria[place].merged_query_terms([part[at] for part in found])
            terms[place] = as_arrays(finite_terms(merged_terms))
        return terms, pass_

    def _kept(self) -> Parts:
        if self.parts is None:
            fail("workers' results are kept in a folder: give Distributed(...).keeping(Parts(FOLDER, {}))")
        return self.parts

    def _divided(self, items: VectorSource) -> list[Shard]:
        require(isinstance(items, VectorFile), "items in shards must lie in files; give a file, a folder or a URI")
        assert isinstance(items, VectorFile)
        return divided(items, self.shard_rows)

    def _watched(
        self, function: Callable[..., Any], jobs: Jobs, count: int, label: str
    ) -> Iterator[tuple[int, Any, float]]:
        with bar(label, total=count, unit=" shards") as steps:
            for done in self.workers.run(function, jobs):
                yield done
                steps.update()


def _arguments(
    sides: list[Any],
    criterion: Correction,
    number: int,
    state: Terms,
    before: "_Pass | None",
    seen: Any,
    device: str,
) -> Callable[[int], tuple[Any, ...]]:
    """The arguments of `shards.terms_in_passes` for each side."""

    def of(side: int) -> tuple[Any, ...]:
        own = () if before is None else as_arrays(before.result(side)[0])
        return sides[side], criterion, number, as_arrays(state), own, seen, device

    return of


def _log_memory(what: str, needed: int) -> None:
    log.info("%s: a worker takes at most %d MB of memory", what, needed >> 20)


def _array(rows: VectorSource) -> np.ndarray:
    return rows.rows(0, len(rows)).cpu().numpy()


@dataclass(frozen=True)
class _Pass:
    """One result of each of `count` shards, kept in `parts` under `name` and its number."""

    engine: Distributed
    parts: Parts
    name: str
    function: Callable[..., Any]
    count: int

    def run(self, arguments: Callable[[int], tuple[Any, ...]]) -> None:
        """Have the workers compute the missing parts, and the damaged ones."""
        missing = [number for number in range(self.count) if self.parts.get(self._part(number)) is None]
        if 0 < len(missing) < self.count:
            log.info("%s: %d of %d shards were done before", self.name, self.count - len(missing), self.count)
        jobs = ((number, arguments(number)) for number in missing)
        for number, arrays, seconds in self.engine._watched(self.function, jobs, len(missing), self.name):
            self.parts.put(self._part(number), [tuple(map(_tensor, one)) for one in arrays], seconds)

    def results(self) -> Iterator[list[Terms]]:
        """The results in the order of the shards, one at a time in memory."""
        return map(self.result, range(self.count))

    def result(self, number: int) -> list[Terms]:
        """The result of one shard."""
        stored = self.parts.get(self._part(number))
        require(
            stored is not None,
            f"{self.parts.path(self._part(number))} was removed or damaged while it was needed. Run the command again",
        )
        assert stored is not None
        return stored[0]

    def drop(self) -> None:
        """Remove all results, when they are no longer needed."""
        for number in range(self.count):
            self.parts.drop(self._part(number))

    def _part(self, number: int) -> str:
        return f"{self.name}-{number}"


def _tensor(array: np.ndarray) -> Tensor:
    return torch.tensor(array)
