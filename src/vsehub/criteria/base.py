"""The base classes of all criteria, and the fitting of item terms from the scores of a reference.

A `Criterion` corrects a ranking. There are three kinds: a `Correction` of scores, the simplest being an `ItemBias`, a
`Matching` of queries with items (`criteria/matching`), and a `Chain` of the two.
"""

import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.neighbors.tiles import ScoreColumns, nearest, row_blocks
from vsehub.neighbors.topk import joined
from vsehub.neighbors.vectors import Affine, TileCorrection, VectorSource, as_vectors, to_type_of

# Yields the reference queries' scores (R, m) against some items at a time, all items in order, anew at each call.
Columns = Callable[[], Iterator[Tensor]]
# Rising query indices (b,), int64 on the CPU -> their whole rows of scores (b, M).
RowsOf = Callable[[Tensor], Tensor]
Terms = tuple[Tensor, ...]

FEWEST, FEWEST_NORMALISED = 50, 100  # reference queries; criteria that normalise all items together need more
NOT_FINITE = (
    "are NaN or infinite; expected finite numbers. Look for NaN or infinite embeddings or scores, and for numbers so "
    "large that products or sums of them pass the largest of their type: divide such vectors by their norms"
)


class Criterion(ABC):
    """A correction of a ranking: a `Correction`, a `Matching`, or a `Chain` of both.

    needs_reference: whether it uses the scores of reference queries. inductive: whether the reference may differ from
    the ranked queries. GRID: setting -> the values among which validation chooses.
    """

    needs_reference: bool = True
    inductive: bool = True
    GRID: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @property
    @abstractmethod
    def correction(self) -> "Correction":
        """The correction of the scores."""

    @property
    def matching(self) -> Any:
        """The `Matching` of queries and items on the corrected scores; None: no matching."""
        return None

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """Scores (Q, M) in the order of the corrected ranking, from scores (Q, M) and reference scores (R, M).

        reference_item_scores: scores of reference items, for a correction that takes them; see `Correction`.
        """
        return self.correction.rescore(scores, reference_scores, reference_item_scores=reference_item_scores)

    def search(
        self, queries: Any, items: Any, reference: Any = None, k: int = 10, *, reference_items: Any = None
    ) -> tuple[Any, Any]:
        """Values and positions (Q, k) of the k best items (M, D) of each query (Q, D), best first.

        reference (R, D) queries, reference_items (G, D): None for the queries and the items themselves.
        """
        return self.correction.search(queries, items, reference, k, reference_items=reference_items)

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments and their values; those of a chain's steps together.

        >>> from vsehub.criteria import CSLS
        >>> CSLS(k=5).parameters()
        {'k': 5}
        """
        values = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.parameters().items())})"

    def with_parameters(self, **changes: Any) -> Self:
        """A copy with some arguments changed; in a chain, the arguments of the step that takes them."""
        return type(self)(**self.parameters() | changes)

    def grid(self) -> list[dict[str, Any]]:
        """All combinations of the values in GRID; one empty combination where GRID is empty."""
        return [dict(zip(self.GRID, values, strict=True)) for values in itertools.product(*self.GRID.values())]

    @property
    def takes_reference_items(self) -> bool:
        """True if it uses reference items besides the reference queries; see `Correction`."""
        return self.correction.reference_items_as is not None


class Correction(Criterion):
    """A criterion whose corrected score depends on the score, its item's terms and its query's terms.

    A subclass writes `item_terms` (from all reference queries' scores of some items, so that items can be taken block
    by block) and `corrected`; `query_terms` where a query has terms too.

    columnwise: whether an item's terms depend only on its own column of scores; a subclass with False writes `fit`.
    terms_from_k_nearest: whether they depend only on the scores of its k nearest reference queries, k being a setting.
    query_terms_affect_order: whether a query's terms can change the order of its items.
    reference_items_as: the scores of reference items that the item terms also depend on.
    "rows": those of the reference items with the items, (G, M); without reference items the items themselves are taken.
    "columns": those of the reference queries with the reference items, (R, G); without reference items there are none.
    None: reference items are refused. `criterion=auto` tries only classes with None, with the settings of their GRID.
    """

    columnwise: bool = True
    terms_from_k_nearest: ClassVar[bool] = False
    query_terms_affect_order: bool = False
    reference_items_as: ClassVar[Literal["rows", "columns"] | None] = None

    @property
    def correction(self) -> "Correction":
        """The criterion itself."""
        return self

    @property
    def items_are_independent(self) -> bool:
        """True if an item's terms depend on the item and the reference queries only, not on other items."""
        return self.columnwise and self.reference_items_as is None

    @abstractmethod
    def item_terms(self, reference_scores: Tensor) -> Terms:
        """The terms, each (m,), of some items from all reference queries' scores (R, m)."""

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """The terms, each (b, 1), of some queries from blocks (b, m) of their scores that cover all items in order."""
        return ()

    @abstractmethod
    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """Corrected scores (b, m) of some queries and items with these terms.

        query_terms: empty where a query's terms would not change its ranking.
        """

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """The terms, each (M,), of all items. Raises InputError where one is NaN or infinite.

        reference_items: the scores that `reference_items_as` names, in blocks of columns; None without reference items.
        """
        return finite_terms(joined(map(self.item_terms, columns())))

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """Corrected scores (Q, M) of scores (Q, M).

        reference_scores: (R, M) scores of the reference queries against the same items; None takes the queries
        themselves (transductive). reference_item_scores: (G, M) or (R, G), as `reference_items_as` says. Raises
        InputError if sizes do not fit, if a side is empty or not a matrix of floating-point numbers, if scores of
        reference items are missing or not used, and if original or corrected scores are NaN or infinite.
        """
        scores = checked("scores", scores)
        reference = scores
        if reference_scores is not None:
            reference = checked("reference_scores", reference_scores, columns=scores.shape[1])
        reference_items: Columns | None = None
        if reference_item_scores is not None:
            self.require_takes_reference_items()
            by_rows = self.reference_items_as == "rows"
            size = {"columns": reference.shape[1]} if by_rows else {"rows": len(reference)}
            reference_items = in_one_block(checked("reference_item_scores", reference_item_scores, **size))
        terms = self.fit(in_one_block(reference), reference_items)
        return finite("corrected scores", self.apply(scores, terms))

    def require_takes_reference_items(self) -> None:
        """Raise InputError unless the criterion uses reference items."""
        require(
            self.takes_reference_items,
            f"{type(self).__name__} does not use reference items; leave them out",
        )

    def apply(self, scores: Tensor, item_terms: Terms) -> Tensor:
        """Corrected scores (b, M) of some queries' scores against all items.

        Raises InputError where a query's terms are NaN or infinite.
        """
        return self.corrected(scores, finite_terms(self.query_terms((scores,), item_terms)), item_terms)

    def search(
        self,
        queries: Any,
        items: Any,
        reference: Any = None,
        k: int = 10,
        *,
        reference_items: Any = None,
    ) -> tuple[Any, Any]:
        """The k best items of each query by inner product, corrected, in bounded memory.

        queries (Q, D), items (M, D), reference (R, D) queries (None: the queries themselves, transductive),
        reference_items (G, D) of a criterion that takes them (None: the items themselves): tensors, numpy arrays,
        memory maps, or open files (`data.vectors`). Returns values and positions, both (Q, k), best first, of equal
        values the lower position; numpy arrays where the queries are one, else tensors on their device. The ranking is
        that of `rescore` on the whole matrix. Values omit terms that shift or scale all scores of a query, since such
        terms do not change a ranking. Raises InputError where dimensions differ, a side is empty, k exceeds the items
        or reference items are given that are not used, and where an item's or a query's terms, or the values returned,
        are NaN or infinite. NaN and infinity rank first, so that they are always among these values.
        """
        query_rows, item_rows, reference_rows = as_sides(queries, items, reference)
        whole("k", k)
        reference_item_rows = as_reference_items(self, reference_items, item_rows)
        terms = fit_all([self], item_rows, reference_rows, reference_item_rows)[0]
        return to_type_of(queries, *self.search_fitted(query_rows, item_rows, terms, k))

    def search_fitted(
        self, queries: VectorSource, items: VectorSource, item_terms: Terms, k: int = 10
    ) -> tuple[Tensor, Tensor]:
        """`search` of items whose terms are known, from `fit_all`: values and positions, both (Q, k).

        Raises InputError where k exceeds the items and where a query's terms, or the values returned, are NaN or
        infinite.
        """
        correct = self.tile_correction(queries, items, item_terms)
        values, positions = nearest(queries, items, k, [correct])[0]
        return finite("values", values), positions

    def tile_correction(self, queries: VectorSource, items: VectorSource, item_terms: Terms) -> TileCorrection | None:
        """The correction of a tile of scores, None for the scores as they are.

        If query terms can change the order of items, they are computed first, in a pass of their own over the scores.
        """
        query_terms: Terms = ()
        if self.query_terms_affect_order:
            query_terms = finite_terms(
                joined(self.query_terms(blocks, item_terms) for blocks in row_blocks(queries, items))
            )
        return lambda scores, rows, columns: self.corrected(
            scores, tuple(term[rows] for term in query_terms), tuple(term[columns] for term in item_terms)
        )


class ItemBias(Correction):
    """A criterion that ranks by a·s - b(item), where the bias b is large for hubs.

    The bias is one number per item and folds into an inner-product index as one more dimension. A subclass sets `scale`
    (a) and writes `bias`.
    """

    scale: float = 1.0

    @abstractmethod
    def bias(self, reference_scores: Tensor) -> Tensor:
        """The term b (m,) of some items from all reference queries' scores against them, (R, m)."""

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """The bias."""
        return (self.bias(reference_scores),)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """a·s - b (b, m)."""
        return self.scale * scores - item_terms[0]

    def tile_correction(self, queries: VectorSource, items: VectorSource, item_terms: Terms) -> TileCorrection | None:
        """Subtract the bias only: a query's term, as in CSLS, shifts all its scores equally."""
        return Affine(self.scale, item_terms[0])


def small_reference_warning(criterion: Criterion, rows: int) -> str | None:
    """A warning if `rows` reference queries are too few to estimate the criterion from."""
    least = FEWEST if criterion.correction.columnwise else FEWEST_NORMALISED
    if rows >= least or criterion.matching is not None or not criterion.needs_reference:
        return None
    return (
        f"reference: {criterion!r} is estimated from {rows} queries; expected {least} or more. With fewer the "
        "ranking may be that of plain search, or worse"
    )


def in_one_block(scores: Tensor) -> Columns:
    """Scores (R, M) in memory, as `Correction.fit` takes them."""
    return lambda: iter((scores,))


def require_can_exclude_self(name: str, criterion: Criterion, inductive: bool) -> None:
    """Raise InputError unless items can search among themselves under a criterion.

    Its correction must not depend on a query's scores with all items, since these include an item's with itself.
    name: name of the criterion in the message. inductive: whether it is fitted on queries other than the items.
    """
    by_item = isinstance(criterion, Correction) and not (
        criterion.query_terms_affect_order or criterion.takes_reference_items
    )
    require(
        by_item and (inductive or criterion.correction.columnwise),
        f"{name} cannot leave an item out of its own search; where items search among themselves choose csls, is, nnn, "
        "dn or local_scaling",
    )


def fit_all(
    criteria: Sequence[Correction],
    items: VectorSource,
    reference: VectorSource,
    reference_items: VectorSource | None = None,
    exclude_self: bool = False,
) -> list[Terms]:
    """The item terms of several criteria; columnwise criteria without a `fit` of their own share one product.

    reference_items: reference items of the criteria that take them; None: the items themselves. exclude_self: True if
    the reference is the items, and each item's terms are to be estimated from the others; see
    `require_can_exclude_self`.
    """
    columns = ScoreColumns(reference, items, exclude_self=exclude_self)
    shared: dict[int, list[Terms]] = {
        number: []
        for number, criterion in enumerate(criteria)
        if criterion.columnwise and type(criterion).fit is Correction.fit
    }
    for block in columns() if shared else ():
        for number, parts in shared.items():
            parts.append(criteria[number].item_terms(block))
    return [
        finite_terms(joined(shared[number]))
        if number in shared
        else criterion.fit(columns, _reference_item_columns(criterion, items, reference, reference_items))
        for number, criterion in enumerate(criteria)
    ]


def _reference_item_columns(
    criterion: Correction, items: VectorSource, reference: VectorSource, reference_items: VectorSource | None
) -> Columns | None:
    """The scores of reference items that a criterion takes."""
    if criterion.reference_items_as == "rows":
        # The device of the reference's scores; the items may be in a file.
        device = reference.rows(0, 1).device
        return ScoreColumns(items if reference_items is None else reference_items, items, device)
    if criterion.reference_items_as is None or reference_items is None:
        return None
    return ScoreColumns(reference, reference_items)


def as_sides(queries: Any, items: Any, reference: Any = None) -> tuple[VectorSource, VectorSource, VectorSource]:
    """The three sides of a search as `VectorSource` of one dimension; InputError if they do not fit each other."""
    query_rows = as_vectors("queries", queries)
    dim = query_rows.shape[1]
    item_rows = as_vectors("items", items, columns=dim)
    reference_rows = query_rows if reference is None else as_vectors("reference", reference, columns=dim)
    return query_rows, item_rows, reference_rows


def as_reference_items(criterion: Correction, reference_items: Any, items: VectorSource) -> VectorSource | None:
    """Reference items as `VectorSource`; InputError if they do not fit the items or are not used."""
    if reference_items is None:
        return None
    criterion.require_takes_reference_items()
    return as_vectors("reference_items", reference_items, columns=items.shape[1])


def checked(name: str, scores: Tensor, rows: int | None = None, columns: int | None = None) -> Tensor:
    """The scores in float32 at least. Raises InputError unless they are a matrix of this size of finite numbers."""
    matrix(name, scores, rows, columns)
    require(scores.is_floating_point(), f"{name} holds {scores.dtype} numbers; expected floating-point scores")
    require(scores.numel() > 0, f"{name} is empty: {tuple(scores.shape)}")
    return finite(name, scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores)


def finite(name: str, values: Tensor) -> Tensor:
    """The values, or InputError where one is NaN or infinite; one pass, without extra memory."""
    least, most = values.aminmax()  # both are NaN if any value is NaN
    require(bool((least > -torch.inf) & (most < torch.inf)), f"{name} {NOT_FINITE}")
    return values


def finite_terms(terms: Terms) -> Terms:
    """Terms of items or queries, or InputError where one is NaN or infinite."""
    for term in terms:
        finite("terms of the criterion", term)
    return terms
