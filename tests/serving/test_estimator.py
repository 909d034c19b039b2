"""The estimator must give what `Criterion.search` gives, whatever was fitted, added, tuned, saved and loaded."""

import copy
import inspect
import itertools
import json
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from looped import looped
from safetensors import safe_open
from safetensors.torch import save_file

import vsehub
from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.components import Components, conf_folder
from vsehub.criteria import (
    CSLS,
    NNN,
    DualInvertedSoftmax,
    DualSoftmax,
    GreedyMatching,
    InvertedSoftmax,
    ItemBias,
    MutualProximity,
    RelaxedGreedyMatching,
    Sinkhorn,
    choose,
)
from vsehub.criteria import base as criteria_base
from vsehub.data.vectors.embeddings import open_vectors
from vsehub.neighbors import defined, in_memory, tiles
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.neighbors.vectors import Chosen, Concatenated, as_vectors
from vsehub.serving import estimator_file, fitted, load_index

CONF = Components([conf_folder()])
NAMES = CONF.choices("criterion")


def unit(rows, seed, dim=8):
    """Unit vectors that share an offset: some are hubs."""
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=generator) + 0.3, dim=1)


def built(name):
    return CONF.build("criterion", CONF.node("criterion", name))


INDUCTIVE = [name for name in NAMES if built(name).inductive]
COUPLED = ["sinkhorn", "dbsn", "dual_is", "qb_norm"]  # an item's terms depend on the other items
ALONE = [name for name in INDUCTIVE if name not in COUPLED]
QUERIES, ITEMS, REFERENCE = unit(23, 1), unit(60, 2), unit(31, 3)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert torch.equal(one, other)


def test_names():
    assert len(INDUCTIVE) >= 11
    assert len(NAMES) - len(INDUCTIVE) >= 5


@looped("name", INDUCTIVE)
@looped("wide", [False, True])
def test_with_a_reference_it_is_the_criterions_search(name, wide):
    sides = [side.double() if wide else side for side in (QUERIES, ITEMS, REFERENCE)]
    wanted = built(name).search(*sides, 7)
    search = CorrectedSearch(name, k=7).fit(sides[1], reference=sides[2])
    same(search.search(sides[0]), wanted)
    same(search.search(sides[0], 3), built(name).search(*sides, 3))
    assert all(len(term) == len(ITEMS) for term in search.item_terms_)
    assert (search.n_features_in_, search.ids_) == (8, None)


@looped("name", NAMES)
def test_without_a_reference_each_search_is_its_own(name):
    search = CorrectedSearch(name).fit(ITEMS)
    assert search.item_terms_ is None
    for queries in (QUERIES, unit(5, 9)):
        same(search.search(queries, 4), built(name).search(queries, ITEMS, None, 4))


def test_the_reference_is_not_scored_again(monkeypatch):
    """A search multiplies queries with items, and nothing else."""
    products = []
    for module, name in ((criteria_base, "score_columns"), (criteria_base, "nearest")):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, name=name, whole=whole: products.append(name) or whole(*args))
    search = CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE)
    assert products == ["score_columns"]
    search.search(QUERIES)
    search.search(QUERIES)
    assert products == ["score_columns", "nearest", "nearest"]


def test_arrays_maps_tensors_and_files(tmp_path):
    wanted = CSLS(k=3).search(QUERIES, ITEMS, REFERENCE, 5)
    for name, side in (("queries", QUERIES), ("items", ITEMS), ("reference", REFERENCE)):
        np.save(tmp_path / f"{name}.npy", side.numpy())
    np.savez(tmp_path / "all.npz", i=ITEMS.numpy(), r=REFERENCE.numpy())
    search = CorrectedSearch(CSLS(k=3), k=5)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for items, reference in (
        (ITEMS.numpy(), REFERENCE),
        (mapped, REFERENCE.numpy()),
        (tmp_path / "items.npy", str(tmp_path / "reference.npy")),
        (f"{tmp_path / 'all.npz'}::i", f"{tmp_path / 'all.npz'}::r"),
        (open_vectors(tmp_path / "items.npy", "items"), as_vectors("reference", REFERENCE)),
    ):
        search.fit(items, reference=reference)
        same(search.search(QUERIES), wanted)
        same(search.search(QUERIES.numpy()), [side.numpy() for side in wanted])
        same(search.search(tmp_path / "queries.npy"), wanted)
    half = search.fit(ITEMS.half(), reference=REFERENCE.numpy().astype("float16")).search(QUERIES.bfloat16())
    same(half, CSLS(k=3).search(QUERIES.bfloat16(), ITEMS.half(), REFERENCE.half(), 5))


@looped("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@looped("name", INDUCTIVE)
def test_on_a_device(device, name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    np.save(folder / "items.npy", ITEMS.numpy())
    np.save(folder / "queries.npy", QUERIES.numpy())
    wanted = built(name).search(QUERIES.to(device), ITEMS, REFERENCE.to(device))
    search = CorrectedSearch(name, device=device).fit(folder / "items.npy", reference=REFERENCE)
    for queries in (QUERIES, folder / "queries.npy"):
        found = search.search(queries)
        assert found[0].device.type == device
        same(found, wanted)
    search.save(folder / "search")
    same(CorrectedSearch.load(folder / "search", device).search(QUERIES), wanted)
    # Terms of one device serve queries of another, whose products are rounded otherwise.
    elsewhere = search.set_params(device=None).search(QUERIES)[0]
    torch.testing.assert_close(elsewhere, wanted[0].cpu(), rtol=1e-4, atol=1e-5)


def test_normalize():
    scaled = [side * torch.linspace(0.5, 9, len(side))[:, None] for side in (QUERIES, ITEMS, REFERENCE)]
    with pytest.raises(InputError, match=r"items: the norms of the rows lie between 0\.5 and 9; .*normalize"):
        CorrectedSearch().fit(scaled[1], reference=scaled[2])
    found = CorrectedSearch(normalize=True).fit(scaled[1], reference=scaled[2]).search(scaled[0])
    wanted = CSLS().search(QUERIES, ITEMS, REFERENCE)
    assert torch.equal(found[1], wanted[1])
    torch.testing.assert_close(found[0], wanted[0])
    same(CorrectedSearch(normalize=False).fit(scaled[1], reference=scaled[2]).search(scaled[0]), CSLS().search(*scaled))
    with pytest.raises(InputError, match="queries: the norms of the rows"):
        CorrectedSearch().fit(ITEMS, reference=REFERENCE).search(scaled[0])


@looped("name", ALONE)
def test_adding_is_fitting_on_all_at_once(name):
    ids = [f"item {n}" for n in range(60)]
    whole = CorrectedSearch(name, k=9).fit(ITEMS, reference=REFERENCE, ids=ids)
    grown = CorrectedSearch(name, k=9).fit(ITEMS[:20], reference=REFERENCE, ids=ids[:20])
    grown.add(ITEMS[20:21].numpy(), ids[20:21]).add(ITEMS[21:], ids[21:])
    assert grown.ids_ == ids
    assert len(grown.items_) == 60
    for term, wanted in zip(grown.item_terms_, whole.item_terms_, strict=True):
        torch.testing.assert_close(term, wanted)
    (values, positions), (same_values, same_positions) = grown.search(QUERIES), whole.search(QUERIES)
    assert torch.equal(positions, same_positions)
    torch.testing.assert_close(values, same_values)


def test_adding_scores_only_what_is_new(monkeypatch):
    search = CorrectedSearch("csls").fit(ITEMS[:40], reference=REFERENCE)
    seen = []
    whole = criteria_base.score_columns
    monkeypatch.setattr(
        criteria_base, "score_columns", lambda *args: seen.append([len(side) for side in args[:2]]) or whole(*args)
    )
    search.add(ITEMS[40:])
    assert seen == [[len(REFERENCE), 20]]


@looped("name", COUPLED)
def test_items_whose_terms_depend_on_the_others_neither_come_nor_go(name):
    search = CorrectedSearch(name).fit(ITEMS[:40], reference=REFERENCE)
    for change in (lambda: search.add(ITEMS[40:]), lambda: search.remove([0])):
        with pytest.raises(InputError, match="depend on the other items; fit anew"):
            change()
    assert len(search.items_) == 40


@looped("name", ALONE)
def test_removing_is_fitting_on_the_others(name):
    """Items of several blocks, of which one disappears whole, one in part and one stays."""
    ids = np.array([f"item {n}" for n in range(60)])
    gone = [*range(20, 30), 3, 45, 59]
    rest = np.setdiff1d(np.arange(60), gone)
    whole = CorrectedSearch(name, k=9).fit(ITEMS[rest], reference=REFERENCE, ids=ids[rest])
    for marks in (ids, None):
        named = None if marks is None else list(ids)
        parts = CorrectedSearch(name, k=9).fit(ITEMS[:20], reference=REFERENCE, ids=named and named[:20])
        parts.add(ITEMS[20:30], named and named[20:30]).add(ITEMS[30:], named and named[30:])
        parts.remove([named[place] for place in gone] if named else np.array(gone))
        assert parts.ids_ == (named and whole.ids_)
        for term, wanted in zip(parts.item_terms_, whole.item_terms_, strict=True):
            torch.testing.assert_close(term, wanted)
        (values, positions), (same_values, same_positions) = parts.search(QUERIES), whole.search(QUERIES)
        assert torch.equal(positions, same_positions)
        torch.testing.assert_close(values, same_values)
        again = parts.add(ITEMS[gone], named and [named[place] for place in gone])
        assert len(again.items_) == 60


def test_rows_of_a_large_map_are_removed_without_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(fitted, "BLOCK", 16)
    np.save(tmp_path / "items.npy", ITEMS.numpy())
    search = CorrectedSearch("csls").fit(np.load(tmp_path / "items.npy", mmap_mode="r"), reference=REFERENCE)
    search.remove([5]).remove([58])
    (part,) = search.items_.parts
    assert isinstance(part, Chosen)
    rest = [place for place in range(60) if place not in (5, 59)]
    same(search.search(QUERIES), CSLS().search(QUERIES, ITEMS[rest], REFERENCE))


def test_ids_are_returned():
    ids = [f"i{n}" for n in range(60)]
    search = CorrectedSearch(k=3).fit(ITEMS, reference=REFERENCE, ids=ids)
    positions = search.search(QUERIES)[1]
    values, found = search.search(QUERIES.numpy(), return_ids=True)
    assert isinstance(values, np.ndarray)
    assert found == [[ids[place] for place in row] for row in positions.tolist()]
    first = found[0][0]
    assert search.remove([first]).search(QUERIES, return_ids=True)[1][0][:2] == found[0][1:]


def test_many_additions_leave_few_blocks():
    search = CorrectedSearch("csls").fit(ITEMS[:1], reference=REFERENCE)
    for row in range(1, 60):
        search.add(ITEMS[row : row + 1])
    assert len(search.items_.parts) <= 6  # log2(60)
    whole = CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE)
    torch.testing.assert_close(search.search(QUERIES)[0], whole.search(QUERIES)[0])
    assert torch.equal(search.search(QUERIES)[1], whole.search(QUERIES)[1])
    large = torch.nn.functional.normalize(torch.randn(fitted.BLOCK, 2), dim=1)
    search = CorrectedSearch("nns").fit(large).add(large[:1])
    assert search.items_.parts[0].rows(0, 1).data_ptr() == large.data_ptr()  # not copied


def test_threads_search_while_others_change_the_items():
    """Each answer is that of some state that was there: terms, vectors and ids of one moment."""
    ids = [f"i{n}" for n in range(60)]
    sizes = [10, *range(12, 62, 2)]
    wanted = {
        size: CorrectedSearch("csls", k=4)
        .fit(ITEMS[:size], reference=REFERENCE, ids=ids[:size])
        .search(QUERIES, return_ids=True)
        for size in sizes
    }
    search = CorrectedSearch("csls", k=4).fit(ITEMS[:10], reference=REFERENCE, ids=ids[:10])
    ended, seen = threading.Event(), []

    def look():
        while not ended.is_set():
            seen.append(search.search(QUERIES, return_ids=True))

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(look) for _ in range(8)]
        try:
            for _ in range(8):
                for start, stop in itertools.pairwise(sizes):
                    search.add(ITEMS[start:stop], ids[start:stop])
                search.remove(ids[10:])
        finally:
            ended.set()
        for one in running:
            one.result()
    assert len(seen) > 8
    for values, found in seen:
        assert any(found == names and torch.allclose(values, scores) for scores, names in wanted.values())


def test_changes_of_several_threads_are_all_kept():
    search = CorrectedSearch("csls").fit(ITEMS[:20], reference=REFERENCE, ids=[f"i{n}" for n in range(20)])
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda row: search.add(ITEMS[row : row + 1], [f"i{row}"]), range(20, 60)))
    assert sorted(search.ids_) == sorted(f"i{n}" for n in range(60))
    order = [int(one[1:]) for one in search.ids_]
    torch.testing.assert_close(search.search(QUERIES)[0], CSLS().search(QUERIES, ITEMS[order], REFERENCE)[0])


def test_lists_and_data_frames():
    pandas = pytest.importorskip("pandas")
    wanted = CorrectedSearch(k=3).fit(ITEMS, reference=REFERENCE).search(QUERIES.numpy())
    frames = [pandas.DataFrame(side.numpy()) for side in (ITEMS, REFERENCE, QUERIES)]
    same(CorrectedSearch(k=3).fit(frames[0], reference=frames[1]).search(frames[2]), wanted)
    lists = [side.tolist() for side in (ITEMS, REFERENCE, QUERIES)]
    same(CorrectedSearch(k=3).fit(lists[0], reference=lists[1]).search(lists[2]), wanted)
    same(CorrectedSearch(k=3).fit(list(ITEMS.numpy()), reference=lists[1]).search(list(QUERIES.numpy())), wanted)


def test_adding_without_a_reference():
    search = CorrectedSearch("sinkhorn").fit(ITEMS[:40]).add(ITEMS[40:])
    assert search.item_terms_ is None
    same(search.search(QUERIES), Sinkhorn().search(QUERIES, ITEMS))


def test_concatenated_rows():
    for sizes in ((1,), (3, 1, 4), (1, 1, 1, 1), (5, 2)):
        rows = torch.arange(sum(sizes) * 2.0).view(-1, 2)
        joined = Concatenated([as_vectors("rows", part) for part in rows.split(sizes)])
        assert joined.shape == tuple(rows.shape)
        for start in range(len(rows) + 1):
            for stop in range(start, len(rows) + 1):
                assert torch.equal(joined.rows(start, stop), rows[start:stop])


def test_ids(tmp_path):
    np.savez(tmp_path / "items.npz", vectors=ITEMS.numpy(), ids=np.array([f"i{n}" for n in range(60)]))
    search = CorrectedSearch().fit(tmp_path / "items.npz", reference=REFERENCE)
    assert search.ids_[:2] == ["i0", "i1"]
    assert CorrectedSearch().fit(ITEMS[:2], ids=np.array(["b", "a"])).ids_ == ["b", "a"]
    new = unit(2, 8)
    for ids, message in (
        (None, "ids: the items that are there have ids; give one for each new item too"),
        (["x"], "ids are 1 for 2 items"),
        ("xy", "ids are 2 for 2 items; expected one text for each item"),
        ([1, 2], "expected one text for each item"),
        (["x", "x"], "'x' comes twice"),
        (["x", "i3"], r"ids: \['i3'\] are there already; remove them first"),
    ):
        with pytest.raises(InputError, match=message):
            search.add(new, ids)
        assert len(search.items_) == len(search.ids_) == len(search.item_terms_[0]) == 60
    with pytest.raises(InputError, match="have none; leave ids out"):
        CorrectedSearch().fit(ITEMS).add(new, ["x", "y"])


# Tuning


def correlated(rows, seed, noise=0.6):
    """Queries near the items of `ITEMS` that answer them, and the positions of these."""
    truth = torch.randint(len(ITEMS), (rows,), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(ITEMS[truth] + noise * unit(rows, seed + 100), dim=1), truth


def places(criterion, queries, reference, truth):
    """The place of each query's item among its ranking, from 1, items of equal score counted as better."""
    scores = criterion.rescore(
        queries @ ITEMS.T,
        None if reference is None else reference @ ITEMS.T,
        reference_item_scores=ITEMS @ ITEMS.T if criterion.reference_items_as == "rows" else None,
    )
    return [int((row >= row[item]).sum()) for row, item in zip(scores, truth.tolist(), strict=True)]


def loop(criterion, ranked, rows):
    """What the rule takes of the criterion as it is and with each other setting, and all with their figures."""
    settings = [own for own in criterion.grid() if own.get("k", 1) <= rows]
    listed = [
        criterion.parameters(),
        *(own for own in settings if criterion.parameters() | own != criterion.parameters()),
    ]
    values, tried = [], []
    for own in listed:
        found = ranked(criterion.with_parameters(**own))
        values.append([1 / place for place in found])
        mean = sum(values[-1]) / len(found)
        tried.append((criterion.parameters() | own, mean, 100 * sum(place == 1 for place in found) / len(found)))
    taken, lead = 0, 0.0
    for number, own in enumerate(values):
        gains = [one - other for one, other in zip(own, values[0], strict=True)]
        mean, error = statistics.mean(gains), statistics.stdev(gains) / len(gains) ** 0.5
        if mean > error and mean > lead:
            taken, lead = number, mean
    return tried[taken][0], tried


def told(search):
    return [(one.parameters, one.mrr, one.r1) for one in search.tried_]


@looped("criterion", [CSLS(k=3), InvertedSoftmax(), NNN(k=8), Sinkhorn(), DualSoftmax(), DualInvertedSoftmax()])
@looped("seed", range(3))
def test_tuning_is_a_loop_over_the_grid(criterion, seed):
    queries, truth = correlated(60, seed)
    for reference in (unit(40, 7), None) if isinstance(criterion, CSLS) else (unit(40, 7),):
        wanted, tried = loop(
            criterion, lambda one, own=reference: places(one, queries, own, truth), 60 if reference is None else 40
        )
        search = CorrectedSearch(criterion).fit(ITEMS, reference=reference).tune(queries, truth)
        assert search.criterion_.parameters() == wanted
        assert told(search) == [(own, pytest.approx(mrr), pytest.approx(r1)) for own, mrr, r1 in tried]
        chosen = criterion.with_parameters(**wanted)
        same(search.search(QUERIES), chosen.search(QUERIES, ITEMS, reference))
        assert search.criterion is criterion  # the constructor's arguments stay as they were given


def test_settings_that_a_criterion_has_are_kept_unless_others_are_better():
    queries, truth = correlated(60, 0)
    for parameters in ({"k": 7}, {"k": 20}):
        search = CorrectedSearch("csls", parameters=parameters).fit(ITEMS, reference=unit(40, 7)).tune(queries, truth)
        assert search.tried_[0].parameters == parameters
        assert [one.name for one in search.tried_] == ["csls"] * len(search.tried_)
        assert len({str(one.parameters) for one in search.tried_}) == len(search.tried_)


def test_queries_of_the_reference_are_left_out_of_it(monkeypatch):
    """With as many folds as queries, each is searched with a reference of all others."""
    queries, truth = correlated(60, 5)
    queries[7], truth[7] = queries[3].clone(), truth[3].clone()  # a caption that was written twice
    monkeypatch.setattr(choose, "FOLDS", 1000)

    def without(criterion):
        found = []
        for row in range(len(queries)):
            others = queries[~(queries == queries[row]).all(dim=1)]
            found += places(criterion, queries[row : row + 1], others, truth[row : row + 1])
        return found

    wanted, tried = loop(CSLS(), without, 58)
    search = CorrectedSearch("csls").fit(ITEMS, reference=queries).tune(queries, truth)
    assert told(search) == [(own, pytest.approx(mrr), pytest.approx(r1)) for own, mrr, r1 in tried]
    leaking = [places(CSLS(**own), queries, queries, truth) for own, *_ in tried]
    assert [one[1] for one in told(search)] != [statistics.mean(1 / place for place in own) for own in leaking]
    assert search.criterion_.parameters() == wanted
    with pytest.raises(InputError, match="holds no query but those that are chosen by"):
        CorrectedSearch("csls").fit(ITEMS, reference=queries[:1]).tune(queries[:1].expand(60, -1), truth[:1].expand(60))


def test_kinds_of_truth(tmp_path):
    queries, truth = correlated(80, 2)
    pairs = torch.stack((torch.arange(80), truth), dim=1)
    mask = torch.zeros(80, 60, dtype=torch.bool)
    mask[pairs[:, 0], pairs[:, 1]] = True
    (tmp_path / "pairs.csv").write_text("query,item\n" + "".join(f"{q},{i}\n" for q, i in pairs.tolist()))
    found = [
        CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE).tune(queries, one).tried_
        for one in (
            truth,
            truth.numpy(),
            truth.tolist(),
            pairs,
            pairs.tolist(),
            mask,
            mask.numpy(),
            tmp_path / "pairs.csv",
        )
    ]
    assert all(one == found[0] for one in found)
    some = (
        CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE).tune(queries, pairs[:55]).tried_
    )  # 25 have no known answer
    expected = places(CSLS(), queries[:55], REFERENCE, truth[:55])
    assert some[0].r1 == pytest.approx(100 * sum(place == 1 for place in expected) / 55)
    search = CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE)
    for one, message in (
        (truth[:19], r"truth is torch.int64 \(19,\); expected the position of each query's item \(80,\), pairs"),
        (pairs[:49], "49 queries with a known answer are too few to choose by; expected at least 50"),
        (truth + 60, "truth: item holds positions .*; expected 0 to 59"),
        (truth - 60, "truth: item holds positions"),
        (truth.double(), "truth: item is torch.float64; expected whole numbers"),
        (mask[:, :9], r"truth is torch.bool \(80, 9\)"),
        (["a"] * 80, "truth is list; expected positions, pairs or a mask"),
        (None, "truth is NoneType; expected positions"),
        (tmp_path / "absent.csv", "truth: no such file"),
    ):
        with pytest.raises(InputError, match=message):
            search.tune(queries, one)
    assert not hasattr(search, "tried_")
    with pytest.raises(InputError, match="MutualProximity has no settings to tune"):
        CorrectedSearch(MutualProximity()).fit(ITEMS, reference=REFERENCE).tune(queries, truth)
    with pytest.raises(InputError, match="GreedyMatching has no settings to tune"):
        CorrectedSearch("gm").fit(ITEMS).tune(queries, truth)
    with pytest.raises(InputError, match=r"RelaxedGreedyMatching\(.* matches queries and items; tune chooses settings"):
        CorrectedSearch("rgm").fit(ITEMS).tune(queries, truth)


# Manners of scikit-learn


def cloned(estimator):
    """What sklearn.base.clone does with an estimator without `__sklearn_clone__`."""
    params = {name: copy.deepcopy(value) for name, value in estimator.get_params(deep=False).items()}
    new = type(estimator)(**params)
    for name, value in new.get_params(deep=False).items():
        assert value is params[name], f"the constructor changed {name}"
    return new


def test_parameters():
    parameters, criterion = {"k": 4}, CSLS(k=2)
    search = CorrectedSearch("csls", 3, parameters=parameters)
    assert search.get_params() == {
        "criterion": "csls",
        "k": 3,
        "normalize": None,
        "parameters": {"k": 4},
        "device": None,
    }
    assert search.get_params()["parameters"] is parameters
    assert set(search.get_params()) == set(inspect.signature(CorrectedSearch).parameters)
    copied = cloned(search.fit(ITEMS, reference=REFERENCE))
    assert not hasattr(copied, "items_")
    same(copied.fit(ITEMS, reference=REFERENCE).search(QUERIES), search.search(QUERIES))
    assert cloned(CorrectedSearch(criterion)).criterion.parameters() == {"k": 2}
    assert search.set_params(criterion=criterion, parameters=None, k=2) is search
    same(search.fit(ITEMS, reference=REFERENCE).search(QUERIES), criterion.search(QUERIES, ITEMS, REFERENCE, 2))
    with pytest.raises(InputError, match=r"CorrectedSearch has no parameter 'kk'.*; its parameters: criterion, k, "):
        search.set_params(k=7, kk=3)
    assert search.k == 2
    assert repr(CorrectedSearch()) == "CorrectedSearch()"
    assert repr(CorrectedSearch(CSLS(k=2), k=5)) == "CorrectedSearch(criterion=CSLS(k=2), k=5)"
    given = vars(CorrectedSearch(criterion=3, k="x", normalize="no", device="nope", parameters=7))
    assert {name: value for name, value in given.items() if not name.startswith("_")} == {
        "criterion": 3,
        "k": "x",
        "normalize": "no",
        "device": "nope",
        "parameters": 7,
    }
    assert vsehub.CorrectedSearch is CorrectedSearch


def test_with_scikit_learn():
    sklearn = pytest.importorskip("sklearn.base")
    search = CorrectedSearch("sinkhorn", parameters={"temperature": 0.02}).fit(ITEMS, reference=REFERENCE)
    assert sklearn.clone(search).get_params() == search.get_params()
    with pytest.raises(InputError, match=r"reference queries are given by name: fit\(items, reference=queries\)"):
        CorrectedSearch().fit(ITEMS, REFERENCE)


# Checks of scikit-learn that do not hold, and why.
NOT_HELD = {
    "check_n_features_in_after_fitting": "the message names queries and shapes in vsehub's words",
    "check_estimators_dtypes": "a row of zeros cannot be divided by its norm, and rounding to whole numbers makes one",
    "check_dtype_object": "an InputError, a ValueError, and no TypeError",
    "check_methods_subset_invariance": "without a reference the queries of a call are its reference",
}


def test_the_checks_of_scikit_learn():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    found = checks.check_estimator(
        CorrectedSearch(normalize=True, k=2), expected_failed_checks=NOT_HELD, on_fail=None, on_skip=None
    )
    assert {one["check_name"] for one in found if one["status"] == "failed"} == set()
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(NOT_HELD), "each is needed"
    alone = checks.check_estimator(CorrectedSearch("nns", normalize=True, k=2), on_fail=None, on_skip=None)
    assert "check_methods_subset_invariance" not in {one["check_name"] for one in alone if one["status"] == "failed"}


def test_neighbours_in_the_manner_of_scikit_learn():
    search = CorrectedSearch("csls", k=4, normalize=True).fit(ITEMS, reference=REFERENCE)
    values, positions = (np.asarray(one) for one in search.search(QUERIES))
    distances, found = search.kneighbors(QUERIES)
    assert np.array_equal(found, positions)
    assert (distances >= 0).all()
    assert np.allclose(distances - distances[:1, :1], values[:1, :1] - values, atol=1e-5), "u minus the score"
    assert np.array_equal(search.kneighbors(QUERIES, 2, return_distance=False), positions[:, :2])
    one = search.kneighbors(QUERIES[:1])[0]
    assert np.allclose(one, distances[:1], atol=1e-5), "u does not depend on the other queries"
    graph = search.kneighbors_graph(QUERIES)
    assert graph.shape == (len(QUERIES), len(ITEMS))
    assert np.array_equal(np.sort(graph.indices.reshape(-1, 4)), np.sort(positions))
    assert set(graph.data) == {1.0}
    assert np.allclose(search.transform(QUERIES).toarray()[0, positions[0]], distances[0])
    among = search.kneighbors(n_neighbors=59, return_distance=False)
    assert all(sorted(row) == [n for n in range(60) if n != place] for place, row in enumerate(among.tolist()))
    with pytest.raises(InputError, match="n_neighbors is 60; expected at most 59, the other items"):
        search.kneighbors(n_neighbors=60)
    with pytest.raises(InputError, match="mode is 'weights'"):
        search.kneighbors_graph(QUERIES, mode="weights")
    with pytest.raises(InputError, match="not fitted"):
        CorrectedSearch().kneighbors(QUERIES)


def test_a_classifier_on_precomputed_neighbours():
    neighbors = pytest.importorskip("sklearn.neighbors")
    pipeline = pytest.importorskip("sklearn.pipeline")
    kind = np.arange(len(ITEMS)) % 3
    steps = pipeline.make_pipeline(
        CorrectedSearch("nns", k=6, normalize=True), neighbors.KNeighborsClassifier(3, metric="precomputed")
    )
    told = steps.fit(ITEMS.numpy(), kind).predict(QUERIES.numpy())
    plain = neighbors.KNeighborsClassifier(3, metric="cosine", algorithm="brute").fit(ITEMS.numpy(), kind)
    assert np.array_equal(told, plain.predict(QUERIES.numpy()))


def test_copies_do_not_share_changes():
    search = CorrectedSearch(k=3).fit(ITEMS[:40], reference=REFERENCE)
    copied = copy.deepcopy(search).add(ITEMS[40:])
    assert (len(search.items_), len(copied.items_)) == (40, 60)
    same(
        copied.search(QUERIES),
        CorrectedSearch(k=3).fit(ITEMS[:40], reference=REFERENCE).add(ITEMS[40:]).search(QUERIES),
    )


def test_a_grid_search_of_scikit_learn():
    selection, validation = (
        pytest.importorskip("sklearn.model_selection"),
        pytest.importorskip("sklearn.utils.validation"),
    )
    truth = CSLS(k=1).search(QUERIES, ITEMS, REFERENCE, 1)[1][:, 0]

    def first_right(search, items, reference=None):
        return (search.search(QUERIES, 1)[1][:, 0] == truth).float().mean().item()

    everything = np.arange(len(ITEMS))
    grid = selection.GridSearchCV(
        CorrectedSearch("csls"),
        {"parameters": [{"k": 31}, {"k": 1}]},
        scoring=first_right,
        cv=[(everything, everything)],
        error_score="raise",
    )
    grid.fit(ITEMS.numpy(), reference=REFERENCE.numpy())
    assert (grid.best_params_, grid.best_score_) == ({"parameters": {"k": 1}}, 1.0)
    validation.check_is_fitted(grid.best_estimator_)
    with pytest.raises(Exception, match="not fitted yet"):
        validation.check_is_fitted(CorrectedSearch())


def test_settings_of_a_criterion():
    for name, parameters, wanted in (
        ("sinkhorn", {"temperature": 0.05}, Sinkhorn(0.05)),
        ("gm", {}, GreedyMatching()),
        ("rgm", {"relaxation": {4: 1.5}}, RelaxedGreedyMatching({4: 1.5})),
    ):
        found = CorrectedSearch(name, k=4, parameters=parameters).fit(ITEMS)
        assert found.criterion_.parameters() == wanted.parameters()
        same(found.search(QUERIES), wanted.search(QUERIES, ITEMS, None, 4))
    chain = CorrectedSearch("csls+rgm", parameters={"k": 3, "relaxation": 1.5}).fit(ITEMS).criterion_
    assert [step.parameters() for step in chain.steps] == [
        {"k": 3},
        {"relaxation": 1.5, "capacity": "proportional"},
    ]


@looped(
    ("arguments", "message"),
    [
        ({"criterion": "cls"}, r"criterion is 'cls' \(did you mean csls\?\); choose one of assignment, "),
        ({"criterion": "../loss/hal"}, "criterion is '../loss/hal'"),
        ({"criterion": CSLS}, "criterion is <class .*>; expected a name, such as 'csls', or an object"),
        ({"criterion": None}, "criterion is None; expected a name"),
        ({"criterion": CSLS(), "parameters": {"k": 3}}, r"but criterion is CSLS\(k=10\); give them to"),
        ({"parameters": {"kk": 3}}, r"parameters: csls has no setting 'kk'.*; its settings: k"),
        ({"parameters": {3: 3}}, "parameters: csls has no setting 3; its settings: k"),
        ({"parameters": {"_target_": "os.system"}}, "csls has no setting '_target_'"),
        ({"criterion": "nns", "parameters": {"k": 3}}, "nns has no setting 'k'; its settings: none"),
        ({"parameters": {"k": "3"}}, "criterion.k is '3'; expected a whole number"),
        ({"parameters": {"k": 0}}, "criterion.k is 0; expected a whole number above 0"),
        ({"parameters": [3]}, r"parameters is \[3\]; expected settings"),
        ({"criterion": "is", "parameters": {"beta": float("nan")}}, "criterion.beta is nan; expected a finite number"),
        ({"k": 0}, "k is 0; expected a whole number above 0"),
        ({"k": 2.0}, "k is 2.0; expected a whole number"),
        ({"normalize": "no"}, "normalize is 'no'"),
        ({"device": "nope"}, "device is 'nope', which is not available on this machine"),
        ({"device": "meta"}, "device is 'meta', which is not available"),
    ],
)
def test_bad_arguments_are_refused_when_fitted(arguments, message):
    search = CorrectedSearch(**arguments)
    with pytest.raises(InputError, match=message):
        search.fit(ITEMS, reference=REFERENCE)
    assert not hasattr(search, "items_")


@looped(
    ("call", "message"),
    [
        (lambda: CorrectedSearch().search(QUERIES), "this CorrectedSearch is not fitted yet; call fit"),
        (lambda: CorrectedSearch().tune(QUERIES, [0] * 23), "not fitted yet"),
        (lambda: CorrectedSearch().add(ITEMS), "not fitted yet"),
        (lambda: CorrectedSearch().save("nowhere"), "not fitted yet"),
        (lambda: CorrectedSearch().export("nowhere"), "not fitted yet"),
        (lambda: CorrectedSearch().fit({"a": 1}), "items is dict; expected a tensor, a numpy array"),
        (lambda: CorrectedSearch().fit([[1.0, 2.0], [3.0]]), "items is no matrix of numbers"),
        (lambda: CorrectedSearch().fit([["a", "b"]]), "items is no matrix of numbers"),
        (lambda: CorrectedSearch().fit(ITEMS).search(QUERIES[0]), r"queries is one vector of 8 numbers.*q\[None\]"),
        (lambda: CorrectedSearch().fit(ITEMS).search([1.0, 2.0]), r"one vector of 2 numbers.*q\[None\]"),
        (lambda: CorrectedSearch().fit(ITEMS * 2), "in Python normalize=True"),
        (lambda: CorrectedSearch().fit(ITEMS).search(QUERIES, return_ids=True), "the items have no ids; fit"),
        (lambda: CorrectedSearch().remove([0]), "not fitted yet"),
        (lambda: CorrectedSearch().fit(ITEMS).remove(["a"]), "expected a list of positions, whole numbers"),
        (lambda: CorrectedSearch().fit(ITEMS).remove([60]), r"remove: 1 of 1 are not among the items, \[60\]"),
        (lambda: CorrectedSearch().fit(ITEMS).remove([-1]), r"remove: 1 of 1 are not among the items, \[-1\]"),
        (lambda: CorrectedSearch().fit(ITEMS).remove([1, 1]), "named twice"),
        (lambda: CorrectedSearch().fit(ITEMS).remove(range(60)), r"remove: range\(0, 60\) was given"),
        (lambda: CorrectedSearch().fit(ITEMS).remove(list(range(60))), "all 60 items were named"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=["a", "b"]).remove("a"), "expected a list of ids, texts"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=["a", "b"]).remove(["c"]), r"not among the items, \['c'\]"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=[1, 2]), r"ids: 1 is int; .* such as list\(map\(str, ids\)\)"),
        (lambda: CorrectedSearch().fit(ITEMS.int()), "items holds int32"),
        (lambda: CorrectedSearch().fit(ITEMS[0]), "items is one vector of 8 numbers"),
        (lambda: CorrectedSearch().fit(ITEMS[:0]), "items holds"),
        (lambda: CorrectedSearch().fit("absent.npy"), "items: no such file"),
        (
            lambda: CorrectedSearch().fit(ITEMS, reference=unit(4, 1, 9)),
            r"reference has shape \(4, 9\); expected .*\(any, 8\)",
        ),
        (lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE * torch.nan), "reference: of 31 rows.*hold NaN"),
        (
            lambda: CorrectedSearch("rgm").fit(ITEMS, reference=REFERENCE),
            "no form that takes reference queries: leave the ref",
        ),
        (lambda: CorrectedSearch("csls+rgm").fit(ITEMS, reference=REFERENCE), "no form that takes reference queries"),
        (lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE, ids=["a"]), "ids are 1 for 60 items"),
        (
            lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE).search(unit(2, 1, 9)),
            r"queries has shape \(2, 9\)",
        ),
        (lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE).search(QUERIES, 61), "k is 61; expected at most 60"),
        (lambda: CorrectedSearch(k=61).fit(ITEMS, reference=REFERENCE).search(QUERIES), "k is 61; expected at most 60"),
        (lambda: CorrectedSearch().fit(ITEMS).search(QUERIES, 61), "k is 61; expected at most 60"),
        (lambda: CorrectedSearch().fit(ITEMS).search(QUERIES, "3"), "k is '3'; expected a whole number"),
        (lambda: CorrectedSearch().fit(ITEMS).add(unit(2, 1, 9)), r"items has shape \(2, 9\)"),
        (lambda: CorrectedSearch().fit(ITEMS).export("nowhere"), "was fitted without reference queries: fit"),
        (
            lambda: CorrectedSearch("mutual_proximity").fit(ITEMS, reference=REFERENCE).export("nowhere"),
            r"MutualProximity\(\) does not subtract one number from an item's scores.*: take csls, is, nnn",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


# Files


@looped("name", NAMES)
@looped("wide", [False, True])
def test_saved_and_loaded(name, wide, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "folder" / "a search::of mine"
    queries, items, reference = (side.double() if wide else side for side in (QUERIES, ITEMS, REFERENCE))
    reference = reference if name in INDUCTIVE else None
    search = CorrectedSearch(name, k=6).fit(items, reference=reference, ids=[f"é {n}" for n in range(60)])
    search.save(path)
    loaded = CorrectedSearch.load(path)
    same(loaded.search(queries), search.search(queries))
    assert (loaded.ids_, loaded.k, loaded.criterion) == (search.ids_, 6, "csls" if name == "auto" else name)
    assert loaded.parameters == search.criterion_.parameters()
    assert loaded.criterion_.parameters() == search.criterion_.parameters()
    assert name == "auto" or loaded.criterion_.parameters() == built(name).parameters()
    more = unit(5, 9).to(items)
    ids = list("abcde")
    if name not in COUPLED:
        same(loaded.add(more, ids).search(queries), search.add(more, ids).search(queries))
    loaded.save(path, overwrite=True)  # in place of the file that it maps
    same(CorrectedSearch.load(path).search(queries), search.search(queries))
    CorrectedSearch.load(path).save(path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()
    assert sorted(one.name for one in path.parent.iterdir()) == ["a search::of mine", "again"]


def test_what_is_saved_is_what_was_tuned(tmp_path):
    queries, truth = correlated(50, 0)
    search = CorrectedSearch(NNN(k=3), normalize=True).fit(3 * ITEMS, reference=REFERENCE).tune(2 * queries, truth)
    search.save(tmp_path / "search")
    loaded = CorrectedSearch.load(tmp_path / "search", device="cpu")
    assert (loaded.criterion, loaded.normalize) == ("nnn", True)
    assert loaded.criterion_.parameters() == search.criterion_.parameters() != NNN(k=3).parameters()
    same(loaded.search(2 * QUERIES), search.search(2 * QUERIES))
    CorrectedSearch(InvertedSoftmax(np.float32(20.5))).fit(ITEMS, reference=REFERENCE).save(tmp_path / "is")
    assert CorrectedSearch.load(tmp_path / "is").parameters == {"beta": 20.5}
    rgm = CorrectedSearch(RelaxedGreedyMatching({4: 1.5, 5: 2.0})).fit(ITEMS)
    rgm.save(tmp_path / "rgm")
    same(CorrectedSearch.load(tmp_path / "rgm").search(QUERIES, 4), rgm.search(QUERIES, 4))


class Mine(CSLS):
    """A criterion of the user's."""


def test_criteria_of_others_are_not_saved(tmp_path):
    search = CorrectedSearch(Mine(k=2)).fit(ITEMS, reference=REFERENCE)
    same(search.search(QUERIES), CSLS(k=2).search(QUERIES, ITEMS, REFERENCE))
    with pytest.raises(InputError, match=r"Mine\(k=2\) is no criterion of vsehub, and a file may not name other code"):
        search.save(tmp_path / "search")
    assert not list(tmp_path.iterdir())


def changed(path, change=lambda description, arrays: None, **told):
    """The file with another description, other arrays or other facts in its header."""
    with safe_open(path, "pt") as file:
        facts, arrays = file.metadata(), {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    description = json.loads(facts["description"])
    change(description, arrays)
    save_file(arrays, path, facts | {"description": json.dumps(description)} | told)
    return path


def deep(description, arrays):
    description["parameters"]["k"] = 0
    for _ in range(900):
        description["parameters"]["k"] = [description["parameters"]["k"]]


def swapped(key, value):
    return lambda description, arrays: description.update({key: value})


def setting(**values):
    return lambda description, arrays: description["parameters"].update(values)


def array(name, value):
    return lambda description, arrays: (
        arrays.update({name: value(arrays[name])} if value else {}) or (value or arrays.pop(name))
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "search.safetensors"
    CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE, ids=[str(n) for n in range(60)]).save(path)
    return path


@looped(
    ("change", "told", "message"),
    [
        (None, {"version": "4"}, "is of version 4 of its format, .* reads version 3. Use the vsehub"),
        (None, {"format": "vsehub checkpoint"}, r"was not written by `CorrectedSearch\.save`"),
        (None, {"description": "{"}, "the description in .* is damaged"),
        (None, {"description": "[" * 100000}, "the description in .* is damaged"),
        (None, {"description": "9" * 5000}, "the description in .* is damaged"),
        (None, {"description": "[]"}, "the description in .* is damaged"),
        (deep, {}, "the description in .* is damaged"),
        (swapped("criterion", "os.system"), {}, "criterion is 'os.system'; choose one of"),
        (swapped("criterion", "vsehub.criteria.CSLS"), {}, "criterion is 'vsehub.criteria.CSLS'"),
        (swapped("criterion", "../loss/hal"), {}, "criterion is '../loss/hal'"),
        (swapped("criterion", {"_target_": "os.system"}), {}, "the description in .* is damaged"),
        (swapped("criterion", "rgm"), {}, "rgm has no setting 'k'"),
        (swapped("criterion", "csls+rgm"), {}, r"takes no reference, but the file has one"),
        (swapped("criterion", "local_scaling"), {}, None),
        (swapped("criterion", "qb_norm"), {}, "the file has 1 terms of an item; QBNorm"),
        (setting(_target_="os.system"), {}, "csls has no setting '_target_'"),
        (setting(k={"_target_": "os.system"}), {}, "criterion.k names a class, os.system, where only plain"),
        (setting(k=-1), {}, "criterion.k is -1; expected a whole number"),
        (setting(k="5"), {}, "criterion.k is '5'; expected a whole number"),
        (setting(k=10**15), {}, "the parameter k is too large; expected at most 65,536"),
        (setting(k=True), {}, "criterion.k is True; expected a whole number"),
        (swapped("k", 0), {}, "description in .* is damaged"),
        (swapped("k", 1.5), {}, "description in .* is damaged"),
        (swapped("normalize", "yes"), {}, "description in .* is damaged"),
        (swapped("items", [61, 8]), {}, "arrays in .* are not those of its description"),
        (swapped("items", [60]), {}, "description in .* is damaged"),
        (swapped("items", [2**60, 8]), {}, "description in .* is damaged"),
        (swapped("reference", None), {}, "arrays in .* are not those of its description"),
        (swapped("reference", 7), {}, "arrays in .* are not those"),
        (swapped("terms", 2), {}, "arrays in .* are not those"),
        (swapped("terms", 10**9), {}, "description in .* is damaged"),
        (swapped("terms", None), {}, "arrays in .* are not those"),
        (swapped("ids", None), {}, "arrays in .* are not those"),
        (swapped("ids", "0" * 64), {}, "the ids in .* are damaged"),
        (array("items", lambda one: one.half()), {}, "items in .* holds float16"),
        (array("items", lambda one: one.int()), {}, "holds I32"),
        (array("items", lambda one: one[:, :7].contiguous()), {}, "arrays in .* are not those"),
        (array("items", None), {}, "arrays in .* are not those"),
        (array("reference", None), {}, "arrays in .* are not those"),
        (array("terms.0", lambda one: one * torch.inf), {}, "item terms in .* are NaN, infinite"),
        (array("terms.0", lambda one: one.long()), {}, "no numbers of a criterion"),
        (array("terms.0", lambda one: one > 0), {}, "the file has 1 terms of an item; CSLS"),
        (array("terms.0", lambda one: one[:5].clone()), {}, "arrays in .* are not those"),
        (array("ids", lambda one: one[:-1].clone()), {}, "ids in .* are damaged"),
        (lambda description, arrays: arrays.update(more=torch.ones(1)), {}, "arrays in .* are not those"),
    ],
)
def test_files_made_to_do_harm(change, told, message, stored, tmp_path_factory):
    path = tmp_path_factory.mktemp("harm") / "search.safetensors"
    path.write_bytes(stored.read_bytes())
    changed(path, change or (lambda description, arrays: None), **told)
    if message is None:
        assert len(CorrectedSearch.load(path).search(QUERIES)[1]) == len(QUERIES)
        return
    with pytest.raises(InputError, match=message) as caught:
        CorrectedSearch.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_loading_says_nothing(stored, caplog):
    CorrectedSearch.load(stored)
    assert not caplog.records


def test_damaged_and_foreign_files(stored, tmp_path):
    content, path = stored.read_bytes(), tmp_path / "search.safetensors"
    for size in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="cut short, damaged or of another format"):
            CorrectedSearch.load(path)
    path.write_bytes(b"\x89PNG" * 300)
    with pytest.raises(InputError, match="cut short, damaged or of another format"):
        CorrectedSearch.load(path)
    save_file({"items": ITEMS}, path)
    with pytest.raises(InputError, match="was not written by"):
        CorrectedSearch.load(path)
    with pytest.raises(InputError, match="no such file or folder"):
        CorrectedSearch.load(tmp_path / "absent")
    with pytest.raises(InputError, match="is a folder"):
        CorrectedSearch.load(tmp_path)


def test_a_killed_save_leaves_the_file_that_was_there(stored, tmp_path, monkeypatch):
    path = tmp_path / "search"
    path.write_bytes(stored.read_bytes())

    def breaks(tensor):
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator_file, "_bytes", breaks)
    with pytest.raises(KeyboardInterrupt):
        CorrectedSearch("is").fit(ITEMS, reference=REFERENCE).save(path, overwrite=True)
    assert path.read_bytes() == stored.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["search"]


@pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")
def test_export(tmp_path):
    biased = [name for name in INDUCTIVE if isinstance(built(name), ItemBias)]
    assert len(biased) >= 8
    for name in biased:
        search = CorrectedSearch(name, k=5).fit(ITEMS, reference=REFERENCE)
        search.export(tmp_path / f"{name}.faiss")
        values, positions = load_index(tmp_path / f"{name}.faiss").search(QUERIES, 5)
        wanted = search.search(QUERIES)
        torch.testing.assert_close(values, wanted[0], rtol=1e-4, atol=1e-4)
        assert (positions == wanted[1]).float().mean() > 0.98, name
    with pytest.raises(InputError, match="index is 'tree'; choose one of"):
        search.export(tmp_path / "index.faiss", kind="tree")


@pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")
def test_no_file_is_replaced_unasked_or_named_as_what_it_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search = CorrectedSearch(k=5).fit(ITEMS, reference=REFERENCE)
    faiss, saved = r"a FAISS index would be written; give a name that ends in \.faiss", "a fitted search, a safetensors"
    for call, name, message in (
        (search.export, "x.lancedb", rf"x\.lancedb ends in \.lancedb, and {faiss}"),
        (search.export, "x.safetensors", faiss),
        (search.export, "x.DB", faiss),
        (search.save, "x.faiss", rf"x\.faiss ends in \.faiss, and {saved} file, would be .* ends in \.safetensors"),
        (search.save, "x.npz", saved),
    ):
        with pytest.raises(InputError, match=message):
            call(name)
        with pytest.raises(InputError, match=message):
            call(name, overwrite=True)
    assert list(tmp_path.iterdir()) == []
    for call, name in (
        (search.export, "x.faiss"),
        (search.export, "x.Index"),
        (search.export, "x"),
        (search.save, "y"),
    ):
        Path(name).write_text("notes")
        with pytest.raises(InputError, match=f"{name} is there already; give another name, or overwrite=True to repl"):
            call(name)
        assert Path(name).read_text() == "notes"
        call(name, overwrite=True)
    Path("link").symlink_to("absent")
    with pytest.raises(InputError, match="link is there already"):
        search.save("link", overwrite=False)
    Path("folder").mkdir()
    with pytest.raises(InputError, match=r"folder is a folder; give the name of a file, such as folder.name\.faiss"):
        search.export("folder", overwrite=True)
    with pytest.raises(InputError, match="overwrite is 'yes'"):
        search.save("w", overwrite="yes")
    assert load_index("x.Index").facts.items == len(ITEMS)
    same(CorrectedSearch.load("y").search(QUERIES), search.search(QUERIES))


@pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")
def test_the_lines_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text().partition("\n## From Python\n")[2]
    lines, others = page.partition("\n## ")[0].split("```python\n")[1:3]
    queries, truth = correlated(60, 1)
    given = {
        **{"items": ITEMS, "training_captions": REFERENCE, "reference": REFERENCE, "more_items": unit(3, 9)},
        **{"queries": QUERIES, "some_queries": queries, "truth": truth},
        **{"known_queries": unit(40, 12), "known_truth": torch.arange(40)},
    }
    exec(lines.partition("```")[0], given)
    assert given["values"].shape == given["positions"].shape == (23, 10)
    assert {one.name for one in tmp_path.iterdir()} == {"search.safetensors", "search.faiss"}
    exec(others.partition("```")[0], given)
    assert given["n_10"].sum() == 230


@pytest.mark.long
def test_memory_is_bounded(monkeypatch, tmp_path):
    """No tensor larger than a tile, a block, the held queries or the answer is ever made."""
    for name, value in (("TILE_QUERIES", 16), ("TILE_ITEMS", 16), ("QUERIES_HELD", 32), ("COLUMN_ELEMENTS", 512)):
        monkeypatch.setattr(tiles, name, value)
    for module in (defined, in_memory):
        monkeypatch.setattr(module, "BLOCK", 64)
    monkeypatch.setattr(estimator_file, "_BLOCK_BYTES", 512)
    shared = (torch.ops.aten.lift_fresh.default, torch.ops.aten.detach.default)  # of an array, or of a tensor
    queries, items = unit(96, 0, dim=2), unit(700, 1, dim=2)
    np.save(tmp_path / "items.npy", items)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            answer = function(*args, **(kwargs or {}))
            if isinstance(answer, torch.Tensor) and function not in shared and not answer._is_view():
                largest = max(largest, answer.numel())
            return answer

    for name in [name for name in INDUCTIVE if not built(name).takes_reference_items]:  # which scores items with items
        search = CorrectedSearch(name, k=2).fit(np.load(tmp_path / "items.npy", mmap_mode="r"), reference=queries[:30])
        with Watch():
            if name not in COUPLED:
                search.add(queries[:3])
            search.search(as_vectors("queries", queries))
            if not search.criterion_.correction.query_terms_rank:  # which holds whole rows of scores
                search.calibrate(as_vectors("queries", queries), torch.arange(96))
            search.save(tmp_path / "search", overwrite=True)
            CorrectedSearch.load(tmp_path / "search").search(as_vectors("queries", queries))
    assert 703 <= largest <= 720


def test_auto_is_csls_until_tune_chooses(tmp_path):
    random = torch.Generator().manual_seed(0)
    side = torch.full((16,), 0.25)
    items = torch.nn.functional.normalize(
        torch.randn(80, 16, generator=random) + 2.5 * torch.randn(80, 1, generator=random).exp() * side, dim=1
    )
    truth = torch.randint(80, (200,), generator=random)
    asked = items[truth] + 0.14 * torch.randn(200, 16, generator=random) + 0.5 * side
    queries = torch.nn.functional.normalize(asked, dim=1)
    search = CorrectedSearch("auto").fit(items, reference=queries[:100])
    assert repr(search.criterion_) == repr(CSLS())
    search.tune(queries[:100], truth[:100])
    assert len(search.tried_) > 40
    assert max(one.mrr for one in search.tried_) > search.tried_[0].mrr  # plain search
    expected = search.criterion_.search(queries[100:], items, queries[:100], 5)
    for found in (search, CorrectedSearch.load(_saved(search, tmp_path))):
        for ours, theirs in zip(found.search(queries[100:], 5), expected, strict=True):
            assert torch.equal(ours, theirs)


def _saved(search, folder):
    search.save(folder / "search.safetensors")
    return folder / "search.safetensors"


@pytest.mark.parametrize("asked", [1, 32, 33])
def test_arrays_that_run_backwards(asked):
    items, queries, reference = (unit(*one).numpy() for one in ((60, 1), (asked, 2), (40, 3)))
    wanted = CorrectedSearch("csls").fit(items, reference=reference).search(queries)
    search = CorrectedSearch("csls").fit(items[::-1].copy()[::-1], reference=reference[::-1].copy()[::-1])
    same(search.search(queries[::-1].copy()[::-1]), wanted)
    flipped = [side[:, ::-1].copy()[:, ::-1] for side in (items, reference, queries)]
    same(CorrectedSearch("csls").fit(flipped[0], reference=flipped[1]).search(flipped[2]), wanted)
    search = CorrectedSearch("csls").fit(items[:50], reference=reference).add(items[50:][::-1].copy()[::-1])
    np.testing.assert_array_equal(search.search(queries)[1], wanted[1])


def test_truth_that_runs_backwards_or_is_read_only(recwarn):
    items, queries = unit(60, 1), unit(200, 2)
    pairs = np.stack([np.arange(200) % 60, np.arange(200)], axis=1)  # item, query
    search = CorrectedSearch("csls").fit(items, reference=unit(40, 3))
    search.calibrate(queries, pairs[:, ::-1])
    places = np.arange(200) % 60
    places.flags.writeable = False
    one, other = search.calibration_, search.calibrate(queries, places).calibration_
    assert len(one) == len(other)
    assert one.threshold(0.1) == other.threshold(0.1)
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_numbers_of_numpy_are_numbers(tmp_path):
    items, queries = unit(60, 1), unit(5, 2)
    search = CorrectedSearch(CSLS(k=np.int64(4)), k=np.int64(3)).fit(items, reference=unit(40, 3))
    wanted = CorrectedSearch(CSLS(k=4), k=3).fit(items, reference=unit(40, 3)).search(queries)
    same(search.search(queries), wanted)
    same(search.search(queries, k=np.int64(3)), wanted)
    search.save(tmp_path / "saved.safetensors")
    same(CorrectedSearch.load(tmp_path / "saved.safetensors").search(queries), wanted)
    assert len(search.remove([np.int64(3)]).search(queries, 59)[1][0]) == 59


def test_what_is_no_argument_is_refused_in_words(tmp_path):
    items, reference = unit(60, 1), unit(40, 3)
    search = CorrectedSearch("csls").fit(items, reference=reference)
    with pytest.raises(InputError, match="seed is -1; expected"):
        search.calibrate(unit(200, 2), np.arange(200) % 60, seed=-1)
    with pytest.raises(InputError, match="ids is int; expected one text"):
        CorrectedSearch("csls").fit(items, reference=reference, ids=5)
    with pytest.raises(InputError, match="the path is None; expected the name of a file"):
        search.save(None)
    with pytest.raises(InputError, match="queries is a sparse tensor; give a dense one"):
        search.search(unit(40, 2).to_sparse())
    with pytest.raises(InputError, match="queries is a sparse tensor; give a dense one"):
        search.search(unit(4, 2).to_sparse())
    np.save(tmp_path / "items.npy", items.numpy())
    with pytest.raises(InputError, match=r"items.npy cannot be read as a fitted search"):
        CorrectedSearch.load(tmp_path / "items.npy")
    with pytest.raises(InputError, match=r"scores is ndarray; expected a tensor, such as torch.from_numpy\(scores\)"):
        CSLS().rescore((items @ items.T).numpy())


def test_a_plain_ranking_is_exported_without_a_reference(tmp_path):
    items, queries = unit(60, 1), unit(5, 2)
    search = CorrectedSearch("nns", k=7).fit(items)
    search.export(tmp_path / "plain.faiss")
    found = load_index(tmp_path / "plain.faiss").search(queries, 7)
    np.testing.assert_array_equal(found[1], search.search(queries)[1])


def test_saving_where_no_file_can_be_fails_at_once():
    folder = Path("/proc")
    if not folder.is_dir():
        pytest.skip("there is no folder in which no file can be created")
    with pytest.raises((OSError, InputError)):
        CorrectedSearch("nns").fit(unit(60, 1)).save(folder / "saved.safetensors")
