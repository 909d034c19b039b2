"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.criteria.base import Columns, ItemBias, Terms, finite_terms, in_one_block
from vsehub.neighbors.tiles import ScoreColumns, ranges

CACHED = 2**18  # scores worked on at a time
LEAST_MASS = 1e-20  # of an item, below which too many of its shares may have vanished


class Sinkhorn(ItemBias):
    """s + wτ log v(item), v from normalising e^{s/τ} of reference x items alternately to uniform marginals.

    temperature: τ; if relative, in units of the spread: the standard deviation of a reference query's scores over all
    items, averaged over the queries. A ranking is then the same for scores a·s + c, a > 0; without a spread it is
    that of s. Otherwise τ is the temperature itself, and the values are s/τ + w log v. rounds: number of normalisations
    of rows (reference queries), then columns (items). weight: w. Only the items' scaling is kept: the scaling of the
    queries changes no ranking. Streaming computes the scores rounds + 1 times; if relative, once more for precomputed
    scores, or if there are no more queries than dimensions. Raises InputError for a temperature, a number of rounds or
    a weight that is not positive.
    """

    columnwise = False
    GRID: ClassVar = {"temperature": (0.35, 0.5, 0.7, 1.0), "weight": (0.5, 0.75, 1.0), "rounds": (1, 10)}

    def __init__(self, temperature: float = 0.5, rounds: int = 1, weight: float = 0.75, relative: bool = True):
        positive("temperature", temperature)
        whole("rounds", rounds)
        positive("weight", weight)
        self.temperature, self.rounds, self.weight, self.relative = temperature, rounds, weight, relative
        self.scale = 1.0 if relative else 1.0 / temperature

    def bias(self, reference_scores: Tensor) -> Tensor:
        """-wτ log v (M,), or -w log v, from the whole matrix of reference scores (R, M)."""
        return self.fit(in_one_block(reference_scores))[0]

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """The bias (M,); reference items count as items, and have their share."""
        sides = [columns] if reference_items is None else [columns, reference_items]
        temperature, bias_factor = self.temperature, self.weight
        if self.relative:
            temperature *= _spread([_moments_of(side) for side in sides])
            bias_factor *= temperature
        scale = 1.0 / (temperature or 1.0)  # without a spread the bias is 0 at any temperature
        sums: Sequence[Tensor] = [_first_sums(side, scale) for side in sides]
        total_items = 1  # 1 in the first round, whose `sums` are of e^{s/τ}; then M, since they are of e^{s/τ}·M·v
        scalings: Sequence[Any] = [None] * len(sides)  # of the items of each side
        for _ in range(self.rounds):
            total = reduce(torch.logaddexp, sums)
            log_queries = math.log(total_items) - math.log(len(total)) - total
            results = [_round(side, scaling, log_queries, scale) for side, scaling in zip(sides, scalings, strict=True)]
            sums, scalings = zip(*results, strict=True)
            total_items = sum(map(len, scalings))
        return finite_terms((bias_factor * (math.log(total_items) - scalings[0]),))


def moments(blocks: Iterable[Tensor]) -> Terms:
    """The number of scores of each row over all blocks (b, m), their mean, and the sum of squared deviations from it.

    Each is (b, 1), in float64 on the CPU.
    """
    return reduce(_merged, (_block_moments(part) for block in blocks for part in _narrow_blocks(block)))


def _block_moments(block: Tensor) -> Terms:
    base = block[:, :1]  # so that equal scores deviate by exactly 0
    deviation = block - base
    mean = deviation.mean(dim=1, keepdim=True)
    squares = deviation.sub_(mean).square_().sum(dim=1, keepdim=True).cpu().double()
    return torch.full_like(squares, block.shape[1]), (base + mean).cpu().double(), squares


def _narrow_blocks(block: Tensor) -> Sequence[Tensor]:
    """A block of scores (R, m) by columns, as many as a CPU's cache holds."""
    return block.split(block.shape[1] if block.is_cuda else max(1, CACHED // len(block)), dim=1)


def _moments_of(columns: Columns) -> Terms:
    """The moments of each query's scores, from the items' covariance if that takes fewer products than all scores."""
    if not isinstance(columns, ScoreColumns) or len(columns.reference) <= columns.reference.shape[1]:
        return moments(columns())
    queries, items = columns.reference, columns.items
    base = items.rows(0, 1).to(queries)
    total = torch.zeros_like(base, dtype=torch.float64, device="cpu")
    squares = torch.zeros(1, dtype=torch.float64)
    for tile in ranges(len(items), columns.width):
        rows = items.rows(tile.start, tile.stop).to(queries) - base
        total += rows.sum(dim=0).cpu().double()
        squares = squares + (rows.T @ rows).cpu().double()
    queries, mean = queries.cpu().double(), total / len(items)
    squares = (queries @ (squares - mean.T @ total) * queries).sum(dim=1, keepdim=True).clamp(min=0)
    return torch.full_like(squares, len(items)), queries @ (mean + base.cpu().double()).T, squares


def _merged(some: Terms, others: Terms) -> Terms:
    """The moments over two sets of items together."""
    count, mean, squares = some
    other_count, other_mean, other_squares = others
    total, difference = count + other_count, other_mean - mean
    between = difference.square() * count * other_count / total
    return total, mean + difference * other_count / total, squares + other_squares + between


def _spread(parts: Sequence[Terms]) -> float:
    """The standard deviation of a query's scores over all items, averaged over the queries.

    0 where it is below the smallest normal number of float32, since the scale would then be infinite.
    """
    count, _, squares = reduce(_merged, parts)
    spread = (squares / count).sqrt().mean().item()
    return spread if spread > torch.finfo(torch.float32).tiny else 0.0


def _first_sums(columns: Columns, scale: float) -> Tensor:
    """The logarithm of each query's sum (R,) over some items before any scaling."""
    sums = ((scale * part).logsumexp(dim=1).cpu().double() for block in columns() for part in _narrow_blocks(block))
    return reduce(torch.logaddexp, sums)


def _round(columns: Columns, before: Tensor | None, log_queries: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """One round over some items: log Σ e^{s/τ}·M·v of each query (R,) with the new v, and the new log M·v (m,).

    before: log M·v of the last round. log_queries: log u (R,), in float64 on the CPU, since some devices have none.
    """
    scalings: list[Tensor] = []
    total = torch.full_like(log_queries, -torch.inf)
    first = 0
    for block in columns():
        last = None if before is None else before[first : first + block.shape[1]].to(block.device)
        values, shares = _normalized(block.T, log_queries, last, scale)
        scalings.append(values)
        total = torch.logaddexp(total, shares.cpu().double().log() - log_queries)
        first += block.shape[1]
    return total, torch.cat(scalings)


def _normalized(scores: Tensor, log_u: Tensor, before: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """log M·v (m,) of items by scores (m, R), and each query's sum (R,) of u·e^{s/τ}·M·v over them.

    log_u: (R,). before: the items' scaling in the last round; it keeps all u·e^{s/τ}·v at most 1, few of them 0, so
    that one exponential serves both sums. A few items at a time, which a cache holds.
    """
    log_u = log_u.to(scores)
    least = math.log(torch.finfo(scores.dtype).tiny) + 12  # processors are slow with numbers that are smaller still
    scalings, sums = scores.new_empty(len(scores)), torch.zeros_like(log_u)
    height = len(scores) if scores.is_cuda else max(1, CACHED // len(log_u))
    for first in range(0, len(scores), height):
        rows = slice(first, first + height)
        shift = log_u.new_zeros(len(scores[rows])) if before is None else before[rows]
        shares = (scale * scores[rows]).add_(log_u).add_(shift[:, None]).clamp_(min=least).exp_()
        mass = shares.sum(dim=1)
        if mass.min() < LEAST_MASS:
            logits = (scale * scores[rows]).add_(log_u)
            shift, mass = -logits.logsumexp(dim=1), torch.ones_like(mass)
            shares = logits.add_(shift[:, None]).clamp_(min=least).exp_()
        scalings[rows] = shift - mass.log()
        sums += mass.reciprocal() @ shares
    return scalings, sums
