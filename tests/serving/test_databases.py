"""Collections in the real engines (see `servers`)."""

import fcntl
import importlib.util
import itertools
import json
import os
import pickle
import socket
import sqlite3
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from servers import emptied, installed

from vsehub import extras
from vsehub.checks import InputError
from vsehub.cli.main import main
from vsehub.criteria import (
    CSLS,
    NNN,
    DualBankSinkhorn,
    DualInvertedSoftmax,
    InvertedSoftmax,
    NearestNeighbor,
    Sinkhorn,
)
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import measured_recall
from vsehub.serving.databases import collection as filling
from vsehub.serving.databases import kept, milvus, pgvector, qdrant
from vsehub.serving.databases.base import ItemRows, asking, key_of
from vsehub.serving.databases.collection import (
    Collection,
    Items,
    facts_of,
    fill,
    require_free,
    require_shape,
    usage_note,
)
from vsehub.serving.databases.columns import read_columns
from vsehub.serving.databases.engines import ENGINES, Place, placed
from vsehub.serving.databases.facts import Facts, mark_of_beside
from vsehub.serving.databases.kept import Kept
from vsehub.serving.databases.living import Living, opened

ITEMS, DIM, K = 40, 16, 5
IDS = [f'it\'s "{row}" \\ % {{0}}; DROP TABLE items --' for row in range(ITEMS)]
LABELS = [f"a thing, the {row}th" for row in range(ITEMS)]


def unit(rows, seed):
    vectors = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed)) + 0.4
    return torch.nn.functional.normalize(vectors, dim=1)


VECTORS, QUERIES = unit(ITEMS, 1), unit(40, 2)
BIAS = CSLS(3).bias(unit(60, 3) @ VECTORS.T)


@pytest.fixture(params=list(ENGINES))
def place(request, tmp_path):
    """An empty place in each engine."""
    if request.param == "qdrant":
        return Place("qdrant", request.getfixturevalue("qdrant_server"), "items")
    if not installed(request.param):
        pytest.skip(f"vsehub[{request.param}] is not installed")
    fixtures = {"pgvector": "postgres", "milvus": "given_milvus"}
    uri = request.getfixturevalue(fixtures[request.param]) if request.param in fixtures else None
    if uri is None:
        return placed(request.param, None, "items", tmp_path)
    emptied(request.param, uri)
    return Place(request.param, uri, "items")


def items_of(rows=ITEMS):
    return Items(as_vectors("items", VECTORS[:rows]), BIAS[:rows], IDS[:rows], LABELS[:rows], fingerprint="abc")


def facts(items, approximate=False, criterion="csls", **changed):
    names = {"criterion": criterion, "parameters": {"k": 3}, "reference": "train.npy"}
    return facts_of(items, CSLS.scale, **names | {"approximate": approximate, "normalize": None} | changed)


def test_a_collection(place, tmp_path, monkeypatch):
    """Filled, searched, read, searched by the lines of its note, filled anew with its approximate index, changed."""
    monkeypatch.setattr(filling, "BLOCK", 15)
    items, wanted = items_of(), facts(items_of())
    require_free(place, overwrite=False)
    with fill(place, wanted, items) as held:
        database = held.database
        assert not Facts.read(database.facts(), "x").complete
        held.complete()
        database = held.database
        assert len(held) == ITEMS
        silent = place.served and place.engine in ("milvus", "qdrant")  # servers that do not say
        assert held.size() is None if silent else held.size() > 0
        require_shape(database, place, wanted)
        stored = Facts.read(database.facts(), "x")
        assert stored.complete
        assert stored == replace(wanted, complete=True)
        for corrected, criterion in ((True, CSLS(3)), (False, NearestNeighbor())):
            values, positions = held.search(QUERIES, K, corrected)
            exact, expected = criterion.search(QUERIES, VECTORS, unit(60, 3), K)
            assert torch.equal(positions, expected)
            torch.testing.assert_close(values, exact, rtol=1e-4, atol=1e-4)
        assert measured_recall(held, QUERIES, VECTORS, BIAS, CSLS.scale, K) == {"plain": 1.0, "corrected": 1.0}
        read = [row for rows in database.read() for row in zip(rows.ids, rows.labels, rows.vectors, strict=True)]
        assert sorted(one for one, _, _ in read) == sorted(IDS)
        for one, label, vector in read:
            row = IDS.index(one)
            assert label == LABELS[row]
            np.testing.assert_allclose(vector[:DIM], VECTORS[row], atol=1e-6)
        some = [one for rows in database.read([IDS[7], "absent", IDS[3]]) for one in rows.ids]
        assert sorted(some) == sorted([IDS[7], IDS[3]])
        note = usage_note(held, str(place.uri), k=K)
    note_finds_the_ranking(note, tmp_path, monkeypatch)

    some = Kept(QUERIES[:2])
    with fill(place, facts(items, kept=some), items, some, overwrite=True) as held:
        assert kept.reference_beside(held.database, place).count() == 2
        held.complete()
    with fill(place, facts(items, approximate=True), items, overwrite=True) as held:
        held.complete()
        assert kept.reference_beside(held.database, place).shape() is None
        assert measured_recall(held, QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] > 0.9
        require_shape(held.database, place, held.facts)
        best = held.search(QUERIES[:1], 1)[1].item()
        held.database.remove([IDS[best], "absent"])
        assert len(held) == ITEMS - 1
        assert held.search(QUERIES[:1], 1)[1].item() != best
        held.database.put(
            ItemRows([IDS[best]], np.concatenate([QUERIES[0], [9.0]])[None].astype(np.float32), ["again"])
        )
        assert len(held) == ITEMS
        values, positions = held.search(QUERIES[:1], 1)
        assert positions.item() == best
        assert values.item() == pytest.approx(CSLS.scale * 10 - held.facts.mean_bias, rel=1e-4)
    with pytest.raises(
        InputError, match=r"holds a finished collection already\. Give another index_name or index_uri, or o"
    ):
        require_free(place, overwrite=False)
    require_free(place, overwrite=True)


def class_of(place):
    return getattr(importlib.import_module(f"vsehub.serving.databases.{place.engine}"), ENGINES[place.engine].factory)


def note_finds_the_ranking(note, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", QUERIES.numpy())
    assert "vsehub" not in note
    assert len(note.splitlines()) <= 20
    ran = {}
    exec(note, ran)
    values, positions = CSLS(3).search(QUERIES, VECTORS, unit(60, 3), K)
    assert [list(row) for row in ran["ids"]] == [[IDS[item] for item in row] for row in positions.tolist()]
    np.testing.assert_allclose(ran["scores"], values, rtol=1e-4, atol=1e-4)
    for name in ("client", "base"):
        if hasattr(ran.get(name), "close"):
            ran[name].close()


def test_the_note_on_raw_queries(place, tmp_path, monkeypatch):
    """Its lines make of raw queries what the items were; and its filter leaves out what it says."""
    import pyarrow as pa

    items = replace(items_of(), fields=pa.table({"price": [float(row) for row in range(ITEMS)]}))
    with fill(place, facts(items, normalize=True), items) as held:
        held.complete()
        note = usage_note(held, str(place.uri), K, fields=items.fields)
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", QUERIES.numpy() * np.random.default_rng(0).uniform(0.1, 9, (len(QUERIES), 1)))
    positions = CSLS(3).search(QUERIES, VECTORS, unit(60, 3), K)[1]
    filtered = (2 * QUERIES @ VECTORS[:10].T - BIAS[:10]).topk(K).indices
    only = next(line for line in note.splitlines() if line.startswith("only = ")).split("#")[0]
    example = "models.Filter(must=[models.FieldCondition(key='price', range=models.Range(lt=10))])"
    chosen = example if place.engine == "qdrant" else "'price < 10'"
    assert chosen.replace(" ", "") in note.replace("\n#", "").replace(" ", "")  # as the note itself gives it
    for code, wanted in ((note, positions), (note.replace(only, f"only = {chosen} "), filtered)):
        ran = {}
        exec(code, ran)
        assert [[IDS.index(one) for one in row] for row in ran["ids"]] == wanted.tolist()
        for name in ("client", "base"):
            if hasattr(ran.get(name), "close"):
                ran[name].close()


def test_an_unfinished_collection(place, monkeypatch):
    """Its own command finishes it, from where it stopped; another one is refused, unless it may replace it."""
    monkeypatch.setattr(filling, "BLOCK", 15)
    items, put, made = items_of(), [], class_of(place)
    whole = made.put

    def once(database, rows):
        if put:
            raise ConnectionError("the line went dead at http://me:secret@nowhere")
        put.append(len(rows.ids))
        whole(database, rows)

    def counted(database, rows):
        put.append(len(rows.ids))
        whole(database, rows)

    with monkeypatch.context() as patch:
        patch.setattr(made, "put", once)
        with pytest.raises(
            InputError, match=r"refuses or does not answer \(ConnectionError: the line.*//\*\*\*@nowhere"
        ):
            fill(place, facts(items), items)
    require_free(place, overwrite=False)
    with pytest.raises(InputError, match="is unfinished; give the rerank command that began it again"), opened(place):
        pass
    with pytest.raises(InputError, match="holds the unfinished collection of another command"):
        fill(place, facts(items, criterion="is"), items)
    with monkeypatch.context() as patch:
        patch.setattr(made, "put", counted)
        with fill(place, facts(items), items) as held:
            assert measured_recall(held, QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] == 1.0
    assert sum(put) <= 15 + ITEMS
    with fill(place, facts(items_of(20), criterion="is"), items_of(20), overwrite=True) as held:
        assert len(held) == 20
        held.complete()
        assert len(held) == 20


def test_a_finished_collection_of_a_command_that_was_stopped(place, monkeypatch):
    """A kill right after its completion: the same command takes it over; another one, or one after `add`, does not."""
    monkeypatch.setattr(filling, "BLOCK", 15)
    items, some, starts, put_in = items_of(), Kept(QUERIES[:2]), [], filling.put_in

    def noted(database, items, last, start):
        starts.append(start)
        put_in(database, items, last, start)

    wanted = facts(items, kept=some)
    fill(place, wanted, items, some).complete()
    finished = r"holds a finished collection already\. Give another index_name or index_uri, or overwrite=true"
    with pytest.raises(InputError, match=finished):
        require_free(place, overwrite=False)
    require_free(place, overwrite=False, begun=True)
    with pytest.raises(InputError, match=finished):
        fill(place, facts(items, criterion="is", kept=some), items, some)
    monkeypatch.setattr(filling, "put_in", noted)
    with fill(place, wanted, items, some) as held:
        assert starts == []  # it is taken over as it is
        assert len(held) == ITEMS
        assert kept.reference_beside(held.database, place).count() == 2
        held.complete()
        assert measured_recall(held, QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] == 1.0
    with opened(place) as collection:
        assert collection.remove([IDS[0]]) == 1
        collection.put(collection.new(as_vectors("items", VECTORS[:1]), IDS[:1]))
        assert len(collection) == ITEMS
    with pytest.raises(InputError, match=finished):
        fill(place, wanted, items, some)
    with opened(place) as collection:
        assert len(collection) == ITEMS


@pytest.mark.skipif(not installed("milvus"), reason="vsehub[milvus] is not installed")
def test_a_call_of_milvus_whose_answer_is_lost(tmp_path):
    """Its client repeats the call, and the server refuses to build a second index."""
    database = placed("milvus", None, "items", tmp_path).opened()
    database.create(DIM, "")
    once = database._client.create_index
    database._client.create_index = lambda *given: (once(*given), once(*given))
    database.finish(approximate=False)
    assert database.count() == 0
    database.drop()
    with pytest.raises(Exception, match="collection"):
        database.finish(approximate=False)
    database.close()


@pytest.mark.parametrize("place", ["milvus"], indirect=True)
def test_an_unfinished_collection_of_milvus_is_counted(place):
    """Every item once, whether the server has written it to a file or not; its index is that which `finish` is told."""
    database = place.opened()
    database.create(DIM, "")
    rows = ItemRows(IDS, VECTORS.numpy(), LABELS)
    for _ in range(2):
        database.put(rows)
        assert database.count() == ITEMS
    for approximate, kind in ((True, "HNSW"), (False, "FLAT"), (True, "HNSW")):
        database.finish(approximate)
        (index,) = database._client.list_indexes("items")
        assert database._client.describe_index("items", index)["index_type"] == kind
        assert database.count() == ITEMS
    database.drop()
    database.close()


def test_items_come_and_go(place):
    """What is added ranks as if it had been there when the collection was filled; removed items are found no more."""
    reference, most = unit(60, 3), ITEMS - 10
    given = items_of(most)
    some = Kept.of(CSLS(3), given.vectors, given.bias, as_vectors("reference", reference))
    assert (some.shift, len(some.reference)) == (0.0, 60)
    with fill(place, facts(given, kept=some), given, some) as held:
        held.complete()
    with opened(place) as collection:
        torch.testing.assert_close(sorted_rows(collection.kept.reference), sorted_rows(reference))
        assert collection.remove([IDS[0], IDS[1], "absent"]) == 2
        again = [*range(most, ITEMS), 0, 5]  # new ones, one that was removed, one that is there
        new = collection.new(as_vectors("items", VECTORS[again]), [IDS[row] for row in again])
        torch.testing.assert_close(new.bias, BIAS[again])
        assert collection.put(new) == 1
        assert len(collection) == ITEMS - 1
        vectors, _bias, ids, labels = collection.items()
        assert sorted(ids) == sorted(IDS[:1] + IDS[2:])
        torch.testing.assert_close(vectors, VECTORS[[IDS.index(one) for one in ids]], atol=1e-6, rtol=0)
        assert labels[ids.index(IDS[5])] == LABELS[5]  # not given again: the label stays
        assert labels[ids.index(IDS[6])] == LABELS[6]
        held = Collection(collection.database, place, collection.facts, IDS)
        positions = held.search(QUERIES, K)[1]
        wanted = CSLS(3).search(QUERIES, VECTORS[[0, *range(2, ITEMS)]], reference, K)[1]
        assert torch.equal(positions, wanted + (wanted > 0))
        with pytest.raises(InputError, match=r"items has 3 dimensions; expected 16, as items at"):
            collection.new(as_vectors("items", VECTORS[:2, :3]), IDS[:2])
        with pytest.raises(InputError, match="item_ids has 1 entries for 2 items"):
            collection.new(as_vectors("items", VECTORS[:2]), IDS[:1])
        kept.reference_beside(collection.database, place).remove(["7"])
        collection = Living(collection.database, place, collection.facts)
        with pytest.raises(
            InputError, match=r"of the 60 reference queries beside items at .* 59 are there; fill it again"
        ):
            collection.new(as_vectors("items", VECTORS[:2]), IDS[:2])
        for change, message in (
            (
                {"criterion": "dual_is", "parameters": {}, "scale": DualInvertedSoftmax().scale},
                "is corrected by dual_is, under which the bias of an item depends on the other items; fill it anew",
            ),
            ({"scale": 3.0}, "contradict each other"),
            ({"criterion": "os.system"}, "os.system"),
            ({"parameters": {"_target_": "os.system"}}, "csls has no setting '_target_'"),
        ):
            with pytest.raises(InputError, match=message):
                Living(collection.database, place, replace(collection.facts, **change)).bias(
                    as_vectors("items", VECTORS[:2])
                )
        collection.database.keep_facts(facts(given).text())
    with pytest.raises(InputError, match="is unfinished; give the rerank command that began it again"), opened(place):
        pass
    with pytest.raises(InputError, match="there is no collection absent at"), opened(replace(place, name="absent")):
        pass


def sorted_rows(vectors):
    return vectors[vectors[:, 0].argsort()]


@pytest.mark.parametrize("rule", [CSLS(5), InvertedSoftmax(), NNN(4)], ids=lambda rule: type(rule).__name__)
def test_a_sample_of_a_large_reference(rule, monkeypatch):
    """What is lost by it is a shift of all biases alike, which is measured and added back."""
    monkeypatch.setattr(kept, "KEPT", 300)
    items, reference, new = unit(200, 7), unit(3000, 8), unit(50, 9)
    bias, wanted = rule.bias(reference @ items.T), rule.bias(reference @ new.T)
    some = Kept.of(rule, as_vectors("items", items), bias, as_vectors("reference", reference))
    assert len(some.reference) == 300
    found = some.bias(rule, as_vectors("items", new))
    unshifted = found - some.shift
    torch.testing.assert_close(unshifted, rule.bias(some.reference @ new.T))
    assert (found - wanted).mean().abs() < 0.25 * wanted.std()
    assert (unshifted - wanted).mean().abs() > wanted.std()
    assert (found - wanted).abs().mean() < 0.5 * (unshifted - wanted).abs().mean()


@pytest.mark.parametrize("rule", [Sinkhorn(), DualBankSinkhorn(), DualInvertedSoftmax()], ids=repr)
def test_items_whose_bias_depends_on_the_others_neither_come_nor_go(rule, tmp_path):
    pytest.importorskip("lancedb")
    place, items, reference = placed("lancedb", None, "items", tmp_path), items_of(), as_vectors("reference", QUERIES)
    some = Kept.of(rule, items.vectors, BIAS, reference)
    name = {Sinkhorn: "sinkhorn", DualBankSinkhorn: "dbsn", DualInvertedSoftmax: "dual_is"}[type(rule)]
    told = facts_of(items, rule.scale, criterion=name, parameters=rule.parameters(), reference="train.npy", kept=some,
                    approximate=False, normalize=None)  # fmt: skip
    fill(place, told, items, some).complete()
    with opened(place) as collection:
        for change in (lambda: collection.new(items.vectors, IDS), lambda: collection.remove(IDS[:2])):
            with pytest.raises(InputError, match=f"corrected by {name}, .*depends on the other items; fill it anew"):
                change()
        assert len(collection) == ITEMS
        torch.testing.assert_close(sorted_rows(collection.kept.reference), sorted_rows(QUERIES))


def test_a_collection_of_somebody_else(place):
    """Refused even with overwrite=true, under each name that is written; so are facts that are damaged."""
    items = items_of()
    told = json.loads(replace(facts(items), complete=True).text())
    sound = {"queries": 3, "items": ITEMS, "version": 0, "thresholds": {"0.1": 0.5}}
    assert Facts.read(json.dumps(told | {"calibration": sound}), "x").calibration == sound
    for text, message in (
        ("theirs", "was not made by vsehub: it has no facts on its correction"),
        (json.dumps([1]), "was not made by vsehub"),
        (mark_of_beside("shop"), "is what vsehub keeps beside the collection shop; give that one"),
        (
            json.dumps(told | {"schema": 9}),
            "is of version 9 of its format, .*, which wrote it, or a later one",
        ),
        (json.dumps(told | {"scale": "2"}), r"the facts of .* are damaged \(scale\)"),
        (json.dumps(told | {"dim": 10**9, "complete": 1}), r"damaged \(dim, complete\)"),
        (json.dumps(told | {"version": -1}), r"damaged \(version\)"),
        *(
            (json.dumps(told | {"calibration": one}), r"damaged \(calibration\)")
            for one in (
                {},
                [],
                {"queries": 3, "thresholds": {}},
                sound | {"queries": 0},
                sound | {"items": 0},
                sound | {"version": -1},
                sound | {"version": True},
                sound | {"thresholds": [0.1]},
                sound | {"thresholds": {"0.1": "high"}},
                sound | {"thresholds": {"0.1": float("inf")}},
                sound | {"thresholds": {"few": 0.1}},
            )
        ),
        (json.dumps(told | {"_target_": "os.system"}), r"damaged \(more than vsehub writes\)"),
    ):
        database = place.opened()
        database.create(DIM + 1, text)
        database.close()
        with pytest.raises(InputError, match=message):
            require_free(place, overwrite=False)
        with pytest.raises(InputError, match=message):
            fill(place, facts(items), items)
        if "not made" in message or "beside" in message:
            for call in (require_free, lambda where, overwrite: fill(where, facts(items), items, overwrite=overwrite)):
                with pytest.raises(InputError, match=message):
                    call(place, overwrite=True)
        else:
            require_free(place, overwrite=True)
        database = place.opened()
        database.drop()
        database.close()
    some = Kept(QUERIES[:2])
    with fill(place, facts(items, kept=some), items, some) as held:
        held.complete()
        reference = kept.reference_beside(held.database, place)
        reference.drop()
        reference.create(DIM, "theirs")
    with pytest.raises(InputError, match=r"items_ref at .* was not made by vsehub"):
        fill(place, facts(items, criterion="is"), items, overwrite=True).complete()
    database = place.opened()
    assert database.beside("items_ref").facts() == "theirs"
    assert database.count() == ITEMS
    database.close()


def test_what_is_beside_a_collection_is_not_one(place):
    """`index_name` of what is kept beside another collection: refused, whatever is asked for."""
    items, some = items_of(), Kept(QUERIES[:2])
    with fill(place, facts(items, kept=some), items, some) as held:
        held.complete()
    name = "items_ref"
    inner = replace(place, name=name)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=f"{name} at .* is what vsehub keeps beside the collection items; give"):
            fill(inner, facts(items), items, overwrite=overwrite)
    with pytest.raises(InputError, match="keeps beside the collection items"), opened(inner):
        pass
    with opened(place) as collection:
        assert len(collection.kept.reference) == 2


@pytest.mark.skipif(not installed("lancedb"), reason="vsehub[lancedb] is not installed")
def test_tables_of_others_in_a_folder_of_lancedb(tmp_path):
    """Whatever they are called, they stay as they are."""
    import lancedb

    base = lancedb.connect(tmp_path / "index.lancedb")
    names = ["items_facts", "items_reference", "items_numbers", "items_ref"]
    for name in names:
        base.create_table(name, [{"mine": name}])
    place, items = placed("lancedb", None, "items", tmp_path), items_of()
    with pytest.raises(InputError, match=r"items_ref at .* was not made by vsehub"):
        fill(place, facts(items), items)
    for name in names:
        assert base.open_table(name).to_arrow().to_pylist() == [{"mine": name}]


def test_a_relation_of_the_name_of_an_index(postgres):
    """The approximate index is built under another name."""
    place = Place("pgvector", postgres, "named")
    database = place.opened()
    for name in ("named_hnsw", "named_vector_idx"):
        database._base.execute(f"CREATE TABLE {name} (mine text)")
    fill(place, facts(items_of(), approximate=True), items_of()).complete()
    kind = "SELECT amname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam"
    assert ("hnsw",) in database._base.execute(f"{kind} WHERE indrelid = 'named'::regclass").fetchall()
    database.close()


def test_a_refill_that_is_stopped(place, monkeypatch):
    """The earlier collection is removed first; what is unfinished is not opened, and the same command goes on."""
    monkeypatch.setattr(filling, "BLOCK", 7)
    old, new, some = items_of(20), items_of(), Kept(QUERIES[:2])
    fill(place, facts(old, kept=some), old, some).complete()
    starts, put_in = [], filling.put_in

    def stopped(database, items, last, start):
        starts.append(start)

        def breaking(rows, put=database.put):
            put(rows)
            if len(starts) == 1 and rows.ids[0] == IDS[14]:
                raise ConnectionError("the line went dead")

        database.put = breaking
        put_in(database, items, last, start)

    monkeypatch.setattr(filling, "put_in", stopped)
    with pytest.raises(InputError, match="the line went dead"):
        fill(place, facts(new, criterion="is"), new, overwrite=True)
    with pytest.raises(InputError, match="is unfinished"), opened(place):
        pass
    with fill(place, facts(new, criterion="is"), new, overwrite=True) as held:
        held.complete()
        assert measured_recall(held, QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] == 1.0
    with opened(place) as collection:
        assert (len(collection), collection.facts.items) == (ITEMS, ITEMS)
    assert starts == [0, 14]


def test_what_is_beside_an_item_stays(place):
    """Labels and columns that are not given, and fields of others, when items are replaced; all can be filtered on."""
    import pyarrow as pa

    prices = pa.table({"price": pa.array([1.5, None, 3.0]), "sort": ["a", "b", None], "new": [True, False, True]})
    items = Items(as_vectors("items", VECTORS[:3]), BIAS[:3], IDS[:3], LABELS[:3], prices)
    some = Kept.of(CSLS(3), items.vectors, items.bias, as_vectors("reference", unit(60, 3)))
    with fill(place, facts(items, kept=some), items, some) as held:
        held.complete()
        assert filtered(held.database, "price", 2.0) == [IDS[2]]
    with opened(place) as collection:
        others_add_a_field(collection.database)
        more = pa.table({"price": [9.0, 8.0], "stock": pa.array([4, 5], pa.int64())})
        new = collection.new(as_vectors("items", VECTORS[[0, 3]]), [IDS[0], IDS[3]], None, more)
        assert collection.put(new) == 1
        assert collection.put(collection.new(as_vectors("items", VECTORS[1:2]), IDS[1:2], ["changed"])) == 1
        if place.engine in ("lancedb", "pgvector"):  # whose columns have one kind
            wrong = collection.new(as_vectors("items", VECTORS[1:2]), IDS[1:2], None, pa.table({"stock": [0.5]}))
            with pytest.raises(InputError, match="stock holds numbers, and the column that is stored whole numbers"):
                collection.put(wrong)
        found = stored(collection.database)
    assert [found[one].get("label") or "" for one in IDS[:4]] == [LABELS[0], "changed", LABELS[2], ""]
    assert [found[one].get("price") for one in IDS[:4]] == [9.0, None, 3.0, 8.0]
    assert [found[one].get("stock") for one in IDS[:4]] == [4, None, None, 5]
    assert [found[one].get("sort") for one in IDS[:4]] == ["a", "b", None, None]
    assert [found[one].get("new") for one in IDS[:4]] == [True, False, True, None]
    assert [found[one].get("theirs") for one in IDS[:3]] == ["kept"] * 3


def others_add_a_field(database):
    """A field `theirs` that vsehub knows nothing of."""
    if isinstance(database, pgvector.PGVector):
        database._do("ALTER TABLE {table} ADD COLUMN theirs text")
        database._do("UPDATE {table} SET theirs = 'kept'")
    elif isinstance(database, qdrant.Qdrant):
        points = [key_of(one) for one in IDS[:3]]
        database._client.set_payload(database._name, {"theirs": "kept"}, points)
    elif isinstance(database, milvus.Milvus):
        database._client.load_collection(database._name)
        rows = database._client.get(database._name, [key_of(one) for one in IDS[:3]], output_fields=["*"])
        database._client.upsert(database._name, [dict(row) | {"theirs": "kept"} for row in rows])
    else:
        database._table().add_columns({"theirs": "'kept'"})


def stored(database):
    """All that is stored beside the vectors, by id."""
    if isinstance(database, pgvector.PGVector):
        cursor = database._do("SELECT * FROM {table}")
        names = [one.name for one in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    elif isinstance(database, qdrant.Qdrant):
        rows = [one.payload for one in database._client.scroll(database._name, limit=100)[0]]
    elif isinstance(database, milvus.Milvus):
        rows = database._client.get(database._name, [key_of(one) for one in IDS[:4]], output_fields=["*"])
    else:
        rows = database._table().to_arrow().to_pylist()
    return {row["id"]: dict(row) for row in rows}


def filtered(database, name, least):
    """The ids of the items whose number is larger, by a condition of the engine."""
    if isinstance(database, pgvector.PGVector):
        return [one for (one,) in database._do(f"SELECT id FROM {{table}} WHERE {name} > {least}").fetchall()]
    if isinstance(database, qdrant.Qdrant):
        from qdrant_client.models import FieldCondition, Filter, Range

        only = Filter(must=[FieldCondition(key=name, range=Range(gt=least))])
        return [one.payload["id"] for one in database._client.scroll(database._name, only)[0]]
    if isinstance(database, milvus.Milvus):
        return [one["id"] for one in database._client.query(database._name, f"{name} > {least}", ["id"])]
    return [one["id"] for one in database._table().search().where(f"{name} > {least}").to_list()]


def test_columns_of_a_table(tmp_path):
    ids = ["b", "a", "c"]
    rows = "id,price,count,sort,fresh,empty\na,1.5,1,red,true,\nb,2,2,blue,False,\nz,9,9,x,true,\nc,,-3,'=1,,\n"
    (tmp_path / "t.csv").write_text(rows)
    (tmp_path / "t.jsonl").write_text(
        "\n".join(
            json.dumps({"id": one, "price": price, "count": count, "sort": sort, "fresh": fresh, "empty": None})
            for one, price, count, sort, fresh in (
                ("a", 1.5, 1, "red", True), ("b", 2, 2, "blue", False), ("c", None, -3, "=1", None),
                ("z", 9, 9, "", True),
            )
        )
    )  # fmt: skip
    for name in ("t.csv", "t.jsonl"):
        found = read_columns(tmp_path / name, ids)
        assert found.to_pydict() == {
            "price": [2.0, 1.5, None], "count": [2, 1, -3], "sort": ["blue", "red", "=1"],
            "fresh": [False, True, None], "empty": [None] * 3,
        }  # fmt: skip
        assert [str(one) for one in found.schema.types] == ["double", "int64", "string", "bool", "string"]
    for text, message in (
        ("id,x\na,1\nb,1\n", "has no row for 1 of 3 items, 'c' for example"),
        ("id,x\na,1\nb,1\nc,1\na,2\n", "has several rows for 'a'"),
        ("id\na\nb\nc\n", "has the column id alone"),
        ("name,x\na,1\n", "no column 'id'"),
        ("id,vector\na,1\n", "has a column 'vector'; expected at most 50 letters"),
        ("id,a; drop\na,1\n", "has a column 'a; drop'"),
        ("id,x,x\na,1,2\n", "has a column 'x'.* each name once"),
        ("id,x\na,1\nb,nan\nc,1\n", "x holds NaN or infinite"),
    ):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            read_columns(tmp_path / "t.csv", ids)
    for value, message in (([1], "holds list; expected texts"), ("text", "holds int and str; expected one kind"),
                           (2**70, "x: ")):  # fmt: skip
        (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"id": one, "x": value}) for one in ids[:1]) + "\n"
                                          + "\n".join(json.dumps({"id": one, "x": 1 if value != [1] else value})
                                                      for one in ids[1:]))  # fmt: skip
        with pytest.raises(InputError, match=message):
            read_columns(tmp_path / "t.jsonl", ids)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE others ALTER vector DROP NOT NULL; UPDATE others SET vector = NULL",
        "ALTER TABLE others ALTER vector DROP NOT NULL; UPDATE others SET vector = NULL WHERE label LIKE '%1th'",
        "ALTER TABLE others DROP CONSTRAINT others_pkey; ALTER TABLE others ALTER id DROP NOT NULL; "
        "UPDATE others SET id = NULL",
        "ALTER TABLE others ALTER label DROP NOT NULL; UPDATE others SET label = NULL",
    ],
)
def test_rows_of_others_in_postgres(postgres, change):
    emptied("pgvector", postgres)
    place = Place("pgvector", postgres, "others")
    with fill(place, facts(items_of()), items_of()) as collection:
        collection.complete()
        collection.database._base.execute(change)
    require_refused(place)


@pytest.mark.parametrize("payload", [{}, {"id": 7, "label": ""}, {"id": ["a"]}, {"id": IDS[0], "label": {"b": 1}}])
def test_payloads_of_others_in_qdrant(qdrant_server, payload):
    place = Place("qdrant", qdrant_server, "items")
    with fill(place, facts(items_of()), items_of()) as collection:
        collection.complete()
        keys = [key_of(one) for one in IDS]
        collection.database._client.overwrite_payload(collection.database._name, payload, keys)
    require_refused(place)


def require_refused(place):
    """Reading and searching end in an InputError, with the collection in the message."""
    with opened(place) as collection:
        with pytest.raises(InputError, match=place.name):
            collection.items()
        with pytest.raises(InputError, match=place.name):
            collection.search(as_vectors("queries", QUERIES), ITEMS)


def test_a_reference_that_is_only_claimed_takes_no_memory():
    class Beside:
        def beside(self, name):
            return self

        def shape(self):
            return True

        def read(self):
            yield ItemRows(["0", "1"], np.ones((2, DIM), np.float32))

    place, claimed = SimpleNamespace(name="items", address="items"), facts(items_of(), kept=Kept(QUERIES[:2]))
    assert len(kept.read_kept(Beside(), place, claimed).reference) == 2
    tracemalloc.start()
    with pytest.raises(InputError):
        kept.read_kept(Beside(), place, replace(claimed, reference_rows=10**6))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1e6


def test_facts_made_to_do_harm():
    good = json.loads(facts(items_of()).text())
    assert Facts.read(json.dumps(good), "x").text() == json.dumps(good)
    for name, values in {
        "scale": (0, -1.0, float("nan"), float("inf"), True, "1", None),
        "mean_bias": (float("nan"), "0", None, [1]),
        "dim": (0, -1, 2**40, 1.5, True),
        "items": (0, 2**60, "9"),
        "reference_rows": (-1, 2**60, 0.5),
        "shift": (float("nan"), None),
        "parameters": (None, [], "k"),
        "criterion": (1, None, "x" * 5000, {"_target_": "os.system"}),
        "normalize": (1, "yes"),
        "complete": (None, 0, "true"),
    }.items():
        for value in values:
            with pytest.raises(InputError, match=rf"the facts of x are damaged \({name}\)"):
                Facts.read(json.dumps(good | {name: value}), "x")
    for text in (None, "", "{", "[" * 10**5, "1" * 10**6, "{}"):
        with pytest.raises(InputError, match="x was not made by vsehub"):
            Facts.read(text, "x")


def test_another_metric_of_qdrant(qdrant_server):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(url=qdrant_server)
    client.create_collection("items", models.VectorParams(size=DIM + 1, distance=models.Distance.COSINE))
    refuse_metric(Place("qdrant", qdrant_server, "items"))


def test_another_metric(postgres):
    place = Place("pgvector", postgres, "by_distance")
    database = place.opened()
    database.create(DIM + 1, "")
    database._do("CREATE INDEX ON {table} USING hnsw (vector vector_l2_ops)")
    database.close()
    refuse_metric(place)


def refuse_metric(place):
    database = place.opened()
    with pytest.raises(InputError, match="is not searched by inner product, which the correction needs"):
        require_shape(database, place, facts(items_of()))
    database.drop()
    database.close()


def test_what_cannot_be_a_place(tmp_path, monkeypatch):
    for arguments, message in (
        (("chroma", None, "items"), "index is 'chroma'; choose one of milvus, lancedb, qdrant, pgvector"),
        (
            ("pgvector", None, "items"),
            r"index_uri is not set; Postgres needs a server: give index_uri=postgresql://USER@",
        ),
        (("pgvector", "folder", "items"), "index_uri is folder; Postgres takes postgresql://, postgres://"),
        (("qdrant", "ftp://me:secret@host", "items"), r"is ftp://\*\*\*@host; Qdrant takes http://, https://$"),
        (
            ("qdrant", None, "items"),
            r"index_uri is not set; Qdrant needs a server: give index_uri=http://HOST:6333; its makers call",
        ),
        (
            ("qdrant", ":memory:", "items"),
            r"is :memory:; Qdrant takes http://, https://; its makers call the client's folder mode one for prototypes",
        ),
        (("milvus", "folder", "items"), "index_uri is folder; the name of a folder of Milvus ends in .db"),
        (("lancedb", None, "a; drop"), "index_name is 'a; drop'; expected at most 50 letters, digits and underscores"),
        (("lancedb", None, "x" * 51), "expected at most 50 letters"),
        (("lancedb", None, "7"), "no digit first"),
    ):
        with pytest.raises(InputError, match=message):
            placed(*arguments, tmp_path)
    for engine, kind in (("milvus", "Milvus Lite"), ("lancedb", "LanceDB")):
        folder = tmp_path / f"{engine}.db"
        folder.mkdir()
        (folder / "mine.txt").touch()
        if installed(engine):
            with pytest.raises(InputError, match=f"{folder} is not a folder of {kind}; give a new one, or one that"):
                require_free(Place(engine, str(folder), "items"), overwrite=True)
        assert [one.name for one in folder.iterdir()] == ["mine.txt"]
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for engine in ENGINES:
        with pytest.raises(
            InputError, match=rf"index={engine} needs .* installed here: pip install .*'vsehub\[{engine}"
        ):
            Place(engine, "http://host", "items")


def test_ids_that_collide():
    with pytest.raises(InputError, match="item_ids: 'b' comes twice, as number 1 and 2"):
        Items(as_vectors("items", VECTORS[:3]), BIAS[:3], ["a", "b", "b"], None)
    for name, ids, labels in (("id", ["a", "x" * 10_001], None), ("label", ["a", "b"], ["a", "nul \0"])):
        with pytest.raises(
            InputError, match=f"the {name} of item 1, counted from 0, has more than 10,000 bytes or a z"
        ):
            Items(as_vectors("items", VECTORS[:2]), BIAS[:2], ids, labels)
    digests = {Items(as_vectors("items", VECTORS[:2]), BIAS[:2] + change, ids, labels).digest()
               for change, ids, labels in ((0, ["a", "b"], None), (1, ["a", "b"], None), (0, ["a", "c"], None),
                                           (0, ["a", "b"], ["x", "y"]))}  # fmt: skip
    assert len(digests) == 4


@pytest.mark.parametrize("answers", [False, True], ids=["closed", "silent"])
def test_a_server_that_does_not_answer(answers, monkeypatch):
    """In seconds, with its address and without the password."""
    for module in (milvus, qdrant, pgvector):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 2)  # the least that libpq takes
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen(16)  # connections wait in its queue for ever
        host = f"127.0.0.1:{server.getsockname()[1]}"

        def asked(engine, scheme):
            shown = "me:" if scheme == "postgresql" else ""  # elsewhere a token may stand in the place of the name
            with pytest.raises(
                InputError, match=rf"items at {scheme}://{shown}\*\*\*@{host}.* does not answer"
            ) as said:
                require_free(Place(engine, f"{scheme}://me:secret@{host}/base", "items"), overwrite=False)
            assert "secret" not in str(said.value)

        schemes = {"milvus": "http", "qdrant": "http", "pgvector": "postgresql"}
        began = time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(asked, *zip(*[one for one in schemes.items() if installed(one[0])], strict=True)))
        assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("<MilvusException: (code=1, message=[Errno 28] Error writing bytes. Detail: [errno 28] No space)>", 28),
        ("lance error: LanceError(IO): No space left on device (os error 28), /home/user/.cargo/x-1/y.rs:258:9", 28),
        ("write error in x.idx: 0 != 1 (No space left on device)", 28),
        ("[Errno 30] Read-only file system: 'x/LOCK'", 30),
        ("Permission denied (os error 13)", 13),
    ],
)
def test_what_the_machine_refuses_an_engine(said, number):
    """In a folder: an error of the system that names it; behind a server: the refusal of the server."""
    with pytest.raises(OSError, match="theirs") as caught, asking("items at theirs", Path("theirs")):
        raise RuntimeError(said)
    assert (caught.value.errno, caught.value.filename) == (number, "theirs")
    refused = pytest.raises(InputError, match=r"http://host refuses or does not answer \(RuntimeError: .*\)$")
    with refused as caught, asking("items at http://host"):
        raise RuntimeError(said)
    assert ".rs" not in str(caught.value)


@pytest.mark.skipif(not installed("milvus"), reason="vsehub[milvus] is not installed")
def test_a_folder_that_another_process_has_open(tmp_path):
    place = placed("milvus", None, "items", tmp_path)
    place.opened().close()
    with (tmp_path / "index.milvus.db" / "LOCK").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        with pytest.raises(InputError, match=rf"^index_uri: {place.uri} is open in another process; end that one fir"):
            require_free(place, overwrite=False)
        assert time.monotonic() - began < 5
    require_free(place, overwrite=False)


def test_errors_that_are_no_refusal_pass():
    full, memory = OSError(28, "No space left on device"), RuntimeError("not enough memory: you tried to allocate")
    for error in (KeyError("a bug"), InputError("said already"), full, memory):
        with pytest.raises(type(error)) as caught, asking("place"):
            raise error
        assert caught.value is error


@pytest.mark.skipif(not installed("qdrant"), reason="vsehub[qdrant] is not installed")
@pytest.mark.parametrize("name", ["items", "a/b", "./x/../y/z"])
def test_a_hostile_folder_of_qdrant_is_never_opened(name, tmp_path, monkeypatch, capsys):
    """Its points are pickles: whatever its collection is called, and however its path is written, none is read."""
    from qdrant_client import QdrantClient, models

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("theirs", "theirs.db"):
        client = QdrantClient(path=folder)
        client.create_collection("items", models.VectorParams(size=DIM + 1, distance=models.Distance.DOT))
        client.upsert("items", [models.PointStruct(id=1, vector=[0.5] * (DIM + 1), payload={"id": "a", "label": ""})])
        client.close()
        (file,) = (tmp_path / folder).glob("collection/*/storage.sqlite")
        with closing(sqlite3.connect(file)) as base, base:
            base.execute("UPDATE points SET point = ?", (pickle.dumps(Harm(str(tmp_path / "harm"))),))
        moved = tmp_path / folder / "collection" / name
        moved.parent.mkdir(parents=True, exist_ok=True)
        if name != "items":
            (tmp_path / folder / "collection" / "x").mkdir(exist_ok=True)
            file.parent.rename(moved)
            meta = tmp_path / folder / "meta.json"
            meta.write_text(meta.read_text().replace('"items"', json.dumps(name)))
    np.save("items.npy", VECTORS.numpy())
    before = sorted(tmp_path.rglob("*"))
    spellings = ("theirs", "./theirs/", "theirs.db", "file://theirs", ":memory:", "~/theirs")
    spellings = spellings if name == "items" else spellings[:1]
    for command, spelled in itertools.product(("diagnose", "add", "rerank"), spellings):
        given = ["items=items.npy"] * (command != "diagnose") + ["queries=items.npy"] * (
            command in ("diagnose", "rerank")
        )
        arguments = [command, "index=qdrant", f"index_uri='{spelled}'", "index_name=items", *given]
        monkeypatch.setattr("sys.argv", ["vsehub", *arguments, *["out=new"] * (command != "add")])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said = capsys.readouterr().err.strip()
        assert "; Qdrant takes http://, https://" in said
        assert len(said.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(FileExistsError):  # the pickle does do harm where one opens the folder with the client
        (tmp_path / "harm").touch(), QdrantClient(path="theirs")


class Harm:
    """A pickle of this creates a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)
