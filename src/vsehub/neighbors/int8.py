"""Products in int8, which tell in a fraction of the time of float32 which items cannot be among the k best.

Items are centred, and items and queries are rotated, which changes no ranking and makes all dimensions alike; both are
rounded to whole numbers of a step of their own. What rounding took away has a norm, so that by the inequality of Cauchy
and Schwarz a score lies within a bound of the product of the rounded vectors. An item whose score plus the bound is
below the k-th best so far is left out for certain; the scores of all others are computed in float32. The products come
in single bytes, which cover the range of what is asked of the queries: a quarter of the memory to write and to compare.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from vsehub.metrics.topk import places_of
from vsehub.neighbors.defined import SINGLE
from vsehub.neighbors.guesses import Guesses
from vsehub.neighbors.rounded import cpu_has
from vsehub.neighbors.vectors import VectorSource

VNNI = "avx512_vnni", "avx_vnni", "amx_int8"
SEVEN_BITS, EIGHT_BITS = 63, 127  # the largest whole number of a query; without VNNI, sums of more overflow 16 bits
ITEM_STEPS = 127
MOST_DIMENSIONS = 2**16  # above, sums could overflow 32 bits
LEAST_DIMENSIONS = 128  # below, what is saved is too little beside the rest of a search
ROTATED = 512  # dimensions that are rotated together: a rotation takes as long as so many queries
PIECE = 128  # dimensions whose products are summed alone, since the error's bound grows with the terms of a sum
LARGEST = 2.0**100  # of products that are screened
SMALLEST = 2.0**-60  # vectors whose largest component is below it are rounded to zeros
CENTRE_PIECES, CENTRE_ROWS = 16, 256  # rows whose mean the items' centre is
LEVELS, MOST_OF_A_BYTE = 250, 255  # some are left on both sides
ROUNDED = 0.6  # levels that a byte and its product differ by: half of one by rounding, and far less by float32
FINEST = 2.0**-16  # of the largest product: a finer level would be lost in float32
FASTER = 0.8  # of the time of float32, at most, for int8 to be taken
_TRIED = (256, 2048, 512)  # queries, items and dimensions of the products that are timed

# (queries (b, D) uint8, the number in them that stands for 0, addends of the items (m,) or None, level, shift)
# -> the products with the rounded items, with the addends, as whole numbers of the level, plus the shift: (b, m) uint8
Product = Callable[[Tensor, int, Tensor | None, float, int], Tensor]


@dataclass(frozen=True)
class Frame:
    """How vectors are centred and rotated.

    centre: (D,), near the mean of the items. rotations: orthogonal (B, B), one for each set of dimensions that are
    rotated together. drift: by what share of its norm a rotated vector may differ from the exactly rotated one.
    """

    centre: Tensor
    rotations: tuple[Tensor, ...]
    drift: float

    @classmethod
    def of(cls, items: VectorSource) -> Self:
        """The frame of items (M, D), of which a few are read."""
        starts = torch.linspace(0, max(0, len(items) - CENTRE_ROWS), CENTRE_PIECES).long().unique().tolist()
        read = [items.rows(start, min(start + CENTRE_ROWS, len(items))).float() for start in starts]
        return cls(torch.cat(read).mean(dim=0), *_rotations(items.shape[1]))

    def rotated(self, rows: Tensor) -> Tensor:
        """Rows (n, D), rotated."""
        count = len(self.rotations)  # every `count`-th dimension, since adjacent ones are often alike
        parts = [_in_pieces(rows[:, first::count], rotation) for first, rotation in enumerate(self.rotations)]
        return parts[0] if count == 1 else torch.cat(parts, dim=1)


@lru_cache(maxsize=2)
def _rotations(dim: int) -> tuple[tuple[Tensor, ...], float]:
    """`Frame.rotations` and `Frame.drift` of so many dimensions, which are the same for all items: 2 KB a dimension."""
    generator = torch.Generator().manual_seed(0)
    sets = torch.arange(dim).tensor_split(-(-dim // ROTATED))
    drawn = [torch.randn(len(one), len(one), generator=generator, dtype=torch.float64) for one in sets]
    rotations = tuple(torch.linalg.qr(one).Q.float() for one in drawn)
    return rotations, max(_drift(one.double()) for one in rotations)


def _in_pieces(rows: Tensor, rotation: Tensor) -> Tensor:
    """The product of rows (n, B) and a rotation (B, B), from pieces of the sums, which errs less."""
    pieces = zip(rows.split(PIECE, dim=1), rotation.split(PIECE, dim=1), strict=True)
    first, second = next(pieces)
    turned = first @ second.T
    for some, turn in pieces:
        turned += some @ turn.T
    return turned


def _drift(rotation: Tensor) -> float:
    """`Frame.drift` of one rotation (B, B) float64, and by how much it is not orthogonal.

    Each component of a float32 product is within γ_n·|row|·|vector| (Higham 2002, section 3.1), where n terms are added
    one after another: those of a piece, and then the pieces. There are B components.
    """
    size = len(rotation)
    skewed = float((rotation.T @ rotation - torch.eye(size, dtype=torch.float64)).norm())
    terms = min(size, PIECE) + -(-size // PIECE)
    gamma = terms * SINGLE / (1 - terms * SINGLE)
    return 1.01 * math.sqrt(size) * gamma + skewed + 3 * SINGLE


class Int8Tile:
    """Some items (m, D), rounded, and the product with them.

    norm: at least the norm of any centred item, before and after. lost: at least the norm of what rounding took from
    any; both infinite where the items cannot be screened. lost_of_each: the same of each item (m,), float32.
    """

    def __init__(self, rows: Tensor, frame: Frame):
        turned = frame.rotated(rows - frame.centre)
        step = turned.abs().amax(dim=1).clamp_(min=SMALLEST) / ITEM_STEPS
        norm = float(torch.linalg.vector_norm(turned, dim=1).amax())
        if not math.isfinite(norm):
            self.norm = self.lost = math.inf
            return
        whole = (turned / step[:, None]).round_()
        spare = 1 + 2 * (turned.shape[1] * SINGLE + frame.drift)
        lost = torch.linalg.vector_norm(turned.sub_(whole * step[:, None]), dim=1)
        self.lost_of_each = lost.add_(4 * SINGLE * norm).mul_(spare)
        self.lost = float(self.lost_of_each.amax())
        self.norm = spare * norm + self.lost
        self.product = _product(whole.to(torch.int8), step)


class Int8Queries:
    """Queries (b, D), rounded. norms: theirs (b,), float64. alike: whether all are rounded to the same step.

    The score of a query and an item is `step` times the product of the rounded vectors, plus `offset`, within `error`:
    (b, 1) float64 all. Of that, `covered` times `step` times what an item lost is the item's own share. usable:
    whether the queries can be screened at all.
    """

    def __init__(self, queries: Tensor, norms: np.ndarray, frame: Frame, most: int, alike: bool):
        turned = frame.rotated(queries)
        step = turned.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST) / most
        if alike:
            step = step.amax().expand(len(step), 1)
        whole = (turned / step).round_().clamp_(-most, most)
        self.usable = bool(whole.isfinite().all())
        self.step, exact = step.double(), whole.double() * step.double()
        self.offset = queries.double() @ frame.centre.double()[:, None]
        self._lost = (turned.double() - exact).norm(dim=1, keepdim=True)
        self._size = exact.norm(dim=1, keepdim=True)
        self._drift = torch.from_numpy(norms)[:, None] * (2.2 * frame.drift + 16 * SINGLE)
        self.covered = float((self._size / self.step).amin())
        self._zero = most + 1
        self._whole = whole.add_(self._zero).to(torch.uint8) if self.usable else whole

    def error(self, tile: Int8Tile) -> Tensor:
        """By how much the scores with the items of a tile may differ: (b, 1)."""
        return self._lost * tile.norm + self._size * tile.lost + self._drift * tile.norm

    def common_error(self, tile: Int8Tile) -> Tensor:
        """`error` without the share of the item that lost most: (b, 1)."""
        return self.error(tile) - self.covered * self.step * tile.lost

    def rounded(self, scores: Tensor) -> Tensor:
        """The products, without error, of scores (b, n): float64."""
        return (scores.double() - self.offset) / self.step

    def among(self, tile: Int8Tile, kth: Tensor, margin: Tensor, biases: Tensor | None, share: float) -> Guesses | None:
        """The items of a tile whose products less biases may be `kth` less the margin, or more; (b, 1) float64 both.

        An item's own share of the error is added to its products, so that the margin is without it. biases: (m,) of
        scores, for queries that are rounded alike. None where a number is not finite or too large to tell, or where
        more than this share of the tile is among them.
        """
        own = tile.lost_of_each * self.covered
        addends = own if biases is None else (own - biases / float(self.step[0])).float()
        most = float((self._size / self.step).amax()) * tile.norm + float(addends.abs().amax())
        least = kth - margin
        lowest, highest = float(least.min()), float((kth + margin).max()) + self.covered * tile.lost
        if not self.usable or not (0 < most < LARGEST and -3 * most < lowest and highest < 3 * most):
            return None
        level = max((highest - lowest) / LEVELS, FINEST * most)
        shift = 2 - math.floor(lowest / level)
        products = tile.product(self._whole, self._zero, addends, level, shift).numpy()
        least = least.div(level).add_(shift + 1 - ROUNDED).floor_().to(torch.uint8)
        places = places_of(products >= least.numpy(), share)
        if places is None:
            return None
        rows, columns = places
        found = products.ravel()[rows * products.shape[1] + columns].astype(np.float32)
        guesses = (found - np.float32(shift + ROUNDED)) * np.float32(level)
        largest = np.where(found < MOST_OF_A_BYTE, guesses + np.float32(2 * ROUNDED * level), np.float32(np.inf))
        return rows, columns, guesses - own.numpy()[columns], largest


class Int8Items:
    """The tiles of a source of items, each made when it is first asked for. kept: whether it is then kept."""

    def __init__(self, items: VectorSource, kept: bool):
        self.frame, self._kept = Frame.of(items), kept
        self._tiles: dict[tuple[int, int], Int8Tile] = {}

    def tile(self, start: int, rows: Tensor) -> Int8Tile:
        """The tile of rows (m, D) from `start` on."""
        place = start, len(rows)
        tile = self._tiles.get(place) or Int8Tile(rows, self.frame)
        if self._kept:
            self._tiles[place] = tile
        return tile


def scores_of_pairs(queries: Tensor, items: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The float32 scores (e,) of some pairs of queries (b, D) and items (m, D); the pairs are ordered by rows."""
    ends = torch.bincount(rows, minlength=len(queries)).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    pairs = torch.sparse_csr_tensor(starts, columns, torch.zeros(len(rows)), (len(queries), len(items)))
    return torch.sparse.sampled_addmm(pairs, queries, items.T, beta=0.0).values()


def _product(whole: Tensor, step: Tensor) -> Product:
    """The product with items (m, D) int8, each with its step (m,), by operators of torch that are not documented.

    `steps_of_queries` says whether they do as they should.
    """
    packed = torch.ops.onednn.qlinear_prepack(whole, None)
    multiply, zeros = torch.ops.onednn.qlinear_pointwise, torch.zeros(len(whole), dtype=torch.long)
    return lambda queries, zero, addends, level, shift: multiply(
        queries, 1.0, zero, packed, step, zeros, addends, level, shift, torch.uint8, "none", [], ""
    )


@cache
def steps_of_queries() -> int | None:
    """The largest whole number that a component of a query is rounded to; None where int8 is wrong or no faster.

    One small product is compared with the exact one, and timed beside that of float32.
    """
    most = EIGHT_BITS if cpu_has(*VNNI) else SEVEN_BITS
    count, items, dim = _TRIED
    drawn = torch.Generator().manual_seed(0)
    queries = torch.randint(2 * most + 2, (count, dim), generator=drawn, dtype=torch.uint8)
    rows = torch.randint(-ITEM_STEPS, ITEM_STEPS + 1, (items, dim), generator=drawn, dtype=torch.int8)
    queries[0], queries[1], queries[2, ::2], rows[0], rows[1] = 2 * most + 1, 0, 0, ITEM_STEPS, -ITEM_STEPS
    wide = queries.float() - (most + 1), rows.float()
    wanted = wide[0] @ wide[1].T  # of whole numbers, and below 2^24: exact
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that sparse tensors may still change
            product = _product(rows, torch.ones(items))
            pairs = scores_of_pairs(*wide, torch.arange(count), torch.arange(count))
            right = torch.equal(pairs, wanted.diagonal())
            for level, shift, addends in ((1.0, 0, None), (2.0**12, 100, -wanted[5]), (2.0**9, -3000, 2 * wanted[6])):
                exact = wanted if addends is None else wanted + addends
                off = (exact / level + shift).clamp_(0, 255) - product(queries, most + 1, addends, level, shift).float()
                right = right and float(off.abs().amax()) <= 0.5 + 2.0**-6
    except (AttributeError, RuntimeError, TypeError):
        return None
    seconds = _seconds(lambda: product(queries, most + 1, None, 2.0**10, 128))
    return most if right and seconds < FASTER * _seconds(lambda: wide[0] @ wide[1].T) else None


def _seconds(call: Callable[[], object]) -> float:
    """The least of a few."""
    found = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)
