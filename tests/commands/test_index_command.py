"""`vsehub index` and `vsehub calibrate`: what goes on from a result of rerank, and the notes that they write."""

import json
import os
import re
import signal
from importlib.util import find_spec

import numpy as np
import pyarrow.parquet as pq
import pytest
from own_vectors import ITEMS, write_vectors
from packaging.utils import canonicalize_name
from rankings import read_ranking

from vsehub import CorrectedSearch
from vsehub.cli.index import usage
from vsehub.ranking.result import Result

ALL = ("queries=q.npy", "items=m.npy", "truth=rows.csv")
NAMED = ("queries=q.npy", "items=m.npy", "truth=pairs.csv", "item_ids=ids.txt", "item_labels=captions.txt")
RATE = 0.1


@pytest.fixture
def files(tmp_path, undrawn):
    return write_vectors(tmp_path)


@pytest.fixture
def indexed(files, run_here):
    """A function that ranks, then makes an index; its record."""

    def run(ranked, *settings):
        run_here("rerank", *ranked, "out=there")
        run_here("index", "there", *settings)
        return json.loads((files / "there" / "result.json").read_text())["index"]

    return run


def ran(folder, note="USAGE.md"):
    """What the lines of a note leave in their variables; the working folder is the note's."""
    variables = {}
    exec((folder / note).read_text().split("```")[1].removeprefix("python\n"), variables)
    for name in ("client", "base"):
        if hasattr(variables.get(name), "close"):
            variables[name].close()
    if find_spec("milvus_lite") is not None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_all()
    return variables


@pytest.mark.skipif(find_spec("faiss") is None, reason="FAISS is not installed")
@pytest.mark.parametrize(("kind", "criterion"), [("flat", "sinkhorn"), ("ivf", "csls"), ("hnsw", "nns")])
def test_an_index_that_gives_the_ranking(files, run_here, indexed, monkeypatch, kind, criterion):
    index = indexed((*ALL, f"criterion={criterion}", "k=5"), f"engine={kind}")
    positions, scores = read_ranking(files / "there" / "ranking.parquet")
    np.save(files / "queries.npy", np.load(files / "q.npy"))
    (files / "index.faiss").write_bytes((files / "there" / "index.faiss").read_bytes())
    variables = ran(files / "there")
    same = (variables["positions"] == positions.numpy()).mean()
    assert min(index["recall"]["plain"], index["recall"]["corrected"], same) > 0.95
    if kind == "flat":
        assert same == 1.0
        np.testing.assert_allclose(variables["scores"], scores, rtol=1e-4)
    before = (files / "there" / "index.faiss").read_bytes()
    with monkeypatch.context() as killed:
        killed.setattr("vsehub.cli.index.write_text", lambda *arguments: os.kill(os.getpid(), signal.SIGINT))
        run_here("index", "there", f"engine={kind}", "overwrite=true", status=130)
    assert (files / "there" / "index.faiss").read_bytes() == before
    assert "overwrite=true" in run_here("index", "there", f"engine={kind}", status=2)
    run_here("index", "there", f"engine={kind}", "overwrite=true")
    assert (files / "there" / "index.faiss").read_bytes() == before
    run_here("rerank", *ALL, "criterion=nns", "out=there", "overwrite=true")
    assert not (files / "there" / "index.faiss").exists(), "an index of before"


@pytest.mark.parametrize(
    ("kind", "normalize"), [("flat", "true"), ("hnsw", "false"), ("milvus", "true"), ("lancedb", "false")]
)
def test_the_lines_of_a_note_in_its_folder_wherever_that_lies(kind, normalize, tmp_path, indexed, monkeypatch):
    """On the vectors as they were given; the note names the packages of the client, and nothing new appears."""
    package = {"milvus": "milvus_lite", "lancedb": "lancedb"}.get(kind, "faiss")
    pytest.importorskip(package)
    queries = 3 * np.load(tmp_path / "q.npy")
    np.save(tmp_path / "queries.npy", queries)
    indexed(("queries=queries.npy", "items=raw.npy", f"normalize={normalize}"), f"engine={kind}")
    positions, scores = read_ranking(tmp_path / "there" / "ranking.parquet")
    result = (tmp_path / "there").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(result)
    np.save("queries.npy", queries)
    before = {path.name for path in result.iterdir()}
    variables = ran(result)
    returned = np.array(variables.get("positions", variables.get("ids"))).astype(int)
    assert (returned == positions.numpy()).all()
    np.testing.assert_allclose(variables["scores"], scores, rtol=1e-3, atol=1e-3)
    assert {path.name for path in result.iterdir()} == before
    install = re.search(r"pip install ([^)]*)", (result / "USAGE.md").read_text())[1].split()
    assert {canonicalize_name(package), "numpy"} <= {name.removesuffix("-cpu") for name in install}
    if kind in ("milvus", "lancedb"):  # where the database has moved, none is made in its place
        (folder := next(result.glob(f"index.{kind}*"))).rename(tmp_path / "moved.db")
        with pytest.raises(FileNotFoundError):
            ran(result)
        assert not folder.exists()


def test_what_no_index_is_made_of(files, run_here):
    run_here("rerank", *ALL, "criterion=qb_norm", "out=qb")
    run_here("rerank", *ALL, "criterion=csls+rgm", "out=matched")
    run_here("rerank", *ALL, "out=csls")
    run_here("diagnose", *ALL, "criteria=[csls]", "out=found")
    before = sorted(files.rglob("*"))
    for settings, named in (
        (("absent",), "result: .*absent"),
        (("found",), "result: found"),
        (("qb",), "qb_norm"),
        (("matched",), r"csls\+rgm"),
        (("csls", "engine=chroma"), "engine is 'chroma'"),
        (("csls", "engine=pgvector"), "Postgres"),
        (("csls", "engine=hnsw", "uri=there", "collection=mine"), "uri, collection"),
        (("csls", "engine=lancedb", "only=bias", "approximate=true"), "approximate"),
        (("csls", "engine=lancedb", "only=items"), "only is 'items'"),
        (("csls", "engine=milvus", "uri=http://me:secret@127.0.0.1:1"), r"http://\*\*\*@127.0.0.1:1"),
    ):
        assert re.search(named, run_here("index", *settings, status=2)), settings
    assert sorted(files.rglob("*")) == before


def test_results_that_were_changed(files, run_here):
    """Biases belong to the items by their ids; a path of a record writes no code."""
    run_here("rerank", *NAMED, "out=there")
    file, biases = files / "there" / "result.json", files / "there" / "biases.parquet"
    record, table = json.loads(file.read_text()), pq.read_table(biases)
    path = "m.npy\n```python\nimport os\n```[x](http://evil)"
    file.write_text(json.dumps(record | {"items": record["items"] | {"path": path}}))
    note = usage(Result("there", {}), "index.faiss", "needs", "code\n", "rows")
    assert note.count("\n```") == 2
    assert "](" not in note
    file.write_text(json.dumps(record))
    bias = Result("there", {}).bias
    pq.write_table(table.take(np.arange(len(table))[::-1]), biases)
    assert (Result("there", {}).bias == bias).all()
    pq.write_table(table.slice(1), biases)
    assert "biases.parquet" in run_here("index", "there", status=2)


def test_thresholds(files, run_here, monkeypatch):
    """Of the result's own queries and of others, as the estimator finds them; the note of an index applies them."""
    known, wanted = np.load(files / "q.npy"), np.loadtxt(files / "rows.csv", delimiter=",", skiprows=1, dtype=int)
    search = CorrectedSearch("csls").fit(np.load(files / "m.npy"), reference=np.load(files / "train.npy"))
    calibration = search.calibrate(known, wanted).calibration_
    run_here("rerank", *ALL, f"reference=file://{files}/train.npy", "out=own")
    (files / "wrong.csv").write_text("query,item\n" + "".join(f"{row},{row % ITEMS}\n" for row in range(len(known))))
    assert f"{RATE}: this threshold may accept queries" in run_here("calibrate", "own", "truth=wrong.csv")
    said = run_here("calibrate", "own", f"false_accept=[0.05,{RATE}]")
    assert "replaces the thresholds of false_accept 0.01, 0.05, 0.1" in said
    assert "answers of these queries chose" not in said
    calibrated = json.loads((files / "own" / "result.json").read_text())["calibration"]
    assert [f"{rate['accepted']:.1%}" in said for rate in calibrated["rates"]] == [True, True]
    assert [rate["threshold"] for rate in calibrated["rates"]] == pytest.approx(
        [calibration.threshold(rate) for rate in (0.05, RATE)], abs=1e-6
    )
    if find_spec("faiss") is not None:
        run_here("index", "own")
        assert "accepted =" not in (files / "own" / "USAGE.md").read_text()
        run_here("index", "own", "overwrite=true", f"false_accept={RATE}")
        assert f"{calibrated['rates'][1]['accepted']:.1%}" in (files / "own" / "USAGE.md").read_text()
        assert "[0.05, 0.1]" in run_here("index", "own", "overwrite=true", "false_accept=0.2", status=2)
        monkeypatch.chdir(files / "own")
        np.save("queries.npy", known)
        accepted = ran(files / "own")["accepted"]
        monkeypatch.chdir(files)
        values = search.search(known, k=10)[0][:, 0]
        assert accepted.tolist() == (values > calibrated["rates"][1]["threshold"]).tolist()
    if find_spec("lancedb") is not None:
        run_here("index", "own", "engine=lancedb", "overwrite=true")
        (files / "gone.txt").write_text("3\n")
        said = run_here("add", "engine=lancedb", "uri=own/index.lancedb", "remove_ids=gone.txt")
        assert f"{ITEMS - 1} items" in said
    run_here("rerank", "queries=train.npy", "items=m.npy", "reference=q.npy", "out=other")
    run_here("rerank", *ALL, "out=transductive")
    run_here("rerank", *ALL, "reference=train.npy", "criterion=auto", "criterion.indexable=true", "out=chosen")
    assert "answers of these queries chose" in run_here("calibrate", "chosen")
    np.save(files / "scores.npy", known @ np.load(files / "m.npy").T)
    run_here("rerank", "scores=scores.npy", "out=scored")
    for settings, named in (
        (("scored", "truth=rows.csv"), "is of scores"),
        (("other",), "truth is not set"),
        (("other", "queries=q.npy", "truth=rows.csv"), "each of its 300 rows"),
        (("own", "false_accept=[0.001]"), "rate of 0.001"),
        (("transductive",), "fitted on the queries themselves"),
    ):
        assert named in run_here("calibrate", *settings, status=2), settings
    monkeypatch.chdir(files / "photos")
    assert len(Result("../own", {}).inputs.sides.reference) == 200  # its files are found from any folder
    (files / "m.npy").rename(files / "moved.npy")
    assert re.search("result.json names items=.*m.npy", run_here("calibrate", "own", status=2))
    said = run_here("calibrate", "other", "queries=moved.npy", "truth=aligned", "items=moved.npy")
    assert f"csls, {ITEMS} calibration queries" in said


@pytest.mark.skipif(find_spec("lancedb") is None, reason="vsehub[lancedb] is not installed")
def test_biases_alone_in_a_collection_of_ones_own(files, run_here, monkeypatch):
    """Nothing else of it changes, and the note's own lines rank as the criterion does."""
    import lancedb

    items, ids = np.load(files / "m.npy"), (files / "ids.txt").read_text().splitlines()
    stored = [{"id": name, "vector": row, "price": 1.5} for name, row in zip(ids, items.tolist(), strict=True)]
    lancedb.connect(files / "mine").create_table("photos", stored)
    run_here("rerank", *NAMED, "reference=train.npy", "k=5", "out=there")
    place = ("engine=lancedb", "uri=mine", "collection=photos")
    run_here("index", "there", *place, "only=bias")
    table = lancedb.connect(files / "mine").open_table("photos").to_arrow().to_pylist()
    assert {row["id"]: (row["vector"], row["price"]) for row in table} == {
        row["id"]: (np.array(row["vector"], np.float32).tolist(), 1.5) for row in stored
    }
    assert " 0 items" in run_here("index", "there", *place, "only=missing")
    monkeypatch.chdir(files)
    np.save("queries.npy", np.load("q.npy"))
    positions, scores = read_ranking(files / "there" / "ranking.parquet", item_ids=ids)
    variables = ran(files / "there", "USAGE-bias.md")
    assert variables["ids"] == [[ids[item] for item in row] for row in positions.tolist()]
    np.testing.assert_allclose(variables["scores"], scores, rtol=1e-4)
