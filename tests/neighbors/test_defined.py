"""Lists are those of the defined scores, whatever computes them: naive oracles on inputs that mislead a screen."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.neighbors import defined, in_memory, tiles
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.in_memory import InMemory, best_of_one
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Concatenated, array_of, as_vectors


def random(rows, dim, seed):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def near_ties(dim):
    """Items whose scores lie one unit in the last place apart, or less, and copies of them."""
    base = random(1, dim, 5).expand(120, -1).clone()
    base[:, 0] += torch.arange(120) % 40 * 2.0**-24
    return base


def oracle(queries, items, k, affine):
    """Every pair by the definition, sorted in full."""
    wide = items.double().numpy()
    scores = torch.stack([torch.from_numpy((q * wide).sum(axis=1)).float() for q in queries.double().numpy()])
    values = scores if affine is None else affine.unscaled(scores, slice(None))
    values, positions = values.sort(dim=1, descending=True, stable=True)
    return values[:, :k] * (1 if affine is None else affine.factor), positions[:, :k]


NASTY = {
    "ordinary": lambda dim: random(150, dim, 1),
    "all equal": lambda dim: random(1, dim, 2).expand(150, -1).clone(),
    "copies": lambda dim: random(15, dim, 3).repeat(10, 1),
    "near ties": near_ties,
    "zeros": lambda dim: torch.cat([torch.zeros(100, dim), random(30, dim, 4)]),
    "whole numbers": lambda dim: random(150, dim, 6).round(),
    "huge and tiny norms": lambda dim: random(150, dim, 7) * torch.logspace(-18, 12, 150)[:, None],
    "one far away": lambda dim: torch.cat([random(149, dim, 8) * 1e-3, 1e4 * random(1, dim, 9)]),
    "cancelling": lambda dim: torch.cat([1e4 * random(150, dim, 10), -1e4 * random(150, dim, 10) * (1 + 1e-7)], dim=1),
    "smallest numbers": lambda dim: random(150, dim, 11) * 1e-30,
}


@looped("name", list(NASTY))
@looped(("dim", "affine"), [(1, "two"), (3, "one"), (64, "none"), (64, "thirty"), (513, "far")])
def test_lists_follow_the_definition(name, dim, affine, monkeypatch):
    """Equal in values and positions: in blocks, at once, in parts, and from a source that only hands out rows."""
    monkeypatch.setattr(tiles, "TILE_ITEMS", 64)
    monkeypatch.setattr(defined, "BLOCK", 32)
    monkeypatch.setattr(in_memory, "GROUP", 4)
    monkeypatch.setattr(in_memory, "_WITHIN", np.arange(4))
    items = NASTY[name](dim)
    queries = torch.cat([random(3, items.shape[1], 20), items[:2], torch.zeros(1, items.shape[1])])
    bias = random(len(items), 1, 21)[:, 0]
    correct = {
        "none": None,
        "one": Affine(1.0, bias),
        "two": Affine(2.0, bias.double()),
        "thirty": Affine(30.0, bias * 1e-6),
        "far": Affine(0.75, bias * 1e5 // 1),
    }[affine]
    held = as_vectors("items", items)
    parts = Concatenated([as_vectors("items", items[:7]), as_vectors("items", items[7:])])
    many = queries.repeat(7, 1)
    ways = [(queries, held), (many, InMemory.of(held)), (queries, InMemory.of(held)), (queries[:1], InMemory.of(parts))]
    for k in (1, 10, len(items)):
        wanted = oracle(queries, items, k, correct)
        for asked, source in ways:
            values, positions = nearest(as_vectors("queries", asked), source, k, [correct])[0]
            place = torch.arange(len(asked)) % len(queries)
            assert torch.equal(values, wanted[0][place]), (k, type(source))
            assert torch.equal(positions, wanted[1][place]), (k, type(source))


@looped("name", list(NASTY))
@looped("dim", [1, 2, 64, 513])
def test_a_product_decides_defined_scores_only_where_it_can(name, dim):
    items = NASTY[name](dim)
    largest = defined.largest_norm(items)
    queries = torch.cat([random(3, items.shape[1], 20), items[:2], 1e25 * items[2:3], 0 * items[:1]]).numpy()
    with np.errstate(over="ignore"):
        wanted = [defined.defined(query[None], items.numpy()) for query in queries]
    places = np.broadcast_to(np.arange(len(items)), (len(queries), len(items)))
    for count in (1, len(queries)):  # one query of few numbers is scored by the definition at once
        given = queries[:count], places[:count], items.numpy().__getitem__, largest
        assert np.array_equal(defined.defined_of_each(*given), wanted[:count], equal_nan=True)


def test_the_definition_is_of_a_pair_alone():
    """Whatever lies beside the rows, and however many there are; a matrix holds the same numbers."""
    for dim in (1, 7, 128, 1000, 4096):
        queries, items = random(40, dim, 0), random(40, dim, 1)
        whole = defined.defined_scores(queries, items)
        for step in (1, 3, 39):
            parts = [defined.defined_scores(q, x) for q, x in zip(queries.split(step), items.split(step), strict=True)]
            assert torch.equal(torch.cat(parts), whole)
        assert torch.equal(defined.defined_matrix(queries, items).diagonal(), whole)
        exact = (queries.double() * items.double()).sum(dim=1)
        assert ((whole - exact).abs() <= 2.0**-24 * exact.abs() + 1e-12).all()


@looped("dim", [1, 8, 300, 4096])
@looped("scale", [1e-20, 1.0, 1e10])
def test_a_product_stays_within_its_error(dim, scale):
    queries, items = random(30, dim, 2) * scale, random(50, dim, 3)
    items[:10] = items[:10].abs() * queries[:10].sign()  # all products of one sign
    error = defined.screen_error(defined.norms_of(queries), dim, defined.largest_norm(items))
    exact = defined.defined_matrix(queries, items)
    for product in (queries @ items.T, (items @ queries.T).T, (queries[:, None] * items).sum(dim=2)):
        assert ((product - exact).abs().amax(dim=1) <= torch.from_numpy(error)).all()


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("held", [in_memory.in_memory, lambda items: items])
def test_a_sum_that_passes_float32_on_its_way_hides_nothing(count, held):
    queries, items = torch.full((count, 128), 1e24), 1e12 * random(5000, 128, 0)
    items[777] = torch.cat([torch.full((64,), -1e14), torch.full((63,), 1e14), torch.tensor([3e14])])
    (found,) = nearest(as_vectors("queries", queries), held(as_vectors("items", items)), 3)
    wanted = oracle(queries, items, 3, None)
    assert wanted[0].isfinite().all()
    assert (wanted[1][:, 0] == 777).all()
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


@pytest.mark.parametrize("count", [1, 40])
def test_norms_whose_squares_pass_float32_leave_ties_in_order(count):
    items = random(9000, 128, 0)
    items[5] *= 1e30
    found = nearest(as_vectors("queries", torch.zeros(count, 128)), in_memory.in_memory(as_vectors("items", items)), 5)
    assert (found[0][1] == torch.arange(5)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pair_has_one_score_for_any_k(dtype):
    """Items of float64 are rounded to the type of the queries, however many are sought."""
    drawn = torch.Generator().manual_seed(3)
    near = 1 + 6e-7 * (torch.rand(9000, 1, generator=drawn, dtype=torch.float64) - 0.5)
    items = (torch.randn(90, 160, generator=drawn, dtype=torch.float64).repeat_interleave(100, 0) * near).to(dtype)
    sides = as_vectors("queries", random(50, 160, 1)), as_vectors("items", items)
    (few,), (many,) = (nearest(*sides, k) for k in (80, 95))
    assert all(torch.equal(short, long[:, :80]) for short, long in zip(few, many, strict=True))


def test_many_within_the_error_are_all_scored(monkeypatch):
    """More near ties than are screened: only the whole list by the definition is exact."""
    dense = []
    known = defined.dense_lists
    monkeypatch.setattr(defined, "dense_lists", lambda *given: dense.append(len(given[0])) or known(*given))
    items = near_ties(64)
    queries = torch.cat([random(40, 64, 1), items[:1]])
    values, positions = nearest(as_vectors("queries", queries), as_vectors("items", items), 5)[0]
    assert dense, "the case must need it"
    wanted = oracle(queries, items, 5, None)
    assert torch.equal(values, wanted[0])
    assert torch.equal(positions, wanted[1])


def test_the_best_of_many_values():
    values = random(1, 5000, 4)[0].numpy()
    for count in (1, 18, 19, 20, 4999, 5000):
        assert sorted(values[best_of_one(values, count)]) == sorted(np.sort(values)[-count:])


def test_what_lies_in_memory(tmp_path):
    """Arrays of float32 are searched where they lie, mapped files too; everything else is read in blocks."""
    array = random(20, 4, 0).numpy()
    np.save(tmp_path / "items.npy", array)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for one in (array, torch.from_numpy(array), mapped):
        assert np.shares_memory(array_of(as_vectors("items", one)), one)
        assert InMemory.of(as_vectors("items", one)).rows(3, 5).tolist() == array[3:5].tolist()
    for other in (array.astype("float64"), array.astype("float16"), array[:, ::2], torch.from_numpy(array).bfloat16()):
        assert InMemory.of(as_vectors("items", other)) is None
    assert InMemory.of(as_vectors("items", mapped)).largest == pytest.approx(
        np.linalg.norm(array, axis=1).max(), rel=1e-5
    )


@looped("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_unusable_value_is_hidden(bad):
    """Beside ordinary ones NaN and infinity stand first, so that a search refuses them."""
    items = random(300, 6, 1)
    items[7, 0] = bad
    queries = random(3, 6, 2).abs() * (1 if bad > 0 or bad != bad else -1)
    for source in (as_vectors("items", items), InMemory.of(as_vectors("items", items))):
        values, positions = nearest(as_vectors("queries", queries), source, 4)[0]
        assert (positions[:, 0] == 7).all()
        assert not values[:, 0].isfinite().any()


@looped("scale", [0.75, 1.0, 2.0, 30.0, 1e-7, 1e38])
@looped("dtype", [torch.float32, torch.float64])
def test_few_scores_are_corrected_as_many(scale, dtype):
    scores = torch.cat([random(3, 200, 1), 1e30 * random(1, 200, 2), torch.full((1, 200), torch.inf)])
    affine = Affine(scale, random(200, 1, 3)[:, 0].to(dtype))
    wanted = affine.unscaled(scores, slice(None)).numpy()
    found = affine.unscaled_array(scores.numpy(), slice(None))
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted, equal_nan=True)
    if dtype == torch.float32:
        out = np.empty_like(wanted)
        assert affine.unscaled_array(scores.numpy(), slice(None), out) is out
        assert np.array_equal(out, wanted, equal_nan=True)
