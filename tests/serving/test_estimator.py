"""The estimator must rank as `Criterion.search` does, whatever was fitted, added, tuned, saved and loaded."""

import json

import numpy as np
import pytest
import torch
from looped import looped
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.components import Components, conf_folder
from vsehub.criteria import (
    CSLS,
    NNN,
    Chain,
    DualInvertedSoftmax,
    DualSoftmax,
    InvertedSoftmax,
    MutualProximity,
    RelaxedGreedyMatching,
    Sinkhorn,
)
from vsehub.criteria.choose import choose_row
from vsehub.serving import estimator

CONF = Components([conf_folder()])
NAMES = CONF.choices("criterion")


def unit(rows, seed, dim=8):
    """Unit vectors that share an offset: some are hubs."""
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=generator) + 0.3, dim=1)


def built(name):
    return CONF.build("criterion", CONF.node("criterion", name))


INDUCTIVE = [name for name in NAMES if built(name).inductive]
QUERIES, ITEMS, REFERENCE = unit(23, 1), unit(60, 2), unit(31, 3)
IDS = [f"é {n}" for n in range(60)]


def refused(name, *calls):
    for call in calls:
        with pytest.raises(InputError, match=name):
            call()


def same(results, wanted):
    for array, other in zip(results, wanted, strict=True):
        assert type(array) is type(other)
        assert np.array_equal(array, other)


@looped("name", NAMES)
@looped("wide", [False, True])
def test_it_is_the_criterions_search(name, wide, monkeypatch):
    queries, items, reference = (side.double() if wide else side for side in (QUERIES, ITEMS, REFERENCE))
    search = CorrectedSearch(name, k=7).fit(items)
    for rows in (queries, queries[:5]):
        same(search.search(rows), built(name).search(rows, items, None, 7))
    if name in INDUCTIVE:
        search.fit(items, reference=reference)
        with monkeypatch.context() as patch:
            patch.setattr(estimator, "fit_all", None)  # nothing is estimated again
            same(search.search(queries), built(name).search(queries, items, reference, 7))
            same(search.search(queries.numpy(), 3), map(np.asarray, built(name).search(queries, items, reference, 3)))


@looped(
    ("criterion", "reference", "queries", "warned"),
    [
        ("csls", 0, 49, True),
        ("csls", 0, 50, False),
        ("csls", 100, 1, False),
        ("nns", 0, 1, False),
        ("sinkhorn", 99, 1, True),
        ("sinkhorn", 100, 1, False),
        ("csls+rgm", 0, 1, False),
    ],
)
def test_a_reference_of_few_queries_is_warned_of_once(criterion, reference, queries, warned, caplog):
    """A query alone is its own reference, so that its ranking is that of plain search."""
    caplog.clear()
    estimator.warn_once.cache_clear()
    search = CorrectedSearch(criterion, k=5).fit(ITEMS, reference=unit(reference, 5) if reference else None)
    for _ in range(2):
        search.search(unit(queries, 6))
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warned


def test_ties_duplicates_single_rows_and_negative_scores():
    items = torch.eye(3)[[0, 1, 0, 1, 2]]
    values, positions = CorrectedSearch("csls", k=5, parameters={"k": 1}).fit(items, reference=items).search(-items[:2])
    assert positions.tolist() == [[1, 3, 4, 0, 2], [0, 2, 4, 1, 3]]
    assert values[0].tolist() == [-1, -1, -1, -3, -3]
    vector = torch.eye(3)[:1]
    assert CorrectedSearch("csls").fit(vector, reference=vector).search(vector, 1)[1].tolist() == [[0]]


def test_arrays_maps_tensors_files_lists_and_frames(tmp_path):
    wanted = CSLS(k=3).search(QUERIES, ITEMS, REFERENCE, 5)
    pandas = pytest.importorskip("pandas")
    np.save(tmp_path / "queries.npy", QUERIES.numpy())
    np.save(tmp_path / "items.npy", ITEMS.numpy())
    np.savez(tmp_path / "all.npz", i=ITEMS.numpy(), r=REFERENCE.numpy())
    backwards = [side.numpy()[:, ::-1].copy()[:, ::-1] for side in (ITEMS, REFERENCE)]
    search = CorrectedSearch(CSLS(k=3), k=np.int64(5), device="cpu")
    for items, reference, rows in (
        (np.load(tmp_path / "items.npy", mmap_mode="r"), REFERENCE.numpy(), QUERIES.numpy()),
        (f"{tmp_path / 'all.npz'}::i", f"{tmp_path / 'all.npz'}::r", QUERIES.tolist()),
        (ITEMS.tolist(), list(REFERENCE.numpy()), pandas.DataFrame(QUERIES.numpy())),
        (pandas.DataFrame(ITEMS.numpy()), pandas.DataFrame(REFERENCE.numpy()), QUERIES.numpy()),
        (*backwards, QUERIES.numpy()),
    ):
        same(search.fit(items, reference=reference).search(rows), map(np.asarray, wanted))
    same(search.fit(tmp_path / "items.npy", reference=REFERENCE).search(str(tmp_path / "queries.npy")), wanted)
    half = search.fit(ITEMS.half(), reference=REFERENCE.numpy().astype("float16")).search(QUERIES.bfloat16())
    same(half, CSLS(k=3).search(QUERIES.bfloat16(), ITEMS.half(), REFERENCE.half(), 5))


def test_normalize():
    queries, items, reference = (
        side * torch.linspace(0.5, 9, len(side))[:, None] for side in (QUERIES, ITEMS, REFERENCE)
    )
    search = CorrectedSearch(normalize=True).fit(items, reference=reference)
    result, wanted = search.search(queries), CSLS().search(QUERIES, ITEMS, REFERENCE)
    assert torch.equal(result[1], wanted[1])
    torch.testing.assert_close(result[0], wanted[0])
    search = CorrectedSearch(normalize=False).fit(items, reference=reference)
    same(search.search(queries), CSLS().search(queries, items, reference))
    refused("queries.*normalize", lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE).search(queries))
    whole = [(side / side.abs().max() * 100).to(torch.int8) for side in (queries, items, reference)]
    result = CorrectedSearch(normalize=False).fit(whole[1], reference=whole[2]).search(whole[0])
    same(result, CSLS().search(*(side.float() for side in whole)))


def test_ids(tmp_path):
    np.savez(tmp_path / "items.npz", vectors=ITEMS.numpy(), ids=np.array(IDS))
    search = CorrectedSearch(k=3).fit(tmp_path / "items.npz", reference=REFERENCE)
    ids = search.search(QUERIES.numpy(), return_ids=True)[1]
    assert ids == [[IDS[row] for row in rows] for rows in search.search(QUERIES)[1].tolist()]
    assert CorrectedSearch().fit(ITEMS[:2], ids=[2, 1]).ids_ == ["2", "1"]


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
    return np.array([int((row >= row[item]).sum()) for row, item in zip(scores, truth.tolist(), strict=True)])


TUNED = [CSLS(k=3), InvertedSoftmax(), NNN(k=8), Sinkhorn(), DualSoftmax(), DualInvertedSoftmax()]


@looped(("criterion", "reference"), [(CSLS(k=3), None), *((criterion, unit(40, 7)) for criterion in TUNED)])
def test_tuning_is_a_loop_over_the_grid(criterion, reference):
    """Its own settings first; the rule and the folds are those of tests/ranking/test_choose.py."""
    queries, truth = correlated(60, 1)
    search = CorrectedSearch(criterion).fit(ITEMS, reference=reference).tune(queries, truth)
    rows, settings = 60 if reference is None else 40, criterion.parameters()
    grid = [settings, *(settings | changed for changed in criterion.grid() if changed.get("k", 1) <= rows)]
    assert [settings.parameters for settings in search.tried_] == [
        settings for row, settings in enumerate(grid) if settings not in grid[:row]
    ]
    ranks_of = [
        places(criterion.with_parameters(**candidate.parameters), queries, reference, truth)
        for candidate in search.tried_
    ]
    for candidate, ranks in zip(search.tried_, ranks_of, strict=True):
        assert (candidate.rank, candidate.r1) == pytest.approx(
            (np.exp(np.log(ranks).mean()), 100 * (ranks == 1).mean())
        )
    wanted = search.tried_[choose_row(-np.log(ranks_of))].parameters
    assert search.criterion_.parameters() == wanted
    same(search.search(QUERIES), criterion.with_parameters(**wanted).search(QUERIES, ITEMS, reference))
    assert search.criterion is criterion  # the constructor's arguments stay as they were


def test_auto_is_csls_until_tune_chooses():
    queries, truth = correlated(120, 3)
    search = CorrectedSearch("auto").fit(ITEMS, reference=queries[60:])
    assert repr(search.criterion_) == repr(CSLS())
    assert len({candidate.name for candidate in search.tune(queries[:60], truth[:60]).tried_}) > 5
    same(search.search(QUERIES), search.criterion_.search(QUERIES, ITEMS, queries[60:]))


def test_forms_of_truth(tmp_path):
    queries, truth = correlated(80, 2)
    pairs = torch.stack((torch.arange(80), truth), dim=1)
    (tmp_path / "pairs.csv").write_text("query,item\n" + "".join(f"{q},{i}\n" for q, i in pairs.tolist()))
    search = CorrectedSearch("csls")
    forms = (truth, truth.tolist(), pairs, pairs.numpy()[::-1], tmp_path / "pairs.csv")
    choices = [search.fit(ITEMS, reference=REFERENCE).tune(queries, form).tried_ for form in forms]
    assert all(choice == choices[0] for choice in choices)
    for form in (truth[:19], truth + 60, truth - 60, truth.double(), pairs[:, [0, 1, 1]], pairs[:49]):
        refused("truth|item|queries|answers", lambda form=form: search.tune(queries, form))
    for other in (
        CorrectedSearch(criterion).fit(ITEMS)
        for criterion in (MutualProximity(), Chain([CSLS(), RelaxedGreedyMatching()]))
    ):
        refused("criterion|tune", lambda other=other: other.tune(queries, truth))


def plain(*arguments, **settings):
    return CorrectedSearch().fit(ITEMS, reference=REFERENCE).search(*arguments, **settings)


@looped(
    ("call", "name"),
    [
        (lambda: CorrectedSearch("cls").fit(ITEMS), "csls"),
        (lambda: CorrectedSearch("../loss/hal").fit(ITEMS), "criterion"),
        (lambda: CorrectedSearch(parameters={"kk": 3}).fit(ITEMS), "kk"),
        (lambda: CorrectedSearch(parameters={"k": "3"}).fit(ITEMS), "criterion.k"),
        (lambda: CorrectedSearch(parameters={"_target_": "os.system"}).fit(ITEMS), "os.system"),
        (lambda: CorrectedSearch(normalize="no").fit(ITEMS), "normalize"),
        (lambda: CorrectedSearch(device="nope").fit(ITEMS, reference=REFERENCE), "device"),
        (lambda: CorrectedSearch().fit(ITEMS[0]), "items"),
        (lambda: CorrectedSearch().fit(ITEMS[:0]), "items"),
        (lambda: CorrectedSearch().fit(ITEMS.int()), "items"),
        (lambda: CorrectedSearch().fit(ITEMS * 2), "normalize=True"),
        (lambda: CorrectedSearch().fit("absent.npy"), "items"),
        (lambda: CorrectedSearch().fit(ITEMS, ids=["a"]), "ids"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=["x", "x"]), "ids"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=["x", None]), "ids"),
        (lambda: CorrectedSearch().fit(ITEMS[:2], ids=["x", np.nan]), "ids"),
        (lambda: CorrectedSearch().fit(ITEMS, reference=unit(4, 1, 9)), "reference"),
        (lambda: CorrectedSearch().fit(ITEMS, reference=REFERENCE * torch.nan), "reference"),
        (lambda: CorrectedSearch("csls+rgm").fit(ITEMS, reference=REFERENCE), "reference"),
        (lambda: plain(unit(2, 1, 9)), "queries"),
        (lambda: plain(QUERIES * torch.nan), "queries"),
        (lambda: plain(QUERIES, 61), "k is 61"),
        (lambda: plain(QUERIES, "3"), "k is '3'"),
        (lambda: plain(QUERIES, p_values=True), "p_values"),
    ],
)
def test_bad_input(call, name):
    refused(name, call)


# Files


@looped("name", NAMES)
@looped("wide", [False, True])
def test_saved_and_loaded(name, wide, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "folder" / "a search::of mine"
    queries, items, reference = (side.double() if wide else side for side in (QUERIES, ITEMS, REFERENCE))
    search = CorrectedSearch(name, k=6).fit(items, reference=reference if name in INDUCTIVE else None, ids=IDS)
    search.save(path)
    loaded = CorrectedSearch.load(path)
    same(loaded.search(queries), search.search(queries))
    assert (loaded.ids_, loaded.k) == (IDS, 6)
    assert repr(loaded.criterion) == repr(search.criterion_)
    loaded.save(path, overwrite=True)  # in place of the file that it maps
    same(CorrectedSearch.load(path).search(queries), search.search(queries))
    refused("overwrite", lambda: loaded.save(path))


def test_what_is_saved_is_what_was_tuned_and_calibrated(tmp_path):
    queries, truth = correlated(90, 0)
    search = CorrectedSearch(NNN(k=np.int64(3)), normalize=True).fit(3 * ITEMS, reference=REFERENCE)
    search.tune(2 * queries[:50], truth[:50]).calibrate(queries[50:], truth[50:]).save(tmp_path / "search")
    loaded = CorrectedSearch.load(tmp_path / "search", device="cpu")
    assert loaded.normalize is True
    assert loaded.criterion_.parameters() == search.criterion_.parameters()
    same(loaded.search(2 * QUERIES, p_values=True), search.search(2 * QUERIES, p_values=True))


def test_what_a_file_cannot_hold_is_not_saved(tmp_path):
    class Mine(CSLS):
        """A criterion of the user's."""

    same(CorrectedSearch(Mine(k=2)).fit(ITEMS).search(QUERIES), CSLS(k=2).search(QUERIES, ITEMS))
    for criterion in (Mine(), RelaxedGreedyMatching({4: 1.5})):
        search = CorrectedSearch(criterion).fit(ITEMS)
        refused("criterion", lambda search=search: search.save(tmp_path / "search"))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "search.safetensors"
    CorrectedSearch("csls").fit(ITEMS, reference=REFERENCE, ids=IDS).save(path)
    return path


@looped(
    ("settings", "arrays"),
    [
        ("[" * 100_000, {}),
        ("[]", {}),
        ({"criterion": {"_target_": "os.system"}}, {}),
        ({"criterion": {"_target_": "vsehub.criteria.CSLS", "k": -1}}, {}),
        ({"criterion": {"_target_": "vsehub.criteria.CSLS", "k": {"_target_": "os.system"}}}, {}),
        ({"criterion": {"_target_": "vsehub.criteria.Chain", "steps": [{"_target_": "os.system"}]}}, {}),
        ({}, {"items": None}),
        ({}, {"items": ITEMS.int()}),
        ({}, {"items": ITEMS[:59].clone()}),
        ({}, {"reference": REFERENCE[:, :7].clone()}),
        ({}, {"terms.0": torch.full((60,), torch.nan)}),
        ({}, {"ids": torch.zeros(9, dtype=torch.uint8)}),
        ({}, {"ids": torch.frombuffer(bytearray(json.dumps(["a"] * 60).encode()), dtype=torch.uint8)}),
        ({}, {"null_scores": torch.ones(3).double(), "best_scores": torch.full((3,), torch.inf).double()}),
    ],
)
def test_files_made_to_do_harm(settings, arrays, stored, tmp_path_factory):
    path = tmp_path_factory.mktemp("harm") / "search.safetensors"
    with safe_open(stored, "pt") as file:
        metadata = file.metadata()
    text = settings if isinstance(settings, str) else json.dumps(json.loads(metadata["settings"]) | settings)
    changed = {name: array for name, array in (load_file(stored) | arrays).items() if array is not None}
    save_file(changed, path, metadata | {"settings": text})
    refused(str(path), lambda: CorrectedSearch.load(path))


@looped("damaged", [slice(0), slice(8), slice(100), slice(-1), slice(1, None)])
def test_damaged_files(damaged, stored, tmp_path):
    (tmp_path / "search.safetensors").write_bytes(stored.read_bytes()[damaged])
    refused("search", lambda: CorrectedSearch.load(tmp_path / "search.safetensors"))


def test_one_query_without_its_axis():
    search = CorrectedSearch("csls", k=3, parameters={"k": 2}).fit(ITEMS, reference=QUERIES, ids=range(len(ITEMS)))
    for query in (QUERIES[0], QUERIES[0].numpy(), QUERIES[0].tolist()):
        values, ids = search.search(query, return_ids=True)
        whole = search.search(QUERIES[:1], return_ids=True)
        assert (np.asarray(values).tolist(), ids) == (whole[0][0].tolist(), whole[1][0])


def test_a_search_that_is_not_fitted():
    search = CorrectedSearch("csls", k=3)
    assert repr(search) == "CorrectedSearch(criterion='csls', k=3, normalize=None, parameters=None, device=None)"
    for error in (ValueError, AttributeError):
        with pytest.raises(error, match="fit"):
            search.search(QUERIES)
    assert not hasattr(search, "item_terms_")
    with pytest.raises(AttributeError, match="serach"):
        search.serach(QUERIES)
