"""One contract over all engines (see `conftest`), and what is true of single ones."""

import fcntl
import json
import os
import pickle
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from vsehub import extras
from vsehub.checks import InputError
from vsehub.cli.main import main
from vsehub.criteria import CSLS, NNN, DualBankSinkhorn, DualInvertedSoftmax, InvertedSoftmax, NearestNeighbor, Sinkhorn
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import measured_recall
from vsehub.serving.databases import collection
from vsehub.serving.databases.base import key_of
from vsehub.serving.databases.collection import Collection, fill, item_table, open_collection, require_free, usage_note
from vsehub.serving.databases.columns import read_columns
from vsehub.serving.databases.engines import ENGINES, Place, placed
from vsehub.serving.databases.metadata import Metadata, reference_text

ITEMS, DIM, K = 40, 16, 5
IDS = [f'it\'s "{row}" \\ % {{0}}; DROP TABLE items -- 猫\n{row}' for row in range(ITEMS)]
IDS[3] = "long " * 400
LABELS = [f"a thing, the {row}th, ☃" for row in range(ITEMS)]


def unit(rows, seed):
    vectors = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed)) + 0.4
    return torch.nn.functional.normalize(vectors, dim=1)


VECTORS, QUERIES, REFERENCE = unit(ITEMS, 1), unit(40, 2), unit(60, 3)
BIAS = CSLS(3).bias(REFERENCE @ VECTORS.T)


def filled(place, rows=ITEMS, fields=None, rule=None, name="csls", vectors=VECTORS, bias=BIAS, **changed):
    """`fill` with some items under CSLS."""
    columns = item_table(IDS[:rows], LABELS[:rows], fields)
    settings = {"approximate": False, "normalize": None} | changed
    items, reference = as_vectors("items", vectors[:rows]), as_vectors("reference", REFERENCE)
    return fill(place, items, bias[:rows], columns, reference, criterion=name, rule=rule or CSLS(3),
                reference_name="train.npy", **settings)  # fmt: skip


def best(rows, queries=QUERIES, bias=BIAS, vectors=VECTORS):
    """Ids of the K best of some items of each query, by numpy."""
    rows = list(rows)
    scores = 2 * queries.numpy() @ vectors[rows].numpy().T - bias[rows].numpy()
    return [[IDS[rows[one]] for one in order[:K]] for order in np.argsort(-scores)]


def test_what_is_filled_is_searched(place):
    """Exactly as a flat index does, and near it through the approximate one."""
    require_free(place, overwrite=False)
    with filled(place) as made:
        made.complete()
        assert len(made) == ITEMS
        assert place.bytes is None or place.bytes > 0
        for corrected, rule in ((True, CSLS(3)), (False, NearestNeighbor())):
            values, positions = made.search(QUERIES, K, corrected)
            exact, expected = rule.search(QUERIES, VECTORS, REFERENCE, K)
            assert torch.equal(positions, expected)
            torch.testing.assert_close(values, exact, rtol=1e-4, atol=1e-4)
        assert measured_recall(made, QUERIES, VECTORS, BIAS, CSLS.scale, K) == {"plain": 1.0, "corrected": 1.0}
    with open_collection(place) as now:
        assert found(now) == best(range(ITEMS))
        hit = now.find(as_vectors("queries", QUERIES[:1]), 1)[0][0]
        row = IDS.index(hit.id)
        assert hit.label == LABELS[row]
        assert hit.score == pytest.approx(float(2 * QUERIES[0] @ VECTORS[row] - BIAS[row]), rel=1e-4)
        vectors, bias, ids, labels = now.items()
        rows = [IDS.index(one) for one in ids]
        assert sorted(rows) == list(range(ITEMS))
        assert labels == [LABELS[row] for row in rows]
        torch.testing.assert_close(vectors, VECTORS[rows], atol=1e-6, rtol=0)
        torch.testing.assert_close(bias, BIAS[rows], atol=1e-5, rtol=0)
        torch.testing.assert_close(now.reference, REFERENCE)
    with filled(place, approximate=True, overwrite=True) as made:
        made.complete()
        assert measured_recall(made, QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] > 0.9
    with open_collection(place) as now:
        now.add(as_vectors("items", VECTORS[:1]), *now.prepare(as_vectors("items", VECTORS[:1]), item_table(["new"])))
        assert len(now) == ITEMS + 1
        assert measured_recall(at(now), QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] > 0.8
    with (
        pytest.raises(InputError, match="there is no collection absent"),
        open_collection(replace(place, name="absent")),
    ):
        pass


def at(now):
    """An open collection whose search returns positions among `IDS`."""
    return Collection(now.database, now.place, now.metadata, IDS)


def test_only_a_finished_collection_is_opened_and_only_overwrite_replaces_it(place, monkeypatch):
    """A fill that is stopped at any point leaves what no command opens, and the next fill starts anew."""
    monkeypatch.setattr(collection, "_BYTES", 15 * 4 * (DIM + 1))  # blocks of 15 items

    def fill():
        with filled(place) as made:
            made.complete()

    with filled(place) as made:  # stopped before it is complete
        engine = type(made.database)
    for name, call in (("upsert", 1), ("upsert", 3), ("index", 1), ("count", 1)):
        calls, whole = [], getattr(engine, name)

        def stopped(*given, name=name, call=call, calls=calls, whole=whole):
            calls.append(given)
            if len(calls) == call:
                raise KeyboardInterrupt
            return whole(*given)

        with monkeypatch.context() as patch:
            patch.setattr(engine, name, stopped)
            with pytest.raises(KeyboardInterrupt):
                fill()
        with pytest.raises(InputError, match="is unfinished"), open_collection(place):
            pass
    with filled(place, 20) as made:
        made.complete()
    for refused in (lambda: require_free(place, overwrite=False), lambda: filled(place).__enter__()):
        with pytest.raises(InputError, match="holds a finished collection"):
            refused()
    with open_collection(place) as now:
        assert len(now) == 20
    require_free(place, overwrite=True)
    with filled(place, name="nns", rule=NearestNeighbor(), bias=torch.zeros(ITEMS), overwrite=True) as made:
        made.complete()
        assert made.database.count() == ITEMS
        assert collection._beside(made.database).count() == 0  # nothing of the earlier reference is left
    with open_collection(place) as now:
        assert found(now) == best(range(ITEMS), bias=0 * BIAS)


def test_two_commands_do_not_mix_their_items(place):
    with filled(place) as made:
        made.database.create(DIM + 1, text_of({}))  # another command replaces it
        with pytest.raises(InputError, match="has been changed by another command"):
            made.complete()
    with filled(place, overwrite=True) as made:
        made.complete()
        other = at(made)
        assert made.remove([IDS[0]]) == 1
        for change in (lambda: other.remove([IDS[1]]), lambda: other.calibrate({"0.1": 0.5})):
            with pytest.raises(InputError, match="has been changed by another command"):
                change()
        assert len(made) == ITEMS - 1


def test_items_come_and_go(place):
    """What is added ranks as if it had been there when the collection was filled; removed items are found no more."""
    most = ITEMS - 10
    with filled(place, most) as made:
        made.complete()
    with open_collection(place) as now:
        now.calibrate({"0.1": 0.5})
    with open_collection(place) as now:
        assert now.threshold(0.1) == 0.5
        assert now.remove([IDS[0], IDS[1], "absent"]) == 2
        assert now.thresholds == {}
        again = [*range(most, ITEMS), 0, 5]  # new ones, one that was removed, one that is there
        vectors = as_vectors("items", VECTORS[again])
        bias, columns = now.prepare(vectors, item_table([IDS[row] for row in again]))
        torch.testing.assert_close(bias, BIAS[again])
        assert now.add(vectors, bias, columns) == 1
        assert len(now) == ITEMS - 1
    with open_collection(place) as now:
        assert now.metadata.version == 2
        assert found(now) == best([0, *range(2, ITEMS)])
        _, _, ids, labels = now.items()
        told = dict(zip(ids, labels, strict=True))
        assert (told[IDS[5]], told[IDS[6]], told[IDS[0]]) == (LABELS[5], LABELS[6], "")
        for refused, message in (
            (lambda: now.prepare(as_vectors("items", VECTORS[:2, :3]), item_table(IDS[:2])), "items has 3 dimensions"),
            (lambda: item_table(["a", "b", "b"]), "item_ids: 'b'"),
            (lambda: item_table(["a"], ["x", "y"]), "item_labels has 2 entries"),
            (lambda: now.threshold(0.1), "accept is 0.1"),
        ):
            with pytest.raises(InputError, match=message):
                refused()
        collection._beside(now.database).delete(["7"])
        with pytest.raises(InputError, match="of the 60 reference queries beside"):
            now.prepare(as_vectors("items", VECTORS[:2]), item_table(IDS[:2]))


def test_columns_are_stored_and_filtered_and_stay(place, tmp_path, monkeypatch):
    """Those that are not given when items are replaced, and fields of others; null entries are no entries."""
    fields = pa.table({"price": pa.array([1.5, None, 3.0]), "Sort": ["red", "b", None], "new": [True, False, True]})
    with filled(place, 3, fields) as made:
        made.complete()
        note = usage_note(made, item_table(IDS[:3], None, fields), K)
    assert "price" in note or place.engine == "memory"
    with open_collection(place) as now:
        others_add_a_field(now.database, place.engine)
        more = pa.table({"price": pa.array([9, 8]), "stock": pa.array([4, 5])})
        for rows, labels, own in (([0, 3], None, more), ([1], ["changed"], None)):
            vectors, table = as_vectors("items", VECTORS[rows]), item_table([IDS[row] for row in rows], labels, own)
            assert now.add(vectors, *now.prepare(vectors, table)) == 1
        wrong = item_table(IDS[1:2], None, pa.table({"stock": [0.5]}))
        with pytest.raises(InputError, match=r"item_columns: .*stock"):
            now.prepare(as_vectors("items", VECTORS[1:2]), wrong)
        rows = stored(now.database, place.engine)
    wanted = {
        "label": [LABELS[0], "changed", LABELS[2], None],
        "price": [9.0, None, 3.0, 8.0],
        "stock": [4, None, None, 5],
        "Sort": ["red", "b", None, None],
        "new": [True, False, True, None],
        "theirs": ["kept"] * 3 + [None],
    }
    assert {name: [rows[one].get(name) or None if name == "label" else rows[one].get(name) for one in IDS[:4]]
            for name in wanted} == wanted  # fmt: skip


def others_add_a_field(database, engine):
    """A field `theirs` that vsehub knows nothing of, of the first three items."""
    if engine == "pgvector":
        database._do("ALTER TABLE {table} ADD COLUMN theirs text")
        database._do("UPDATE {table} SET theirs = 'kept'")
    elif engine == "qdrant":
        database.client.set_payload(database.name, {"theirs": "kept"}, [key_of(one) for one in IDS[:3]])
    elif engine == "milvus":
        rows = [{"key": key_of(one), "theirs": "kept"} for one in IDS[:3]]
        database.client.upsert(database.name, rows, partial_update=True)
    elif engine == "lancedb":
        database._table().add_columns({"theirs": "'kept'"})
    else:
        for _, row in database.rows.values():
            row["theirs"] = "kept"


def stored(database, engine):
    """All that is stored beside the vectors, by id, with the engine's own client."""
    if engine == "pgvector":
        cursor = database._do("SELECT * FROM {table}")
        names = [one.name for one in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    elif engine == "qdrant":
        rows = [one.payload for one in database.client.scroll(database.name, limit=100)[0]]
    elif engine == "milvus":
        rows = database.client.get(database.name, [key_of(one) for one in IDS[:4]], output_fields=["*"])
    elif engine == "lancedb":
        rows = database._table().to_arrow().to_pylist()
    else:
        rows = [row for _, row in database.rows.values()]
    return {row["id"]: dict(row) for row in rows}


@pytest.mark.parametrize("normalize", [None, True, False])
def test_the_usage_note_run_as_it_is(normalize, place, tmp_path, monkeypatch):
    """On raw queries; and with the filter that it names, which leaves out what it says."""
    scale = np.random.default_rng(0).uniform(0.1, 9, (ITEMS, 1)).astype("float32")
    raw = QUERIES.numpy() * (1 if normalize is None else scale[: len(QUERIES)])
    vectors = VECTORS * torch.from_numpy(scale) if normalize is False else VECTORS
    bias = CSLS(3).bias(REFERENCE @ vectors.T)
    fields = pa.table({"price": [float(row) for row in range(9, 9 - ITEMS, -1)], "sort": ["a b"] * ITEMS})
    asked = torch.from_numpy(raw) if normalize is False else QUERIES
    columns = item_table(IDS, LABELS, fields)
    with filled(place, fields=fields, vectors=vectors, bias=bias, normalize=normalize) as made:
        made.complete()
        note = usage_note(made, columns, K)
        by_text = usage_note(made, columns.drop_columns("price"), K) if normalize else note
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", raw)
    assert len(note.splitlines()) <= 20
    assert run(note) == best(range(ITEMS), queries=asked, bias=bias, vectors=vectors)
    if place.engine == "memory":
        return
    line = next(one for one in note.splitlines() if one.startswith("only = "))
    condition = note.partition("condition: ")[2].partition(", for example")[0].replace("\n#", "")
    narrowed = note.replace(line.partition("#")[0], f"only = {condition}  ")
    assert run(narrowed) == best(range(ITEMS), queries=asked, bias=bias, vectors=vectors)  # price <= 9: all
    narrowed = narrowed.replace("9.0", "-20.0")
    assert run(narrowed) == best(range(29, ITEMS), queries=asked, bias=bias, vectors=vectors)
    assert by_text


def run(code):
    """The ids that a note finds; what it has opened is closed."""
    ran = {}
    exec(code, ran)
    assert np.all(np.diff(ran["scores"]) <= 1e-5)
    for name in ("client", "base"):
        if hasattr(ran.get(name), "close"):
            ran[name].close()
    return [list(row) for row in ran["ids"]]


DAMAGED = [
    ("", "was not made by vsehub"),
    ("theirs", "was not made by vsehub"),
    ("[1]", "was not made by vsehub"),
    ("[" * 10**4, "was not made by vsehub"),
    (reference_text("shop"), "is the reference of the collection 'shop'"),
    ({"schema": 9}, "is of version 9"),
    *(({name: value}, "is damaged") for name, values in {
        "scale": (0.0, -1.0, float("nan"), "1", None),
        "mean_bias": (float("inf"), [1]),
        "dim": (0, 1.5),
        "criterion": (1, {"_target_": "os.system"}),
        "parameters": ([], "k"),
        "normalize": (1, "yes"),
        "complete": (None, "true"),
        "columns": ([],),
        "thresholds": ([0.1], {"0.1": "high"}, {"0.1": float("inf")}, {"few": 0.1}),
        "_target_": ("os.system",),
    }.items() for value in values),
]  # fmt: skip


def text_of(change):
    """A stored text: sound metadata with some changes, or the text itself."""
    sound = Metadata("csls", {"k": 3}, "train.npy", 60, 0.0, 2.0, 0.5, DIM, False, None, {}, complete=True)
    return change if isinstance(change, str) else json.dumps(json.loads(sound.text()) | change)


@pytest.mark.parametrize(("change", "message"), DAMAGED)
def test_damaged_metadata(change, message):
    with pytest.raises(InputError, match=f"x .*{message}"):
        Metadata.read(text_of(change), "x")
    assert Metadata.read(text_of({}), "x").text() == text_of({})


def test_a_collection_of_somebody_else(place):
    """Refused even with overwrite=true; one of vsehub's with damaged metadata is replaced only with it."""
    for change, message in (DAMAGED[1], DAMAGED[4], DAMAGED[5], DAMAGED[6]):
        with place.connect() as database:
            database.create(DIM + 1, text_of(change))
        with pytest.raises(InputError, match=message), open_collection(place):
            pass
        for call in (require_free, lambda place, overwrite: filled(place, overwrite=overwrite).__enter__()):
            with pytest.raises(InputError, match="index_uri: "):
                call(place, False)
        if isinstance(change, str):
            with pytest.raises(InputError, match=message):
                require_free(place, overwrite=True)
        else:
            require_free(place, overwrite=True)
    with filled(place, overwrite=True) as made:
        made.complete()
        collection._beside(made.database).create(DIM, "theirs")
    with pytest.raises(InputError, match=f"{place.name}_ref at .* is not the reference of"):
        filled(place, overwrite=True).__enter__()
    with place.connect() as database:
        assert (database.count(), collection._beside(database).metadata()) == (ITEMS, "theirs")


def found(now):
    return [[one.id for one in hits] for hits in now.find(as_vectors("queries", QUERIES), K)]


@pytest.mark.parametrize("rule", [CSLS(5), InvertedSoftmax(), NNN(4)], ids=lambda rule: type(rule).__name__)
def test_a_sample_of_a_large_reference(rule, monkeypatch):
    """What is lost by it is a shift of all biases alike, which is measured and added back."""
    monkeypatch.setattr(collection, "REFERENCE_ROWS", 300)
    items, reference, new = unit(200, 7), unit(3000, 8), unit(50, 9)
    bias, wanted = rule.bias(reference @ items.T), rule.bias(reference @ new.T)
    vectors = as_vectors("items", items)
    kept, shift = collection._stored_reference(rule, vectors, bias, as_vectors("reference", reference), 0)
    assert len(kept) == 300
    unshifted = rule.bias(kept @ new.T)
    assert (unshifted + shift - wanted).mean().abs() < 0.25 * wanted.std()
    assert (unshifted - wanted).mean().abs() > wanted.std()


@pytest.mark.parametrize("rule", [Sinkhorn(), DualBankSinkhorn(), DualInvertedSoftmax()], ids=repr)
@pytest.mark.parametrize("place", ["lancedb"], indirect=True)
def test_items_whose_bias_depends_on_the_others_neither_come_nor_go(rule, place):
    name = {Sinkhorn: "sinkhorn", DualBankSinkhorn: "dbsn", DualInvertedSoftmax: "dual_is"}[type(rule)]
    with filled(place, name=name, rule=rule) as made:
        made.complete()
    with open_collection(place) as now:
        for change in (lambda: now.prepare(as_vectors("items", VECTORS), item_table(IDS)), lambda: now.remove(IDS[:2])):
            with pytest.raises(InputError, match=f"corrected by {name}, .*fill anew"):
                change()
        assert len(now) == ITEMS
        torch.testing.assert_close(now.reference, REFERENCE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"scale": 3.0}, "contradicts itself"), ({"criterion": "os.system"}, "os.system"),
     ({"parameters": {"_target_": "os.system"}}, "os.system")],
)  # fmt: skip
@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_metadata_made_to_do_harm(changed, message, place):
    with filled(place) as made:
        now = Collection(made.database, place, replace(made.metadata, **changed))
        with pytest.raises(InputError, match=message):
            now.prepare(as_vectors("items", VECTORS[:2]), item_table(IDS[:2]))
        claimed = Collection(made.database, place, replace(made.metadata, reference_rows=2**60))
        with pytest.raises(InputError, match="lost or damaged"):
            claimed.reference.sum()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {0} ALTER vector DROP NOT NULL; UPDATE {0} SET vector = NULL",
        "ALTER TABLE {0} ALTER vector DROP NOT NULL; UPDATE {0} SET vector = NULL WHERE label LIKE '%1th%'",
        "ALTER TABLE {0} DROP CONSTRAINT {0}_pkey; ALTER TABLE {0} ALTER id DROP NOT NULL; UPDATE {0} SET id = NULL",
    ],
)
@pytest.mark.parametrize("place", ["pgvector"], indirect=True)
def test_rows_of_others_in_postgres(change, place):
    with filled(place) as made:
        made.complete()
        made.database.base.execute(change.format(place.name))
    require_refused(place)


@pytest.mark.parametrize("payload", [{}, {"id": 7, "label": ""}, {"id": ["a"]}, {"id": IDS[0], "label": {"b": 1}}])
@pytest.mark.parametrize("place", ["qdrant"], indirect=True)
def test_payloads_of_others_in_qdrant(payload, place):
    with filled(place) as made:
        made.complete()
        made.database.client.overwrite_payload(place.name, payload, [key_of(one) for one in IDS])
    require_refused(place)


def require_refused(place):
    """Reading and searching end in an InputError, with the collection in the message."""
    with open_collection(place) as now:
        for read in (now.items, lambda: now.find(as_vectors("queries", QUERIES), ITEMS)):
            with pytest.raises(InputError, match=place.name):
                read()


@pytest.mark.parametrize("place", ["lancedb"], indirect=True)
def test_tables_of_others_in_a_folder_of_lancedb(place):
    """They stay as they are."""
    import lancedb

    table = lancedb.connect(place.uri).create_table(f"{place.name}_ref", [{"mine": 1}])
    with pytest.raises(InputError, match=r"_ref at .* is not the reference"):
        filled(place).__enter__()
    assert table.to_arrow().to_pylist() == [{"mine": 1}]


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
        ("id,x\na,1\nb,1\n", "t.csv: expected one row .* c "),
        ("id,x\na,1\nb,1\nc,1\na,2\n", "t.csv: expected one row .* a "),
        ("id\na\nb\nc\n", "t.csv: expected the column id"),
        ("name,x\na,1\n", "t.csv: expected the column id"),
        ("id,vector\na,1\n", "has a column 'vector'; expected at most 50 letters"),
        ("id,a; drop\na,1\n", "has a column 'a; drop'"),
        ("id,x,x\na,1,2\n", "t.csv: expected a column x"),
        ("id,x\na,1\nb,nan\nc,1\n", "x holds NaN or infinite"),
    ):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(InputError, match=message):
            read_columns(tmp_path / "t.csv", ids)
    for value, message in (([1], "x holds list"), ("text", "x: "), (2**70, "x: ")):  # fmt: skip
        (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"id": one, "x": value}) for one in ids[:1]) + "\n"
                                          + "\n".join(json.dumps({"id": one, "x": 1 if value != [1] else value})
                                                      for one in ids[1:]))  # fmt: skip
        with pytest.raises(InputError, match=message):
            read_columns(tmp_path / "t.jsonl", ids)


def test_what_cannot_be_a_place(tmp_path, monkeypatch):
    for arguments, message in (
        (("chroma", None, "items"), "index is 'chroma'; choose one of 'milvus', 'lancedb', 'qdrant', 'pgvector'"),
        (("pgvector", None, "items"), "index_uri is not set; give the server of Postgres"),
        (("pgvector", "folder", "items"), "index_uri is folder; Postgres takes postgresql://, postgres://$"),
        (("qdrant", "ftp://me:secret@host", "items"), r"is ftp://\*\*\*@host; Qdrant takes http://, https://$"),
        (("qdrant", None, "items"), "index_uri is not set; give the server of Qdrant"),
        (("qdrant", ":memory:", "items"), "is :memory:; Qdrant takes http://, https://$"),
        (("milvus", "folder", "items"), "index_uri is folder; the name of a folder of Milvus ends in .db"),
        (("lancedb", None, "a; drop"), "index_name is 'a; drop'; expected at most 50 letters, digits and underscores"),
        (("lancedb", None, "x" * 51), "expected at most 50 letters"),
        (("lancedb", None, "7"), "no digit first"),
    ):
        with pytest.raises(InputError, match=message):
            placed(*arguments, tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for engine in ENGINES:
        with pytest.raises(InputError, match=rf"index={engine} needs .*'vsehub\[{engine}"):
            Place(engine, "http://host", "items")


@pytest.mark.parametrize("answers", [False, True], ids=["closed", "silent"])
def test_a_server_that_does_not_answer(answers, monkeypatch):
    """In seconds, with its address and without the password."""
    for engine in ("milvus", "qdrant", "pgvector"):
        monkeypatch.setattr(f"vsehub.serving.databases.{engine}.TIMEOUT", 2)  # the least that libpq takes
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen(16)  # connections wait in its queue for ever
        host = f"127.0.0.1:{server.getsockname()[1]}"

        def asked(engine, scheme):
            shown = "me:" if scheme == "postgresql" else ""  # elsewhere a token may stand in the place of the name
            with pytest.raises(InputError, match=rf"index_uri: items at {scheme}://{shown}\*\*\*@{host}") as said:
                require_free(Place(engine, f"{scheme}://me:secret@{host}/base", "items"), overwrite=False)
            assert "secret" not in str(said.value)

        schemes = {"milvus": "http", "qdrant": "http", "pgvector": "postgresql"}
        began = time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(asked, *zip(*schemes.items(), strict=True)))
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("place", ["milvus"], indirect=True)
def test_a_folder_that_another_process_has_open(place):
    with place.connect():
        pass
    with open(f"{place.uri}/LOCK", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=rf"^index_uri: {place.address}: DataDirLocked"):
            require_free(place, overwrite=False)
    require_free(place, overwrite=False)


@pytest.mark.parametrize("place", ["lancedb", "memory"], indirect=True)
def test_errors_that_the_client_does_not_raise_pass(place):
    for error in (KeyError("a bug"), RuntimeError("not enough memory"), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as caught, place.connect():
            raise error
        assert caught.value is error


def test_a_hostile_folder_of_qdrant_is_never_opened(tmp_path, monkeypatch, capsys):
    """Its points are pickles: however its path is written, none is read."""
    from qdrant_client import QdrantClient, models

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    client = QdrantClient(path="theirs")
    client.create_collection("items", models.VectorParams(size=DIM + 1, distance=models.Distance.DOT))
    client.upsert("items", [models.PointStruct(id=1, vector=[0.5] * (DIM + 1), payload={"id": "a", "label": ""})])
    client.close()
    (file,) = (tmp_path / "theirs").glob("collection/*/storage.sqlite")
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("UPDATE points SET point = ?", (pickle.dumps(Harm(str(tmp_path / "harm"))),))
    np.save("items.npy", VECTORS.numpy())
    before = sorted(tmp_path.rglob("*"))
    commands = {
        "diagnose": ["queries=items.npy", "out=new"],
        "add": ["items=items.npy"],
        "rerank": ["items=items.npy", "queries=items.npy", "out=new"],
    }
    for command, given in commands.items():
        for spelled in ("theirs", "./theirs/", "file://theirs", ":memory:", "~/theirs"):
            arguments = [command, "index=qdrant", f"index_uri='{spelled}'", "index_name=items", *given]
            monkeypatch.setattr("sys.argv", ["vsehub", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 2
            assert "; Qdrant takes http://, https://" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(FileExistsError):  # the pickle does do harm where one opens the folder with the client
        (tmp_path / "harm").touch(), QdrantClient(path="theirs")


class Harm:
    """A pickle of this creates a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)
