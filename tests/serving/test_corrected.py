import json
import logging
import struct
import zlib

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NNN, InvertedSoftmax, NearestNeighbor
from vsehub.metrics import Occurrences, occurrence_metrics
from vsehub.neighbors import faiss as faiss_index
from vsehub.neighbors import vectors as sampling
from vsehub.neighbors.faiss import load_faiss
from vsehub.neighbors.vectors import as_vectors, sampled
from vsehub.serving import build_index, load_index, measured_recall, measured_time, usage_note
from vsehub.serving import corrected as served

pytestmark = pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")

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
    ("change", "message"),
    [
        (lambda content: b"\x89PNG" * 30, "is not an index of vsehub, or it is cut short"),
        (lambda content: b" ", "is not an index of vsehub"),
        (lambda content: content[: len(content) // 2], "is not an index of vsehub, or it is cut short"),
        (lambda content: content[1000:], "the facts at its end are not those of its size"),
        (flipped(5000), r"is damaged: its checksum is wrong"),
        (flipped(-30), r"is damaged"),
        (flipped(-13), r"is not an index of vsehub|the facts at its end"),
        (
            flipped(-1),
            "is of version '0'; this vsehub reads version 1. Use the vsehub that wrote it, or write it again",
        ),
        (flipped(-3), "is not an index of vsehub"),
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
    with pytest.raises(InputError, match=r"theirs\.faiss is not an index of vsehub"):
        load_index(tmp_path / "theirs.faiss")
    with pytest.raises(InputError, match="no such file or folder"):
        load_index(tmp_path / "absent.faiss")


def test_facts_of_another_index(tmp_path, sides, monkeypatch):
    index = build_index(*sides[1:], 2.0)
    monkeypatch.setattr(index, "facts", served.IndexFacts("flat", 7, 24, 2.0, 0.0))
    index.save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match="is no flat index of 7 vectors of 25 numbers as FAISS writes it"):
        load_index(tmp_path / "index.faiss")


def resealed(path, change, **changed):
    """A file whose index or facts were changed by somebody who mended size and checksum too."""
    content = path.read_bytes()
    length = int.from_bytes(content[-16:-8], "little")
    facts, index = json.loads(content[-16 - length : -16]), bytearray(content[: -16 - length])
    index = bytes(change(index) or index)
    facts = json.dumps(facts | {"bytes": len(index), "crc32": zlib.crc32(index)} | changed).encode()
    path.write_bytes(index + facts + len(facts).to_bytes(8, "little") + b"vsehub-1")
    return path


def patched(place, form, value):
    def change(content):
        struct.pack_into(f"<{form}", content, place % len(content), value)

    return change


def last_of(code, form, value, after=0):
    """A number that stands `after` bytes behind the last time that `code` stands in the index."""

    def change(content):
        struct.pack_into(f"<{form}", content, content.rfind(code) + len(code) + after, value)

    return change


def codes(form, value, after=0):
    """A number that stands `after` bytes behind the empty map of an ivfpq index of 26 dimensions."""

    def change(content):
        lists = struct.unpack_from("<Q", content, 37)[0]
        place = 37 + 16 + 37 + 8 + 4 * 26 * lists + 9 + after
        assert struct.unpack_from("<?QQ", content, place - after) == (True, 13, 26)
        struct.pack_into(f"<{form}", content, place, value)

    return change


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("flat", patched(37, "Q", 10**12), "4000000000000 bytes are announced where 400000 are left"),
        ("flat", patched(37, "Q", 2**62), "bytes are announced"),
        ("flat", patched(37, "Q", 3), "it holds 3 numbers"),
        ("flat", patched(4, "i", 24), "it says 4000 vectors of 24 numbers"),
        ("flat", patched(8, "q", 2**60), "it says 1152921504606846976 vectors"),
        ("flat", patched(0, "4s", b"ImRQ"), "its kind is b'ImRQ', not b'IxFI'"),
        ("flat", lambda content: content + bytes(8), "8 bytes follow the index"),
        ("ivf", patched(37, "Q", 2**50), "it says 10[0-9] vectors"),
        ("ivf", patched(45, "Q", 0), "0 of 10[0-9] lists are searched"),
        ("ivf", patched(53, "4s", b"ImRQ"), "its kind is b'ImRQ'"),
        ("ivf", last_of(b"ilar", "Q", 10**15), "its lists are b'ilar', 1000000000000000"),
        ("ivf", last_of(b"full", "Q", 10**15), "bytes are announced"),
        ("ivf", last_of(b"full", "Q", 2**40, 8), "its lists hold [0-9]* vectors"),
        ("ivf", patched(-8, "q", 4000), "its lists hold positions of no item"),
        ("ivf", patched(-8, "q", -1), "its lists hold positions of no item"),
        ("ivfpq", patched(45, "Q", 0), "0 of 10[0-9] lists are searched"),
        ("ivfpq", patched(0, "4s", b"IwFl"), "its kind is b'IwFl', not b'IwPQ'"),
        ("ivfpq", codes("?", False), "its codes are 13 bytes of 13 groups of 8 bits for 26 dimensions"),
        ("ivfpq", codes("Q", 2**40, 1), "its codes are 1099511627776 bytes of 13 groups"),
        ("ivfpq", codes("Q", 2**40, 9), "for 1099511627776 dimensions"),
        ("ivfpq", codes("Q", 12, 17), "of 12 groups"),
        ("ivfpq", codes("Q", 30, 25), "of 30 bits"),
        ("ivfpq", codes("Q", 2**50, 33), "bytes are announced"),
        ("ivfpq", codes("Q", 26 * 64, 33), "its codes stand for 1664 numbers"),
        ("ivfpq", last_of(b"ilar", "Q", 14, 8), "its lists are b'ilar', 10[0-9] of 14 bytes a vector"),
        ("ivfpq", patched(-8, "q", 4000), "its lists hold positions of no item"),
        ("hnsw", patched(37, "Q", 2**61), "bytes are announced"),
        ("hnsw", last_of(b"IxFI", "i", 0, -24), "its search begins at vector|searches among"),
    ],
)
def test_files_made_to_do_harm(kind, change, message, sides, tmp_path):
    _, items, bias = sides
    build_index(items, bias, 2.0, kind).save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match=rf"is no {kind} index of 4000 vectors of 2[56] numbers .*{message}"):
        load_index(resealed(tmp_path / "index.faiss", change))


def test_graphs_made_to_do_harm(sides, tmp_path):
    """Each field of a graph in turn, found as FAISS shows it."""
    _, items, bias = sides
    index, faiss = build_index(items, bias, 2.0, "hnsw"), load_faiss()
    graph, path = index._index.hnsw, tmp_path / "index.faiss"

    def refused():
        index.save(path)
        with pytest.raises(InputError, match="is no hnsw index of 4000 vectors of 25 numbers as FAISS writes it"):
            load_index(path)

    for name, place, value in (
        ("neighbors", 0, 4000),
        ("neighbors", 0, -2),
        ("offsets", 7, 2**40),
        ("offsets", 4000, 1),
        ("levels", 3, 99),
        ("levels", 3, 0),
        ("cum_nneighbor_per_level", 1, 2**30),
        ("cum_nneighbor_per_level", 0, 1),
    ):
        vector = getattr(graph, name)
        before = faiss.vector_to_array(vector)[place]
        vector_set(faiss, vector, place, value)
        refused()
        vector_set(faiss, vector, place, before)
    for name, value in (("entry_point", 4000), ("entry_point", -1), ("max_level", 40), ("efSearch", 2**30)):
        before = getattr(graph, name)
        setattr(graph, name, value)
        refused()
        setattr(graph, name, before)
    levels = faiss.vector_to_array(graph.levels)
    high, low = int(np.flatnonzero(levels > 1)[0]), int(np.flatnonzero(levels == 1)[0])
    offsets, links = map(faiss.vector_to_array, (graph.offsets, graph.cum_nneighbor_per_level))
    place = int(offsets[high]) + int(links[1])
    before = faiss.vector_to_array(graph.neighbors)[place]
    vector_set(faiss, graph.neighbors, place, low)
    refused()
    vector_set(faiss, graph.neighbors, place, before)
    index.save(path)
    assert len(load_index(path)) == 4000


def vector_set(faiss, vector, place, value):
    changed = faiss.vector_to_array(vector)
    changed[place] = value
    faiss.copy_array_to_vector(changed, vector)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "pq"},
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
def test_facts_made_to_do_harm(changed, sides, tmp_path):
    _, items, bias = sides
    build_index(items, bias, 2.0).save(tmp_path / "index.faiss")
    with pytest.raises(InputError, match=r"the facts at the end of .*(are those of no index|are not those of its ind)"):
        load_index(resealed(tmp_path / "index.faiss", lambda content: None, **changed))


def test_limits_of_faiss_are_as_before(sides, tmp_path):
    faiss = load_faiss()
    before = faiss.get_deserialization_vector_byte_limit()
    build_index(*sides[1:], 2.0).save(tmp_path / "index.faiss")
    load_index(tmp_path / "index.faiss")
    assert faiss.get_deserialization_vector_byte_limit() == before


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
    rows, positions = sampled(as_vectors("vectors", vectors), 20, seed=1)
    assert torch.equal(rows, vectors[positions])
    assert positions.unique().tolist() == positions.tolist()
    assert len(positions) == 20
    assert not torch.equal(positions, sampled(as_vectors("vectors", vectors), 20, seed=2)[1])
    assert sampled(as_vectors("vectors", vectors), 99, seed=1)[1].tolist() == list(range(57))
