from fractions import Fraction

import numpy as np
import pytest
import torch
from golden_arrays import CASES, golden
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from vsehub.criteria import CSLS, Chain, RelaxedGreedyMatching
from vsehub.criteria.matching import greedy
from vsehub.metrics import k_occurrences
from vsehub.neighbors import top_k


def sorted_and_walked(scores, k, relaxation, capacity):
    """EMNLP algorithm 1 to the letter: all pairs sorted, then visited one by one."""
    queries, items = scores.shape
    share = max(Fraction(1), Fraction(queries, items)) if capacity == "proportional" else 1
    places = round(Fraction(relaxation) * k * share)
    most = min(queries, items) * k if capacity == "paper" else queries * k
    wishes, free, accepted = [k] * queries, [places] * items, []
    flat = scores.double().numpy().ravel()
    for pair in np.argsort(-flat, kind="stable").tolist():
        query, item = divmod(pair, items)
        if flat[pair] > -np.inf and wishes[query] and free[item] and len(accepted) < most:
            wishes[query] -= 1
            free[item] -= 1
            accepted.append((query, item))
    return torch.tensor(accepted, dtype=torch.int64).reshape(-1, 2)


def ranked(scores, pairs):
    """Each query's items: the accepted ones in order, then the others in plain order."""
    lists = [[item for query, item in pairs.tolist() if query == row] for row in range(len(scores))]
    plain = scores.argsort(dim=1, descending=True, stable=True).tolist()
    return torch.tensor(
        [first + [item for item in rest if item not in first] for first, rest in zip(lists, plain, strict=True)]
    )


def with_hubs(queries, items, dim=24, seed=0, dtype=torch.float32):
    """Unit vectors, some of them drawn to a common direction, which makes hubs of them."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(dim, generator=generator, dtype=dtype)
    sides = []
    for count in (queries, items):
        pull = torch.randn(count, 1, generator=generator, dtype=dtype).exp()
        sides.append(torch.randn(count, dim, generator=generator, dtype=dtype) + pull * common)
    return [torch.nn.functional.normalize(side, dim=1) for side in sides]


@pytest.fixture
def small_parts(monkeypatch):
    """Every limit so low that lists are cut, run out and are asked for again, and blocks end anywhere."""
    monkeypatch.setattr(greedy, "LISTED", 1)
    monkeypatch.setattr(greedy, "MOST_LISTED", 1)
    monkeypatch.setattr(greedy, "FETCHED_ELEMENTS", 1)
    monkeypatch.setattr(greedy, "LEAST_FETCHED", 5)


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    arrays = golden(case)
    i2t = arrays["gallery_image"] @ arrays["gallery_caption"].T
    for direction, scores in (("i2t", i2t), ("t2i", i2t.T)):
        for k in (1, 5, 10):
            for relaxation in (1.0, 2.0, 3.5):
                pairs = RelaxedGreedyMatching(relaxation, "paper").match(scores, k)
                assert torch.equal(pairs, arrays[f"rgm_{direction}_k{k}_l{relaxation}"])


@pytest.mark.parametrize("limits", ["small_parts", None])
@settings(max_examples=40, deadline=None)
@given(
    queries=st.integers(1, 40),
    items=st.integers(1, 40),
    distinct=st.integers(1, 6),
    forbidden=st.booleans(),
    k=st.integers(1, 12),
    relaxation=st.sampled_from(["1", "1.5", "2", "3.5"]),
    capacity=st.sampled_from(["paper", "proportional"]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 2**20),
)
def test_the_sorted_algorithm(
    request, limits, queries, items, distinct, forbidden, k, relaxation, capacity, dtype, seed
):
    """Ties everywhere, zeros of both signs, pairs that may not match, more wishes than items, one row, one column."""
    if limits:
        request.getfixturevalue(limits)
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randint(distinct, (queries, items), generator=generator) - distinct // 2) / 4
    scores[torch.rand(scores.shape, generator=generator) < 0.1] *= -1
    if forbidden:
        scores[torch.rand(scores.shape, generator=generator) < 0.3] = -torch.inf
    scores = scores.to(dtype)
    criterion = RelaxedGreedyMatching(float(relaxation), capacity)
    pairs = criterion.match(scores, k)
    assert torch.equal(pairs, sorted_and_walked(scores, k, relaxation, capacity))
    assert torch.equal(
        criterion.rescore(scores, k=k).argsort(dim=1, descending=True, stable=True), ranked(scores, pairs)
    )
    assert torch.equal(criterion.rescore(scores, k=k) == -torch.inf, scores == -torch.inf)


@looped("shape", [(700, 140), (140, 700)])
@looped("capacity", ["paper", "proportional"])
def test_hubs_refuse_most(shape, capacity):
    """Lists run out at the default limits as well; every hub has many more queries than places."""
    queries, items = with_hubs(*shape)
    scores = queries @ items.T
    assert k_occurrences(scores, (10,))[10].max() > 2 * RelaxedGreedyMatching(1.0).places(*shape, 10)
    for relaxation in ("1", "2"):
        criterion = RelaxedGreedyMatching(float(relaxation), capacity)
        pairs = criterion.match(scores, 10)
        assert torch.equal(pairs, sorted_and_walked(scores, 10, relaxation, capacity))
        assert torch.bincount(pairs[:, 1]).max() == criterion.places(*shape, 10)


def in_turn(n=120):
    """The last query takes item 0 from query 0, who takes item 1 from query 1, and so on."""
    scores, step = torch.full((n + 1, n + 1), -1.0), torch.arange(n)
    scores[step, step], scores[step, step + 1] = 2.0 * (n - step), 2.0 * (n - step) - 1
    scores[step[1:] - 1, step[1:]] = 2.0 * (n - step[1:]) + 1
    scores[n, 0] = 3.0 * n
    return scores


def near_hubs(*shape):
    queries, items = with_hubs(*shape, dtype=torch.float64)
    return 2 * queries @ items.T - torch.arange(shape[1]) / 100


@looped(
    "scores",
    [
        torch.zeros(75, 15),
        torch.zeros(15, 75),
        torch.arange(20.0).repeat(50, 1),
        *(near_hubs(*shape) for shape in ((60, 25), (90, 40), (25, 60))),
        in_turn(),
    ],
)
@looped("k", [1, 4])
def test_lists_that_run_out_are_made_anew(scores, k, small_parts):
    """All queries alike; hubs that refuse queries here and there; one refusal that displaces everyone."""
    pairs = RelaxedGreedyMatching(1.0).match(scores, k)
    assert torch.equal(pairs, sorted_and_walked(scores, k, "1", "proportional"))


@looped("value", [0.0, -3.0, 1e-45, 3e38, -3.4e38, 1e300])
def test_accepted_items_stand_above_the_others(value):
    """Where all scores are equal, tiny or about the largest there is, in float32 as well."""
    scores = torch.full((6, 4), value, dtype=torch.float64 if abs(value) > 1e38 * 4 else torch.float32)
    pairs = RelaxedGreedyMatching(1.0).match(scores, 2)
    lifted = RelaxedGreedyMatching(1.0).rescore(scores, k=2)
    assert torch.isfinite(lifted).all()
    assert torch.equal(lifted.argsort(dim=1, descending=True, stable=True), ranked(scores, pairs))


def test_rows_that_need_no_lift_stay():
    scores = torch.tensor([[0.9, 0.1, 0.3], [0.8, 0.7, 0.2]])
    lifted = RelaxedGreedyMatching(1.0).rescore(scores, k=1)
    assert (lifted != scores).tolist() == [[False, False, False], [False, True, False]]
    assert lifted[1, 1] > 0.8


@looped("criterion", [RelaxedGreedyMatching(1.0), Chain([CSLS(k=3), RelaxedGreedyMatching(1.0)])])
@looped("shape", [(30, 13), (13, 30), (1, 7), (7, 1)])
def test_search_is_the_dense_ranking(shape, criterion, small_parts, monkeypatch):
    monkeypatch.setattr("vsehub.criteria.matching.base.ITEMS_AT_ONCE", 11)
    monkeypatch.setattr("vsehub.criteria.matching.base.BLOCK_ELEMENTS", 100)
    queries, items = with_hubs(*shape, dtype=torch.float64)
    products = queries @ items.T
    scores = criterion.correction.rescore(products)
    for k in {1, min(4, shape[1]), shape[1]}:
        values, positions = map(torch.from_numpy, criterion.search(queries.numpy(), items, k=k))
        assert torch.equal(positions, top_k(criterion.rescore(products, k=k), k)[1])
        torch.testing.assert_close(values, scores.gather(1, positions))


@looped(
    ("relaxation", "capacity", "shape", "k", "places"),
    [
        (1.0, "paper", (100, 20), 10, 10),
        (1.5, "paper", (20, 20), 1, 2),  # 1.5: to the even number
        (3.5, "paper", (20, 20), 5, 18),  # 17.5
        (2.5, "paper", (20, 20), 1, 2),
        (1.0, "proportional", (100, 20), 10, 50),
        (1.0, "proportional", (20, 100), 10, 10),
        (1.0, "proportional", (5, 2), 1, 2),  # 2.5
        (1.3, "proportional", (5, 3), 3, 6),  # 6.5, which in floating point is above it
        ({1: 1.0, 5: 2.0}, "paper", (20, 20), 5, 10),
    ],
)
def test_places(relaxation, capacity, shape, k, places):
    assert RelaxedGreedyMatching(relaxation, capacity).places(*shape, k) == places
