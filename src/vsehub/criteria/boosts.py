"""Boosts: numbers of items, such as popularity or freshness, that raise them in every ranking by weights of the query.

An item whose value is z gets weight · (z - mean) added to its similarity. In an index each boost is a dimension behind
the bias: an item stores scale · (z - mean), a query carries weight / scale. Weights are therefore chosen when a query
is asked, and nothing is filled anew. What is stored is small beside a vector of length 1 (`SPREAD`), since the graphs
and lists of approximate indexes follow the stored vectors.
"""

import hashlib
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, fail, is_finite, nearest, require
from vsehub.criteria.base import Columns, ItemBias, Terms

log = logging.getLogger(__name__)

SPREAD = 0.01  # the largest number that is stored of a boost
MOST = 16  # boosts of an index
_NAME = re.compile(r"[A-Za-z_]\w{0,49}", re.ASCII)


@dataclass(frozen=True)
class Boosts:
    """The boosts that an index holds. names; means; scales: an item stores scale · (value - mean)."""

    names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def weights(self, given: Mapping[str, float] | None) -> tuple[float, ...]:
        """A weight for each boost, 0 for those that are not named. Raises InputError for unknown names and no numbers.

        given: boost -> weight, in units of similarity for a unit of the boost.
        """
        require(
            given is None or isinstance(given, Mapping),
            f"boost_weights is {given!r}; expected a weight for each boost, as in {{popularity: 0.1}}",
        )
        given = given or {}
        for name, weight in given.items():
            if name not in self.names:
                there = f"; there are {', '.join(self.names)}" if self.names else "; there are none"
                fail(f"boost_weights: {name!r} is no boost{nearest(str(name), self.names)}{there}")
            require(is_finite(weight), f"boost_weights: {name} is {weight!r}; expected a number, such as 0.1")
        return tuple(float(given.get(name, 0.0)) for name in self.names)

    def asked(self, given: Mapping[str, float] | None) -> Tensor:
        """What a query carries for these weights: (B,) float32. See `weights`."""
        return torch.tensor(
            [weight / scale for weight, scale in zip(self.weights(given), self.scales, strict=True)],
            dtype=torch.float64,
        ).float()

    def table(self, values: Any, rows: int) -> "BoostTable":
        """The values of further items (n, B), in this order of the boosts, to be stored with these means and scales."""
        return BoostTable(self, _numbers(values, self.names, rows))


NO_BOOSTS = Boosts()


@dataclass(frozen=True)
class BoostTable:
    """The boosts of items. boosts: names, means and scales. values: (M, B) float64."""

    boosts: Boosts
    values: Tensor

    @classmethod
    def of(cls, names: Sequence[str], values: Any, rows: int) -> "BoostTable":
        """The boosts of all items of an index, whose means and scales follow from these values (M, B).

        Raises InputError for names that repeat or are none, and for values that are not B finite numbers for each of
        `rows` items. A boost that is the same for all items has no effect, which a warning says.
        """
        require(isinstance(names, Iterable), f"boosts: the names are {names!r}; expected a list of texts")
        names = tuple(map(str, names))
        wrong = next((one for one in names if _NAME.fullmatch(one) is None), None)
        require(wrong is None, f"boosts: {wrong!r} is no name; expected at most 50 letters, digits and underscores")
        require(len(set(names)) == len(names), f"boosts: {', '.join(names)}: a name repeats; name each column once")
        require(len(names) <= MOST, f"boosts: {len(names)} columns; expected at most {MOST}, a dimension for each")
        table = _numbers(values, names, rows)
        means = table.mean(dim=0) if rows else table.new_zeros(len(names))
        spread = (table - means).abs().amax(dim=0) if rows else means
        same = [name for name, most in zip(names, spread.tolist(), strict=True) if most == 0]
        if same:
            log.warning("boosts: %s is the same for all items, so that its weight has no effect", ", ".join(same))
        scales = torch.where(spread > 0, SPREAD / spread, 1.0)
        require(bool(scales.isfinite().all()), "boosts: numbers differ by less than float64 can tell; scale them up")
        return cls(Boosts(names, tuple(means.tolist()), tuple(scales.tolist())), table)

    @classmethod
    def none(cls, rows: int) -> "BoostTable":
        """No boosts of so many items."""
        return cls(NO_BOOSTS, torch.zeros((rows, 0), dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, which: slice | Tensor) -> "BoostTable":
        """The boosts of some items."""
        return BoostTable(self.boosts, self.values[which])

    def with_more(self, more: "BoostTable") -> "BoostTable":
        """These items' boosts, then those of more items."""
        return BoostTable(self.boosts, torch.cat([self.values, more.values]))

    def moves(self) -> dict[str, float]:
        """Boost -> how far a weight of 1 moves similarities, as a standard deviation over items."""
        return dict(zip(self.boosts.names, self.values.std(dim=0, correction=0).tolist(), strict=True))

    def stored(self) -> Tensor:
        """What the items store: (M, B) float32."""
        means, scales = (self.values.new_tensor(one) for one in (self.boosts.means, self.boosts.scales))
        return ((self.values - means) * scales).float()

    def raised(self, given: Mapping[str, float] | None) -> Tensor | None:
        """What the weights add to each item's similarity: (M,) float64; None where every weight is 0."""
        weights = self.boosts.weights(given)
        if not any(weights):
            return None
        return (self.values - self.values.new_tensor(self.boosts.means)) @ self.values.new_tensor(weights)


def _numbers(values: Any, names: Sequence[str], rows: int) -> Tensor:
    """Values (n, B) as float64. Raises InputError unless they are finite numbers of so many items and boosts."""
    try:
        held = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        require(held.dtype.kind in "fiu", f"boosts hold {held.dtype}; expected numbers")
        found = torch.from_numpy(held.astype(np.float64))
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"boosts are {type(values).__name__}; expected numbers, a row for each item") from error
    if found.ndim == 1 and len(names) == 1:
        found = found[:, None]
    require(
        tuple(found.shape) == (rows, len(names)),
        f"boosts have the shape {tuple(found.shape)}; expected ({rows}, {len(names)}): a row for each item, a column "
        f"for each of {', '.join(names) or 'no names'}",
    )
    bad = (~found.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        fail(
            f"boosts: {names[column]} of item {row}, counted from 0, is {found[row, column].item()}; expected a number"
        )
    return found


def stored_boosts(stored: Any) -> Boosts:
    """The boosts in the facts of an index or a collection, read from JSON. Raises TypeError if they are damaged."""
    names, means, scales = (tuple(stored[name]) for name in ("names", "means", "scales"))
    numbers = all(type(one) in (int, float) and math.isfinite(one) for one in (*means, *scales))
    if not (len(names) == len(means) == len(scales) <= MOST and numbers and all(one > 0 for one in scales)):
        raise TypeError("boosts")
    if not all(isinstance(one, str) and _NAME.fullmatch(one) for one in names):
        raise TypeError("boosts")
    return Boosts(names, tuple(map(float, means)), tuple(map(float, scales)))


class Boosted(ItemBias):
    """Another criterion's ranking with each item's similarity raised: a·(s + raise) - b(item).

    base: the criterion, fitted without boosts. raised: (M,), of all items that are ranked. weights: those that give it,
    boost -> weight, for records.
    """

    columnwise = False  # the raise belongs to an item's place

    def __init__(self, base: ItemBias, raised: Tensor, weights: Mapping[str, float]):
        self.base, self._raised, self.weights = base, raised, dict(weights)
        self.scale = base.scale
        self.needs_reference = base.needs_reference
        self.reference_items_as = base.reference_items_as  # type: ignore[misc]

    def __repr__(self) -> str:
        """The base, the weights and a digest of what they add, by which unfinished work is known."""
        digest = hashlib.sha256(self._raised.numpy().tobytes()).hexdigest()[:16]
        return f"{type(self).__name__}({self.base!r}, {self.weights}, {digest})"

    def parameters(self) -> dict[str, Any]:
        """Those of the base, and the weights."""
        return self.base.parameters() | {"boost_weights": self.weights}

    def bias(self, reference_scores: Tensor) -> Tensor:
        """That of the base."""
        return self.base.bias(reference_scores)

    def less_raise(self, base_terms: Terms, dtype: torch.dtype = torch.float32) -> Terms:
        """The base's terms less what the boosts add, (M,). dtype: of a base without terms."""
        bias = base_terms[0] if base_terms else torch.zeros(len(self._raised), dtype=dtype)
        return (bias - self.scale * self._raised.to(bias),)

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """Those of the base, fitted without boosts, less what the boosts add."""
        return self.less_raise(self.base.fit(columns, reference_items))
