import json
import logging

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NNN, InvertedSoftmax, NearestNeighbor
from vsehub.metrics import Occurrences, occurrence_metrics
from vsehub.neighbors import faiss as faiss_index
from vsehub.neighbors import vectors as sampling
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.neighbors.vectors import as_vectors, sampled
from vsehub.serving import build_index, load_index, measured_recall, measured_time, usage_note
from vsehub.serving import corrected as served
from vsehub.serving.index_file import MARK

pytestmark = pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")

RULES = [CSLS(3), NNN(5), InvertedSoftmax()]
KINDS = ("flat", "ivf", "hnsw", "ivfpq")


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


@pytest.mark.parametrize("kind", ["ivf", "hnsw", "ivfpq"])
def test_approximate_indexes_find_most_and_say_what_they_are(kind, sides, caplog):
    queries, items, bias = sides
    skew = occurrence_metrics(counted(queries, items))["skew_10"]
    assert skew > 1.5  # there are hubs to correct
    with caplog.at_level(logging.WARNING):
        index = build_index(items, bias, CSLS.scale, kind)
    assert f"{kind} index is approximate" in caplog.text
    recall = measured_recall(index, queries, items, bias, CSLS.scale, sample=200)
    least = 0.7 if kind == "ivfpq" else 0.9  # a byte stands for two dimensions
    assert least < recall["plain"] <= 1
    assert recall["plain"] - 0.03 < recall["corrected"] <= 1


def test_the_bias_is_told_apart_in_small_codes(sides):
    """Biases that vary little beside the other dimensions: the corrected ranking loses no more than the plain one."""
    queries, items, bias = sides
    recall = measured_recall(build_index(items, bias / 20, CSLS.scale, "ivfpq"), queries, items, bias / 20, CSLS.scale)
    assert recall["corrected"] > recall["plain"] - 0.03


def test_the_time_of_a_query_is_measured(sides):
    queries, items, bias = sides
    found = measured_time(build_index(items, bias, 2.0), queries, sample=5)
    assert found.keys() == {"plain", "corrected"}
    assert all(0 < one < 1000 for one in found.values())


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
    assert loaded_faiss()[0].read_index(str(path)).ntotal == len(items)
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
    assert len(note.splitlines()) <= 12
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
    "change",
    [
        lambda content: b"\x89PNG" * 30,
        lambda content: b" ",
        lambda content: content[: len(content) // 2],
        lambda content: content[-16:],
        lambda content: content[1000:],
        flipped(-1),
        flipped(-3),
        flipped(-13),
    ],
)
def test_damaged_or_foreign_files(change, sides, tmp_path):
    _, items, bias = sides
    build_index(items, bias, 2.0).save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match="index"):
        load_index(damaged(tmp_path / "index.faiss", change))


def test_an_index_of_somebody_else(tmp_path):
    faiss = loaded_faiss()[0]
    index = faiss.IndexFlatIP(4)
    index.add(np.eye(4, dtype="float32"))
    faiss.write_index(index, str(tmp_path / "theirs.faiss"))
    for path, message in (
        ("theirs.faiss", r"theirs\.faiss is damaged or not an index of vsehub"),
        ("absent.faiss", "no such file or folder"),
        (".", "is a folder; expected a regular file"),
    ):
        with pytest.raises(InputError, match=message):
            load_index(tmp_path / path)


def with_facts(path, **changed):
    """The file, its facts changed."""
    content = path.read_bytes()
    length = int.from_bytes(content[-16:-8], "little")
    facts = json.dumps(json.loads(content[-16 - length : -16]) | changed).encode()
    path.write_bytes(content[: -16 - length] + facts + len(facts).to_bytes(8, "little") + MARK)
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "pq"},
        {"kind": None},
        {"items": 0},
        {"items": 10**18},
        {"dim": -1},
        {"dim": "24"},
        {"scale": "2"},
        {"scale": float("nan")},
        {"mean_bias": None},
        {"scale": 0.0},
    ],
)
def test_facts_that_do_not_fit(changed, sides, tmp_path):
    _, items, bias = sides
    build_index(items, bias, 2.0).save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match=r"the facts at the end of .* are not those of its index; build it again"):
        load_index(with_facts(tmp_path / "index.faiss", **changed))


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
    monkeypatch.setattr(faiss_index, "loaded_faiss", lambda: (None, "is not installed"))
    for call in (lambda: build_index(*sides[1:], 2.0), lambda: load_index("index.faiss")):
        with pytest.raises(InputError, match=r"FAISS, which is not installed: pip install 'vsehub\[cpu\]'"):
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
    rows, positions = sampled(as_vectors("vectors", vectors), 20, seed=1)
    assert torch.equal(rows, vectors[positions])
    assert positions.unique().tolist() == positions.tolist()
    assert len(positions) == 20
    assert not torch.equal(positions, sampled(as_vectors("vectors", vectors), 20, seed=2)[1])
    assert sampled(as_vectors("vectors", vectors), 99, seed=1)[1].tolist() == list(range(57))
