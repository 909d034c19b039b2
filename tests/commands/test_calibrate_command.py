"""`vsehub calibrate`, what `rerank` and the note make of it, and what becomes of it in a collection."""

import json
from importlib.util import find_spec

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases.collection import open_collection
from vsehub.serving.databases.engines import Place
from vsehub.web.contents import of_collection

ITEMS, DIM, RATE = 60, 12, 0.1
SETTINGS = ("items=items.npy", "item_ids=ids.txt", "reference=train.npy")
KNOWN = ("queries=known.npy", "truth=known.csv")
FILE = "calibration=calibration/calibration.json"


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    """Items, of which each answers one known query and two of the last; the first queries are answered, others not."""
    random = np.random.default_rng(0)
    points = unit(random.normal(size=(2 * ITEMS, DIM)) + 0.4)

    def near(rows):
        return unit(points[rows] + 0.15 * random.normal(size=(len(rows), DIM)))

    known = [*range(ITEMS), ITEMS - 1]
    np.save(tmp_path / "items.npy", points[:ITEMS])
    np.save(tmp_path / "known.npy", near(known))
    np.save(tmp_path / "train.npy", near(np.arange(2 * ITEMS) % ITEMS))
    np.save(tmp_path / "queries.npy", near(np.arange(2 * ITEMS)))
    (tmp_path / "ids.txt").write_text("\n".join(f"item {row}" for row in range(ITEMS)))
    pairs = [f"{row},item {item}" for row, item in enumerate(known)]
    (tmp_path / "known.csv").write_text("\n".join(["query,item", *pairs]))
    return tmp_path


def searched(files):
    """The same by the estimator."""
    vectors = {name: np.load(files / f"{name}.npy") for name in ("items", "train", "known", "queries")}
    search = CorrectedSearch("csls").fit(vectors["items"], reference=vectors["train"])
    search.calibrate(vectors["known"], np.array([*range(ITEMS), ITEMS - 1]))
    return search, search.search(vectors["queries"], p_values=True)


def test_files_and_a_faiss_index(files, run_here, undrawn):
    said = run_here("calibrate", *KNOWN, *SETTINGS, f"false_accept=[0.05,{RATE}]")
    assert f"csls, {ITEMS} calibration queries" in said
    record = json.loads((files / "calibration" / "calibration.json").read_text())
    search, (_, positions, p) = searched(files)
    wanted = search.calibration_
    assert record["null_scores"] == pytest.approx(wanted.null_scores.tolist(), abs=1e-6)
    assert record["best_scores"] == pytest.approx(wanted.best_scores.tolist(), abs=1e-6)
    assert [one["false_accept"] for one in record["rates"]] == [0.05, RATE]
    assert record["rates"][1]["threshold"] == pytest.approx(wanted.threshold(RATE), abs=1e-6)
    assert record["rates"][1]["accepted"] == wanted.accepted(RATE)["accepted"]

    run_here("rerank", "queries=queries.npy", *SETTINGS, FILE, "out=all")
    table = pq.read_table(files / "all" / "ranking.parquet").to_pydict()
    assert table["p"] == pytest.approx(np.repeat(p, 10), abs=1e-12)
    told = json.loads((files / "all" / "result.json").read_text())["calibration"]
    assert (told["accept"], told["accepted"], told["queries"]) == (None, None, ITEMS)

    faiss = find_spec("faiss") is not None
    index = ("index=hnsw",) if faiss else ()
    said = run_here("rerank", "queries=queries.npy", *SETTINGS, FILE, f"accept={RATE}", *index, "out=cut")
    kept = np.flatnonzero(p <= RATE)
    assert 0 < len(kept) < len(p)
    assert f"calibration: {len(kept)} of {len(p)} queries are accepted (p at most 0.1, by 60 calibration" in said
    table = pq.read_table(files / "cut" / "ranking.parquet").to_pydict()
    assert table["query"] == np.repeat(kept, 10).tolist()
    assert table["rank"] == [*range(1, 11)] * len(kept)
    assert table["item"] == [f"item {item}" for item in positions[kept].flatten()]
    assert (kept >= ITEMS).mean() < (p > RATE)[ITEMS:].mean()
    page = (files / "cut" / "index.html").read_text()
    assert f"{len(kept)} of {len(p)} queries are accepted" in page
    if faiss:
        ran = {}
        note = (files / "cut" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
        exec(note, ran)
        assert ran["accepted"].tolist() == (p <= RATE).tolist()

    run_here("rerank", "queries=queries.npy", "items=items.npy", "criterion=nns", "out=plain")
    changed = np.load(files / "train.npy")
    changed[2] *= -1  # a row that a sample of the rows leaves out
    np.save(files / "changed.npy", changed)
    for settings, message in (
        (("criterion=is",), "criterion ('csls' there, 'is' here), parameters"),
        (("criterion.k=3",), "parameters ({'k': 10} there, {'k': 3} here)"),
        (("normalize=true",), "normalize"),
        (("reference=known.npy",), "reference"),
        (("reference=changed.npy",), "reference"),
        (("items=train.npy", "item_ids=null"), "items"),
        (("accept=0.001",), "rate of 0.001"),
        (("accept=2",), "rate of 2"),
        (("precision=bf16",), "calibration and precision are given; it holds for scores of vectors in float32"),
        (("criterion=dual_is", "reference_items=train.npy"), "calibration and reference_items are given"),
    ):
        given = {one.partition("=")[0]: one for one in (*SETTINGS, FILE, *settings)}
        said = run_here("rerank", "queries=queries.npy", *given.values(), "out=refused", status=2)
        assert message in said, said
    assert not (files / "refused").exists()


def test_the_known_answers_of_a_ranking_calibrate_it(files, run_here, undrawn):
    """Without a file: queries that have no known answer get p values by those that have one."""
    known, others = (np.load(files / f"{name}.npy") for name in ("known", "queries"))
    queries = np.concatenate([known, others[ITEMS:]])
    np.save(files / "mixed.npy", queries)
    pairs = np.array([(row, min(row, ITEMS - 1)) for row in range(ITEMS + 1)])
    search = CorrectedSearch("csls").fit(np.load(files / "items.npy"), reference=np.load(files / "train.npy"))
    _, positions, p = search.calibrate(queries, pairs).search(queries, p_values=True)
    kept = np.flatnonzero(p <= RATE)
    assert 0 < len(kept) < len(p)
    index = ("index=flat",) if find_spec("faiss") else ()
    given = ("queries=mixed.npy", *SETTINGS, "truth=known.csv", f"accept={RATE}")
    said = run_here("rerank", *given, *index, "out=cut")
    assert f"calibration: {len(kept)} of {len(p)} queries are accepted (p at most 0.1, by 60 calibration" in said
    table = pq.read_table(files / "cut" / "ranking.parquet").to_pydict()
    assert table["query"] == np.repeat(kept, 10).tolist()
    assert table["item"] == [f"item {item}" for item in positions[kept].flatten()]
    assert table["p"] == pytest.approx(np.repeat(p[kept], 10), abs=1e-12)
    told = json.loads((files / "cut" / "result.json").read_text())["calibration"]
    assert told["threshold"] == pytest.approx(search.calibration_.threshold(RATE), abs=1e-6)
    assert told["path"] == "known.csv"
    if index:
        assert "accepted = scores[:, 0] > " in (files / "cut" / "USAGE.md").read_text()
    for settings, message in (
        (("truth=null",), "accept is given without calibration and without truth; give calibration=FILE, or"),
        (("reference=null",), "reference is not set; without one csls is estimated from the queries of each ranking"),
        (("accept=2",), "rate of 2"),
        (("accept=0.001",), "rate of 0.001"),
        (("criterion=auto",), "accept and criterion=auto are given"),
        (("engine=ray",), "accept and engine=ray are given"),
    ):
        asked = {one.partition("=")[0]: one for one in (*given, *settings)}
        assert message in run_here("rerank", *asked.values(), "out=refused", status=2)


@pytest.mark.skipif(find_spec("lancedb") is None, reason="vsehub[lancedb] is not installed")
@pytest.mark.long
def test_a_collection(files, run_here, undrawn):
    """Filled with a threshold, made void by a change, calibrated again from what it holds, and filled anew without."""
    place = ("index=lancedb", "index_uri=served")
    run_here("calibrate", *KNOWN, *SETTINGS, f"false_accept=[{RATE}]")
    filling = ("rerank", "queries=queries.npy", *SETTINGS, *place)
    run_here(*filling, FILE, f"accept={RATE}", "out=filled")
    search, (_, positions, p) = searched(files)
    queries = as_vectors("queries", np.load(files / "queries.npy"))
    there = Place("lancedb", str(files / "served"), "vsehub")

    def lists(rate=RATE):
        with open_collection(there) as collection:
            return [[hit.id for hit in one] for one in collection.find(queries, 3, rate)]

    wanted = [
        [f"item {item}" for item in row[:3]] if value <= RATE else [] for row, value in zip(positions, p, strict=True)
    ]
    assert lists() == wanted
    with open_collection(there) as collection:
        stored = collection.metadata
        assert (stored.calibrated, stored.version) == (ITEMS, 0)
    served = of_collection(there, None, None, None)
    assert served.thresholds == {RATE: stored.thresholds[str(RATE)]}
    assert not served.changed()
    ran = {}
    exec((files / "filled" / "USAGE.md").read_text().split("```")[1].removeprefix("python\n"), ran)
    assert (
        "# void once items have come or gone: vsehub calibrate index=..." in (files / "filled" / "USAGE.md").read_text()
    )
    assert ran["accepted"].tolist() == (p <= RATE).tolist()
    with pytest.raises(InputError, match=r"accept is 0.2; vsehub at .* is not calibrated for it, only for 0.1"):
        lists(0.2)

    (files / "gone.txt").write_text("item 0\n")
    run_here("add", *place, "remove_ids=gone.txt")
    with pytest.raises(InputError, match="is not calibrated for it, only for no rate"):
        lists()
    pairs = (files / "known.csv").read_text().splitlines()
    (files / "known.csv").write_text("\n".join([pairs[0], *pairs[2:]]))
    said = run_here("calibrate", *KNOWN, *place, f"false_accept=[{RATE}]", "out=again")
    assert f"csls, {ITEMS - 1} calibration queries" in said
    record = json.loads((files / "again" / "calibration.json").read_text())
    known = np.load(files / "known.npy")[1:]
    search.remove([0]).calibrate(known, np.array([*range(ITEMS - 1), ITEMS - 2]))
    # The seed draws other queries of a group whose rows are others.
    same = np.isin(np.round(record["null_scores"], 4), np.round(search.calibration_.null_scores, 4))
    assert same.sum() >= ITEMS - 2
    assert (
        sum(len(one) > 0 for one in lists())
        == (
            torch.from_numpy(search.search(np.load(files / "queries.npy"))[0][:, 0]) > record["rates"][0]["threshold"]
        ).sum()
    )
    said = run_here("rerank", *SETTINGS, "queries=queries.npy", "calibration=again/calibration.json", "out=x", status=2)
    assert "items" in said

    with open_collection(there) as collection, open_collection(there) as other:
        other.remove(["item 5"])
        with pytest.raises(InputError, match="has been changed by another command"):
            collection.calibrate({str(RATE): 0.5})
    with open_collection(there) as collection:
        assert collection.thresholds == {}
        collection.calibrate({str(RATE): 0.5})
        collection.database.delete(["item 8"])  # as another program does
        assert collection.thresholds == {}
    with pytest.raises(InputError, match="is not calibrated for it, only for no rate"):
        lists()
    run_here(*filling, "out=anew", "overwrite=true")
    with pytest.raises(InputError, match="is not calibrated for it, only for no rate"):
        lists()
