"""Choosing among criteria: the candidates, the default, and the rule for choosing another."""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vsehub.checks import InputError, one_of, require
from vsehub.components import Components, conf_folders
from vsehub.criteria.base import Correction, Criterion, ItemBias
from vsehub.io.progress import bar

log = logging.getLogger(__name__)

T = TypeVar("T")
Candidates = list[tuple[str, Correction]]  # names and criteria, the one that others have to beat first

PLAIN = "nns"
# Reference queries: in experiments/pretrained Sinkhorn gains less than CSLS with 100 of them and more with 300.
MANY = 200


def candidates() -> dict[str, Correction]:
    """The corrections of the yaml files that do not compare items with each other, by name, plain search first."""
    return _candidates(conf_folders())


@cache
def _candidates(folders: tuple[Path, ...]) -> dict[str, Correction]:
    known = Components(folders)
    nodes = {name: known.node("criterion", name) for name in known.choices("criterion")}
    kinds = {name: known.find("criterion", node) for name, node in nodes.items()}
    names = sorted(
        name
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, Correction) and kind.reference_items_as is None and name != PLAIN
    )
    return {name: known.build("criterion", nodes[name]) for name in (PLAIN, *names)}


class Auto(Criterion):
    """The criterion that suits the data: chosen where queries with known answers allow it, else a default.

    among: names of the criteria to choose among; None: all `candidates`. Plain search is always among them. indexable:
    whether to omit criteria that no index can store. Raises InputError for unknown names.

    >>> import numpy as np
    >>> queries, items = np.eye(3)[[0, 0, 1, 2]], np.eye(3)
    >>> Auto().search(queries, items, k=1)[1].squeeze(1).tolist()
    [0, 0, 1, 2]
    """

    def __init__(self, among: Sequence[str] | None = None, indexable: bool = False):
        known = tuple(
            name for name, criterion in candidates().items() if isinstance(criterion, ItemBias) or not indexable
        )
        names = known if among is None else tuple(among)
        for name in names:
            one_of("among", name, known)
        require(bool(set(names) - {PLAIN}), "among names no criterion besides nns; expected at least one")
        self.among, self.indexable = among, indexable
        self.names = (PLAIN, *(name for name in dict.fromkeys(names) if name != PLAIN))

    def untuned(self, rows: int) -> tuple[str, Correction]:
        """The criterion without known answers, for so many reference queries: CSLS with k = 10, or Sinkhorn from 200.

        If that is not allowed, the first that is.
        """
        default = "sinkhorn" if rows >= MANY and "sinkhorn" in self.names else "csls"
        name = default if default in self.names else self.names[1]
        return name, candidates()[name]

    def candidates(self, rows: int) -> Candidates:
        """All criteria with all settings of their grids, plain search first; no k beyond `rows`, the references."""
        grids = [(name, settings) for name in self.names for settings in candidates()[name].grid()]
        return [
            (name, candidates()[name].with_parameters(**settings))
            for name, settings in grids
            if settings.get("k", 1) <= rows
        ]

    @property
    def correction(self) -> Correction:
        """`untuned` for few reference queries."""
        return self.untuned(0)[1]


def try_all(candidates: Sequence[tuple[str, Any]], measure: Callable[[Any], T]) -> list[T | None]:
    """`measure(criterion)` for each candidate (name, criterion); None where it raises InputError.

    Some criteria cannot take all scores, for example those out of their range.
    """
    results = list[T | None]()
    for name, criterion in bar("choosing the criterion", candidates):
        try:
            results.append(measure(criterion))
        except InputError as error:
            log.info("%s %s cannot be applied: %s", name, criterion.parameters(), error)
            results.append(None)
    return results


def chosen(values: np.ndarray) -> int:
    """The row of (C, n) that is chosen: one value for each of C criteria and n queries, larger being better.

    The row with the largest mean wins if it is above that of row 0, plain search or what stands without a choice, by
    more than one standard error of their paired difference; otherwise row 0 does. The rule is that of the study
    experiments/pretrained, with minus the logarithm of the answer's rank as value.

    >>> plain, better, luckier = [3, 3, 3, 3], [1, 2, 1, 2], [1, 9, 1, 9]
    >>> chosen(-np.log([plain, luckier, better])), chosen(-np.log([plain, luckier]))
    (2, 0)
    """
    difference = values - values[0]
    best = int(difference.mean(axis=1).argmax())
    error = difference[best].std(ddof=1) / np.sqrt(values.shape[1])
    return best if difference[best].mean() > error else 0
