"""A screen in int8 leaves out only what is certainly not among the best; lists stay those of the definition."""

import warnings

import numpy as np
import pytest
import torch
from looped import looped
from test_defined import NASTY, near_ties, oracle, random

from vsehub.neighbors import defined, int8, screen, tiles
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.defined import defined_matrix, norms_of
from vsehub.neighbors.in_memory import InMemory
from vsehub.neighbors.int8 import Frame, Int8Queries, Int8Tile
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors


@pytest.fixture(autouse=True)
def screened(monkeypatch):
    """Small tiles, all of which but the first are screened, as far as this processor has what it takes."""
    monkeypatch.setattr(int8, "FASTER", float("inf"))
    int8.steps_of_queries.cache_clear()
    most = int8.steps_of_queries()
    int8.steps_of_queries.cache_clear()
    if most is None:
        pytest.skip("torch has no exact product in int8 here")
    small = {"TILE_ITEMS": 64, "OPENED_ITEMS": 64, "OPENED_FOR_EACH": 1, "SCREENED_QUERIES": 0, "LEAST_DIMENSIONS": 1}
    for name, value in small.items():
        monkeypatch.setattr(tiles, name, value)
    monkeypatch.setattr(tiles, "steps_of_queries", lambda: most)
    monkeypatch.setattr(int8, "ROTATED", 100)
    return most


@looped("name", list(NASTY))
@looped(("dim", "affine"), [(1, "two"), (3, "one"), (64, "none"), (64, "thirty"), (300, "far"), (513, "none")])
def test_lists_follow_the_definition(name, dim, affine):
    """Equal in values and positions: kept items, and items that are rounded as they are read; twice."""
    items = NASTY[name](dim)
    queries = torch.cat([random(30, items.shape[1], 20), items[:3], torch.zeros(1, items.shape[1])])
    queries[5:9] *= torch.tensor([1e-20, 1e-6, 1e6, 1e12])[:, None]
    bias = random(len(items), 1, 21)[:, 0]
    correct = {
        "none": None,
        "one": Affine(1.0, bias),
        "two": Affine(2.0, bias.double()),
        "thirty": Affine(30.0, bias * 1e-6),
        "far": Affine(0.75, bias * 1e5 // 1),
    }[affine]
    kept = InMemory.of(as_vectors("items", items))
    for k in (1, 10):
        wanted = oracle(queries, items, k, correct)
        for source in (kept, as_vectors("items", items), kept):
            found, plain = nearest(as_vectors("queries", queries), source, k, [correct, None])
            assert torch.equal(found[0], wanted[0]), k
            assert torch.equal(found[1], wanted[1]), k
            assert torch.equal(plain[1], oracle(queries, items, k, None)[1]), k


def test_items_that_cannot_be_written_are_read_without_a_warning():
    items = random(150, 64, 1).numpy()
    items.flags.writeable = False
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="The given NumPy array is not writable")
            nearest(as_vectors("queries", random(40, 64, 2)), InMemory.of(as_vectors("items", items)), 5)
    finally:
        torch.set_warn_always(before)


def clusters(rows, dim, seed):
    """Vectors in a cone, around 400 directions."""
    near = random(400, dim, 100).repeat(-(-rows // 400), 1)[:rows]
    return torch.nn.functional.normalize(3 + near + random(rows, dim, seed), dim=1)


@looped("make", [clusters, random])
@looped("affine", [False, True])
def test_most_items_are_left_out(make, affine, monkeypatch):
    """Otherwise the lists would be right for want of a screen."""
    computed = []
    known = screen.scores_of_pairs
    monkeypatch.setattr(screen, "scores_of_pairs", lambda *given: computed.append(len(given[2])) or known(*given))
    monkeypatch.setattr(tiles, "TILE_ITEMS", 512)
    queries, items = make(40, 64, 1), make(4000, 64, 2)
    correct = Affine(2.0, 0.01 * random(4000, 1, 3)[:, 0]) if affine else None
    found = nearest(as_vectors("queries", queries), as_vectors("items", items), 5, [correct])[0]
    assert torch.equal(found[1], oracle(queries, items, 5, correct)[1])
    assert 0 < sum(computed) < 0.1 * 40 * 4000


@looped("dim", [1, 2, 33, 512, 4096])
@looped("scale", [1e-20, 1.0, 1e12])
def test_scores_stay_within_the_error(dim, scale, screened):
    """Of vectors with a few large components, of copies, and of zeros."""
    items = random(50, dim, 1) * torch.logspace(-3, 3, 50)[:, None]
    items[:10, 0] += 1e3
    items[10:12] = 0
    queries = torch.cat([random(20, dim, 2), items[:5], items[10:11]]) * scale
    frame = Frame.of(as_vectors("items", items))
    biases = random(50, 1, 3)[:, 0] * float(items.norm(dim=1).max() * queries.norm(dim=1).max())
    tile, exact = Int8Tile(items, frame), defined_matrix(queries, items).double()
    for own in (None, biases):
        asked = Int8Queries(queries, norms_of(queries), frame, screened, alike=own is not None)
        scores = exact if own is None else exact - own.double()
        summed = 2.0**-20 * (scores.abs().max() + exact.abs().max())  # of the definition and the sum
        error, above = asked.error(tile) + summed, asked.common_error(tile) + summed
        for share in (0.1, 0.5, 0.9):
            kth = asked.rounded(scores.quantile(share, dim=1, keepdim=True))
            margin = asked.rounded(scores.amax(dim=1, keepdim=True)) - kth
            rows, columns, least, largest = asked.among(tile, kth, margin / 4, own, 1.0)
            left_out = torch.ones(scores.shape, dtype=torch.bool)
            left_out[rows, columns] = False
            limit = asked.step * (kth - margin / 4) + asked.offset
            assert (scores <= limit + above)[left_out].all()
            for guesses, sign, most in ((least, 1, error), (largest, -1, above)):
                guessed = asked.step[rows, 0] * torch.from_numpy(guesses).double() + asked.offset[rows, 0]
                assert (sign * (guessed - scores[rows, columns]) <= most[rows, 0]).all()


@looped("dim", [3, 33, 100])
@looped("affine", [False, True])
def test_an_item_is_found_whose_rounding_took_all_that_the_error_allows(dim, affine, screened):
    """Each query points to what its item lost, so that the inequality of Cauchy and Schwarz is an equality."""
    items = torch.nn.functional.normalize(random(200, dim, 1), dim=1)
    frame = Frame.of(as_vectors("items", items))
    turned = frame.rotated(items - frame.centre)
    step = turned.abs().amax(dim=1, keepdim=True) / 127
    lost = turned - (turned / step).round() * step
    queries = torch.nn.functional.normalize(lost @ frame.rotations[0], dim=1)
    tile, biases = Int8Tile(items, frame), torch.zeros(200) if affine else None
    asked = Int8Queries(queries, norms_of(queries), frame, screened, alike=affine)
    kth = asked.rounded((queries.double() * items.double()).sum(dim=1, keepdim=True))
    rows, columns, *_ = asked.among(tile, kth, asked.common_error(tile) / asked.step, biases, 1.0)
    assert (rows == columns).sum() == 200


@pytest.mark.parametrize(("every", "least_searched"), [(50, 1), (3, 10)])
def test_guesses_that_are_wrong_are_found_out(every, least_searched, monkeypatch):
    """Guesses far above the scores, which no bound allows, leave out the best; their queries are searched in full."""
    known, in_full, searched = Int8Queries.among, defined.dense_lists, []

    def wrong(self, tile, kth, margin, *given):
        found = known(self, tile, kth, margin, *given)
        if found is None:
            return None
        rows, columns, least, largest = found
        return rows, columns, np.where(columns % every == 0, least + 9 * margin[rows, 0].numpy(), least), largest

    monkeypatch.setattr(Int8Queries, "among", wrong)
    monkeypatch.setattr(defined, "dense_lists", lambda *given: searched.append(len(given[0])) or in_full(*given))
    items, queries = random(600, 64, 1), random(40, 64, 2)
    kept = InMemory.of(as_vectors("items", items))
    values, positions = nearest(as_vectors("queries", queries), kept, 5)[0]
    wanted = oracle(queries, items, 5, None)
    assert sum(searched) >= least_searched
    assert torch.equal(values, wanted[0])
    assert torch.equal(positions, wanted[1])


def test_many_near_ties():
    """Where the bound tells nothing apart, float32 goes on."""
    items = near_ties(64).repeat(4, 1)
    queries = torch.cat([random(40, 64, 1), items[:1]])
    values, positions = nearest(as_vectors("queries", queries), as_vectors("items", items), 5)[0]
    wanted = oracle(queries, items, 5, None)
    assert torch.equal(values, wanted[0])
    assert torch.equal(positions, wanted[1])


@looped("bad", [float("nan"), float("inf"), 3e38])
def test_what_cannot_be_rounded_is_left_to_float32(bad):
    items, queries = random(300, 8, 1), random(3, 8, 2).abs()
    items[200] = bad
    for source in (as_vectors("items", items), InMemory.of(as_vectors("items", items))):
        positions = nearest(as_vectors("queries", queries), source, 4)[0][1]
        assert (positions[:, 0] == 200).all()
        turned = nearest(as_vectors("queries", items[198:202]), as_vectors("items", random(300, 8, 3)), 4)[0]
        assert torch.equal(turned[1][[0, 1, 3]], oracle(items[[198, 199, 201]], random(300, 8, 3), 4, None)[1])


def test_items_are_rounded_once_where_they_are_kept(monkeypatch):
    """From so many queries on, counted over all searches; in threads of any number the lists are the same."""
    made = []
    known = int8.Int8Tile
    monkeypatch.setattr(int8, "Int8Tile", lambda *given: made.append(1) or known(*given))
    monkeypatch.setattr(tiles, "SCREENED_QUERIES", 100)
    items, queries = random(300, 16, 1), random(40, 16, 2)
    kept = InMemory.of(as_vectors("items", items))
    counts = []
    for _ in range(5):
        nearest(as_vectors("queries", queries), kept, 3)
        counts.append(len(made))
    assert counts == [0, 0, 4, 4, 4]


def test_a_processor_without_it_is_told(monkeypatch):
    def wrong(whole, step):
        return lambda queries, zero: (queries.float() - zero) @ whole.float().T + 1

    int8.steps_of_queries.cache_clear()
    monkeypatch.setattr(int8, "_product", wrong)
    assert int8.steps_of_queries() is None
    int8.steps_of_queries.cache_clear()


@pytest.mark.parametrize("more", [1, 31])
def test_a_last_tile_has_no_items_beyond_its_own(more, monkeypatch):
    """Biases that are large beside a query of zeros tell nothing of its items, in a tile that rounding fills up."""
    for name in ("TILE_ITEMS", "OPENED_ITEMS"):
        monkeypatch.setattr(tiles, name, 4096)
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(rows, 128, generator=generator) for rows in (4096, 3 * 4096 + more))
    queries[5] = 0
    bias = 10 ** (18.5 + 3.5 * torch.rand(len(items), generator=generator))
    found = nearest(as_vectors("queries", queries), as_vectors("items", items), 10, [Affine(1.0, bias)])[0][1]
    assert torch.equal(found[5], (-bias).argsort(descending=True, stable=True)[:10])
    assert int(found.max()) < len(items)
