"""Pictures and texts in one index: ranked without the means of their kinds, reported for each, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rankings import read_ranking

from vsehub.criteria import CSLS
from vsehub.neighbors import KindMeans, Kinds
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import load_index
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.living import opened
from vsehub.web.contents import of_collection

PICTURES, TEXTS, QUERIES, DIM, K = 30, 20, 40, 16, 5
SIDES = ("queries=queries.npy", "items=items.parquet::vector", "reference=reference.npy")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def files(tmp_path):
    """Queries of texts' kind, each beside its own item; pictures lie behind a gap."""
    random = np.random.default_rng(0)
    texts, pictures = 0.8 * random.normal(size=(2, 1, DIM))
    points = random.normal(size=(PICTURES + TEXTS, DIM))
    kinds = random.permutation(["picture"] * PICTURES + ["text"] * TEXTS)
    answers = random.permutation(PICTURES + TEXTS)[:QUERIES]
    found = {
        "items": unit(points + np.where(kinds[:, None] == "text", texts, pictures)).astype(np.float32),
        "queries": unit(points[answers] + 0.5 * random.normal(size=(QUERIES, DIM)) + texts).astype(np.float32),
        "reference": unit(random.normal(size=(60, DIM)) + texts).astype(np.float32),
    }
    for name in ("queries", "reference"):
        np.save(tmp_path / f"{name}.npy", found[name])
    ids = [f"item {row}" for row in range(len(kinds))]
    table = {"id": ids, "vector": found["items"].tolist(), "kind": kinds.tolist()}
    pq.write_table(pa.table(table), tmp_path / "items.parquet")
    order = random.permutation(len(ids))
    lines = [f"{ids[row]},{kinds[row]},{row}" for row in order]
    (tmp_path / "kinds.csv").write_text("\n".join(["id,kind,row", *lines, "nobody,sound,1"]))
    (tmp_path / "pairs.csv").write_text(
        "\n".join(["query,item", *(f"{query},{ids[item]}" for query, item in enumerate(answers))])
    )
    return found | {"kinds": kinds, "answers": answers, "ids": ids}


def without_means(files):
    """Items and queries without the means of their kinds, by numpy."""
    kinds, items = files["kinds"], files["items"].astype(np.float64)
    means = {one: items[kinds == one].mean(axis=0) for one in ("picture", "text")}
    asked = files["queries"] - files["reference"].mean(axis=0, dtype=np.float64)
    return unit(items - np.array([means[one] for one in kinds])), unit(asked)


def best_of(queries, items):
    return np.argsort(-(queries @ items.T), axis=1, kind="stable")


def test_each_item_is_ranked_without_the_mean_of_its_kind(files, run_here, tmp_path, undrawn):
    pytest.importorskip("faiss")
    given = ("item_kinds=kind", "criterion=nns", "truth=pairs.csv", f"k={K}", "out=out")
    said = run_here("rerank", *SIDES, *given, "index=flat")
    items, queries = without_means(files)
    best = best_of(queries, items)
    found, _ = read_ranking(tmp_path / "out" / "ranking.parquet", files["ids"])
    assert np.array_equal(found.numpy(), best[:, :K])
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["kinds"]["names"] == ["picture", "text"]
    assert record["kinds"]["items"] == [PICTURES, TEXTS]
    assert (record["kinds"]["means_removed"], record["kinds"]["query_mean"]) == (True, "inductive")
    for own, name in zip(record["rankings"][0]["kinds"], record["kinds"]["names"], strict=True):
        asked = files["kinds"][files["answers"]] == name
        listed = files["kinds"][best[:, :10]] == name
        counts = np.bincount(best[:, :10].ravel(), minlength=len(items))[files["kinds"] == name]
        assert own["queries"] == asked.sum()
        assert own["places"] == pytest.approx(listed.mean())
        assert own["largest_hub"] == counts.max()
        assert own["skew"] == pytest.approx(((counts - counts.mean()) ** 3).mean() / counts.std() ** 3)
        for k in (1, 5, 10):
            hits = (best[:, :k] == files["answers"][:, None]).any(axis=1)
            assert own[f"r{k}"] == pytest.approx(100 * hits[asked].mean())
    assert "each item is ranked without the mean of its kind, each query without that of the reference" in said
    assert "Kinds of items" in (tmp_path / "out" / "index.html").read_text()
    # Beside it the plain search of the vectors with their means.
    run_here("rerank", *SIDES[:2], "criterion=nns", "truth=pairs.csv", f"k={K}", "out=plain")
    plain = json.loads((tmp_path / "plain" / "result.json").read_text())
    assert plain["as_given"] is None
    for part in ("hubness", "truth", "histograms"):
        assert record["as_given"][part] == plain["rankings"][0][part]
        assert record["as_given"][part] != record["rankings"][0][part]
    given = best_of(files["queries"], files["items"])[:, :10]
    places = (files["kinds"][given] == "text").mean()
    assert record["as_given"]["kinds"][1]["places"] == pytest.approx(places)
    row = next(line.split() for line in said.splitlines() if line.startswith("as given"))
    assert [float(one) for one in row[2:5]] == pytest.approx(
        [plain["rankings"][0]["truth"][key] for key in ("r1", "r5", "r10")], abs=0.05
    )
    assert "kinds: as given: the plain search of the vectors with their means." in said
    assert (tmp_path / "out" / "index.html").read_text().count("as given") >= 4

    assert np.array_equal(noted(tmp_path / "out"), best[:, :K])


def noted(folder):
    """The positions that the note on an index finds, run literally."""
    ran = {}
    exec((folder / "USAGE.md").read_text().split("```")[1].removeprefix("python\n"), ran)
    return ran["positions"]


def test_kinds_by_id_with_the_means_left(files, run_here, tmp_path, undrawn):
    """The ranking is the plain one; a table in another order gives the kinds by id."""
    said = run_here(
        "rerank", *SIDES, "item_kinds=kinds.csv::kind", "remove_means=false", "criterion=csls", f"k={K}", "out=out"
    )
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    best = best_of(files["queries"], files["items"])[:, :10]
    share = (files["kinds"][best] == "text").mean()
    plain, csls = (ranking["kinds"][1]["places"] for ranking in record["rankings"])
    assert plain == pytest.approx(share)
    assert plain > csls
    assert not (tmp_path / "out" / "means.npz").exists()
    assert f"text is found first: 40.0% of the items have {share:.1%} of the places" in said


def test_a_calibration_is_of_the_vectors_that_are_ranked(files, run_here, tmp_path, undrawn):
    """The p values with means removed are those of vectors from which they were removed before."""
    given = ("criterion=nns", "truth=pairs.csv", "accept=0.5", f"k={K}")
    run_here("rerank", *SIDES, "item_kinds=kind", *given, "out=out")
    items, queries = (one.astype(np.float32) for one in without_means(files))
    pq.write_table(pa.table({"id": files["ids"], "vector": items.tolist()}), tmp_path / "centred.parquet")
    np.save(tmp_path / "centred.npy", queries)
    run_here("rerank", "queries=centred.npy", "items=centred.parquet::vector", *given, "out=plain")
    found, wanted = (pq.read_table(tmp_path / name / "ranking.parquet") for name in ("out", "plain"))
    assert found["query"].to_pylist() == wanted["query"].to_pylist()
    assert found["p"].to_pylist() == wanted["p"].to_pylist()
    assert 0 < len(set(found["p"].to_pylist())) < len(set(range(QUERIES)))


def test_a_diagnosis_says_what_is_found_first(files, run_here, tmp_path, undrawn):
    pytest.importorskip("faiss")
    said = run_here("diagnose", *SIDES, "item_kinds=kind", "criteria=[csls]", "truth=pairs.csv", "out=seen")
    gaps = json.loads((tmp_path / "seen" / "result.json").read_text())["kinds"]
    middle = [files["items"][files["kinds"] == one].mean(axis=0, dtype=np.float64) for one in ("picture", "text")]
    asked = files["reference"].mean(axis=0, dtype=np.float64)
    assert np.allclose(gaps["from_queries"], [np.linalg.norm(one - asked) for one in middle], atol=1e-6)
    assert gaps["widest"] == pytest.approx(np.linalg.norm(middle[0] - middle[1]), abs=1e-6)
    assert "text is found first" in said
    step = said.partition("next:\n  vsehub ")[2].splitlines()[0].split()
    assert "item_kinds=kind" in step
    assert "remove_means=false" not in step
    run_here(*step)
    folder = tmp_path / "seen-reranked"
    found, _ = read_ranking(folder / "ranking.parquet", files["ids"])
    assert np.array_equal(noted(folder), found)
    asked = KindMeans.read(folder / "means.npz").queries(files["queries"])
    assert np.array_equal(load_index(folder / "index.faiss").search(asked, 10)[1], found)


def ran_note(folder, filtered=False):
    """The names that the note on a collection leaves, run literally; its connection is closed.

    filtered: with the condition that it names for example.
    """
    ran = {}
    code = (folder / "USAGE.md").read_text().split("```")[1].removeprefix("python\n")
    if filtered:
        (line,) = (one for one in code.splitlines() if one.startswith("only = "))
        code = code.replace(line, f"only = {line.partition('searched: ')[2].partition(', for example')[0]}")
    exec(code, ran)
    if hasattr(ran.get("client"), "close"):
        ran["client"].close()
        import milvus_lite.server_manager

        milvus_lite.server_manager.server_manager_instance.release_all()
    return ran


def write_table(path, files, rows):
    """A table of some items with their kinds."""
    rows = list(rows)
    table = {
        "id": [files["ids"][row] for row in rows],
        "vector": files["items"][rows].tolist(),
        "kind": files["kinds"][rows].tolist(),
    }
    pq.write_table(pa.table(table), path)


@pytest.mark.parametrize("engine", ["milvus", "lancedb"])
def test_a_collection_keeps_the_means(engine, files, run_here, tmp_path, undrawn):
    """The note finds the ranking; items that are removed and added again, in two steps, rank as before."""
    pytest.importorskip({"milvus": "milvus_lite", "lancedb": "lancedb"}[engine])
    run_here("rerank", *SIDES, "item_kinds=kind", "criterion=csls", "criterion.k=3", f"index={engine}", f"k={K}",
             "out=out")  # fmt: skip
    items, queries = (torch.from_numpy(one).float() for one in without_means(files))
    seen = files["reference"] - files["reference"].mean(axis=0, dtype=np.float64)
    seen = torch.from_numpy(unit(seen)).float()
    wanted, order = CSLS(3).search(queries, items, seen, K)
    ranking = [[files["ids"][row] for row in rows] for rows in order.tolist()]
    assert read_ranking(tmp_path / "out" / "ranking.parquet", files["ids"])[0].tolist() == order.tolist()
    ran = ran_note(tmp_path / "out")
    assert ran["ids"] == ranking
    np.testing.assert_allclose(ran["scores"], wanted, atol=1e-4)
    chosen = {one for row in ran_note(tmp_path / "out", filtered=True)["ids"] for one in row}
    assert chosen <= {one for one, kind in zip(files["ids"], files["kinds"], strict=True) if kind == files["kinds"][0]}
    assert chosen

    name = {"milvus": "index.milvus.db", "lancedb": "index.lancedb"}[engine]
    place = (f"index={engine}", f"index_uri=out/{name}")
    (tmp_path / "gone.txt").write_text("\n".join(files["ids"][20:]))
    write_table(tmp_path / "first.parquet", files, range(20, 35))
    write_table(tmp_path / "rest.parquet", files, range(35, 50))
    more = ("add", *place, "items=first.parquet::vector")
    run_here("add", *place, "remove_ids=gone.txt")
    (tmp_path / "sound.csv").write_text("\n".join(["id,kind", *(f"{one},sound" for one in files["ids"])]))
    for settings, said in (
        (more, "holds each item without the mean of its kind (picture, text); give the kinds of new items: item_kinds"),
        ((*more, "item_kinds=sound.csv::kind"), "'sound' is no kind; there are means of picture, text"),
        ((*more, "item_kinds=absent.csv::kind"), "absent.csv"),
        ((*more, "item_kinds=knd"), "no column 'knd' (did you mean kind?)"),
        (("add", *place, "remove_ids=gone.txt", "item_kinds=kind"), "item_kinds: of items to add; give items=FILE"),
    ):
        assert said in run_here(*settings, status=2)
    said = run_here(*more, "item_kinds=kind")
    assert "added 15 items, 0 of them in the place of earlier ones; " in said
    rest = ("items=rest.parquet::vector", "item_kinds=kinds.csv::kind")
    assert "holds 50 items" in run_here("add", *place, *rest)
    assert ran_note(tmp_path / "out")["ids"] == ranking
    text = (tmp_path / "out" / "USAGE.md").read_text()
    assert "Filled with the 50 vectors of items.parquet::vector, each without the mean of its kind, ranked by " in text
    assert "Items that `vsehub add` adds are found by the same lines" in text
    where = f"folder = {str(tmp_path / 'out')!r}"
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "out" / "means.npz").rename(moved / "means.npz")
    (tmp_path / "out" / "USAGE.md").write_text(text.replace(where, f"folder = {str(moved)!r}"))
    assert ran_note(tmp_path / "out")["ids"] == ranking
    with opened(Place(engine, str(tmp_path / "out" / name), "vsehub")) as collection:
        found = collection.search(as_vectors("queries", files["queries"]), K)
        assert [[hit.id for hit in hits] for hits in found] == ranking
        np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], wanted, atol=1e-4)


def test_commands_that_ask_a_collection_with_means(files, run_here, tmp_path, undrawn):
    """Queries of a file lose the stored mean: thresholds and hubness are those of vectors without means."""
    pytest.importorskip("lancedb")
    items, queries = (one.astype(np.float32) for one in without_means(files))
    less = unit(files["reference"] - files["reference"].mean(axis=0, dtype=np.float64)).astype(np.float32)
    for name, rows in (("queries", queries), ("reference", less), ("items", items)):
        np.save(tmp_path / f"less-{name}.npy", rows)
    (tmp_path / "ids.txt").write_text("\n".join(files["ids"]))
    sides = ("queries=less-queries.npy", "items=less-items.npy", "reference=less-reference.npy", "item_ids=ids.txt")
    fill = ("criterion=is", "index=lancedb")
    run_here("rerank", *SIDES, "item_kinds=kind", *fill, "out=out")
    run_here("rerank", *sides, *fill, "out=less")
    told = {}
    for folder, name, own in (("out", "", ("item_kinds=kind",)), ("less", "less-", ())):
        place = ("index=lancedb", f"index_uri={folder}/index.lancedb")
        asked = (*place, f"queries={name}queries.npy", "truth=pairs.csv")
        run_here("calibrate", *asked, "false_accept=[0.2]", f"out={folder}-known")
        run_here("diagnose", *asked, f"reference={name}reference.npy", "criteria=[csls]", f"out={folder}-seen")
        said = run_here("diagnose", *place, "criteria=[csls]", f"out={folder}-kept")
        assert ("holds the kinds picture, text: item_kinds=TABLE::COLUMN, of a table with" in said) == bool(own)
        seen, kept = (
            json.loads((tmp_path / f"{folder}-{one}" / "result.json").read_text()) for one in ("seen", "kept")
        )
        calibrated = json.loads((tmp_path / f"{folder}-known" / "calibration.json").read_text())
        told[folder] = (
            [ranking["hubness"] for ranking in seen["rankings"] + kept["rankings"]],
            [ranking["truth"] for ranking in seen["rankings"]],
            [one["accepted"] for one in calibrated["rates"]],
        )
        told[folder, "threshold"] = calibrated["rates"][0]["threshold"]
    assert told["out"] == told["less"]
    assert told["out", "threshold"] == pytest.approx(told["less", "threshold"], abs=1e-5)
    asked = ("diagnose", "index=lancedb", "index_uri=out/index.lancedb", "queries=queries.npy")
    run_here(*asked, "criteria=[csls]", "item_kinds=kinds.csv::kind", "out=kinds")
    told = json.loads((tmp_path / "kinds" / "result.json").read_text())
    kinds, listed = told["kinds"], best_of(queries, items)[:, :10]
    assert told["rankings"][0]["kinds"][1]["places"] == pytest.approx((files["kinds"][listed] == "text").mean())
    middle = [items[files["kinds"] == one].mean(axis=0) for one in kinds["names"]]
    np.testing.assert_allclose(kinds["widest"], np.linalg.norm(middle[0] - middle[1]), atol=1e-5)
    bank = (*asked, "criteria=[dual_is]", "reference_items=less-items.npy", "out=bank")
    assert "reference items have no kinds; omit reference_items" in run_here(*bank, status=2)
    place = Place("lancedb", str(tmp_path / "out" / "index.lancedb"), "vsehub")
    contents = of_collection(place, files["queries"], None, None)
    np.testing.assert_allclose(contents.inputs.sides.queries.rows(0, QUERIES), queries, atol=1e-6)
    np.testing.assert_allclose(contents.without_mean(torch.from_numpy(files["queries"])), queries, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("item_kinds=knd",), "no column 'knd' (did you mean kind?)"),
        (("item_kinds=kinds.csv::sort",), "has no column 'sort'"),
        (("item_kinds=absent.csv::kind",), "item_kinds"),
        (("items=plain.npy", "item_kinds=kind"), "and items is plain.npy, no .csv, .tsv, .jsonl, .parquet file"),
        (("item_kinds=kinds.csv::row",), "50 items are of 50 kinds"),
        (("item_kinds=alone.csv::kind",), "'sound' has a single item"),
        (("item_kinds=empty.csv::kind",), "kind of row 50 is empty"),
        (("item_kinds=short.csv::kind",), "has no row for 49 of 50 items"),
        (("remove_means=maybe",), "remove_means"),
        (("item_kinds=long.csv::kind",), "has 101 characters; expected at most 100, all of them printable"),
        (("index=lancedb", "item_columns=kinds.csv"), "the column kind holds the items' kinds; omit yours"),
        (("engine=ray",), "engine=ray knows no kinds"),
        (("criterion=dual_is", "reference_items=plain.npy"), "they have no kinds"),
        (("reference=null", "queries=one.npy"), "of a single query nothing is left"),
        (("queries=bad.npy",), "queries (bad.npy)"),
        (("queries=null", "items=null", "reference=null", "scores=plain.npy"), "only scores are given"),
    ],
    ids=lambda one: "" if isinstance(one, str) else " ".join(one)[:40],
)
def test_what_is_refused(changes, said, files, run_here, tmp_path):
    np.save(tmp_path / "plain.npy", files["items"])
    np.save(tmp_path / "one.npy", files["queries"][:1])
    np.save(tmp_path / "bad.npy", np.where(np.eye(QUERIES, DIM) > 0, np.nan, files["queries"]))
    (tmp_path / "ids.txt").write_text("\n".join(files["ids"]))
    rest = "\n".join(f"{one},text" for one in files["ids"][1:])
    (tmp_path / "alone.csv").write_text(f"id,kind\nitem 0,sound\n{rest}\n")
    (tmp_path / "long.csv").write_text(f"id,kind\nitem 0,{'x' * 101}\n{rest}\n")
    (tmp_path / "empty.csv").write_text(f"id,kind\n{rest}\nitem 0,\n")
    (tmp_path / "short.csv").write_text("id,kind\nitem 0,text\n")
    changed = {change.split("=")[0] for change in changes}
    kept = [one for one in (*SIDES, "item_kinds=kind") if one.split("=")[0] not in changed]
    found = run_here("rerank", *kept, *changes, "out=out", status=2)
    assert said in found
    assert len(found.strip().splitlines()) <= 3
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_criterion_is_chosen_without_the_means_too(files, run_here, tmp_path, undrawn):
    """As by a command on files of vectors that have lost their means before."""
    random = np.random.default_rng(2)
    answers = np.arange(60) % len(files["items"])
    asked = unit(files["items"][answers] + 0.3 * random.normal(size=(60, DIM))).astype(np.float32)
    np.save(tmp_path / "tune.npy", asked)
    pairs = "\n".join(["query,item", *(f"{query},{files['ids'][item]}" for query, item in enumerate(answers))])
    (tmp_path / "tune.csv").write_text(pairs)
    chosen = ("criterion=auto", "tune_truth=tune.csv", f"k={K}")
    run_here("rerank", *SIDES, *chosen, "item_kinds=kind", "tune_queries=tune.npy", "out=kinds")
    means = KindMeans.read(tmp_path / "kinds" / "means.npz")
    for name, rows in (("queries", files["queries"]), ("reference", files["reference"]), ("tune", asked)):
        np.save(tmp_path / f"{name}-less.npy", means.queries(rows).rows(0, len(rows)).numpy())
    items = means.items(files["items"], Kinds.named(files["kinds"].tolist())).rows(0, len(files["items"]))
    np.save(tmp_path / "items-less.npy", items.numpy())
    (tmp_path / "ids.txt").write_text("\n".join(files["ids"]))
    sides = [f"{name}={name}-less.npy" for name in ("queries", "items", "reference")]
    run_here("rerank", *sides, *chosen, "item_ids=ids.txt", "tune_queries=tune-less.npy", "out=less")
    one, other = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("kinds", "less"))
    assert len(one["choice"]["tried"]) > 1
    assert one["choice"] == other["choice"]
    assert [ranking["hubness"] for ranking in one["rankings"]] == [ranking["hubness"] for ranking in other["rankings"]]
