"""`search` must give the dense ranking, whatever the tiles and wherever the vectors lie."""

import numpy as np
import pytest
import torch
from criteria.test_formulas import DBSN, DUAL, FORMULAS, SIDES, item_scores, unit, vectors
from looped import looped

from vsehub.criteria import CSLS, Chain, NearestNeighbor, RelaxedGreedyMatching
from vsehub.neighbors import tiles, top_k

CRITERIA = [NearestNeighbor(), *(criterion for criterion, _ in FORMULAS)]


def sized(monkeypatch, queries, items, held, columns, least):
    sizes = {"TILE_QUERIES": queries, "TILE_ITEMS": items, "QUERIES_AT_ONCE": held, "COLUMN_ELEMENTS": columns}
    for name, value in (sizes | {"NARROW": least}).items():
        monkeypatch.setattr(tiles, name, value)


@pytest.fixture(params=[None, (3, 4, 5)], ids=["whole", "tiles"])  # tiles: the last ones of one row or one column
def sizes(request, monkeypatch):
    if request.param is not None:
        sized(monkeypatch, *request.param, 12, 1)


@looped("criterion", CRITERIA)
@looped(
    ("queries", "items", "references", "transductive"),
    [(7, 17, 11, False), (7, 17, 11, True), (17, 7, 1, False), (17, 7, 1, True), (1, 20, 20, False)],
)
def test_search_is_the_dense_ranking(criterion, queries, items, references, transductive, sizes):
    query, item, reference = (unit(n, seed) for seed, n in enumerate((queries, items, references)))
    dense = criterion.rescore(query @ item.T, None if transductive else reference @ item.T)
    values, positions = criterion.search(query, item, None if transductive else reference, 5)
    assert values.shape == (queries, 5)
    assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True)[:, :5])


@looped("criterion", [DUAL, DBSN])
@looped("case", [case for case in SIDES if case != "copies"])  # whose ties rounding settles
@looped("own_queries", [False, True])
@looped("own_items", [False, True])
def test_search_with_reference_items_is_the_dense_ranking(criterion, case, own_queries, own_items, sizes):
    """Without reference items the items themselves, as rows or as columns, rank alike."""
    query, item, reference, bank = vectors(case)
    reference_rows = query if own_queries else reference
    further = item_scores(criterion, item, reference_rows, item if own_items else bank)
    dense = criterion.rescore(query @ item.T, reference_rows @ item.T, reference_item_scores=further)
    _, positions = criterion.search(
        query, item, None if own_queries else reference_rows, len(item), reference_items=None if own_items else bank
    )
    assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True))


@looped("criterion", [*CRITERIA, DUAL])
@looped("transductive", [False, True])
def test_equal_values_come_in_their_order(criterion, transductive, sizes):
    """Copies of items: of equal values the lower position first, across tiles too."""
    # Small whole numbers, whose products are exact on every processor, so that copies do tie.
    query, item, reference, bank = (
        torch.randint(-1, 2, (n, 6), generator=torch.Generator().manual_seed(n)).double() for n in (4, 3, 6, 5)
    )
    item = item[[0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1]]
    bank = bank if criterion.takes_reference_items and not transductive else None
    values, positions = criterion.search(query, item, reference, 11, reference_items=bank)
    ties = values[:, 1:] == values[:, :-1]
    assert (values[:, 1:] <= values[:, :-1]).all()
    assert (positions.diff(dim=1) > 0)[ties].all()
    assert ties.sum() >= (4 * 8 if isinstance(criterion, NearestNeighbor) else 1), "copies of an item have one score"


def test_arrays_in_arrays_out(tmp_path):
    """numpy in, numpy out; memory maps and half precision are read block by block."""
    query, item = unit(6, 0).float(), unit(9, 1).float()
    wanted = CSLS(2).search(query, item, k=3)
    np.save(tmp_path / "items.npy", item.numpy())
    values, positions = CSLS(2).search(query.numpy(), np.load(tmp_path / "items.npy", mmap_mode="r"), k=3)
    np.testing.assert_array_equal(positions, wanted[1].numpy())
    np.testing.assert_allclose(values, wanted[0].numpy(), rtol=1e-6)
    half = CSLS(2).search(query.half().numpy(), item.bfloat16(), k=3)
    dense = CSLS(2).rescore(query.half().float() @ item.bfloat16().float().T)
    np.testing.assert_array_equal(half[1], top_k(dense, 3)[1].numpy())
    assert all(isinstance(array, np.ndarray) for array in (values, positions, *half))


def test_memory_is_bounded(monkeypatch):
    """No tensor larger than a tile, the held queries or the answer is ever made, and no matrix of items x items."""
    sized(monkeypatch, 16, 16, 32, 512, tiles.NARROW)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            answer = function(*args, **(kwargs or {}))
            if isinstance(answer, torch.Tensor) and not answer._is_view():
                largest = max(largest, answer.numel())
            return answer

    query, item, bank = unit(20, 0, dim=2), unit(300, 1, dim=2), unit(150, 2, dim=2)
    with Watch():
        for criterion in CRITERIA:
            criterion.search(query, item, query[:17], 2)
    assert 300 <= largest <= 512
    with Watch():
        for criterion in (DUAL, DBSN):
            criterion.search(query, item, query[:17], 2, reference_items=bank)
        DUAL.search(query, item, query[:17], 2)
    assert largest <= tiles.NARROW * 300


@looped("criterion", [DUAL, DBSN])
def test_a_chain_hands_reference_items_on(criterion):
    query, item, _, bank = vectors("plain")
    chain = Chain([criterion, RelaxedGreedyMatching(1.0)])
    further = item_scores(criterion, item, query, bank)
    corrected = criterion.rescore(query @ item.T, reference_item_scores=further)
    dense = chain.rescore(query @ item.T, k=3, reference_item_scores=further)
    assert torch.equal(dense, RelaxedGreedyMatching(1.0).rescore(corrected, k=3))
    positions = chain.search(query, item, k=3, reference_items=bank)[1]
    assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True)[:, :3])
