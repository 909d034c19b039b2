"""Choosing among criteria: the candidates, the default, and the rule for choosing another."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from vsehub.checks import is_finite, one_of, require
from vsehub.components import Components, conf_folders
from vsehub.criteria.base import Correction, Criterion, ItemBias

PLAIN = "nns"
# Reference queries: in experiments/pretrained Sinkhorn gains less than CSLS with 100 of them and as much with 250.
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
    """The criterion that suits the data: chosen where queries with known answers allow it, else CSLS with k = 10.

    among: names of the criteria to choose among; None: all `candidates`. Plain search is always among them. Without
    a choice the criterion is `untuned`. indexable: whether to omit criteria that no index can store. share: share of
    the queries with known answers that are used for choosing, unless separate queries are given. Raises InputError for
    unknown names. The defaults are those of the study experiments/pretrained.

    >>> import numpy as np
    >>> queries, items = np.eye(3)[[0, 0, 1, 2]], np.eye(3)
    >>> Auto().search(queries, items, k=1)[1].squeeze(1).tolist()
    [0, 0, 1, 2]
    """

    def __init__(self, among: Sequence[str] | None = None, indexable: bool = False, share: float = 0.5):
        known = tuple(name for name, one in candidates().items() if isinstance(one, ItemBias) or not indexable)
        require(is_finite(share) and 0 < share < 1, f"share is {share!r}; expected a share between 0 and 1, e.g. 0.5")
        names = known if among is None else tuple(among)
        for name in names:
            one_of("among", name, known)
        require(bool(set(names) - {PLAIN}), "among names no criterion besides nns; expected at least one")
        self.among, self.indexable, self.share = among, indexable, share
        self.names = (PLAIN, *(name for name in dict.fromkeys(names) if name != PLAIN))

    @property
    def untuned(self) -> tuple[str, Correction]:
        """The criterion used without known answers: CSLS with k = 10 or, if that is excluded, the first allowed one."""
        name = "csls" if "csls" in self.names else self.names[1]
        return name, candidates()[name]

    def standing(self, rows: int) -> tuple[str, Correction]:
        """The criterion that others have to beat: Sinkhorn.

        With fewer than 200 reference queries (`rows`), or if Sinkhorn is not allowed, it is `untuned`: Sinkhorn needs
        more reference queries than CSLS.
        """
        if rows < MANY or "sinkhorn" not in self.names:
            return self.untuned
        return "sinkhorn", candidates()["sinkhorn"]

    def candidates(self, rows: int) -> list[tuple[str, Correction]]:
        """All criteria with all settings of their grids, plain search first; no k beyond `rows`, the references."""
        grids = [(name, settings) for name in self.names for settings in candidates()[name].grid()]
        return [
            (name, candidates()[name].with_parameters(**settings))
            for name, settings in grids
            if settings.get("k", 1) <= rows
        ]

    @property
    def correction(self) -> Correction:
        """`untuned`."""
        return self.untuned[1]


def chosen(values: np.ndarray, standing: int, plain: int) -> int:
    """The row of (C, n) that is chosen: one value for each of C criteria and n queries, larger being better.

    The row `standing` keeps its place unless another's mean is larger by more than one standard error of their paired
    difference; among several such rows the one with the largest mean wins. If its mean is not larger than that of
    `plain`, plain search is chosen. In experiments/pretrained, whose sets the rule was written with, it gained 0.1 to
    0.8 points of R@1 more on other queries than taking the best row did. It does not protect from luck: where no row is
    truly better, the luckiest of many usually is by more than one standard error.

    >>> values = np.array([[0.5, 0.5, 0.5, 0.5], [0.7, 0.6, 0.5, 0.6], [1.0, 0.1, 1.0, 0.4], [0.9, 0.8, 0.9, 0.8]])
    >>> chosen(values[:3], standing=1, plain=0), chosen(values, standing=1, plain=0)
    (1, 3)
    """
    difference = values - values[standing]
    mean = difference.mean(axis=1)
    error = difference.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    better = np.flatnonzero(mean > error)
    found = int(better[mean[better].argmax()]) if len(better) else standing
    return found if values[found].mean() > values[plain].mean() else plain
