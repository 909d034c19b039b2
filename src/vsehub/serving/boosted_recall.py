"""The recall of an index under weights of boosts.

Graphs and lists are built on similarity, so that boosts lead away from where an approximate index looks. Recall is
measured where all boosts together move similarities by some amounts, up to a stated reach; an amount is the standard
deviation, over items, of what each boost adds to similarities.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from vsehub.checks import fail, require
from vsehub.criteria.boosts import BoostTable
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors, sampled
from vsehub.serving.corrected import Searchable, found_share

MOVED = (0.01, 0.03, 0.1)  # the amounts that are looked at below the reach
REACH = 0.1  # up to which boosts must hold where nothing else is stated
LOST = 0.01  # recall that they may cost
QUERIES = 200


class Boostable(Searchable, Protocol):
    """A `Searchable` that may hold boosts."""

    def search(
        self, queries: Any, k: int = 10, corrected: bool = True, boost_weights: Mapping[str, float] | None = None
    ) -> tuple[Any, Any]:
        """Values and positions (Q, k); see `ServedIndex.search`."""


@dataclass(frozen=True)
class BoostedRecall:
    """The share of the k best items of exact search that an index finds, without weights of boosts and under them.

    moved: amounts, rising. shares: that under each. weights: boost -> weight under each.
    """

    k: int
    unweighted: float
    moved: tuple[float, ...]
    shares: tuple[float, ...]
    weights: tuple[dict[str, float], ...]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        index: Boostable,
        queries: Any,
        items: Any,
        bias: Tensor,
        scale: float,
        k: int,
        boosts: BoostTable,
        reach: float = REACH,
        seed: int = 0,
    ) -> Self:
        """The recall of an index over items (M, D), by `QUERIES` of the queries (Q, D), drawn by seed.

        bias (M,), scale: the arguments of `build_index`. Finding another item of equal score counts as a miss. Raises
        InputError if dimensions differ or k exceeds the items.
        """
        drawn = as_vectors("queries", sampled(as_vectors("queries", queries), QUERIES, seed)[0])
        asked, moves = drawn.rows(0, len(drawn)), boosts.moves()
        items = as_vectors("items", items, columns=drawn.shape[1], device=asked.device)

        def share(weights: Mapping[str, float]) -> float:
            raised = boosts.raised(weights)
            own = bias.to(asked) if raised is None else bias.to(asked) - scale * raised.to(asked)
            ((_, wanted),) = nearest(drawn, items, k, [Affine(scale, own)])
            return found_share(index.search(asked, k, True, weights)[1], wanted)

        moved = (*(one for one in MOVED if one < reach), reach)
        weights = tuple({name: one / wide for name, wide in moves.items() if wide > 0} for one in moved)
        return cls(k, share({}), moved, tuple(map(share, weights)), weights)

    @property
    def held(self) -> int:
        """How many of the amounts, from the smallest on, cost at most `LOST`."""
        least = self.unweighted - LOST
        return next((place for place, share in enumerate(self.shares) if share < least), len(self.shares))

    def record(self) -> dict[str, float]:
        """Amount, as a text -> share."""
        return {f"{one:g}": share for one, share in zip(self.moved, self.shares, strict=True)}

    def require_held(self, kind: str, setting: str, exact: str) -> None:
        """Raise InputError unless the index holds under all amounts.

        kind: its name. setting: the name of what states the reach. exact: what to take instead.
        """
        if self.held == len(self.moved):
            return
        found = ", ".join(f"{share:.1%} by {one}" for one, share in self.record().items())
        if self.held:
            most, weights = self.moved[self.held - 1], self.weights[self.held - 1]
            own = ", ".join(f"{name} {weight:.3g}" for name, weight in weights.items())
            remedy = f"It holds up to {most:g}, which is a weight of {own}: set {setting}={most:g}"
        else:
            remedy = f"It holds under none of these: set a smaller {setting}"
        fail(
            f"boosts: {kind} is approximate, and boosts lead away from where it looks. It finds {self.unweighted:.1%} "
            f"of the {self.k} best without weights, and where boosts move similarities (standard deviation over items) "
            f"{found}; at most {LOST:.0%} may be lost. {remedy}, or take {exact}, which is exact"
        )


def require_within(weights: Mapping[str, float], boosts: BoostTable, reach: float) -> None:
    """Raise InputError for weights that move similarities further than the reach."""
    moves = boosts.moves()
    name, most = max(((name, abs(one) * moves[name]) for name, one in weights.items()), key=lambda one: one[1])
    require(
        most <= reach * (1 + 1e-9),
        f"boost_weights: {name} {weights[name]:.3g} moves similarities by {most:.3g} (standard deviation over items), "
        f"beyond boosts.reach={reach:g}, up to which an approximate index is measured; set boosts.reach={most:.3g}, "
        "give smaller weights, or take an exact index",
    )
