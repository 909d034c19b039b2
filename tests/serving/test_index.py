"""FAISS indexes with a bias must rank as the criteria do, and their notes must run as printed."""

import numpy as np
import pytest
import torch
from looped import looped
from test_estimator import refused

from vsehub.criteria import CSLS, NNN, InvertedSoftmax, NearestNeighbor
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.serving import build_index, index, measured_recall

pytestmark = pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")


def clustered(rows, seed, dim=24, clusters=40):
    """Unit vectors around centres that share an offset: some items are hubs."""
    centres = torch.randn(clusters, dim, generator=torch.Generator().manual_seed(0)) + 0.5
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, dim, generator=generator)
    vectors = centres[torch.randint(clusters, (rows,), generator=generator)] + 0.7 * noise
    return torch.nn.functional.normalize(vectors, dim=1)


@pytest.fixture(scope="module")
def sides():
    """Queries, items, and CSLS's bias of the items from a reference of its own."""
    items = clustered(4000, 1)
    return clustered(300, 2), items, CSLS().bias(clustered(500, 3) @ items.T)


@pytest.mark.parametrize("rule", [CSLS(3), NNN(5), InvertedSoftmax()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(("queries", "items", "references"), [(200, 31, 50), (20, 900, 7), (1, 1, 1)])
def test_a_flat_index_is_the_criterions_search(rule, queries, items, references, monkeypatch):
    monkeypatch.setattr(index, "BLOCK", 64)
    query, item, reference = clustered(queries, 1), clustered(items, 2), clustered(references, 3)
    served = build_index(item, rule.bias(reference @ item.T), rule.scale)
    k = min(6, items)
    for corrected, criterion in ((True, rule), (False, NearestNeighbor())):
        values, positions = served.search(query, k, corrected)
        deeper, expected = criterion.search(query, item, reference, min(k + 1, items))
        torch.testing.assert_close(values, deeper[:, :k], rtol=1e-5, atol=1e-5)
        apart = torch.nn.functional.pad(-deeper.diff(dim=1), (1, 1), value=1.0) > 1e-4
        sure = (apart[:, :-1] & apart[:, 1:])[:, :k]
        assert sure.float().mean() > 0.9
        assert torch.equal(positions[sure], expected[:, :k][sure])


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_approximate_indexes_find_most(kind, sides):
    queries, items, bias = sides
    served = build_index(items, bias, CSLS.scale, kind)
    recall = measured_recall(served, queries, items, bias, CSLS.scale, sample=200)
    assert 0.9 < recall["plain"] <= 1
    assert recall["plain"] - 0.03 < recall["corrected"] <= 1


def test_recall_is_measured(sides):
    queries, items, bias = sides
    # Another bias than the index has: its corrected ranking differs, the plain one does not.
    served = build_index(items, torch.zeros(len(items)), 2.0)
    recall = measured_recall(served, queries, items, bias, 2.0, k=7)
    wanted = (2.0 * queries @ items.T - bias).topk(7).indices
    nearest = (queries @ items.T).topk(7).indices
    share = np.mean([len(set(a) & set(b)) / 7 for a, b in zip(wanted.tolist(), nearest.tolist(), strict=True)])
    assert recall == {"plain": 1.0, "corrected": pytest.approx(share)}
    assert share < 0.95


def test_less_than_k_found(sides):
    queries, items, bias = sides
    served = build_index(items, bias, 2.0, "ivf")
    for corrected in (True, False):
        values, positions = served.search(queries[:9], len(items), corrected)
        absent = positions < 0
        assert 0 < absent.sum() < positions.numel()
        assert (absent[:, 1:] >= absent[:, :-1]).all()
        assert torch.equal(values == -torch.inf, absent)
        scores = 2.0 * queries[:9] @ items.T - bias if corrected else queries[:9] @ items.T
        torch.testing.assert_close(values[~absent], scores.gather(1, positions.clamp(min=0))[~absent])


@looped(
    ("call", "name"),
    [
        (lambda q, m, b: build_index(m, b[1:], 2.0), "bias"),
        (lambda q, m, b: build_index(m, b.clone().fill_(torch.inf), 2.0), "bias"),
        (lambda q, m, b: build_index(m, b, 0.0), "scale"),
        (lambda q, m, b: build_index(m, b, 2.0, "pq"), "index"),
        (lambda q, m, b: build_index(m[:0], b[:0], 2.0), "items"),
        (lambda q, m, b: build_index(m, b, 2.0).search(q, 4001), "k is 4001"),
        (lambda q, m, b: build_index(m, b, 2.0).search(q[:, 1:]), "queries"),
    ],
)
def test_bad_input(call, name, sides):
    refused(name, lambda: call(*sides))


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_looking_further_ends_with_all_lists(kind, sides):
    queries, items, bias = sides
    served = build_index(items, bias, CSLS.scale, kind)
    queries = queries[:40]
    before = measured_recall(served, queries, items, bias, CSLS.scale)["corrected"]
    while served.look_further():
        pass
    assert measured_recall(served, queries, items, bias, CSLS.scale)["corrected"] >= max(before, 0.99)
