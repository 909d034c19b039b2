"""`search` must give the dense ranking, whatever the tiles and wherever the vectors lie."""

import numpy as np
import pytest
import torch
from criteria.test_formulas import FORMULAS
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.criteria.base import fit_all
from vsehub.metrics import top_k
from vsehub.neighbors import tiles
from vsehub.neighbors.vectors import as_vectors

CRITERIA = [NearestNeighbor(), *(criterion for criterion, _ in FORMULAS)]


@pytest.fixture(params=[None, (3, 4, 5), (1, 1, 1)], ids=["whole", "tiles", "single-scores"])
def sizes(request, monkeypatch):
    if request.param is not None:
        for name, value in zip(("TILE_QUERIES", "TILE_ITEMS", "QUERIES_HELD"), request.param, strict=True):
            monkeypatch.setattr(tiles, name, value)
        monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 12)
        monkeypatch.setattr(tiles, "LEAST_COLUMNS", 1)


def unit(n, seed, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


@looped("criterion", CRITERIA)
@looped(
    ("queries", "items", "references", "own"),
    [(7, 30, 11, False), (7, 30, 11, True), (30, 7, 1, False), (30, 7, 1, True), (1, 20, 20, False)],
)
def test_search_is_the_dense_ranking(criterion, queries, items, references, own, sizes):
    query, item, reference = (unit(n, seed) for seed, n in enumerate((queries, items, references)))
    dense = criterion.rescore(query @ item.T, None if own else reference @ item.T)
    values, positions = criterion.search(query, item, None if own else reference, 5)
    assert values.shape == (queries, 5)
    assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True)[:, :5])


@looped("criterion", CRITERIA)
def test_equal_values_come_in_their_order(criterion, sizes):
    """Copies of items: of equal values the lower position first, across tiles too."""
    # Small whole numbers, whose products are exact on every processor, so that copies do tie.
    query, item, reference = (
        torch.randint(-2, 3, (n, 6), generator=torch.Generator().manual_seed(n)).double() for n in (4, 3, 6)
    )
    item = item[[0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1]]
    values, positions = criterion.search(query, item, reference, 11)
    ties = values[:, 1:] == values[:, :-1]
    assert (values[:, 1:] <= values[:, :-1]).all()
    assert (positions.diff(dim=1) > 0)[ties].all()
    assert ties.any()
    if isinstance(criterion, NearestNeighbor):
        assert ties.sum() >= 4 * 8, "copies of an item have one score"


def test_one_product_serves_several_corrections(sizes):
    query, item, reference = unit(9, 0), unit(40, 1), unit(8, 2)
    sides = as_vectors("queries", query), as_vectors("items", item), as_vectors("reference", reference)
    fitted = fit_all(CRITERIA, *sides[1:])
    found = tiles.nearest(
        *sides[:2], 6, [criterion.over(*sides[:2], terms) for criterion, terms in zip(CRITERIA, fitted, strict=True)]
    )
    for criterion, (_, positions) in zip(CRITERIA, found, strict=True):
        assert torch.equal(positions, criterion.search(query, item, reference, 6)[1])


def test_arrays_in_arrays_out(tmp_path):
    """numpy in, numpy out; memory maps and half precision are read block by block."""
    query, item = unit(6, 0).float(), unit(9, 1).float()
    wanted = CSLS(2).search(query, item, k=3)
    np.save(tmp_path / "items.npy", item.numpy())
    values, positions = CSLS(2).search(query.numpy(), np.load(tmp_path / "items.npy", mmap_mode="r"), k=3)
    assert isinstance(values, np.ndarray)
    assert isinstance(positions, np.ndarray)
    np.testing.assert_array_equal(positions, wanted[1].numpy())
    np.testing.assert_allclose(values, wanted[0].numpy(), rtol=1e-6)
    half = CSLS(2).search(query.half().numpy(), item.bfloat16(), k=3)
    dense = CSLS(2).rescore(query.half().float() @ item.bfloat16().float().T)
    np.testing.assert_array_equal(half[1], top_k(dense, 3)[1].numpy())


def test_memory_is_bounded(monkeypatch):
    """No tensor larger than a tile, the held queries or the answer is ever made."""
    monkeypatch.setattr(tiles, "TILE_QUERIES", 16)
    monkeypatch.setattr(tiles, "TILE_ITEMS", 16)
    monkeypatch.setattr(tiles, "QUERIES_HELD", 32)
    monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 512)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            answer = function(*args, **(kwargs or {}))
            if isinstance(answer, torch.Tensor) and not answer._is_view():
                largest = max(largest, answer.numel())
            return answer

    query, item = unit(96, 0, dim=2), unit(600, 1, dim=2)
    with Watch():
        for criterion in CRITERIA:
            criterion.search(query, item, query[:30], 2)
    assert 600 <= largest <= 648


@looped(
    ("call", "message"),
    [
        (lambda: CSLS(3).search(torch.eye(4), torch.eye(4), torch.eye(4), 9), "k is 9; expected 1 to 4"),
        (
            lambda: CSLS(3).search(torch.eye(4), torch.eye(3), torch.eye(4), 1),
            r"items has shape \(3, 3\); expected a matr",
        ),
        (lambda: CSLS(3).search(torch.eye(4), torch.eye(4), torch.eye(4)[:0], 1), "reference is empty"),
        (lambda: CSLS(3).search(torch.eye(4).int(), torch.eye(4)), "queries holds torch.int32 numbers"),
        (lambda: CSLS(3).search([[1.0]], torch.eye(4)), "queries is list; expected a tensor or a numpy array"),
        (lambda: CSLS(3).search(torch.ones(4), torch.eye(4)), r"queries has shape \(4,\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
