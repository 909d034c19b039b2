"""Boosts raise items by weights of the query, under every criterion that subtracts one number from an item's scores."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.criteria import CSLS, DualSoftmax, InvertedSoftmax, NearestNeighbor, Sinkhorn
from vsehub.criteria.boosts import MOST, SPREAD, Boosted, Boosts, BoostTable, stored_boosts
from vsehub.neighbors.faiss import load_faiss
from vsehub.serving import build_index, load_index, usage_note
from vsehub.serving.boosted_recall import BoostedRecall
from vsehub.serving.index_parts import IndexParts

M, Q, D, R, K = 70, 11, 6, 40, 5
NAMES = ("popularity", "freshness")


def unit(rows, seed, dtype=torch.float64):
    vectors = torch.randn(rows, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.3
    return torch.nn.functional.normalize(vectors, dim=1).to(dtype)


ITEMS, QUERIES, REFERENCE = unit(M, 1), unit(Q, 2), unit(R, 3)
# Of unlike sizes: a share, and seconds since 1970.
VALUES = np.stack([np.random.default_rng(0).random(M), 1.7e9 + 1e7 * np.random.default_rng(1).normal(size=M)], axis=1)
WEIGHTS = {"popularity": 0.7, "freshness": 2e-8}
CENTRED = torch.from_numpy(VALUES - VALUES.mean(axis=0))
RAISED = CENTRED @ torch.tensor([0.7, 2e-8], dtype=torch.float64)


def naive(criterion, raised=RAISED):
    """a·(s + raise) - b(item), without any of the code under test."""
    scores, seen = QUERIES @ ITEMS.T, REFERENCE @ ITEMS.T
    bias = criterion.bias(seen) if criterion.needs_reference else torch.zeros(M)
    return criterion.scale * (scores + raised) - bias


def best(scores, k=K):
    return scores.sort(dim=1, descending=True, stable=True)[1][:, :k]


CRITERIA = [NearestNeighbor(), CSLS(3), InvertedSoftmax(20.0), Sinkhorn(0.05, rounds=50)]


@pytest.mark.parametrize("criterion", CRITERIA[:3], ids=repr)
def test_a_search_under_weights_is_that_of_raised_similarities(criterion):
    search = CorrectedSearch(criterion, k=K).fit(ITEMS, reference=REFERENCE, boosts=VALUES, boost_names=NAMES)
    values, positions = search.search(QUERIES, boost_weights=WEIGHTS)
    wanted = naive(criterion)
    assert torch.equal(positions, best(wanted))
    torch.testing.assert_close(values, wanted.gather(1, positions), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
@pytest.mark.parametrize("reference", [REFERENCE, None], ids=["inductive", "transductive"])
def test_weights_of_zero_give_the_unboosted_ranking_bit_for_bit(criterion, reference):
    plain = CorrectedSearch(criterion, k=K).fit(ITEMS, reference=reference).search(QUERIES)
    search = CorrectedSearch(criterion, k=K).fit(ITEMS, reference=reference, boosts=VALUES, boost_names=NAMES)
    for weights in (None, {}, {"popularity": 0}, dict.fromkeys(NAMES, 0.0)):
        found = search.search(QUERIES, boost_weights=weights)
        assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))


def test_without_a_reference_the_queries_are_their_own():
    search = CorrectedSearch(CSLS(3), k=K).fit(ITEMS, boosts=VALUES, boost_names=NAMES)
    scores = QUERIES @ ITEMS.T
    wanted = 2 * (scores + RAISED) - CSLS(3).bias(scores)
    assert torch.equal(search.search(QUERIES, boost_weights=WEIGHTS)[1], best(wanted))


def test_items_come_and_go_with_their_boosts(tmp_path):
    given = {"boosts": VALUES[:50], "boost_names": NAMES}
    first = CorrectedSearch(CSLS(3), k=K).fit(ITEMS[:50], reference=REFERENCE, **given)
    whole = first.add(ITEMS[50:], boosts=VALUES[50:]).remove([3, 60])
    stay = [row for row in range(M) if row not in (3, 60)]
    mean = torch.from_numpy(VALUES[:50].mean(axis=0))
    raised = (torch.from_numpy(VALUES[stay]) - mean) @ torch.tensor([0.7, 2e-8], dtype=torch.float64)
    wanted = 2 * (QUERIES @ ITEMS[stay].T + raised) - CSLS(3).bias(REFERENCE @ ITEMS[stay].T)
    found = whole.search(QUERIES, boost_weights=WEIGHTS)
    assert torch.equal(found[1], best(wanted))
    whole.save(tmp_path / "search.safetensors")
    again = CorrectedSearch.load(tmp_path / "search.safetensors").search(QUERIES, boost_weights=WEIGHTS)
    assert torch.equal(again[1], found[1])
    assert torch.equal(again[0], found[0])


@pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
@pytest.mark.parametrize("criterion", [NearestNeighbor(), CSLS(3)], ids=repr)
def test_an_index_holds_them_and_its_note_asks_for_them(kind, criterion, tmp_path, monkeypatch):
    bias = criterion.bias(REFERENCE @ ITEMS.T)
    table = BoostTable.of(NAMES, VALUES, M)
    index = build_index(ITEMS.float(), bias, criterion.scale, kind, boosts=table)
    index.save(tmp_path / "index.faiss")
    index = load_index(tmp_path / "index.faiss")
    assert index.facts.boosts == table.boosts
    for corrected in (True, False):
        for weights, raised in ((WEIGHTS, RAISED), (None, 0 * RAISED)):
            wanted = naive(criterion if corrected else NearestNeighbor(), raised)
            values, positions = index.search(QUERIES.float(), K, corrected, weights)
            assert torch.equal(positions, best(wanted))
            torch.testing.assert_close(values.double(), wanted.gather(1, positions), rtol=1e-4, atol=1e-4)
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", QUERIES.numpy())
    code = usage_note(index, k=K)
    assert '"popularity": 0.0, "freshness": 0.0' in code
    for weights in ({}, WEIGHTS):
        own = code
        for name, weight in weights.items():
            own = own.replace(f'"{name}": 0.0', f'"{name}": {weight}')
        found: dict = {}
        exec(own, found)
        wanted = naive(criterion, RAISED if weights else 0 * RAISED)
        assert np.array_equal(found["positions"], best(wanted).numpy())
        np.testing.assert_allclose(found["scores"], wanted.gather(1, best(wanted)).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")
def test_an_index_in_parts_has_the_same_boosts_everywhere(tmp_path):
    bias, table = CSLS(3).bias(REFERENCE @ ITEMS.T), BoostTable.of(NAMES, VALUES, M)
    parts = IndexParts.build(tmp_path, ITEMS.float(), bias, 2.0, "flat", 23, boosts=table)
    assert torch.equal(parts.search(QUERIES.float(), K, True, WEIGHTS)[1], best(naive(CSLS(3))))


@pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")
def test_an_index_of_bytes_has_no_room_for_them():
    items = unit(300, 5).float()
    with pytest.raises(InputError, match="ivfpq stores a byte for two dimensions, too few for boosts"):
        build_index(items, torch.zeros(300), 1.0, "ivfpq", boosts=BoostTable.of(["a"], np.arange(300.0), 300))


@pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")
def test_recall_under_weights_against_a_loop(tmp_path):
    items, queries, reference = unit(1500, 5).float(), unit(30, 6).float(), unit(40, 7).float()
    values = np.stack([np.random.default_rng(2).lognormal(size=1500), np.arange(1500.0)], axis=1)
    bias, table = CSLS(3).bias(reference @ items.T), BoostTable.of(NAMES, values, 1500)
    index = build_index(items, bias, CSLS.scale, "ivf", boosts=table)
    index._index.nprobe = 3
    found = BoostedRecall.of(index, queries, items, bias, CSLS.scale, K, table, reach=0.05)
    assert found.moved == (0.01, 0.03, 0.05)
    centred = (values - values.mean(axis=0)) / values.std(axis=0)
    shares = []
    for moved in (0.0, *found.moved):
        scores = 2 * (queries @ items.T).numpy() - bias.numpy() + 2 * moved * centred.sum(axis=1)
        weights = {name: moved / spread for name, spread in zip(NAMES, values.std(axis=0), strict=True)}
        lists = index.search(queries, K, True, weights)[1].tolist()
        best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
        shares.append(
            np.mean([len(set(one) & set(other)) / K for one, other in zip(lists, best.tolist(), strict=True)])
        )
    assert [found.unweighted, *found.shares] == pytest.approx(shares)
    assert found.shares[-1] < found.unweighted - 0.01
    with pytest.raises(InputError, match=r"boosts: ivf is approximate.* or take flat, which is exact"):
        found.require_held("ivf", "boosts.reach", "flat")

    search = CorrectedSearch(CSLS(3), k=K).fit(items, reference=reference, boosts=values, boost_names=NAMES)
    with pytest.raises(InputError, match="boost_reach is -1; expected a number above 0"):
        search.export(tmp_path / "index.faiss", "ivf", boost_reach=-1)
    search.export(tmp_path / "index.faiss", "ivf", boost_reach=1e-6)
    before = (tmp_path / "index.faiss").read_bytes()
    with pytest.raises(InputError, match=r"set a? ?(smaller )?boost_reach.*, or take flat, which is exact"):
        search.export(tmp_path / "index.faiss", "ivf", boost_reach=3.0, overwrite=True)
    assert (tmp_path / "index.faiss").read_bytes() == before
    search.export(tmp_path / "flat.faiss", boost_reach=3.0)


def test_how_many_amounts_hold():
    for shares, held in (((0.99, 0.985, 0.2), 1), ((0.98, 1.0, 1.0), 0), ((0.99, 0.99, 1.0), 3)):
        assert BoostedRecall(10, 1.0, (0.01, 0.03, 0.1), shares, ({},) * 3).held == held


def test_what_is_stored_is_small_and_centred():
    stored = BoostTable.of(NAMES, VALUES, M).stored()
    torch.testing.assert_close(stored.abs().amax(dim=0), torch.full((2,), SPREAD))
    assert stored.mean(dim=0).abs().max() < 1e-8


def test_a_criterion_with_boosts_fits_and_says_its_weights():
    for criterion in CRITERIA:
        boosted = Boosted(criterion, RAISED, WEIGHTS)
        values, positions = boosted.search(QUERIES, ITEMS, REFERENCE, K)
        base = criterion.search(QUERIES, ITEMS, REFERENCE, K)
        assert boosted.parameters() == criterion.parameters() | {"boost_weights": WEIGHTS}
        same = Boosted(criterion, 0 * RAISED, {}).search(QUERIES, ITEMS, REFERENCE, K)
        assert torch.equal(same[1], base[1])
        assert not torch.equal(positions, base[1])
        assert values.shape == (Q, K)
        # Unfinished work is known by it: other numbers under equal weights are another ranking.
        assert repr(boosted) == repr(Boosted(criterion, RAISED.clone(), WEIGHTS))
        assert repr(boosted) != repr(Boosted(criterion, 2 * RAISED, WEIGHTS))


def test_a_boost_that_is_the_same_for_all_is_said(caplog):
    table = BoostTable.of(["a", "b"], np.stack([np.ones(4), np.arange(4.0)], axis=1), 4)
    assert "a is the same for all items" in caplog.text
    assert table.boosts.scales[0] == 1.0
    assert table.raised({"a": 5.0}).abs().max() == 0


@pytest.mark.parametrize(
    ("names", "values", "said"),
    [
        (["a"], np.array([[1.0], [np.nan]]), "a of item 1, counted from 0, is nan"),
        (["a"], np.array([[1.0], [np.inf]]), "is inf; expected a number"),
        (["a", "b"], np.zeros((2, 1)), r"the shape \(2, 1\); expected \(2, 2\)"),
        (["a"], np.zeros((3, 1)), r"the shape \(3, 1\); expected \(2, 1\)"),
        (["a"], np.array([["x"], ["y"]]), "expected numbers"),
        (["a"], [[None], [1]], "expected numbers"),
        (["a", "a"], np.zeros((2, 2)), "a name repeats"),
        (["a; drop"], np.zeros((2, 1)), "is no name"),
        (["é"], np.zeros((2, 1)), "is no name"),
        (list(map("b{}".format, range(MOST + 1))), np.zeros((2, MOST + 1)), f"at most {MOST}"),
    ],
)
def test_boosts_that_are_none(names, values, said):
    with pytest.raises(InputError, match=said):
        BoostTable.of(names, values, 2)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"popularty": 1.0}, r"'popularty' is no boost \(did you mean popularity\?\); there are popularity, freshness"),
        ({"popularity": float("nan")}, "popularity is nan; expected a number"),
        ({"popularity": "0.1"}, "popularity is '0.1'; expected a number"),
        ({"popularity": True}, "popularity is True; expected a number"),
        ([0.1], r"boost_weights is \[0.1\]; expected a weight for each boost"),
    ],
)
def test_weights_that_are_none(weights, said):
    search = CorrectedSearch(CSLS(3)).fit(ITEMS, reference=REFERENCE, boosts=VALUES, boost_names=NAMES)
    with pytest.raises(InputError, match=said):
        search.search(QUERIES, boost_weights=weights)


def test_what_the_search_refuses():
    fitted = CorrectedSearch(CSLS(3)).fit(ITEMS, reference=REFERENCE)
    with pytest.raises(InputError, match="'popularity' is no boost; there are none"):
        fitted.search(QUERIES, boost_weights={"popularity": 0.1})
    with pytest.raises(InputError, match="have none; leave boosts out"):
        fitted.add(ITEMS, boosts=VALUES)
    with pytest.raises(InputError, match="belong together"):
        CorrectedSearch().fit(ITEMS, boosts=VALUES)
    boosted = CorrectedSearch(CSLS(3)).fit(ITEMS, reference=REFERENCE, boosts=VALUES, boost_names=NAMES)
    with pytest.raises(InputError, match="have boosts; give those of new items too"):
        boosted.add(ITEMS)
    dual = CorrectedSearch(DualSoftmax()).fit(ITEMS, boosts=VALUES, boost_names=NAMES)
    with pytest.raises(InputError, match="does not subtract one number from an item's scores"):
        dual.search(QUERIES, boost_weights=WEIGHTS)


def test_a_calibration_is_void_under_weights():
    """Its scores are without boosts: weights of 0 leave it, others are refused beside it."""
    search = CorrectedSearch(CSLS(3), k=K).fit(ITEMS, reference=REFERENCE, boosts=VALUES, boost_names=NAMES)
    search.calibrate(unit(M, 4), torch.arange(M))
    for asked in ({"p_values": True}, {"accept": 0.1}):
        with pytest.raises(InputError, match="the calibration is of scores without boosts"):
            search.search(QUERIES, boost_weights=WEIGHTS, **asked)
    plain = CorrectedSearch(CSLS(3), k=K).fit(ITEMS, reference=REFERENCE).calibrate(unit(M, 4), torch.arange(M))
    found = search.search(QUERIES, p_values=True, boost_weights=dict.fromkeys(NAMES, 0))
    assert all(torch.equal(*both) for both in zip(found, plain.search(QUERIES, p_values=True), strict=True))
    search.add(ITEMS[:1], boosts=VALUES[:1])
    with pytest.raises(InputError, match="not calibrated, or fit, tune, add, remove or another normalize"):
        search.search(QUERIES, p_values=True)


def test_tune_chooses_the_weights_that_answers_ask_for(tmp_path):
    """Answers are popular items; the other boost is noise."""
    random = torch.Generator().manual_seed(5)
    popular, noise = torch.rand(2, M, generator=random, dtype=torch.float64)
    truth = torch.multinomial(popular**8, 200, replacement=True, generator=random)
    queries = torch.nn.functional.normalize(ITEMS[truth] + 0.5 * torch.randn(200, D, generator=random), dim=1)
    given = {"boosts": torch.stack([popular, noise], dim=1), "boost_names": NAMES}
    search = CorrectedSearch(CSLS(3), k=1).fit(ITEMS, reference=REFERENCE, **given)
    with pytest.raises(AttributeError, match="after tune of items with boosts"):
        search.boost_weights_  # noqa: B018
    search.tune(queries[:100], truth[:100])
    weights = search.boost_weights_
    assert weights["popularity"] > 5 * abs(weights["freshness"])
    right = [
        (search.search(queries[100:], boost_weights=one)[1][:, 0] == truth[100:]).double().mean()
        for one in (None, weights)
    ]
    assert right[1] > right[0] + 0.1
    search.save(tmp_path / "search")
    assert CorrectedSearch.load(tmp_path / "search").boost_weights_ == weights
    for wrong in ({"popularity": 0.1}, weights | {"more": 0.1}, dict.fromkeys(NAMES, "0.1"), list(NAMES)):
        changed(tmp_path / "search", weights=wrong)
        with pytest.raises(InputError, match=r"the description in .* is damaged"):
            CorrectedSearch.load(tmp_path / "search")


def changed(path, **told):
    """The file with other facts in its description."""
    with safe_open(path, framework="pt") as file:
        facts, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts["description"] = json.dumps(json.loads(facts["description"]) | told)
    save_file(arrays, path, facts)


def test_what_a_file_says_of_boosts_is_checked():
    sound = {"names": ["a"], "means": [0.0], "scales": [1.0]}
    assert stored_boosts(sound) == Boosts(("a",), (0.0,), (1.0,))
    for change in (
        {"names": ["a", "b"]},
        {"names": ['a"] + evil() #']},
        {"means": ["0"]},
        {"means": [float("inf")]},
        {"scales": [0.0]},
        {"scales": [True]},
        {"names": ["a"] * 99, "means": [0.0] * 99, "scales": [1.0] * 99},
    ):
        with pytest.raises(TypeError):
            stored_boosts(sound | change)
