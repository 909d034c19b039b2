"""One set: each item searches among the others."""

import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.cli.main import main
from vsehub.criteria import CSLS, NNN, DistributionNormalization, InvertedSoftmax, LocalScaling, Sinkhorn
from vsehub.neighbors import tiles
from vsehub.ranking.inputs import open_inputs
from vsehub.ranking.measure import measure

ITEMS, DIM = 61, 8
CRITERIA = [CSLS(k=4), InvertedSoftmax(), NNN(k=5), DistributionNormalization(), LocalScaling(k=3)]


@pytest.fixture
def items(tmp_path, monkeypatch):
    """Unit vectors, pulled one way, in a file; rows 7 to 9 are copies of row 3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 20 * ITEMS)  # several blocks of columns, the last one narrow
    random = np.random.default_rng(0)
    rows = random.normal(size=(ITEMS, DIM)) + np.exp(random.normal(size=(ITEMS, 1))) / 2
    rows[7:10] = rows[3]
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    np.save("items.npy", rows)
    return rows


def loops(criterion, rows):
    """Corrected scores (M, M) of each item among the others, -inf with itself; terms are estimated from the others."""
    scores, values = torch.from_numpy(rows) @ torch.from_numpy(rows).T, []
    others = [[other for other in range(len(rows)) if other != item] for item in range(len(rows))]
    terms = [criterion.item_terms(scores[others[item]][:, [item]]) for item in range(len(rows))]
    joined = tuple(torch.cat(parts) for parts in zip(*terms, strict=True))
    for item in range(len(rows)):
        query_terms = criterion.query_terms((scores[[item]][:, others[item]],), joined)
        values.append(criterion.corrected(scores[[item]], query_terms, joined))
        values[-1][0, item] = -torch.inf
    return torch.cat(values)


@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
def test_each_item_among_the_others_by_loops(items, criterion):
    measured = measure(open_inputs({"items": "items.npy"}).sides, {"it": criterion}, 5)
    plain, corrected = (ranking.positions for ranking in measured.rankings)
    values = loops(criterion, items)
    torch.testing.assert_close(values.gather(1, corrected), values.topk(5).values)
    assert {*plain[3][:3].tolist()} == {7, 8, 9}
    assert not (corrected == torch.arange(ITEMS)[:, None]).any()
    assert measured.rankings[1].hubness["skew_10"] < measured.rankings[0].hubness["skew_10"]
    search = CorrectedSearch(criterion, k=5).fit(items)
    assert np.array_equal(search.neighbors_of_items()[1], corrected)
    assert search.kneighbors_graph(4, mode="connectivity")[3].indices.tolist() == corrected[3, :4].tolist()


def test_a_graph_of_distances(items):
    """1 minus the cosine in plain search; under CSLS the same order, and the same scale in every row."""
    plain = CorrectedSearch("nns").fit(items).kneighbors_graph(6)
    row = plain[5].toarray()[0]
    nearest = np.argsort(1 - items @ items[5], kind="stable")[:7]
    assert plain[5].indices[0] == 5
    np.testing.assert_allclose(row[nearest], (1 - items @ items[5])[nearest], atol=1e-6)
    scores = items.astype(float) @ items.T
    np.fill_diagonal(scores, -1)
    terms = np.sort(scores, axis=0)[-4:].mean(axis=0)
    np.fill_diagonal(scores, 1)
    wanted = (2 - 2 * terms).max() - (2 * scores - terms - terms[:, None])
    graph = CorrectedSearch("csls", parameters={"k": 4}).fit(items).kneighbors_graph(6)
    coordinates = graph.tocoo()
    others = coordinates.row != coordinates.col
    np.testing.assert_allclose(
        coordinates.data[others], wanted[coordinates.row[others], coordinates.col[others]], atol=1e-5
    )
    assert not coordinates.data[~others].any()
    assert graph.nnz == 7 * ITEMS


def test_clusters_and_classes_of_a_corrected_graph(items):
    cluster, neighbors = pytest.importorskip("sklearn.cluster"), pytest.importorskip("sklearn.neighbors")
    apart = items[9:]  # without copies, whose order would be a matter of rounding
    plain = CorrectedSearch("nns").fit(apart).kneighbors_graph(6).toarray()
    transformer = neighbors.KNeighborsTransformer(n_neighbors=6, metric="cosine")
    np.testing.assert_allclose(plain, transformer.fit_transform(apart).toarray(), atol=1e-6)
    graph = CorrectedSearch("csls").fit(items).kneighbors_graph(10)
    labels = cluster.DBSCAN(eps=np.median(graph.data), min_samples=3, metric="precomputed").fit_predict(graph)
    assert len({*labels[[3, 7, 8, 9]]}) == 1
    classes = np.arange(ITEMS) % 2
    classifier = neighbors.KNeighborsClassifier(4, metric="precomputed").fit(graph, classes)
    assert classifier.predict(graph).shape == (ITEMS,)


def test_commands_of_one_set(items, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vsehub", *words])
        main()
        return capsys.readouterr().out

    said = run("diagnose", "items=items.npy", "criteria=[csls,is]", "k=4")
    assert "each among the others" in said
    run("rerank", "items=items.npy", "criterion.k=4", "k=4")
    table = pq.read_table("rerank/ranking.parquet")
    values, positions = loops(CSLS(k=4), items), torch.tensor(table["item"].to_pylist()).view(-1, 4)
    torch.testing.assert_close(values.gather(1, positions), values.topk(4).values)
    run("index", "rerank", "engine=flat")


def test_what_one_set_does_not_take(items, tmp_path):
    sides = open_inputs({"items": "items.npy"}).sides
    with pytest.raises(InputError, match="sinkhorn"):
        measure(sides, {"sinkhorn": Sinkhorn()}, 5)
    with pytest.raises(InputError, match=f"1 to {ITEMS - 1}"):
        CorrectedSearch("csls").fit(items).neighbors_of_items(ITEMS)
    (tmp_path / "truth.csv").write_text("query,item\n1,1\n")
    with pytest.raises(InputError, match="truth"):
        open_inputs({"items": "items.npy", "truth": "truth.csv"})
