import logging

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.criteria.csls import CSLS
from vsehub.criteria.inverted_softmax import InvertedSoftmax
from vsehub.criteria.nnn import NNN
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.hubness import occurrence_metrics
from vsehub.metrics.occurrences import Occurrences
from vsehub.neighbors import faiss_index, sampling, served
from vsehub.neighbors.faiss_index import load_faiss
from vsehub.neighbors.rows import as_rows
from vsehub.neighbors.sampling import sampled
from vsehub.neighbors.served import build_index, load_index, measured_recall
from vsehub.neighbors.served_usage import usage_note

pytestmark = pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")

RULES = [CSLS(3), NNN(5), InvertedSoftmax()]
KINDS = ("flat", "ivf", "hnsw")


def clustered(rows, seed, dim=24, clusters=40):
    """Unit vectors around centres that share an offset: some items are hubs."""
    centres = torch.randn(clusters, dim, generator=torch.Generator().manual_seed(0)) + 0.5
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, dim, generator=generator)
    vectors = centres[torch.randint(clusters, (rows,), generator=generator)] + 0.7 * noise
    return torch.nn.functional.normalize(vectors, dim=1)


def bias_of(rule, items, reference):
    return rule.bias(reference @ items.T)


@pytest.fixture(scope="module")
def sides():
    """Queries, items, and CSLS's bias of the items from a reference of its own."""
    items = clustered(4000, 1)
    return clustered(300, 2), items, bias_of(CSLS(), items, clustered(500, 3))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(("queries", "items", "references"), [(200, 31, 50), (20, 900, 7), (1, 1, 1)])
def test_a_flat_index_is_the_criterions_search(rule, queries, items, references, monkeypatch):
    monkeypatch.setattr(served, "BLOCK", 64)
    query, item, reference = clustered(queries, 1), clustered(items, 2), clustered(references, 3)
    index = build_index(item, bias_of(rule, item, reference), rule.scale)
    k = min(6, items)
    for corrected, criterion in ((True, rule), (False, NearestNeighbor())):
        values, positions = index.search(query, k, corrected)
        deeper, expected = criterion.search(query, item, reference, min(k + 1, items))
        torch.testing.assert_close(values, deeper[:, :k], rtol=1e-5, atol=1e-5)
        apart = torch.nn.functional.pad(-deeper.diff(dim=1), (1, 1), value=1.0) > 1e-4
        sure = (apart[:, :-1] & apart[:, 1:])[:, :k]
        assert sure.float().mean() > 0.9
        assert torch.equal(positions[sure], expected[:, :k][sure])


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_approximate_indexes_find_most_and_say_what_they_are(kind, sides, caplog):
    queries, items, bias = sides
    skew = occurrence_metrics(counted(queries, items))["skew_10"]
    assert skew > 1.5  # there are hubs to correct
    with caplog.at_level(logging.WARNING):
        index = build_index(items, bias, CSLS.scale, kind)
    assert f"{kind} index is approximate" in caplog.text
    recall = measured_recall(index, queries, items, bias, CSLS.scale, sample=200)
    assert 0.9 < recall["plain"] <= 1
    assert 0.9 < recall["corrected"] <= 1


def counted(queries, items):
    counts = Occurrences(len(items), (10,))
    counts.add(NearestNeighbor().search(queries, items, k=10)[1])
    return counts.counts


def test_measured_recall_is_the_share_found(sides):
    queries, items, bias = sides
    assert measured_recall(build_index(items, bias, 2.0), queries, items, bias, 2.0, k=7) == {
        "plain": 1.0,
        "corrected": 1.0,
    }
    # Another bias than the index has: its corrected ranking differs, the plain one does not.
    index = build_index(items, torch.zeros(len(items)), 2.0)
    recall = measured_recall(index, queries, items, bias, 2.0, k=7)
    wanted = (2.0 * queries @ items.T - bias).topk(7).indices
    found = (queries @ items.T).topk(7).indices
    share = np.mean([len(set(a) & set(b)) / 7 for a, b in zip(wanted.tolist(), found.tolist(), strict=True)])
    assert recall == {"plain": 1.0, "corrected": pytest.approx(share)}
    assert share < 0.95


def test_less_than_k_found(sides):
    queries, items, bias = sides
    index = build_index(items, bias, 2.0, "ivf")
    for corrected in (True, False):
        values, positions = index.search(queries[:9], len(items), corrected)
        absent = positions < 0
        assert 0 < absent.sum() < positions.numel()
        assert (absent[:, 1:] >= absent[:, :-1]).all()
        assert torch.equal(values == -torch.inf, absent)
        assert (positions[absent] == -1).all()
        scores = 2.0 * queries[:9] @ items.T - bias if corrected else queries[:9] @ items.T
        torch.testing.assert_close(values[~absent], scores.gather(1, positions.clamp(min=0))[~absent])


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind, sides, tmp_path):
    queries, items, bias = sides
    index = build_index(items, bias, 2.0, kind)
    path = tmp_path / "folder" / "index.faiss"
    index.save(path)
    loaded = load_index(path)
    assert (loaded.facts, loaded.effort) == (index.facts, index.effort)
    assert loaded.facts.mean_bias == pytest.approx(bias.mean().item())
    for mine, theirs in zip(index.search(queries), loaded.search(queries), strict=True):
        assert torch.equal(mine, theirs)
    assert load_faiss().read_index(str(path)).ntotal == len(items)
    assert [one.name for one in path.parent.iterdir()] == ["index.faiss"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_usage_note_runs_and_finds_the_same(kind, sides, tmp_path, monkeypatch):
    queries, items, bias = sides
    index = build_index(items, bias, 2.0, kind)
    index.save(tmp_path / "it's an index.faiss")
    np.save(tmp_path / "queries.npy", queries.half().numpy())
    monkeypatch.chdir(tmp_path)
    note = usage_note(index, "it's an index.faiss", k=4)
    assert "vsehub" not in note
    assert len(note.splitlines()) <= 10
    pasted = {}
    exec(note, pasted)
    values, positions = index.search(queries.half(), 4)
    np.testing.assert_array_equal(pasted["positions"], positions)
    np.testing.assert_allclose(pasted["scores"], values, rtol=1e-5)


def damaged(path, change):
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content) or content)
    return path


def flipped(place):
    def change(content):
        content[place] ^= 1

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"\x89PNG" * 30, "is no index of vsehub, or it is cut short"),
        (lambda content: b" ", "is no index of vsehub"),
        (lambda content: content[: len(content) // 2], "is no index of vsehub, or it is cut short"),
        (lambda content: content[1000:], "the facts at its end are not those of its size"),
        (flipped(5000), r"is damaged: .* \(checksum\)"),
        (flipped(-30), r"is damaged"),
        (flipped(-13), r"is no index of vsehub|the facts at its end"),
        (flipped(-1), "is no index of vsehub"),
    ],
)
def test_damaged_or_foreign_files(change, message, sides, tmp_path):
    _, items, bias = sides
    build_index(items, bias, 2.0).save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match=message):
        load_index(damaged(tmp_path / "index.faiss", change))


def test_an_index_of_somebody_else(tmp_path):
    faiss = load_faiss()
    index = faiss.IndexFlatIP(4)
    index.add(np.eye(4, dtype="float32"))
    faiss.write_index(index, str(tmp_path / "theirs.faiss"))
    with pytest.raises(InputError, match=r"theirs\.faiss is no index of vsehub"):
        load_index(tmp_path / "theirs.faiss")
    with pytest.raises(InputError, match="no such file or folder"):
        load_index(tmp_path / "absent.faiss")


def test_facts_of_another_index(tmp_path, sides, monkeypatch):
    index = build_index(*sides[1:], 2.0)
    monkeypatch.setattr(index, "facts", served.IndexFacts("flat", 7, 24, 2.0, 0.0))
    index.save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match="are not those of its index"):
        load_index(tmp_path / "index.faiss")


@pytest.mark.parametrize("kind", KINDS)
def test_items_from_a_file_in_blocks(kind, sides, tmp_path, monkeypatch):
    queries, items, bias = sides
    monkeypatch.setattr(served, "BLOCK", 700)
    monkeypatch.setattr(sampling, "BLOCK", 300)
    np.save(tmp_path / "items.npy", items.half().numpy())
    mapped = build_index(np.load(tmp_path / "items.npy", mmap_mode="r"), bias, 2.0, kind)
    values, positions = mapped.search(queries.numpy())
    assert isinstance(values, np.ndarray)
    assert isinstance(positions, np.ndarray)
    held = build_index(items.half().double(), bias.double(), 2.0, kind)
    np.testing.assert_array_equal(positions, held.search(queries)[1])


def test_without_faiss(sides, monkeypatch):
    monkeypatch.setattr(faiss_index, "load_faiss", lambda: None)
    for call in (lambda: build_index(*sides[1:], 2.0), lambda: load_index("index.faiss")):
        with pytest.raises(InputError, match=r"an index needs FAISS, which is not installed: install vsehub\[cpu\]"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, m, b: build_index(m, b[1:], 2.0), r"bias has shape \(3999,\); expected \(4000,\)"),
        (lambda q, m, b: build_index(m, b.clone().fill_(torch.inf), 2.0), "bias has NaN or infinite entries"),
        (lambda q, m, b: build_index(m, b, 0.0), "scale is 0.0; expected a number above 0"),
        (lambda q, m, b: build_index(m, b, 2.0, "pq"), "index is 'pq'; choose one of 'flat', 'ivf', 'hnsw'"),
        (lambda q, m, b: build_index(m[:0], b[:0], 2.0), "items is empty"),
        (lambda q, m, b: build_index(m, b, 2.0).search(q, 4001), "k is 4001; expected 1 to 4000"),
        (lambda q, m, b: build_index(m, b, 2.0).search(q[:, 1:]), r"queries has shape \(300, 23\)"),
    ],
)
def test_bad_input(call, message, sides):
    with pytest.raises(InputError, match=message):
        call(*sides)


def test_a_sample_is_rows_of_the_whole(monkeypatch):
    monkeypatch.setattr(sampling, "BLOCK", 10)
    vectors = torch.arange(57.0)[:, None] * torch.ones(2)
    rows, positions = sampled(as_rows("vectors", vectors), 20, seed=1)
    assert torch.equal(rows, vectors[positions])
    assert positions.unique().tolist() == positions.tolist()
    assert len(positions) == 20
    assert not torch.equal(positions, sampled(as_rows("vectors", vectors), 20, seed=2)[1])
    assert sampled(as_rows("vectors", vectors), 99, seed=1)[1].tolist() == list(range(57))
