"""Screened lists are those of a naive oracle, on inputs that mislead a screen, whatever computes the products."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.neighbors import screened
from vsehub.neighbors.screened import INT8, CachedItems
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Affine, Moved, as_vectors

needs_int8 = pytest.mark.skipif(not INT8, reason="this processor does not multiply int8")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiles of 64 items, of which all but the first are screened in int8 where the processor multiplies it."""
    sizes = {"TILE_ITEMS": 64, "TILE_QUERIES": 16, "MANY_QUERIES": 9, "GROUP": 4, "FEW_SCORES": 512, "MOST_HITS": 1.0}
    for name, value in sizes.items():
        monkeypatch.setattr(screened, name, value)


def random(rows, dim, seed):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def near_ties(dim):
    """Items whose scores lie one unit in the last place apart, or less, and copies of them."""
    base = random(1, dim, 5).expand(120, -1).clone()
    base[:, 0] += torch.arange(120) % 40 * 2.0**-24
    return base


ITEMS = {
    "ordinary": lambda dim: random(150, dim, 1),
    "all equal": lambda dim: random(1, dim, 2).expand(150, -1).clone(),
    "copies": lambda dim: random(15, dim, 3).repeat(10, 1),
    "near ties": near_ties,
    "zeros": lambda dim: torch.cat([torch.zeros(100, dim), random(30, dim, 4)]),
    "whole numbers": lambda dim: random(150, dim, 6).round(),
    "all scores negative": lambda dim: -random(150, dim, 6).abs(),
    "huge and tiny norms": lambda dim: random(150, dim, 7) * torch.logspace(-18, 12, 150)[:, None],
    "one far away": lambda dim: torch.cat([random(149, dim, 8) * 1e-3, 1e4 * random(1, dim, 9)]),
    "far from 0": lambda dim: 100 + random(150, dim, 10),
    "one dimension stands out": lambda dim: random(150, dim, 10) * torch.tensor([100.0] + [0.1] * (dim - 1)),
    "smallest numbers": lambda dim: random(150, dim, 11) * 1e-30,
}


def oracle(queries, items, k, correct=None):
    """Every pair scored alone, and sorted in full."""
    values = torch.from_numpy(np.stack([np.vecdot(items.numpy(), query) for query in queries.numpy()]))
    if correct is not None:
        values = correct.scale * values - correct.bias
    values, positions = values.sort(dim=1, descending=True, stable=True)
    return values[:, :k], positions[:, :k]


def equal(result, wanted):
    assert torch.equal(result[0], wanted[0])
    assert torch.equal(result[1], wanted[1])


@looped("name", list(ITEMS))
@looped(
    ("dim", "affine"), [(1, "two"), (3, "one"), (64, "none"), (64, "thirty"), (64, "huge"), (100, "far"), (513, "none")]
)
@pytest.mark.parametrize("int8", [pytest.param(True, marks=needs_int8), False])
def test_lists_are_those_of_the_oracle(name, dim, affine, int8, monkeypatch):
    """Of many queries and of few, of kept items twice, for any k, and beside corrections that need all scores."""
    monkeypatch.setattr(screened, "INT8", int8)
    items = ITEMS[name](dim)
    queries = torch.cat([random(30, dim, 20), items[:3], torch.zeros(2, dim)])
    queries[5:9] *= torch.tensor([1e-20, 1e-6, 1e6, 1e12])[:, None]
    bias = random(len(items), 1, 21)[:, 0]
    correct = {
        "none": None,
        "one": Affine(1.0, bias),
        "two": Affine(2.0, bias.double()),
        "thirty": Affine(30.0, bias * 1e-6),
        "far": Affine(0.75, bias * 1e5 // 1),
        "huge": Affine(1.0, bias * 1e9),
    }[affine]
    source = as_vectors("items", items)
    cached = CachedItems(source)
    wanted, plain = oracle(queries, items, 60, correct), oracle(queries, items, 60)
    for k, at, among in (
        (1, slice(None), source),
        (60, slice(None), source),
        (60, slice(None), cached),
        (60, slice(-7, None), source),
        (60, slice(12), cached),
    ):
        beside = [correct, lambda scores, rows, columns: scores + 1, None]
        lists = nearest(as_vectors("queries", queries[at]), among, k, beside)
        equal(lists[0], [values[at, :k] for values in wanted])
        equal(lists[2], [values[at, :k] for values in plain])


@looped(("queries", "k"), [(1, 1), (1, 40), (20, 40), (300, 40)])
@looped("scale", [2.0, 0.0, -1.5])
def test_all_items_are_listed_and_ties_come_in_their_order(queries, k, scale):
    """Products of whole numbers are exact, whichever way computes them; k is the number of items, or all are one."""
    rows, items = random(queries, 6, 1).round(), random(k, 6, 2).round()[torch.arange(k) // 3]
    correct = Affine(scale, random(k, 1, 3)[:, 0].round())
    equal(
        nearest(as_vectors("queries", rows), as_vectors("items", items), k, [correct])[0],
        oracle(rows, items, k, correct),
    )


@looped(("queries", "k"), [(1, 1), (8, 5), (9, 40), (20, 2)])
@looped("scale", [0.1, 0.75, 2.0, 30.0])
@looped("seed", range(6))
def test_corrected_scores_that_are_equal_or_nearly_come_in_their_order(queries, k, scale, seed):
    """Biases that undo the scores of the first query, up to rounding: the slack differs from item to item."""
    rows, items = random(queries, (1, 2, 8)[seed % 3], seed), random(180, (1, 2, 8)[seed % 3], 100 + seed)
    bias = scale * torch.from_numpy(np.vecdot(items.numpy(), rows[0].numpy())) - (0, 0.4, -7, 90)[seed % 4]
    bias += (random(180, 1, 200 + seed)[:, 0] * (seed % 2)).clamp(min=0)
    correct = Affine(scale, bias)
    equal(
        nearest(as_vectors("queries", rows), as_vectors("items", items), k, [correct])[0],
        oracle(rows, items, k, correct),
    )


def unrotated(signs, dim):
    """The vector (D,) whose rotation is `signs`, up to rounding."""
    first, second = screened._rotations(dim)
    return torch.from_numpy((first.T @ signs.reshape(len(first), -1) @ second.T).T.reshape(dim)).float()


def taken_by_rounding(vectors, centre):
    """What rounding takes from rotated vectors, in steps, and the step."""
    rounded = screened._round(vectors, centre)
    return screened._rotated(vectors - centre) / rounded.step - rounded.whole.numpy(), rounded.step


@needs_int8
@looped("dim", [64, 256])
@looped("loser", ["item", "query"])
@looped("target", range(10))
def test_an_item_is_found_where_rounding_took_what_the_bound_allows(dim, loser, target):
    """One side has components of one size, which lose nothing, and points to what rounding takes from the other.

    Both inequalities are then almost equalities. Another item is better by all but a fifth of that: a bound that is
    half as large, or leaves one side out, misses the item.
    """
    items, query = random(128, dim, 1), random(1, dim, target)
    if loser == "item":
        lost, step = taken_by_rounding(items[64:].numpy(), items[64:].mean(dim=0).numpy())
        query = unrotated(np.sign(lost[target]), dim)[None]
        gap = step * float(np.abs(lost[target]).sum())
    else:
        lost, step = taken_by_rounding(query.numpy(), np.zeros(dim, np.float32))
        items[64:96] = unrotated(np.sign(lost[0]), dim) * torch.linspace(0.5, 1, 32)[:, None]
        items[96:] = -items[64:96]  # the mean is 0
        target = 31
        gap = step * float(np.abs(lost[0]).sum())
    scores = items @ query[0]
    bias = torch.full((128,), 1e4)
    bias[0], bias[64 + target] = scores[0] - scores[64 + target] + 0.2 * gap, 0
    padded = torch.cat([query, torch.zeros(15, dim)])
    best = nearest(as_vectors("queries", padded), as_vectors("items", items), 1, [Affine(1.0, bias)])[0]
    assert best[1][0] == 64 + target


def clusters(rows, dim, seed):
    """Vectors in a cone, around 400 directions."""
    near = random(400, dim, 100).repeat(-(-rows // 400), 1)[:rows]
    return torch.nn.functional.normalize(3 + near + random(rows, dim, seed), dim=1)


@needs_int8
@looped("make", [clusters, random])
@looped("affine", [False, True])
def test_most_items_are_ruled_out(make, affine, monkeypatch):
    """Otherwise the lists would be right for want of a screen; float32 multiplies the first tile alone."""
    scored, multiplied, score, by_float32 = [], [], screened._scores, screened._Block._by_float32
    monkeypatch.setattr(screened, "_scores", lambda *arguments: scored.append(len(arguments[1])) or score(*arguments))
    monkeypatch.setattr(
        screened._Block, "_by_float32", lambda *arguments: multiplied.append(arguments[1]) or by_float32(*arguments)
    )
    monkeypatch.setattr(screened, "TILE_ITEMS", 512)
    queries, items = make(40, 64, 1), make(4000, 64, 2)
    correct = Affine(2.0, 0.01 * random(4000, 1, 3)[:, 0]) if affine else None
    equal(
        nearest(as_vectors("queries", queries), as_vectors("items", items), 5, [correct])[0],
        oracle(queries, items, 5, correct),
    )
    assert 0 < sum(scored) < 0.05 * 40 * 4000
    assert set(multiplied) == {0}


@pytest.mark.parametrize("count", [1, 40])
def test_items_may_lie_anywhere(count, tmp_path, monkeypatch):
    """Memory maps, other types, and a source that only reads rows, of which no more than a tile is read."""
    items, queries = random(200, 16, 1), random(count, 16, 2)
    np.save(tmp_path / "items.npy", items.numpy())
    read, rows = [], Moved.rows
    monkeypatch.setattr(Moved, "rows", lambda self, *at: read.append(at[1] - at[0]) or rows(self, *at))
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for held in (mapped, items.double(), items.numpy()[::-1][::-1]):
        equal(nearest(as_vectors("queries", queries), as_vectors("items", held), 5)[0], oracle(queries, items, 5))
    among = Moved(as_vectors("items", items), torch.device("cpu"))
    equal(nearest(as_vectors("queries", queries), among, 5)[0], oracle(queries, items, 5))
    assert max(read) <= (64 if count > 8 else 200)


@looped("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
@looped("at", [7, 200])
def test_no_unusable_value_is_hidden(bad, at):
    """NaN and infinity stand first, in the first tile and in a later one, so that callers can refuse them."""
    items = random(300, 6, 1)
    items[at] = bad
    queries = random(30, 6, 2).abs() * (-1 if bad == -float("inf") else 1)
    for count in (3, 30):
        values, positions = nearest(as_vectors("queries", queries[:count]), as_vectors("items", items), 4)[0]
        assert (positions[:, 0] == at).all()
        assert not (values[:, 0] < 3e38).any()
    queries[20] = bad
    wanted = oracle(queries[:20], random(300, 6, 3), 4)
    best = nearest(as_vectors("queries", queries), as_vectors("items", random(300, 6, 3)), 4)[0]
    equal((best[0][:20], best[1][:20]), wanted)


@pytest.mark.parametrize("more", [1, 31])
def test_a_query_of_zeros_among_items_of_huge_biases(more):
    """The bound of other queries tells nothing of it, and differences of biases are lost in float32."""
    queries, items = random(300, 128, 0), random(3 * 64 + more, 128, 1)
    queries[5] = 0
    bias = 10 ** (18.5 + 3.5 * torch.rand(len(items), generator=torch.Generator().manual_seed(0)))
    positions = nearest(as_vectors("queries", queries), as_vectors("items", items), 10, [Affine(1.0, bias)])[0][1]
    assert torch.equal(positions[5], (-bias).argsort(descending=True, stable=True)[:10])
