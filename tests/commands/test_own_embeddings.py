"""`vsehub rerank` and `vsehub diagnose` on vectors of no model of ours, through the real command line."""

import importlib.util
import json
import os
import re
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rankings import read_ranking

from vsehub import extras
from vsehub.cli.main import main
from vsehub.criteria import CSLS, DualBankSinkhorn, DualInvertedSoftmax
from vsehub.io.outputs import MARK
from vsehub.neighbors import rounded, tiles
from vsehub.rerank import engines as search
from vsehub.serving import load_index

QUERIES, ITEMS, DIM, K = 300, 120, 16, 10
KEYS = {
    *("schema", "kind", "vsehub", "command", "versions", "git", "hardware", "engine", "started", "seconds"),
    *("scores", "queries", "items", "reference", "reference_items", "k", "ks", "truth", "rankings", "hubs", "antihubs"),
    *("choice", "verdict", "index", "calibration"),
}


def vectors():
    """Queries beside their items, all pulled one way so that hubs arise; other queries; which item each wants."""
    generator = np.random.default_rng(0)
    side = np.full(DIM, 1 / np.sqrt(DIM))
    items = generator.normal(size=(ITEMS, DIM)) + 2.5 * np.exp(generator.normal(size=(ITEMS, 1))) * side
    items /= np.linalg.norm(items, axis=1, keepdims=True)

    def asked(n):
        wanted = generator.integers(0, ITEMS, n)
        rows = items[wanted] + 0.14 * generator.normal(size=(n, DIM)) + 0.5 * side
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), wanted

    queries, wanted = asked(QUERIES)
    return queries, items.astype(np.float32), asked(200)[0], wanted


@pytest.fixture
def files(tmp_path):
    """A folder with vectors, truth by rows and by ids, captions, and two of the images."""
    queries, items, reference, wanted = vectors()
    for name, array in (("q", queries), ("m", items), ("train", reference), ("raw", 3 * items)):
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "both.npz", text=queries, image=items)
    ids = [f"photo {item:03d}" for item in range(ITEMS)]
    for name, named in (("rows.csv", range(ITEMS)), ("pairs.csv", ids)):
        lines = [f"{query},{named[item]}" for query, item in enumerate(wanted) if query % 10]
        (tmp_path / name).write_text("\n".join(["query,item", *lines]) + "\n")
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    (tmp_path / "captions.txt").write_text("\n".join(f"a photo of thing {item}" for item in range(ITEMS)))
    (tmp_path / "asked.txt").write_text("\n".join(f"where is thing {item}?" for item in wanted))
    (tmp_path / "photos").mkdir()
    return tmp_path


@pytest.fixture
def here(files, undrawn, monkeypatch, capsys):
    """A function that runs a command in the folder, in this process, and returns what it says on both streams."""

    def run(*arguments, status=0):
        monkeypatch.chdir(files)
        monkeypatch.setattr(sys, "argv", ["vsehub", *map(str, arguments)])
        ended = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code
        said = "".join(capsys.readouterr())
        assert ended == status, said
        assert "Traceback" not in said
        return said

    return run


def record(folder):
    return json.loads((folder / "result.json").read_text())


ALL = ("queries=q.npy", "items=m.npy", "truth=rows.csv")


def test_rerank(files, vsehub):
    """From the console script to the table, the record and the page, with everything that can be named."""
    (files / "photos" / "photo 007.jpg").touch()
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt", "item_images=photos")
    settings = ("queries=both.npz::text", "items=both.npz::image", "truth=pairs.csv", "reference=train.npy", *named)
    done = vsehub("rerank", *settings, "criterion=csls", "criterion.k=5", "k=7", "out=there", cwd=files)
    assert {path.name for path in (files / "there").iterdir()} == {"ranking.parquet", "result.json", "index.html", MARK}
    assert "written to there: ranking.parquet, result.json, index.html" in done.out

    queries, items, reference, _ = map(torch.from_numpy, vectors())
    values, positions = CSLS(k=5).search(queries, items, reference, 7)
    ids = (files / "ids.txt").read_text().splitlines()
    found, scores = read_ranking(files / "there" / "ranking.parquet", item_ids=ids)
    assert torch.equal(found, positions)
    torch.testing.assert_close(scores, values)

    told = record(files / "there")
    assert told.keys() == KEYS
    assert (told["kind"], told["k"], told["ks"], told["index"]) == ("rerank", 7, [1, 5, 10], None)
    assert told["queries"].keys() == {"path", "rows", "dim", "dtype", "fingerprint", "norms"}
    assert (told["queries"]["path"], told["queries"]["rows"], told["items"]["dim"]) == ("both.npz::text", QUERIES, DIM)
    assert told["reference"]["kind"] == "inductive"
    assert (told["reference"]["set"], told["reference"]["rows"], told["reference"]["queries_in_it"]) == (
        "train.npy",
        200,
        0,
    )
    assert told["truth"] == {"path": "pairs.csv", "pairs": 270, "measured_queries": 270, "queries_without": 30}
    assert told["seconds"].keys() == {"look_through", "reference", "search", "total"}
    plain, csls = told["rankings"]
    assert [(one["criterion"], one["parameters"], one["reference"]) for one in told["rankings"]] == [
        ("nns", {}, "none"),
        ("csls", {"k": 5}, "inductive"),
    ]
    assert plain["changed"] == {"first": 0.0, "overlap": 1.0}
    assert 0 < csls["changed"]["first"] < 1
    assert csls["hubness"]["largest_hub_10"] < plain["hubness"]["largest_hub_10"]
    assert csls["truth"]["r1"] > plain["truth"]["r1"] > 50
    assert f"{csls['truth']['r1']:.1f}" in done.out

    counts = [hub["occurrences"][0] for hub in told["hubs"]]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == plain["hubness"]["largest_hub_10"]
    assert len(told["hubs"]) == 20
    worst = told["hubs"][0]
    assert (worst["id"], worst["label"]) == (ids[worst["item"]], f"a photo of thing {worst['item']}")
    assert worst["wrong"][0] <= worst["occurrences"][0]
    asked = (files / "asked.txt").read_text().splitlines()
    assert len(worst["queries"]) == 3
    assert all(one["label"] == asked[one["query"]] for one in worst["queries"])
    shown = {one["item"]: one["image"] for one in (*told["hubs"], *told["antihubs"]["examples"])}
    assert all(image == ("photos/photo 007.jpg" if item == 7 else None) for item, image in shown.items())
    assert told["antihubs"]["count"] == [round(one["hubness"]["antihub_rate_10"] * ITEMS) for one in told["rankings"]]
    page = (files / "there" / "index.html").read_text()
    assert worst["id"] in page
    assert "inductive" in page


def test_diagnose(files, here):
    said = here("diagnose", *ALL, "out=there")
    assert {path.name for path in (files / "there").iterdir()} == {"result.json", "index.html", MARK}
    told = record(files / "there")
    assert told.keys() == KEYS | {"next"}
    assert told["reference"] == {"kind": "transductive", "set": "the queries themselves", "rows": QUERIES}
    assert [one["criterion"] for one in told["rankings"]] == ["nns", "is", "csls", "nnn", "dn"]
    assert told["rankings"][3]["parameters"] == {"k": 128, "weight": 0.75}, "not those of the yaml"
    assert {one["reference"] for one in told["rankings"][1:]} == {"transductive"}
    assert all(len(hub["occurrences"]) == len(hub["wrong"]) == 5 for hub in told["hubs"])
    assert re.search(r"\ncsls +[\d.]+ ", said)
    assert said.count("1st moved: queries whose first item is another than under nns; top 10 kept: share of the") == 1
    here("diagnose", "queries=q.npy", "items=m.npy", "criteria=[nns,local_scaling]", "out=bare", "k=3")
    bare = record(files / "bare")
    assert [one["criterion"] for one in bare["rankings"]] == ["nns", "local_scaling"]
    assert bare["truth"] is bare["hubs"][0]["wrong"] is bare["rankings"][0]["truth"] is None


def test_names_that_are_quoted_for_hydra(files, here):
    name = "vectors (v=2), 5 {x}.npy"
    (files / name).write_bytes((files / "q.npy").read_bytes())
    here("diagnose", f"queries='{name}'", "items=m.npy", "criteria=[dn]", "out=there")
    assert record(files / "there")["queries"]["path"] == name


def test_the_plain_ranking_alone(files, here):
    said = here("rerank", *ALL, "criterion=nns", "reference=train.npy", "out=there", "normalize=true")
    assert "reference is not read" in said
    told = record(files / "there")
    assert [one["criterion"] for one in told["rankings"]] == ["nns"]
    assert told["reference"] == {"kind": "none", "set": "none"}
    assert told["reference_items"] is None


def test_reference_items(files, here):
    bank = np.random.default_rng(3).normal(size=(40, DIM)).astype(np.float32)
    np.save(files / "bank.npy", bank / np.linalg.norm(bank, axis=1, keepdims=True))
    given = ("reference=train.npy", "reference_items=bank.npy")
    for name, criterion in (("dual_is", DualInvertedSoftmax()), ("dbsn", DualBankSinkhorn())):
        said = here("rerank", *ALL, *given, f"criterion={name}", f"out={name}")
        told = record(files / name)
        assert (told["reference"]["kind"], told["reference_items"]["set"]) == ("inductive", "bank.npy")
        assert (told["reference_items"]["rows"], told["reference_items"]["dim"]) == (40, DIM)
        assert "reference items: bank.npy, 40" in said
        assert "bank.npy (40 rows)" in (files / name / "index.html").read_text()
        sides = (np.load(files / f"{side}.npy") for side in ("q", "m", "train"))
        wanted = criterion.search(*sides, K, reference_items=np.load(files / "bank.npy"))[1]
        assert np.array_equal(read_ranking(files / name / "ranking.parquet")[0], wanted)
    here("diagnose", *ALL, "criteria=[csls,dual_is]", "out=own")
    assert record(files / "own")["reference_items"] == {"set": "the items themselves", "rows": ITEMS}
    refused = here("rerank", *ALL, *given, "criterion=csls", "out=other", status=2)
    assert "reference_items: csls does not look at reference items. Leave reference_items out" in refused
    refused = here("rerank", *ALL, "reference_items=absent.npy", "criterion=dual_is", "out=other", status=2)
    assert "reference_items" in refused
    assert "absent.npy" in refused
    np.save(files / "narrow.npy", bank[:, :5])
    refused = here(
        "rerank", *ALL, "reference_items=narrow.npy", "criterion=dual_is", "out=other", "normalize=true", status=2
    )
    assert "the vectors are not of one space" in refused


@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="FAISS is not installed")
@pytest.mark.parametrize(
    ("kind", "criterion"),
    [("flat", "sinkhorn"), ("flat", "dual_is"), ("ivf", "csls"), ("hnsw", "nns")],
)
def test_an_index_that_gives_the_ranking(files, here, monkeypatch, kind, criterion):
    """Through vsehub's own loader and through the lines of USAGE.md, which need FAISS and numpy alone."""
    said = here("rerank", *ALL, f"criterion={criterion}", f"index={kind}", "k=5", "out=there")
    wanted = {"ranking.parquet", "result.json", "index.html", "index.faiss", "USAGE.md", MARK}
    assert {path.name for path in (files / "there").iterdir()} == wanted
    told = record(files / "there")["index"]
    assert (told["kind"], told["files"]) == (kind, ["index.faiss"])
    assert told["bytes"] == (files / "there" / "index.faiss").stat().st_size
    positions, scores = read_ranking(files / "there" / "ranking.parquet")
    values, found = load_index(files / "there" / "index.faiss").search(np.load(files / "q.npy"), 5)
    same = (found == positions.numpy()).mean()
    assert told["recall"]["k"] == 5
    assert f"index ({kind}): it finds" in said
    assert all(one > 0 for one in told["milliseconds"].values())
    if kind == "flat":
        assert (
            min(told["recall"]["plain"], told["recall"]["corrected"]) > 0.999
        )  # another item of equal score is a miss
        assert same == 1.0
        np.testing.assert_allclose(values, scores, rtol=1e-4)
    else:
        assert min(told["recall"]["plain"], told["recall"]["corrected"], same) > 0.95
    code = (files / "there" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
    monkeypatch.chdir(files / "there")
    np.save("queries.npy", np.load(files / "q.npy"))
    ran = {}
    exec(code, ran)
    assert (ran["positions"] == found).all()
    here("rerank", *ALL, "criterion=nns", "out=there", "overwrite=true")
    left = {"result.json", "index.html", "ranking.parquet", "queries.npy", MARK}  # an index of before is gone
    assert {path.name for path in (files / "there").iterdir()} == left


@pytest.mark.skipif(importlib.util.find_spec("milvus_lite") is None, reason="vsehub[milvus] is not installed")
def test_a_database_that_gives_the_ranking(files, here, monkeypatch):
    """Milvus Lite in the output folder, through the lines of USAGE.md, which need its client and numpy alone."""
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt")
    named = (*ALL[:2], "truth=pairs.csv", "reference=train.npy", *named)
    said = here("rerank", *named, "criterion=csls", "index=milvus", "k=5", "out=there")
    assert "index (Milvus, exact): it finds 100.0% of the 5 best, 100.0% of the plain ranking's; " in said
    assert "written to there: ranking.parquet, USAGE.md, result.json, index.html" in said
    told = record(files / "there")["index"]
    assert told.keys() == {"kind", "uri", "items", "bytes", "recall", "milliseconds"}
    assert (told["items"], told["recall"]) == (ITEMS, {"k": 5, "plain": 1.0, "corrected": 1.0})
    assert "vsehub at there/index.milvus.db" in (files / "there" / "index.html").read_text()
    code = (files / "there" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
    monkeypatch.chdir(files / "there")
    np.save("queries.npy", np.load(files / "q.npy"))
    ran = {}
    exec(code, ran)
    ids = (files / "ids.txt").read_text().splitlines()
    positions, scores = read_ranking(files / "there" / "ranking.parquet", item_ids=ids)
    assert ran["ids"] == [[ids[item] for item in row] for row in positions.tolist()]
    np.testing.assert_allclose(ran["scores"], scores, rtol=1e-4)
    hit = ran["found"][0][0]["entity"]
    assert hit["label"] == f"a photo of thing {int(hit['id'].removeprefix('photo '))}"
    ran["client"].close()
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_all()
    (files / "there" / "result.json").unlink()
    elsewhere = ("index=milvus", "index_uri=there/index.milvus.db", "out=other")
    refused = here("rerank", *named, "criterion=csls", *elsewhere, status=2)
    assert "index_uri: vsehub at there/index.milvus.db holds a finished collection" in refused
    here("rerank", *named, "criterion=csls", *elsewhere, "index_name=second", "index_approximate=true")
    assert record(files / "other")["index"]["kind"] == "Milvus, approximate"


def test_copies_among_the_items_are_told(files, here):
    items = np.load(files / "m.npy")
    np.save(files / "twice.npy", np.concatenate([items, items[[7, 3]]]))
    said = here("diagnose", "queries=q.npy", "items=twice.npy", "criteria=[csls]", "out=twice")
    assert (
        "2 of the 122 items are copies of others, number for number (item 120 of item 7, for example, counted from 0)"
        in said
    )
    assert "copies of others" not in here("diagnose", *ALL[:2], "criteria=[csls]", "out=once")


def test_biases_for_a_search_engine_of_ones_own(files, here):
    """a·s - b from the table ranks as the criterion does; a criterion that has no bias is refused."""
    sides = (*ALL[:2], "reference=train.npy", "k=5")
    for criterion, named in (("csls", ()), ("sinkhorn", ("item_ids=ids.txt",)), ("nns", ())):
        here("rerank", *sides, *named, f"criterion={criterion}", "biases=true", f"out={criterion}")
        table = pq.read_table(files / criterion / "biases.parquet")
        names = (files / "ids.txt").read_text().splitlines() if named else list(range(ITEMS))
        assert table["id"].to_pylist() == names
        scores = np.load(files / "q.npy") @ np.load(files / "m.npy").T
        corrected = float(table.schema.metadata[b"scale"]) * scores - table["bias"].to_numpy()
        positions, values = read_ranking(files / criterion / "ranking.parquet", item_ids=names if named else None)
        assert (np.argsort(-corrected, axis=1, kind="stable")[:, :5] == positions.numpy()).mean() > 0.999
        np.testing.assert_allclose(-np.sort(-corrected, axis=1)[:, :5], values, rtol=1e-3, atol=1e-3)
    said = here("rerank", *sides, "criterion=dual_softmax", "biases=true", "out=no", status=2)
    assert "biases=true: dual_softmax does not rank by the score minus a term of the item; choose one of csls" in said


@pytest.mark.parametrize("normalize", ["true", "false", "null"])
@pytest.mark.parametrize("kind", ["flat", "milvus", "lancedb"])
def test_the_lines_of_a_note_from_where_a_person_stands(kind, normalize, tmp_path, here, monkeypatch):
    """On the vectors as they were given, in the working folder and in that of the result; nothing else appears."""
    pytest.importorskip({"milvus": "milvus_lite", "lancedb": "lancedb"}.get(kind, "faiss"))
    generator = np.random.default_rng(1)
    items, queries = (generator.normal(size=(rows, DIM)).astype("float32") for rows in (300, 50))
    if normalize == "null":
        items, queries = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (items, queries))
    monkeypatch.chdir(tmp_path)
    np.save("items.npy", items)
    np.save("queries.npy", queries)
    sides = ("queries=queries.npy", "items=items.npy", f"normalize={normalize}")
    here("rerank", *sides, "criterion=csls", f"index={kind}", "out=served")
    positions, scores = read_ranking(tmp_path / "served" / "ranking.parquet")
    note = (tmp_path / "served" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
    for folder in (tmp_path, tmp_path / "served", tmp_path / "elsewhere"):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        np.save("queries.npy", queries)
        before = {path.name for path in folder.iterdir()}
        ran = {}
        exec(note, ran)
        found = ran["positions"] if "positions" in ran else np.array(ran["ids"]).astype(int)
        np.testing.assert_array_equal(found, positions.numpy())
        np.testing.assert_allclose(ran["scores"], scores, rtol=1e-3, atol=1e-3)
        for name in ("client", "base"):
            if hasattr(ran.get(name), "close"):
                ran[name].close()
        if kind == "milvus":
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_all()
        assert {path.name for path in folder.iterdir()} == before
    if kind in ("milvus", "lancedb"):  # where the database has moved, none is made in its place
        (folder := next((tmp_path / "served").glob(f"index.{kind}*"))).rename(tmp_path / "moved.db")
        with pytest.raises(FileNotFoundError):
            exec(note, {})
        assert not folder.exists()


@pytest.mark.skipif(importlib.util.find_spec("lancedb") is None, reason="vsehub[lancedb] is not installed")
def test_columns_of_items_in_a_database(files, here, monkeypatch):
    """Given when it is filled and when items are added; the filter that the note names finds what it should."""
    rows = "".join(f"photo {row:03d},{row}.0,thing {row % 3}\n" for row in range(ITEMS))
    (files / "prices.csv").write_text("id,price,sort\n" + rows)
    sides = (*ALL[:2], "reference=train.npy", "item_ids=ids.txt", "criterion=csls", "k=5", "index=lancedb")
    said = here("rerank", *sides, "item_columns=rows.csv", "out=there", status=2)
    assert "rows.csv: expected the column id" in said
    here("rerank", *sides, "item_columns=prices.csv", "out=there")
    np.save(files / "two.npy", np.load(files / "m.npy")[[3, 90]])
    (files / "two.txt").write_text("photo 003\nphoto new\n")
    (files / "two.csv").write_text("id,price\nphoto new,0.5\nphoto 003,7.5\n")
    place = ("index=lancedb", "index_uri=there/index.lancedb", "items=two.npy", "item_ids=two.txt")
    (files / "wrong.csv").write_text("id,price\nphoto new,cheap\nphoto 003,7.5\n")
    said = here("add", *place, "item_columns=wrong.csv", status=2)
    assert "item_columns: not of the stored types" in said
    here("add", *place, "item_columns=two.csv")
    code = (files / "there" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
    assert "only = None  # all items, or a condition: '`price` <= 9', for example" in code
    monkeypatch.chdir(files)
    np.save("queries.npy", np.load(files / "q.npy"))
    ran = {}
    exec(code.replace("only = None", "only = '`price` <= 9.5'"), ran)
    wanted = {f"photo {row:03d}" for row in range(10)} | {"photo new"}
    assert {one for row in ran["ids"] for one in row} <= wanted
    assert all(len(row) == 5 for row in ran["ids"])
    table = {row["id"]: row for row in ran["table"].to_arrow().to_pylist()}
    assert (table["photo 003"]["price"], table["photo 003"]["sort"]) == (7.5, "thing 0")
    assert (table["photo new"]["price"], table["photo new"]["sort"]) == (0.5, None)


def test_what_a_database_cannot_be_asked(files, here, monkeypatch):
    sides = ("queries=q.npy", "items=m.npy", "criterion=csls")
    for settings, message in (
        (
            ("index=chroma",),
            "index is 'chroma'; choose one of flat, ivf, hnsw, milvus, lancedb, qdrant, pgvector",
        ),
        (("index_uri=somewhere",), "index_uri is for databases (milvus, lancedb, qdrant, pgvector), and index is None"),
        (("index=flat", "index_approximate=true"), "index_approximate is for databases"),
        (("index=flat", "item_columns=rows.csv", "index_uri=x"), "index_uri, item_columns are for databases"),
        (("index=lancedb", "item_columns=absent.csv"), "item_columns: no such file"),
        (("index=pgvector",), "index_uri is not set; give the server of Postgres"),
        (
            ("index=lancedb", "index_approximate=yes please"),
            "index_approximate is 'yes please'; expected true, false or n",
        ),
        (("index=lancedb", "criterion=gm"), "gm does not rank by the score minus a term of the item"),
    ):
        assert message in here("rerank", *sides, *settings, f"out={len(settings[0])}", status=2), settings
    secret = "index_uri=http://me:secret@127.0.0.1:1"
    said = here("rerank", *sides, "index=milvus", secret, "out=other", status=2)
    assert "index_uri: vsehub at http://***@127.0.0.1:1: " in said
    assert "secret" not in said
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    refused = here("rerank", *sides, "index=milvus", "out=other", status=2)
    assert "index=milvus needs pymilvus and milvus_lite, not" in refused


def test_a_matching(files, here):
    here("rerank", *ALL, "criterion=csls+rgm", "out=there")
    told = record(files / "there")
    parameters = {"k": 10, "relaxation": 2.0, "capacity": "proportional"}
    assert (told["rankings"][1]["criterion"], told["rankings"][1]["parameters"]) == ("csls+rgm", parameters)
    assert told["reference"]["kind"] == told["rankings"][1]["reference"] == "transductive"
    refused = here("rerank", *ALL, "criterion=rgm", "reference=train.npy", "out=other", status=2)
    assert "rgm matches the queries themselves with the items" in refused
    refused = here("rerank", *ALL, "criterion=gm", "index=flat", "out=other", status=2)
    assert "gm does not rank by the score minus a term of the item" in refused


def test_one_item_and_one_query(files, here):
    np.save(files / "one.npy", np.eye(1, DIM, dtype=np.float32))
    here("rerank", "queries=one.npy", "items=one.npy", "k=1", "out=there")
    here("diagnose", "queries=q.npy", "items=one.npy", "k=1", "out=bare")
    assert record(files / "bare")["hubs"][0]["occurrences"] == [QUERIES] * 5


class Killed(BaseException):
    """Stands for a kill: nothing but the process's end answers it."""


def test_a_killed_command_starts_anew(files, here, monkeypatch):
    """Killed after the second of five blocks; then a query changes, and the file's size and time do not."""
    monkeypatch.setattr(tiles, "QUERIES_HELD", 64)
    whole = search.nearest_blocks

    def broken(*arguments, **settings):
        for number, block in enumerate(whole(*arguments, **settings)):
            if number == 2:
                raise Killed
            yield block

    with monkeypatch.context() as changed:
        changed.setattr(search, "nearest_blocks", broken)
        changed.setenv("VSEHUB_TRACEBACK", "1")  # the error itself, which is the kill
        with pytest.raises(Killed):
            here("rerank", *ALL, "criterion=qb_norm", "out=there")
    queries, before = np.load(files / "q.npy"), (files / "q.npy").stat()
    queries[[1, 2]] = queries[[2, 1]]
    np.save(files / "q.npy", queries)
    os.utime(files / "q.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    for out in ("there", "unbroken"):
        here("rerank", *ALL, "criterion=qb_norm", f"out={out}")
    assert {path.name for path in (files / "there").iterdir()} == {"ranking.parquet", "result.json", "index.html", MARK}
    ranking = [(files / out / "ranking.parquet").read_bytes() for out in ("there", "unbroken")]
    assert ranking[0] == ranking[1]
    told, unbroken = (record(files / out) for out in ("there", "unbroken"))
    for key in KEYS - {"seconds", "started", "command"}:
        assert told[key] == unbroken[key], key


def test_rounded_scores(files, here, monkeypatch):
    """What they change is printed, on the page and in the record; `auto` rounds where the hardware has it."""
    for command, written in (("rerank", "ranking.parquet"), ("diagnose", "result.json")):
        said = here(command, *ALL, "precision=bf16", f"out={command}")
        assert (files / command / written).exists()
        told = record(files / command)
        assert told.keys() - KEYS - {"next"} == {"precision"}
        assert told["precision"] == "bf16"
        page = (files / command / "index.html").read_text()
        for ranking in told["rankings"]:
            rounding = ranking["rounding"]
            assert rounding.keys() == {"queries", "k", "first", "overlap", "recall"}
            assert (rounding["queries"], rounding["k"]) == (QUERIES, 10)
            line = f"bf16, {ranking['criterion']}: of 300 queries that float32 ranked too, {rounding['first']:.1%} have"
            assert f"precision: {line}" in said
            assert line in page
    assert any(ranking["rounding"]["overlap"] < 1 for ranking in told["rankings"])
    for fast, word in ((False, "auto"), (True, "auto"), (True, "32")):
        monkeypatch.setattr(rounded, "has_bf16", lambda device, fast=fast: fast)
        said = here("diagnose", *ALL, "criteria=[csls]", f"precision={word}", "out=again", "overwrite=true")
        assert ("precision" in record(files / "again")) is ("precision: bf16" in said) is (fast and word == "auto")
    refused = here("diagnose", *ALL, "criteria=[csls,rgm]", "precision=bf16", "out=other", status=2)
    assert "precision is bf16, but rgm matches queries and items with each other, in float32 only" in refused


def test_a_folder_that_holds_a_result(files, here):
    here("diagnose", *ALL, "out=there", "criteria=[is]")
    before = (files / "there" / "result.json").read_bytes()
    said = here("diagnose", "queries=absent.npy", "items=m.npy", "out=there", status=2)
    assert "out: there already holds a diagnosis. Give another out=FOLDER, or overwrite=true to replace it" in said
    for overwrite in ("true", "false"):
        said = here("rerank", *ALL, "out=there", f"overwrite={overwrite}", status=2)
        assert "holds a diagnosis, not a reranking of this version. Give another out=FOLDER" in said
    assert (files / "there" / "result.json").read_bytes() == before
    here("diagnose", *ALL, "out=there", "overwrite=true", "criteria=[csls]")
    assert (files / "there" / "result.json").read_bytes() != before
    assert {path.name for path in (files / "there").iterdir()} == {"result.json", "index.html", MARK}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["items=m.npy"], "queries is not set; give queries=FILE"),
        (["queries=q.npy", "items=absent.npy"], "items: no such file or folder: absent.npy"),
        (["queries=q.npy", "items=m.npy", "k=121"], "k is 121; expected at most 120, the number of items"),
        (["queries=q.npy", "items=m.npy", "k=ten"], "k is 'ten'"),
        (["queries=q.npy", "items=raw.npy"], r"the norms of the rows lie between .* Set normalize=true"),
        (["queries=q.npy", "items=m.npy", "normalize=maybe"], "normalize is 'maybe'; expected true, false or null"),
        (["queries=q.npy", "items=m.npy", "reference=q.npy"], "q.npy is the queries' own file. Leave reference out"),
        (["queries=q.npy", "items=m.npy", "reference=photos/../q.npy"], "is the queries' own file"),
        (
            ["queries=q.npy", "items=m.npy", "device=abacus"],
            "device is 'abacus', which is not available on this machine",
        ),
        (["queries=q.npy", "items=m.npy", "seed=none"], "seed is 'none'"),
        (["queries=q.npy", "items=m.npy", "precision=16"], "precision is '16'; choose one of '32', 'bf16', 'auto'"),
        (
            ["queries=q.npy", "items=m.npy", "item_ids=asked.txt"],
            r"there are 300 ids; expected one per row|comes twice",
        ),
        (["queries=q.npy", "items=m.npy", "item_labels=asked.txt"], "120 rows, but there are 300 labels"),
        (["queries=q.npy", "items=m.npy", "item_images=photos"], "are found by ids, which items does not have"),
        (["queries=q.npy", "items=m.npy", "truth=pairs.csv"], "pairs.csv: (query|item) .* 0, 1, "),
    ],
)
def test_settings_that_do_not_fit(files, here, settings, message):
    before = sorted(files.iterdir())
    for command in ("rerank", "diagnose"):
        assert re.search(message, here(command, *settings, status=2))
    assert sorted(files.iterdir()) == before, "a refusal left something"


def test_settings_of_one_command(files, here):
    sides = ("queries=q.npy", "items=m.npy")
    assert "index is 'pq'; choose one of flat, ivf, hnsw" in here("rerank", *sides, "index=pq", status=2)
    refused = here("rerank", *sides, "criterion=qb_norm", "index=flat", status=2)
    assert "qb_norm does not rank by the score minus a term of the item" in refused
    assert "choose one of csls, dbsn, dn, dual_is, is, nnn, nns, sinkhorn, or omit index" in refused
    assert "criterion csls: criterion.k is 0; expected a whole number" in here(
        "rerank", *sides, "criterion.k=0", status=2
    )
    unknown = here("diagnose", *sides, "criteria=[csls,clsl]", status=2)
    assert "criterion is 'clsl' (did you mean csls?); choose one of assignment, auto, csls, " in unknown
    assert "auto chooses one criterion" in here("diagnose", *sides, "criteria=[csls,auto]", status=2)
    assert "criteria names a criterion twice: is, is" in here("diagnose", *sides, "criteria=[is,is]", status=2)


def test_a_criterion_that_a_function_makes_is_not_among_those_of_an_index(files, here):
    (files / "own" / "criterion").mkdir(parents=True)
    (files / "own" / "criterion" / "made.yaml").write_text("_target_: functools.reduce\n")
    sides = ("queries=q.npy", "items=m.npy")
    refused = here("rerank", "--config-dir", "own", *sides, "criterion=qb_norm", "index=flat", status=2)
    assert "choose one of csls, dbsn, dn, dual_is, is, nnn, nns, sinkhorn, or omit index" in refused


def spoil(files, name):
    """Sides that are damaged, each in one way."""
    queries, items, reference, _ = vectors()
    changed = {"queries": "q.npy", "items": "m.npy"}
    match name:
        case "short":
            (files / "cut.npy").write_bytes((files / "m.npy").read_bytes()[:-1])
            return changed | {"items": "cut.npy"}
        case "nan":
            items[[3, 50]] = np.nan
            np.save(files / "bad.npy", items)
            return changed | {"items": "bad.npy"}
        case "dimensions":
            np.save(files / "bad.npy", np.eye(DIM + 1, dtype=np.float32))
            return changed | {"items": "bad.npy"}
        case "no reference":
            np.save(files / "bad.npy", reference[:0])
            return changed | {"reference": "bad.npy"}
        case "copied":
            np.save(files / "bad.npy", queries[::-1])
            return changed | {"reference": "bad.npy"}
        case "leaking":
            np.save(files / "bad.npy", np.concatenate((reference, queries[:4])))
            return changed | {"reference": "bad.npy"}
        case "pair twice":
            (files / "bad.csv").write_text("query,item\n0,1\n5,2\n0,1\n")
            return changed | {"truth": "bad.csv"}
        case "row beyond":
            (files / "bad.csv").write_text("query,item\n0,1\n5,120\n")
            return changed | {"truth": "bad.csv"}
        case "id twice":
            (files / "bad.txt").write_text("a\n" * ITEMS)
            return changed | {"item_ids": "bad.txt"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "cut.npy"),
        ("nan", "of 120 rows, counted from 0: rows 3, 50 hold NaN"),
        ("dimensions", "queries .*: 300 rows of 16 numbers; items .*: 17 rows of 17 numbers"),
        ("no reference", r"bad.npy has shape \(0, 16\)|bad.npy holds .*\(0, 16\)"),
        ("copied", r"reference: 300 of 300 queries \(100.0%\) are in reference .* bit for bit, more than 1%"),
        ("leaking", r"reference: 4 of 300 queries \(1.3%\) are in"),
        ("pair twice", "bad.csv .* more than once"),
        ("row beyond", "bad.csv: item .* 1, .*'120'"),
        ("id twice", "bad.txt: 'a' comes twice"),
    ],
)
def test_files_that_will_not_do(files, here, name, message):
    settings = [f"{key}={value}" for key, value in spoil(files, name).items()]
    said = here("rerank", *settings, "out=there", status=2)
    assert re.search(message, said), said
    assert not (files / "there").exists()


def test_a_few_shared_rows_are_warned_about(files, here):
    queries, _, reference, _ = vectors()
    np.save(files / "nearly.npy", np.concatenate((reference, queries[:3])))
    said = here("rerank", *ALL, "reference=nearly.npy", "out=there")
    assert "3 of 300 queries (1.0%) are in reference (nearly.npy) bit for bit" in said
    assert record(files / "there")["reference"]["queries_in_it"] == 3


@pytest.mark.parametrize("command", ["rerank", "diagnose"])
def test_help(here, command):
    said = here(command, "--help")
    assert f"vsehub {command} queries=" in said
    assert "csls" in said
    assert "item_images: null" in said
    assert "experiment" not in said


def test_a_chosen_criterion(files, here):
    sides = ("queries=q.npy", "items=m.npy", "criterion=auto")
    said = here("rerank", *sides, "truth=rows.csv", "out=a")
    found = record(files / "a")
    choice, (plain, ranked) = found["choice"], found["rankings"]
    assert (choice["queries"], found["truth"]["measured_queries"]) == (135, 135)  # of 270 with a pair
    assert choice["criterion"] == ranked["criterion"] != "nns"
    assert choice["parameters"] == ranked["parameters"]
    assert choice["gain"]["r1"] == pytest.approx(ranked["truth"]["r1"] - plain["truth"]["r1"])
    assert len(choice["tried"]) > 40
    assert f"chosen: {choice['criterion']} (" in said
    assert "over 135 other queries" in said
    kept = (
        "truth: 135 pairs of 135 queries; 135 more were kept to choose the criterion by; 30 queries without a pair are"
    )
    assert kept in said
    assert "135 more were kept to choose the criterion by" in (files / "a" / "index.html").read_text()
    assert f"chosen</dt><dd>{choice['criterion']}" in re.sub(r"\s*\n\s*", "", (files / "a" / "index.html").read_text())

    said = here("rerank", *sides, "out=b", "index=flat")
    assert record(files / "b")["choice"] == {"criterion": "csls", "parameters": {"k": 10}, "queries": 0, "gain": None}
    assert "chosen: csls (k 10): the default, since no answers are known to choose by" in said
    here("rerank", *sides, "truth=rows.csv", "out=c", "index=flat", "reference=train.npy")
    chosen, index = record(files / "c")["choice"], load_index(files / "c" / "index.faiss")
    assert {one["name"] for one in chosen["tried"]} == {"nns", "sinkhorn", "csls", "is", "nnn", "dn"}
    queries = np.load(files / "q.npy")
    positions = read_ranking(files / "c" / "ranking.parquet")[0]
    assert np.mean(index.search(queries, K)[1] == positions.numpy()) > 0.999

    np.save(files / "own.npy", np.load(files / "train.npy")[:100])
    nearest = (np.load(files / "own.npy") @ np.load(files / "m.npy").T).argmax(axis=1)
    (files / "own.csv").write_text("\n".join(["query,item", *(f"{q},{m}" for q, m in enumerate(nearest))]))
    tune = ("tune_queries=own.npy", "tune_truth=own.csv")
    here("rerank", *sides, *tune, "truth=rows.csv", "reference=train.npy", "out=d")
    found = record(files / "d")
    assert (found["choice"]["queries"], found["choice"]["folds"]) == (100, 5)
    assert found["truth"]["measured_queries"] == found["choice"]["gain"]["queries"] == 270
    assert found["choice"]["set_aside"] == 0


def test_what_a_choice_cannot_be_made_by(files, here):
    sides = ("queries=q.npy", "items=m.npy")
    lines = (files / "rows.csv").read_text().splitlines()
    (files / "few.csv").write_text("\n".join(lines[:91]))
    auto = (*sides, "criterion=auto")
    for settings, message in (
        ((*auto, "truth=few.csv"), "answers of 90 queries, of which 45 would be chosen by .* at least 50 of each"),
        ((*auto, "tune_queries=train.npy"), "tune_queries and tune_truth belong together.*tune_truth is missing"),
        ((*auto, "tune_share=1"), "tune_share is 1; expected a share between 0 and 1"),
        ((*auto, "tune_queries=q.npy", "tune_truth=rows.csv"), "300 of the 300 queries that are ranked are in"),
        ((*sides, "tune_queries=q.npy"), "tune_queries is for criterion=auto; csls is not chosen by anything"),
        (
            (*sides, "criterion=gm", "tune_truth=rows.csv"),
            "tune_truth is for criterion=auto; gm is not chosen by anything",
        ),
        ((*auto, "criterion.among=[rgm]"), "criterion auto: criterion.among is 'rgm'; choose one of 'nns', 'csls'"),
        ((*auto, "criterion.among=[qb_norm]", "index=flat"), "among names no criterion besides nns"),
    ):
        assert re.search(message, here("rerank", *settings, status=2)), message


@pytest.fixture
def scores(files):
    """The scores of the vectors, as files beside them."""
    queries, items, reference, _ = vectors()
    np.save(files / "s.npy", queries @ items.T)
    np.save(files / "r.npy", reference @ items.T)
    np.save(files / "turned.npy", items @ queries.T)


def test_scores_instead_of_vectors(files, scores, here):
    """The same result as by the vectors, but for what is said of the files."""
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt", "truth=pairs.csv")
    asked = (*named, "criterion=is")
    here("rerank", "queries=q.npy", "items=m.npy", "reference=train.npy", *asked, "out=vectors")
    said = here("rerank", "scores=s.npy", "reference_scores=r.npy", *asked, "out=scores")
    assert "300 queries, 120 items, scores of s.npy; reference: r.npy, 200 (inductive)" in said
    ids = (files / "ids.txt").read_text().splitlines()
    rankings = [read_ranking(files / out / "ranking.parquet", item_ids=ids)[0] for out in ("vectors", "scores")]
    assert (rankings[0] == rankings[1]).float().mean() > 0.999  # products may be rounded otherwise
    told, other = record(files / "scores"), record(files / "vectors")
    assert told.keys() == other.keys() == KEYS
    assert told["scores"].keys() == {"path", "rows", "columns", "dtype", "fingerprint", "range"}
    assert (told["scores"]["path"], told["scores"]["rows"], told["scores"]["columns"]) == ("s.npy", QUERIES, ITEMS)
    assert told["scores"]["range"]["most"] == np.load(files / "s.npy").max()
    assert (told["queries"], told["items"], other["scores"]) == ({"rows": QUERIES}, {"rows": ITEMS}, None)
    assert (told["reference"]["kind"], told["reference"]["set"], told["reference"]["rows"]) == (
        "inductive",
        "r.npy",
        200,
    )
    for one, two in zip(told["rankings"], other["rankings"], strict=True):
        assert one["truth"] == pytest.approx(two["truth"], abs=0.5)
        assert one["hubness"] == pytest.approx(two["hubness"], abs=0.05, rel=0.02)
    page = (files / "scores" / "index.html").read_text()
    assert "Hubness under the scores of s.npy" in page
    assert "300 × 120" in page
    here("diagnose", "scores=s.npy", "truth=rows.csv", "out=found")
    assert [one["reference"] for one in record(files / "found")["rankings"]] == ["none", *["transductive"] * 4]
    said = here("rerank", "scores=s.npy", "reference_scores=r.npy", "criterion=nns", "out=plain")
    assert "reference_scores is not read" in said
    here("rerank", "scores=s.npy", "truth=rows.csv", "criterion=csls+rgm", "out=matched")


def test_a_criterion_chosen_on_scores(files, scores, here):
    truth = ("truth=rows.csv", "criterion=auto")
    for reference, own in ((), ()), (("reference=train.npy",), ("reference_scores=r.npy",)):
        here("rerank", "queries=q.npy", "items=m.npy", *reference, *truth, "out=vectors", "overwrite=true")
        here("rerank", "scores=s.npy", *own, *truth, "out=scores", "overwrite=true")
        one, two = (record(files / out)["choice"] for out in ("vectors", "scores"))
        assert (one["criterion"], one["parameters"]) == (two["criterion"], two["parameters"])
        assert one["gain"]["r1"] == pytest.approx(two["gain"]["r1"], abs=0.8)


def test_scores_that_will_not_do(files, scores, here):
    bad = np.load(files / "s.npy")
    bad[[4, 7]] = np.nan
    np.save(files / "nan.npy", bad)
    np.save(files / "leaking.npy", np.concatenate([np.load(files / "r.npy"), np.load(files / "s.npy")[:4]]))
    np.save(files / "narrow.npy", np.load(files / "r.npy")[:, 1:])
    given = ("scores=s.npy",)
    for settings, message in (
        (
            (*given, "queries=q.npy", "items=m.npy"),
            "scores and queries, items are given; give queries and items, .* or",
        ),
        ((*given, "reference=train.npy"), "scores and reference are given"),
        ((), "queries is not set; give queries=FILE, one vector per row, or scores=FILE"),
        (("queries=q.npy", "items=m.npy", "reference_scores=r.npy"), "reference_scores goes with scores"),
        ((*given, "normalize=true"), "normalize is for vectors"),
        ((*given, "precision=bf16"), "precision is bf16, but scores are given, which are taken as they are"),
        (("scores=absent.npy",), "scores: no such file or folder: absent.npy"),
        (
            ("scores=turned.npy", "truth=rows.csv"),
            "rows.csv: query .* They fit the other way round",
        ),
        (
            ("scores=turned.npy", "item_ids=ids.txt"),
            r"120 rows \(queries\) and 300 columns \(items\): .* save scores.T",
        ),
        ((*given, "query_ids=ids.txt"), "there are 120 ids; expected one per row. They fit the other way round"),
        ((*given, "reference_scores=s.npy"), "is the file of the scores themselves"),
        (
            (*given, "reference_scores=leaking.npy"),
            r"reference_scores: 4 of 300 queries \(1.3%\) are in .* bit for bit",
        ),
        ((*given, "reference_scores=narrow.npy"), r"narrow.npy\) has 119 columns, scores \(s.npy\) 120"),
        (("scores=nan.npy",), "of 300 rows, counted from 0: rows 4, 7 hold NaN"),
    ):
        for command in ("rerank", "diagnose"):
            said = here(command, *settings, "out=there", status=2)
            assert re.search(message, said, re.MULTILINE), (settings, said)
            assert not (files / "there").exists(), settings
    for settings, message in (
        (("index=flat",), "index: an index holds vectors, and only scores are given"),
        (("criterion=dual_is",), "dual_is compares items with each other, .* Give queries and items, or"),
        (("criterion=auto", "tune_queries=q.npy", "tune_truth=rows.csv"), "tune_queries holds vectors"),
    ):
        assert re.search(message, here("rerank", *given, *settings, "out=there", status=2)), settings


def test_a_verdict_for_pipelines(files, here):
    sides = ("queries=q.npy", "items=m.npy", "criteria=[csls]")
    said = here("diagnose", *sides, "out=a")
    found = record(files / "a")["verdict"]
    levels = {one["name"]: one["level"] for one in found["checks"]}
    assert levels == {"skewness": "warn", "largest_hub": "warn", "antihubs": "ok"}
    assert found["level"] == "warn"  # these vectors are made with hubs
    assert re.search(
        r"verdict: warn: skewness of N_10 1\.8, by chance 0\.\d+ \(warn above 1\.4 beyond chance\); share of", said
    )
    for out, setting, status in (("b", "fail_on=fail", 0), ("c", "fail_on=warn", 3)):
        assert "verdict: warn" in here("diagnose", *sides, f"out={out}", setting, status=status)
        assert record(files / out)["verdict"] == found
    assert "fail_on is 'ok'; choose warn or fail" in here("diagnose", *sides, "out=d", "fail_on=ok", status=2)
    random = np.random.default_rng(1).normal(size=(2, 200, 12))
    for name, rows in zip(("plainq", "plainm"), random / np.linalg.norm(random, axis=2, keepdims=True), strict=True):
        np.save(files / f"{name}.npy", rows.astype(np.float32))
    here("diagnose", "queries=plainq.npy", "items=plainm.npy", "criteria=[csls]", "out=f", "fail_on=fail")
