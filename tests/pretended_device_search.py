"""The bank, search, criteria and evaluation on a pretended device, FAISS as a build for GPUs among them."""

import inspect

import faiss
import pretended_faiss
import pytest
import torch
import torch.nn.functional as F
from measuring import measure
from pretended_device import Pretended, back, device, moved, pretended, traffic
from test_contract import instantiated, names

from vsehub import CorrectedSearch
from vsehub.criteria import CSLS, Auto, RelaxedGreedyMatching
from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.ensemble import MeanSimilarity, Several, together
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.tune import choose, tune
from vsehub.metrics import Positives
from vsehub.neighbors import MemoryBank, tiles
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.faiss import GPU_DEPTH, GPU_PINNED, GPU_SCRATCH, FaissIndex
from vsehub.neighbors.rounded import RoundedVectors
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors
from vsehub.rerank.engines import Local
from vsehub.similarities import Cosine

N, D, M = 12, 8, 40
# Captured before any case puts the stand-in there.
OF_GPUS = {one: getattr(faiss, one, None) for one in ("StandardGpuResources", "GpuIndexFlatConfig", "GpuIndexFlatIP")}


@pytest.fixture(autouse=True)
def on_it():
    with pretended():
        yield


def unit(count, seed):
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(count, D, generator=random)
    texts = images + 0.7 * torch.randn(count, D, generator=random)
    return F.normalize(images, dim=1), F.normalize(texts, dim=1), torch.arange(count) // 2, torch.arange(count)


@pytest.mark.parametrize("backend", ["exact", "faiss", "bf16"])
@pytest.mark.parametrize("exclude", ["image", "batch_captions"])
def test_the_bank(backend, exclude):
    """Filled, and filled again with another number of entries."""
    settings = {"precision": "bf16"} if backend == "bf16" else {"backend": backend}
    plain = MemoryBank(k=5, exclude=exclude, **(settings if backend == "bf16" else {"backend": "exact"}))
    own, asked = MemoryBank(k=5, exclude=exclude, **settings), unit(N, 1)
    with pretended_faiss.installed():
        for count in (M, M + 9):
            filled = unit(count, 0)
            plain.fill(*filled)
            expected = plain.query(*asked, True)
            own.fill(*map(moved, filled))
            with traffic() as counted:
                found = own.query(*map(moved, asked), True)
            torch.testing.assert_close(back(found), expected)
            waits = {"size neighbors/bank.py": 1, "scalar neighbors/bank.py": 1}  # how many entries the batch has
            assert counted.places == ({} if exclude == "image" else waits)
        assert own.running_backend == {"faiss": "faiss on the GPU", "bf16": "exact, in bf16"}.get(backend, "exact")
        assert own.rounding_share() == plain.rounding_share()


def test_the_resources_of_faiss_are_bounded():
    with pretended_faiss.installed():
        first, second = (FaissIndex(moved(unit(M, seed)[0]))._index for seed in (0, 1))
    assert first.getResources() is second.getResources()
    assert first.getResources().bytes == {"scratch": GPU_SCRATCH, "pinned": GPU_PINNED}


@pytest.mark.parametrize(
    "wrong",
    [back, torch.Tensor.double, lambda one: one.T.contiguous().T, lambda one: one[:, :-1].contiguous()],
    ids=["on the CPU", "doubles", "columns", "other dimensions"],
)
def test_what_faiss_refuses(wrong):
    """The stand-in, and FAISS's own bridge to torch, refuse what a GPU would read as something else."""
    vectors = moved(unit(M, 0)[0])
    with pretended_faiss.installed():
        index = FaissIndex(vectors)._index
        with torch.cuda.device(device()):
            index.search(vectors, 3)
            with pytest.raises((AssertionError, RuntimeError)):
                index.search(wrong(vectors), 3)


def test_where_and_how_deep_faiss_searches():
    vectors = moved(unit(M, 0)[0])
    with pretended_faiss.installed() as library:
        index = FaissIndex(vectors)._index
        with pytest.raises(RuntimeError, match="another stream than torch"):
            index.search(vectors, 3)
        with torch.cuda.device(device()), pytest.raises(RuntimeError, match="up to 2048"):
            index.search(vectors, GPU_DEPTH + 1)
        for arguments in ((index.getResources(), D, None), (None, D, library.GpuIndexFlatConfig())):
            with pytest.raises(TypeError):
                library.GpuIndexFlatIP(*arguments)


@pytest.mark.skipif(None in OF_GPUS.values(), reason="this build of FAISS has no GPU indexes to compare with")
def test_the_stand_in_takes_what_faiss_takes():
    """The signatures of FAISS's build for GPUs, and its own check of the types that an index is made with.

    Those of the library below, `add_ex` and `search_ex`, are called by FAISS's own bridge alone.
    """
    import faiss.contrib.torch_utils

    for name, theirs in OF_GPUS.items():
        ours = getattr(pretended_faiss, name)
        for method in [one for one in vars(ours) if hasattr(theirs, one) and not one.endswith("_ex")]:
            if inspect.isfunction(getattr(ours, method)):
                wanted, found = (
                    [
                        (one.name, one.kind, one.default)
                        for one in inspect.signature(getattr(side, method)).parameters.values()
                    ]
                    for side in (theirs, ours)
                )
                assert found == wanted, f"{name}.{method}"
    assert {"add", "search", "getDevice", "getResources"} <= vars(pretended_faiss.GpuIndexFlatIP).keys()
    assert set(pretended_faiss.GpuIndexFlatConfig.__slots__) <= set(dir(OF_GPUS["GpuIndexFlatConfig"]))
    if faiss.get_num_gpus() == 0:
        resources, config = OF_GPUS["StandardGpuResources"](), OF_GPUS["GpuIndexFlatConfig"]()
        resources.setTempMemory(GPU_SCRATCH)
        resources.setPinnedMemory(GPU_PINNED)
        config.device = 0
        with pytest.raises(RuntimeError, match="Invalid GPU device"):  # a TypeError would come before
            OF_GPUS["GpuIndexFlatIP"](resources, D, config)


@pytest.mark.parametrize("rounded", [False, True])
def test_tiles(rounded, monkeypatch):
    """Several tiles of a GPU's sizes in both directions, plain and corrected, of rounded vectors too."""
    for name, size in (("GPU_TILE_QUERIES", 7), ("GPU_TILE_ITEMS", 40), ("QUERIES_HELD", 20)):
        monkeypatch.setattr(tiles, name, size)
    (queries, *_), (items, *_) = unit(30, 1), unit(130, 2)
    own, bias = torch.arange(30.0)[:, None] / 10, torch.arange(130.0) / 100

    def lists(put):
        sides = (as_vectors("vectors", put(side)) for side in (queries, items))
        asked, among = sides
        terms = put(own), put(bias)
        corrections = [
            None,
            lambda scores, rows, columns: scores * terms[0][rows] - terms[1][columns],
            Affine(2.0, terms[1]),
        ]
        return nearest(asked, RoundedVectors(among) if rounded else among, 5, corrections)

    expected = lists(lambda one: one)
    for (values, positions), (wanted, places) in zip(lists(moved), expected, strict=True):
        torch.testing.assert_close(back(values), wanted, rtol=1e-4, atol=1e-5)
        assert torch.equal(back(positions), places)
        assert isinstance(values, Pretended)


@pytest.mark.parametrize("name", names("criterion"))
def test_a_criterion(name):
    criterion = instantiated("criterion", name)
    if name == "auto":
        pytest.skip("auto is a choice among criteria")
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 15, 11))
    scores, reference = queries @ items.T, more @ items.T
    further = None
    if criterion.correction.reference_items_as == "rows":
        further = items[:4] @ items.T
    for given in (None, reference) if criterion.inductive else (None,):
        expected = criterion.rescore(scores, given, reference_item_scores=further)
        found = criterion.rescore(moved(scores), moved(given), reference_item_scores=moved(further))
        torch.testing.assert_close(back(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", names("criterion"))
def test_a_criterions_search(name):
    criterion = instantiated("criterion", name)
    if name == "auto":
        pytest.skip("auto is a choice among criteria")
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 35, 21))
    if criterion.matching is not None:
        more = None
    expected = criterion.search(queries, items, more, 5)
    found = criterion.search(*map(moved, (queries, items, more)), 5)
    torch.testing.assert_close(back(found[0]), expected[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(back(found[1]), expected[1])


def split(put):
    images, texts, image_ids, _ = unit(20, 3)
    return EncodedSplit(*map(put, (images[::2].contiguous(), texts, image_ids)))


@pytest.mark.parametrize("case", ["csls", "csls, bf16", "csls+rgm", "nns"])
def test_an_evaluation(case):
    name, _, precision = case.partition(", ")
    protocol, criterion = instantiated("protocol", "single"), instantiated("criterion", name)
    expected, found = (
        evaluate(split(put), Cosine(), criterion, protocol, bf16=precision == "bf16") for put in (back, moved)
    )
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-4)
    assert found.histograms == expected.histograms
    assert found.rounding == expected.rounding


def test_an_ensemble():
    """Two models, one of them without weight, on a split whose texts belong to several images."""

    def measured(put):
        models = [split(put) for _ in range(2)]
        both = together(models)
        pairs = put(torch.tensor([[0, 0], [1, 0], *([n // 2, n] for n in range(1, 20))]))
        both = EncodedSplit(Several(both.images.parts), both.texts, both.image_index, pairs)
        similarity = MeanSimilarity([Cosine(), Cosine()], [2.0, 1.0])
        return evaluate(both, similarity, NearestNeighbor(), instantiated("protocol", "single"))

    expected, found = measured(back), measured(moved)
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-4)


@pytest.mark.parametrize("name", ["csls", "csls+rgm", "auto"])
def test_settings_chosen_on_validation(name, monkeypatch):
    """The same settings, with the same values of all that were tried."""
    monkeypatch.setattr(CSLS, "GRID", {"k": (1, 3)})
    monkeypatch.setattr(RelaxedGreedyMatching, "GRID", {"relaxation": (1.0, 3.0)})
    criterion = Auto(["csls"]) if name == "auto" else instantiated("criterion", name)
    select = choose if name == "auto" else tune
    expected, found = (
        select(criterion, split(put), Cosine(), instantiated("protocol", "single")) for put in (back, moved)
    )
    assert (found.name, found.criterion.parameters()) == (expected.name, expected.criterion.parameters())
    assert [settings for settings, _ in found.tried] == [settings for settings, _ in expected.tried]
    assert [rsum for _, rsum in found.tried] == pytest.approx([rsum for _, rsum in expected.tried], abs=1e-3)


@pytest.mark.parametrize("criterion", ["nns", "csls", "is", "sinkhorn"])
def test_corrected_search(criterion):
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 35, 21))
    searches = [
        CorrectedSearch(criterion, k=4, device=place).fit(items, reference=more).calibrate(queries, truth)
        for place, truth in ((None, torch.arange(len(queries))), (device(), torch.arange(len(queries))))
    ]
    expected, found = (search.search(queries, p_values=True, accept=0.5) for search in searches)
    assert torch.equal(back(found[1]), expected[1])
    torch.testing.assert_close(back(found[0]), expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rounded", [False, True])
def test_a_reranking(rounded):
    """Vectors of the CPU are compared there, block by block: the same lists, facts and effect of rounding."""
    (queries, items, answers, _), (more, *_) = unit(30, 1), unit(21, 2)
    criteria = {name: instantiated("criterion", name) for name in ("csls", "is", "qb_norm")}
    criteria |= {} if rounded else {"csls+rgm": instantiated("criterion", "csls+rgm")}
    reference = more if rounded else None
    positives = Positives.from_ids(answers, answers)
    expected, found = (
        measure(queries, items, criteria, reference, 5, positives, engine=Local(where, rounded))
        for where in (torch.device("cpu"), device())
    )
    for one, other in zip(found.rankings, expected.rankings, strict=True):
        assert torch.equal(one.positions, other.positions), one.name
        torch.testing.assert_close(one.values, other.values, rtol=1e-4, atol=1e-5)
        assert one.hubness == pytest.approx(other.hubness)
        assert (one.truth, one.changed, one.rounding) == (other.truth, other.changed, other.rounding)
