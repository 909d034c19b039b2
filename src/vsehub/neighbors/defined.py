"""Scores that do not depend on what computes them, and lists that are exact by these scores.

A fast product adds up in an order of its own, which depends on the processor and on the rows beside a row. The *defined
score* of a query and an item is one number: the products of their float32 components, summed in float64 in a fixed
order, rounded to float32. A fast product only screens. Its scores differ from the defined ones by at most a bound, so
that the k best by the definition are among the items whose fast score is within twice the bound of the k-th best;
these alone are scored by the definition.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from vsehub.metrics.topk import Best, with_block
from vsehub.neighbors.vectors import VectorSource

# (queries (b, D), positions of items (b, n), ascending in each row) -> their defined scores (b, n)
ScoresAt = Callable[[Tensor, Tensor], Tensor]
# positions (b, n), ascending in each row -> the items (b, n, D), float32
ItemsAt = Callable[[np.ndarray], np.ndarray]
# (scores (b, m), columns of items or positions (b, m)) -> values (b, m) by which items are ranked
Values = Callable[[Tensor, slice | Tensor], Tensor]

SINGLE, DOUBLE = 2.0**-24, 2.0**-53
TINY = 2.0**-125  # a product that is smaller may be taken for 0
LARGEST_PRODUCT = 2.0**126  # of norms' products: above, a sum that is finite in the end may pass what float32 holds
AT_ONCE = 2**19  # numbers of float64 that are multiplied at a time: they fit into a core's cache
CACHED = 2**16  # numbers of items that are scored at a time, each query with its own
SMALL = 2**13  # numbers of items of one query, which are scored at once by the definition
BLOCK, FEW = 4096, 8  # items among which rows are looked for, and how many are read one by one
DENSE_QUERIES = 256
SPARE = 8  # screened items beyond the k best, at least


def screened(k: int, items: int) -> int:
    """How many items are screened for the k best: enough that more within the bound are rare."""
    return min(items, k + max(SPARE, k // 8))


def defined(queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The defined scores (n,) of pairs: queries (n, D) or (1, D) and items (n, D), float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = items.astype(np.float64)
        products *= queries  # both factors fit into half of the mantissa: the product is exact
        return products.sum(axis=1).astype(np.float32)


def defined_of_each(queries: np.ndarray, places: np.ndarray, items_at: ItemsAt, largest: float) -> np.ndarray:
    """The defined scores (b, n) of queries (b, D) float32, each with items of its own, by their positions (b, n).

    largest: what the norms of the items do not exceed. As in `defined_matrix`, a product in float64 decides most.
    """
    (count, size), dim = places.shape, queries.shape[1]
    if count == 1 and size * dim < SMALL:
        return defined(queries, items_at(places)[0])[None]
    found, step = np.empty(places.shape), max(1, CACHED // (size * dim))  # queries whose items then fit into a cache
    with np.errstate(over="ignore", invalid="ignore"):
        asked = queries.astype(np.float64)
        for first in range(0, count, step):
            some = slice(first, first + step)
            np.vecdot(items_at(places[some]).astype(np.float64), asked[some, None], out=found[some])
        error = np.sqrt(np.vecdot(asked, asked))[:, None] * (2.02 * dim * DOUBLE * largest)
        scores = (found - error).astype(np.float32)
        unsure = scores != (found + error).astype(np.float32)
    if unsure.any():
        rows, columns = unsure.nonzero()
        scores[unsure] = defined(queries[rows], items_at(places[rows, columns, None])[:, 0])
    return scores


def defined_scores(queries: Tensor, items: Tensor) -> Tensor:
    """The defined scores (n,) of pairs: queries and items (n, D), float32 on the CPU; a few pairs at a time."""
    asked, among = queries.numpy(), items.numpy()
    found, step = np.empty(len(asked), np.float32), max(1, AT_ONCE // asked.shape[1])
    for first in range(0, len(asked), step):
        found[first : first + step] = defined(asked[first : first + step], among[first : first + step])
    return torch.from_numpy(found)


def defined_matrix(queries: Tensor, items: Tensor) -> Tensor:
    """The defined scores (b, m) of queries (b, D) with items (m, D), float32 on the CPU.

    A product in float64, whose order is unknown, is the defined score wherever its own error cannot change the
    rounding to float32; the few other scores follow the definition.
    """
    asked, among = queries.double(), items.double()
    found = asked @ among.T
    error = (asked.abs() @ among.abs().T).mul_(2.02 * queries.shape[1] * DOUBLE)
    scores = (found - error).float()
    unsure = (scores != found.add_(error).float()).nonzero()
    step = max(1, AT_ONCE // queries.shape[1])
    for query, item in (part.unbind(dim=1) for part in unsure.split(step)):
        scores[query, item] = defined_scores(queries[query], items[item])
    return scores


def norms_of(queries: Tensor) -> np.ndarray:
    """The norms (b,) float64 of queries (b, D), as `screen_error` takes them."""
    return np.sqrt(np.square(queries.numpy(), dtype=np.float64).sum(axis=1))


def screen_error(norms: np.ndarray, dim: int, largest: float) -> np.ndarray:
    """By how much scores of a float32 product may differ from the defined ones: (b,).

    norms: of the queries (b, D). largest: the largest norm of an item. |fl(Σ q·x) - Σ q·x| <= γ_D·|q|·|x| in any order
    of the sum, with γ_D = D·u / (1 - D·u) and u = 2^-24 (Higham 2002, section 3.1). Rounding of the defined score and
    products that are too small are added. Infinite where a part of the sum may pass what float32 holds.
    """
    error = norms * (largest * (dim * SINGLE / (1 - dim * SINGLE) + 2.01 * SINGLE)) + dim * TINY
    return np.where(norms * largest < LARGEST_PRODUCT, error, np.inf)


def largest_norm(rows: Tensor) -> float:
    """An upper bound of the norms of rows (n, D), close to the largest; 0 for no rows."""
    if not len(rows):
        return 0.0
    found = float(torch.linalg.vector_norm(rows, dim=1).amax())
    if math.isinf(found):  # the squares of components above 2^64 pass what float32 holds
        found = float(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).amax())
    return found * (1 + 2 * rows.shape[1] * SINGLE) + 2.0**-60


def scores_at(items: VectorSource) -> ScoresAt:
    """The defined scores with a few of the items of any source, of which a few blocks are read."""

    def found(queries: Tensor, positions: Tensor) -> Tensor:
        flat, order = positions.flatten().sort()
        query = order // positions.shape[1]
        scores = torch.empty(positions.numel())
        for part, rows in _rows_at(items, flat):
            scores[order[part]] = defined_scores(queries[query[part]], rows.to(queries))
        return scores.view(positions.shape)

    return found


def _rows_at(items: VectorSource, positions: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The rows (n, D) at ascending positions, a part at a time, with which of the positions these are."""
    ends = torch.searchsorted(positions, torch.arange(0, len(items) + BLOCK, BLOCK)).unique_consecutive().tolist()
    for start, stop in itertools.pairwise(ends):
        wanted = positions[start:stop]
        different, which = wanted.unique_consecutive(return_inverse=True)
        if len(different) <= FEW:
            rows = torch.cat([items.rows(one, one + 1) for one in different.tolist()])
            yield slice(start, stop), rows[which]
        else:
            first = int(different[0])
            yield slice(start, stop), items.rows(first, int(different[-1]) + 1)[wanted - first]


def exact_lists(
    queries: Tensor,
    best: Best,
    k: int,
    error: np.ndarray,
    items: VectorSource,
    scores: ScoresAt,
    values: Values | None,
    unsure: Tensor | None = None,
) -> Best:
    """Values and positions (b, k) by defined scores, best first, of equal values the lower position.

    queries: (b, D). best: the `screened` best by fast scores. error: (b,) by how much values of fast scores may differ
    from those of defined ones. scores: of the items. values: None for the scores themselves. unsure: (b,) whether
    some of the best may not be among the screened. There, where the error is infinite, and where more items than
    screened are within the error, all are scored by the definition.
    """
    fast = best[0]
    least = fast[:, k - 1] - 2 * torch.from_numpy(error)
    near = max(k, int((fast >= least[:, None]).sum(dim=1).max())) if len(fast) else k
    positions = best[1][:, :near].sort(dim=1).values
    exact = scores(queries, positions)
    if values is not None:
        exact = values(exact, positions)
    exact, within = exact.sort(dim=1, descending=True, stable=True)
    exact, positions = exact[:, :k], positions.gather(1, within)[:, :k]
    if fast.shape[1] < len(items):
        missing = ~(fast[:, -1] < least)
        cut = (missing if unsure is None else missing | unsure).nonzero()[:, 0]
        for some in cut.split(DENSE_QUERIES) if len(cut) else ():
            exact[some], positions[some] = dense_lists(queries[some], k, items, values)
    bounded = torch.from_numpy(np.isfinite(error))
    unusable = (~fast.isfinite().all(dim=1) & bounded).nonzero()[:, 0]  # such are refused, and must not be hidden
    if len(unusable):
        exact[unusable], positions[unusable] = fast[unusable, :k].to(exact), best[1][unusable, :k]
    return exact, positions


def dense_lists(queries: Tensor, k: int, items: VectorSource, values: Values | None) -> Best:
    """The lists of `exact_lists` by the defined scores of all items."""
    best: Best | None = None
    for start in range(0, len(items), BLOCK):
        stop = min(start + BLOCK, len(items))
        scores = defined_matrix(queries, items.rows(start, stop).to(queries))
        best = with_block(best, scores if values is None else values(scores, slice(start, stop)), start, k)
    assert best is not None  # a source has at least one row
    return best
