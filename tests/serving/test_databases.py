"""One contract over all engines (see `conftest`), and what is true of single ones."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from looped import looped
from rows import rows_of
from test_estimator import refused

from vsehub import extras
from vsehub.checks import InputError
from vsehub.criteria import CSLS, NNN, InvertedSoftmax, NearestNeighbor, Sinkhorn
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import measured_recall
from vsehub.serving.databases import collection
from vsehub.serving.databases.biases import write_biases
from vsehub.serving.databases.collection import Collection, Fitted, Items, fill, open_collection, read_items, usage_note
from vsehub.serving.databases.engines import ENGINES, Location, key_of, location_of

ITEMS, DIM, K = 40, 16, 5
IDS = [f'it\'s "{row}" \\ % {{0}}; DROP TABLE items -- 猫\n{row}' for row in range(ITEMS)]
IDS[3] = "long " * 400
LABELS = [f"a thing, the {row}th, ☃" for row in range(ITEMS)]


def unit(rows, seed):
    vectors = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed)) + 0.4
    return torch.nn.functional.normalize(vectors, dim=1)


VECTORS, QUERIES, REFERENCE = unit(ITEMS, 1), unit(40, 2), unit(60, 3)
BIAS = CSLS(3).bias(REFERENCE @ VECTORS.T)


def filled(
    location,
    rows=ITEMS,
    rule=None,
    name="csls",
    vectors=VECTORS,
    bias=BIAS,
    labels=LABELS,
    normalize=None,
    **options,
):
    """`fill` with some items under CSLS."""
    items = Items(as_vectors("items", vectors[:rows]), IDS[:rows], labels[:rows], normalize)
    fitted = Fitted(name, rule or CSLS(3), bias[:rows], as_vectors("reference", REFERENCE), "train.npy")
    return fill(location, items, fitted, **options)


def complete(location, *arguments, **changed):
    with filled(location, *arguments, **changed):
        pass


def best(rows, queries=QUERIES, bias=BIAS, vectors=VECTORS):
    """Ids of the K best of some items of each query, by numpy."""
    rows = list(rows)
    scores = 2 * queries.numpy() @ vectors[rows].numpy().T - bias[rows].numpy()
    return [[IDS[rows[position]] for position in order[:K]] for order in np.argsort(-scores)]


def ranking(now):
    return [[name for name, _, _ in hits] for hits in now.find(as_vectors("queries", QUERIES), K)]


def at(now):
    """An open collection whose search returns positions among `IDS`."""
    return Collection(now.database, now.location, now.metadata, IDS)


def test_what_is_filled_is_searched(location):
    """Exactly as a flat index does, and near it through the approximate one."""
    with filled(location) as made:
        for corrected, rule in ((True, CSLS(3)), (False, NearestNeighbor())):
            values, positions = made.search(QUERIES, K, corrected)
            exact, expected = rule.search(QUERIES, VECTORS, REFERENCE, K)
            assert torch.equal(positions, expected)
            torch.testing.assert_close(values, exact, rtol=1e-4, atol=1e-4)
        assert measured_recall(made, QUERIES, VECTORS, BIAS, CSLS.scale, K) == {"plain": 1.0, "corrected": 1.0}
    with open_collection(location) as now:
        assert ranking(now) == best(range(ITEMS))
        row = IDS.index(best(range(ITEMS))[0][0])
        score = pytest.approx(float(2 * QUERIES[0] @ VECTORS[row] - BIAS[row]), rel=1e-4)
        assert now.find(as_vectors("queries", QUERIES[:1]), 1)[0] == [(IDS[row], LABELS[row], score)]
        ids, vectors = read_items(now.database, DIM + 1)
        assert sorted(ids) == sorted(IDS)
        torch.testing.assert_close(vectors[:, :DIM], VECTORS[[*map(IDS.index, ids)]], atol=1e-6, rtol=0)
        torch.testing.assert_close(now.reference, REFERENCE)
    complete(location, approximate=True, overwrite=True)
    with open_collection(location) as now:
        now.change([], as_vectors("items", VECTORS[:1]), ["new"])
        assert len(now) == ITEMS + 1
        assert measured_recall(at(now), QUERIES, VECTORS, BIAS, CSLS.scale, K)["corrected"] > 0.8
    absent = replace(location, name="absent")
    refused("absent", open_collection(absent).__enter__, lambda: write_biases(absent, IDS, BIAS))


def test_only_a_finished_collection_is_opened_and_only_overwrite_replaces_it(location, monkeypatch):
    """A fill that is stopped at any point leaves what no command opens, and the next fill starts anew."""
    monkeypatch.setattr(collection, "_BYTES", 15 * 4 * (DIM + 1))  # blocks of 15 items
    with location.connect() as database:
        engine = type(database)
    for name, call in (("upsert", 1), ("upsert", 3), ("index", 1), ("count", 1)):
        calls, whole = [], getattr(engine, name)

        def stopped(*arguments, name=name, call=call, calls=calls, whole=whole):
            calls.append(arguments)
            if len(calls) == call:
                raise KeyboardInterrupt
            return whole(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(engine, name, stopped)
            with pytest.raises(KeyboardInterrupt):
                complete(location)
        refused("is unfinished", open_collection(location).__enter__)
    complete(location, 20)
    refused("holds a finished", filled(location).__enter__)
    with open_collection(location) as now:
        assert len(now) == 20
    with filled(location, name="nns", rule=NearestNeighbor(), bias=torch.zeros(ITEMS), overwrite=True) as made:
        earlier_reference = collection.reference_collection(made.database)
        assert (len(made), earlier_reference.count()) == (ITEMS, 0)
    with open_collection(location) as now:
        assert ranking(now) == best(range(ITEMS), bias=0 * BIAS)


def test_two_commands_do_not_mix_their_items(location):
    with pytest.raises(InputError, match="changed by another command"), filled(location) as made:
        made.database.create(DIM + 1, json.dumps({"criterion": "csls", "complete": False}))  # another replaces it
    complete(location)
    with open_collection(location) as now:
        other = at(now)
        assert now.change([IDS[0]]) == (1, 0)
        refused("changed by another command", lambda: other.change([IDS[1]]))
        assert len(now) == ITEMS - 1


def test_items_come_and_go(location):
    """What is added ranks as if it had been there when the collection was filled; removed items are found no more."""
    most = ITEMS - 10
    complete(location, most)
    with open_collection(location) as now:
        queries = as_vectors("queries", QUERIES)
        again = [*range(most, ITEMS), 0, 5]  # new ones, one that is removed, one that is there
        ids = [IDS[row] for row in again]
        assert now.change([IDS[0], IDS[1], "absent"], as_vectors("items", VECTORS[again]), ids) == (2, 1)
        assert len(now) == ITEMS - 1
    with open_collection(location) as now:
        assert ranking(now) == best([0, *range(2, ITEMS)])
        label_of = {name: label for hits in now.find(queries, ITEMS - 1) for name, label, _ in hits}
        assert (label_of[IDS[5]], label_of[IDS[6]], label_of[IDS[0]]) == (LABELS[5], LABELS[6], "")
        two = as_vectors("items", VECTORS[:2])
        refused("items", lambda: now.change([], as_vectors("items", VECTORS[:2, :3]), IDS[:2]))
        refused("item_ids", lambda: now.change([], two, ["a", "a"]), lambda: now.change([], two, ["a"]))
        refused("item_labels", lambda: now.change([], two, ["a", "b"], ["x"]))
        collection.reference_collection(now.database).delete(["7"])
        refused("reference", lambda: now.change([], two, IDS[:2]))
        assert len(now) == ITEMS - 1


def test_labels_and_fields_of_others_stay(location):
    """When items are replaced without a label."""
    complete(location, 3)
    with location.connect() as database:
        keys = [name if location.engine in ("lancedb", "pgvector") else key_of(name) for name in IDS[:3]]
        location.module.put_biases(database, dict.fromkeys(keys, 7.0), "theirs")
    with open_collection(location) as now:
        for rows, labels in (([0, 3], None), ([1], ["changed"])):
            vectors = as_vectors("items", VECTORS[rows])
            assert now.change([], vectors, [IDS[row] for row in rows], labels) == (0, 1)
        rows = rows_of(now.database, location.engine)
    assert [rows[name].get("label") or None for name in IDS[:4]] == [LABELS[0], "changed", LABELS[2], None]
    assert [rows[name].get("theirs") for name in IDS[:4]] == [7.0] * 3 + [None]


@pytest.mark.parametrize("normalize", [True, False])  # None: test_biases.py
def test_the_usage_note_run_as_it_is(normalize, location, tmp_path, monkeypatch):
    """On raw queries; and with the filter that it names, which leaves out what it says."""
    scale = np.random.default_rng(0).uniform(0.1, 9, (ITEMS, 1)).astype("float32")
    raw = QUERIES.numpy() * scale[: len(QUERIES)]
    vectors = VECTORS if normalize else VECTORS * torch.from_numpy(scale)
    bias = CSLS(3).bias(REFERENCE @ vectors.T)
    queries = QUERIES if normalize else torch.from_numpy(raw)
    labels = [LABELS[row] if row % 2 else "" for row in range(ITEMS)]
    with filled(location, labels=labels, vectors=vectors, bias=bias, normalize=normalize) as made:
        note = usage_note(made, tmp_path, K)
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", raw)
    everything = best(range(ITEMS), queries=queries, bias=bias, vectors=vectors)
    assert run(note) == everything
    line = next(line for line in note.splitlines() if line.startswith("only = "))
    condition = note.partition("condition: ")[2].partition(", for example")[0].replace("\n#", "")
    filtered = note.replace(line.partition("#")[0], f"only = {condition}  ")
    assert run(filtered) == best(range(1, ITEMS, 2), queries=queries, bias=bias, vectors=vectors)


def run(code):
    """The ids that a note finds; what it has opened is closed."""
    ran = {}
    exec(code, ran)
    assert np.all(np.diff(ran["scores"]) <= 1e-5)
    for name in ("client", "base"):
        if hasattr(ran.get(name), "close"):
            ran[name].close()
    return [list(row) for row in ran["ids"]]


def test_a_collection_of_somebody_else(location):
    """Refused even with overwrite=true, and so is its reference; an older one of vsehub's is replaced only with it."""
    for text in ("theirs", "", "[1]", "[" * 10**4, '{"schema": 9, "beside": "shop"}'):
        with location.connect() as database:
            database.create(DIM + 1, text)
        refused("not made by vsehub", open_collection(location).__enter__, filled(location, overwrite=True).__enter__)
    with location.connect() as database:
        database.create(DIM + 1, json.dumps({"schema": 8, "criterion": "csls", "complete": True}))
    refused("version 8", open_collection(location).__enter__)
    refused("overwrite", filled(location).__enter__)
    complete(location, overwrite=True)
    with location.connect() as database:
        collection.reference_collection(database).create(DIM, "theirs")
    refused(f"{location.name}_ref at .* not made by", filled(location, overwrite=True).__enter__)
    with location.connect() as database:
        assert (database.count(), collection.reference_collection(database).metadata()) == (ITEMS, "theirs")


@looped("rule", [CSLS(5), InvertedSoftmax(), NNN(4)])
def test_a_sample_of_a_large_reference(rule):
    """What is lost by it is a shift of all biases alike, which is measured and added back."""
    items, reference, new = unit(200, 7), unit(3000, 8), unit(50, 9)
    bias, wanted = rule.bias(reference @ items.T), rule.bias(reference @ new.T)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "REFERENCE_ROWS", 300)
        fitted = Fitted("csls", rule, bias, as_vectors("reference", reference), "train.npy")
        sample, shift = collection._stored_reference(as_vectors("items", items), fitted, 0)
    assert len(sample) == 300
    unshifted = rule.bias(sample @ new.T)
    assert (unshifted + shift - wanted).mean().abs() < 0.25 * wanted.std()
    assert (unshifted - wanted).mean().abs() > wanted.std()


@pytest.mark.parametrize("location", ["lancedb"], indirect=True)
def test_items_that_no_command_may_change(location):
    """Where biases depend on all items, and where metadata name code."""
    complete(location, name="sinkhorn", rule=Sinkhorn())
    items = as_vectors("items", VECTORS)
    with open_collection(location) as now:
        refused("sinkhorn", lambda: now.change([], items, IDS), lambda: now.change(IDS[:2]))
        assert len(now) == ITEMS
    with filled(location, overwrite=True) as made:
        for key in ("criterion", "parameters"):
            harm = Collection(made.database, location, made.metadata | {key: {"_target_": "os.system"}})
            refused("os.system", lambda harm=harm: harm.change([], items, IDS))


def test_what_cannot_be_a_place(tmp_path, monkeypatch):
    """Qdrant's folders hold pickles: however its path is written, none is opened."""
    for arguments, message in (
        (("chroma", None, "items"), "engine is 'chroma'; .*'milvus', 'lancedb', 'qdrant', 'pgvector'"),
        (("pgvector", None, "items"), "uri is not set"),
        (("pgvector", "folder", "items"), "uri is folder"),
        (("qdrant", "ftp://me:secret@host", "items"), r"is ftp://\*\*\*@host; "),
        (("qdrant", None, "items"), "uri is not set"),
        *((("qdrant", spelled, "items"), "uri is") for spelled in ("f", "./f/", "file://f", ":memory:", "~/f")),
        (("lancedb", None, "a; drop"), "collection"),
        (("lancedb", None, "x" * 51), "collection"),
        (("lancedb", None, "7"), "collection"),
    ):
        refused(message, lambda arguments=arguments: location_of(*arguments, tmp_path))
    folder = location_of("milvus", str(tmp_path / "folder"), "items", None)
    refused("uri: .*folder", folder.connect().__enter__)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    for engine in ENGINES:
        refused(rf"engine={engine} .*\[{engine}", lambda engine=engine: Location(engine, "http://host", "items"))


def test_a_server_that_does_not_answer(monkeypatch):
    """In seconds, with its address and without the password."""
    schemes = {"milvus": "http", "qdrant": "http", "pgvector": "postgresql"}
    for engine in schemes:
        monkeypatch.setattr(f"vsehub.serving.databases.{engine}.TIMEOUT", 2)  # the least that libpq takes
    with socket.socket() as silent, socket.socket() as closed, ThreadPoolExecutor() as pool:
        for server in (silent, closed):
            server.bind(("127.0.0.1", 0))
        silent.listen(16)  # connections wait in its queue for ever

        def connect(engine, port):
            uri = f"{schemes[engine]}://me:secret@127.0.0.1:{port}/base"
            with pytest.raises(InputError, match=rf"uri: items at {schemes[engine]}://\*\*\*@.*:{port}") as said:
                open_collection(Location(engine, uri, "items")).__enter__()
            assert "secret" not in str(said.value)

        began = time.monotonic()
        list(
            pool.map(connect, [*schemes] * 2, [server.getsockname()[1] for server in (silent, closed) for _ in schemes])
        )
        assert time.monotonic() - began < 15
