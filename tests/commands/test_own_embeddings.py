"""`vsehub rerank` and `vsehub diagnose` on vectors of no model of ours, through the real command line."""

import json
import os
import re
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from own_vectors import DIM, ITEMS, QUERIES, K, vectors, write_vectors
from rankings import read_ranking

from vsehub.cli.main import main
from vsehub.criteria import CSLS, DualBankSinkhorn, DualInvertedSoftmax
from vsehub.io.files import MARK
from vsehub.neighbors import tiles
from vsehub.ranking import engines as search

KEYS = {
    *("schema", "kind", "vsehub", "command", "versions", "git", "hardware", "engine", "started", "seconds"),
    *("scores", "queries", "items", "reference", "reference_items", "k", "ks", "truth", "rankings", "hubs", "antihubs"),
    *("choice", "verdict", "verdict_corrected", "index", "calibration", "inputs"),
}
RERANKED = {"ranking.parquet", "biases.parquet", "result.json", "index.html", MARK}
ALL = ("queries=q.npy", "items=m.npy", "truth=rows.csv")


@pytest.fixture
def files(tmp_path, undrawn):
    return write_vectors(tmp_path)


@pytest.fixture
def here(files, monkeypatch, capsys):
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


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_rerank(files, vsehub):
    """From the console script to the table, the record and the page, with everything that can be named."""
    (files / "photos" / "photo 007.jpg").touch()
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt", "item_images=photos")
    settings = ("queries=both.npz::text", "items=both.npz::image", "truth=pairs.csv", "reference=train.npy", *named)
    done = vsehub("rerank", *settings, "criterion=csls", "criterion.k=5", "k=7", "out=there", cwd=files)
    assert names_in(files / "there") == RERANKED
    assert "written to there: ranking.parquet, biases.parquet, result.json, index.html" in done.out

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
    assert told["inputs"]["queries"] == "both.npz::text"
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
    assert csls["gain"]["r1"] == pytest.approx(csls["truth"]["r1"] - plain["truth"]["r1"])
    assert csls["gain"]["low"] < csls["gain"]["r1"] < csls["gain"]["high"]
    made = {one["item"]: (one["before"], one["after"]) for one in csls["hubs_made"]}
    assert all(before < after for before, after in made.values())

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
    assert names_in(files / "there") == {"neighbors.parquet", "result.json", "index.html", MARK}
    told = record(files / "there")
    assert told.keys() == KEYS | {"next"}
    assert told["reference"] == {"kind": "transductive", "set": "the queries themselves", "rows": QUERIES}
    assert [one["criterion"] for one in told["rankings"]] == ["nns", "is", "csls", "nnn", "dn"]
    assert told["rankings"][3]["parameters"] == {"k": 128, "weight": 0.75}, "not those of the yaml"
    assert {one["reference"] for one in told["rankings"][1:]} == {"transductive"}
    assert all(len(hub["occurrences"]) == len(hub["wrong"]) == 5 for hub in told["hubs"])
    assert re.search(r"\ncsls +[\d.]+ ", said)
    here("diagnose", "queries=q.npy", "items=m.npy", "criteria=[nns,local_scaling]", "out=bare", "k=3")
    bare = record(files / "bare")
    assert [one["criterion"] for one in bare["rankings"]] == ["nns", "local_scaling"]
    assert bare["truth"] is bare["hubs"][0]["wrong"] is bare["rankings"][0]["truth"] is None


def test_neighbors_of_a_diagnosis(files, here):
    """By loops: N_k, hubs, displaced answers, and the nearest other items of copies."""
    items = np.load(files / "m.npy")
    items[7] = items[3]
    np.save(files / "m.npy", items)
    here("diagnose", *ALL, "item_ids=ids.txt", "truth=pairs.csv", "criteria=[csls]", "k=4", "out=there")
    table = pq.read_table(files / "there" / "neighbors.parquet").to_pydict()
    queries, wanted = np.load(files / "q.npy").astype(float), vectors()[3]
    scores = queries @ items.T.astype(float)
    corrected = 2 * scores - np.sort(scores, axis=0)[-10:].mean(axis=0)
    for ending, one in (("", scores), ("_csls", corrected)):
        counts, displaced = np.zeros((2, ITEMS), int)
        for query, row in enumerate(one):
            answered = False
            for item in sorted(range(ITEMS), key=lambda item, row=row: (-row[item], item))[:4]:
                counts[item] += 1
                answered |= item == wanted[query]
                displaced[item] += bool(query % 10) and not answered
        assert table[f"n_k{ending}"] == counts.tolist()
        assert table[f"displaced{ending}"] == displaced.tolist()
    assert table["id"] == (files / "ids.txt").read_text().splitlines()
    assert np.array_equal(np.array(table["vector"], np.float32), items)
    for row, near in enumerate(table["neighbors"]):
        assert row not in near["ids"]
        cosines = np.delete(items @ items[row], row)
        np.testing.assert_allclose(near["distances"], 1 - np.sort(cosines)[::-1][:4], atol=1e-6)
    assert table["neighbors"][3]["ids"][0] == 7


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
        assert "reference items: bank.npy (40 rows)" in said
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


def test_biases_rank_as_the_criterion_does(files, here):
    sides = (*ALL[:2], "reference=train.npy", "k=5")
    for criterion, named in (("csls", ()), ("sinkhorn", ("item_ids=ids.txt",)), ("nns", ())):
        here("rerank", *sides, *named, f"criterion={criterion}", f"out={criterion}")
        table = pq.read_table(files / criterion / "biases.parquet")
        names = (files / "ids.txt").read_text().splitlines() if named else list(range(ITEMS))
        assert table["id"].to_pylist() == names
        scores = np.load(files / "q.npy") @ np.load(files / "m.npy").T
        corrected = float(table.schema.metadata[b"scale"]) * scores - table["bias"].to_numpy()
        positions, values = read_ranking(files / criterion / "ranking.parquet", item_ids=names if named else None)
        assert (np.argsort(-corrected, axis=1, kind="stable")[:, :5] == positions.numpy()).mean() > 0.999
        np.testing.assert_allclose(-np.sort(-corrected, axis=1)[:, :5], values, rtol=1e-3, atol=1e-3)
    here("rerank", *sides, "criterion=dual_softmax", "out=no")
    assert names_in(files / "no") == RERANKED - {"biases.parquet"}


def test_a_reference_of_another_domain_is_told(files, here):
    assert "another domain" not in here("rerank", *ALL, "reference=train.npy", "out=near")
    turned = np.load(files / "train.npy")[:, ::-1] * np.where(np.arange(DIM) % 2, -1, 1)
    np.save(files / "turned.npy", turned.astype(np.float32))
    said = here("rerank", *ALL, "reference=turned.npy", "out=far")
    assert "reference: it looks like queries of another domain" in said


def test_copies_among_the_items_are_told(files, here):
    items = np.load(files / "m.npy")
    np.save(files / "twice.npy", np.concatenate([items, items[[7, 3]]]))
    said = here("diagnose", "queries=q.npy", "items=twice.npy", "criteria=[csls]", "out=twice")
    assert re.search("2 of the 122 items are copies .*item 120 of item 7", said)
    assert "copies of others" not in here("diagnose", *ALL[:2], "criteria=[csls]", "out=once")


def test_a_matching(files, here):
    here("rerank", *ALL, "criterion=csls+rgm", "out=there")
    told = record(files / "there")
    parameters = {"k": 10, "relaxation": 2.0, "capacity": "proportional"}
    assert (told["rankings"][1]["criterion"], told["rankings"][1]["parameters"]) == ("csls+rgm", parameters)
    assert told["reference"]["kind"] == told["rankings"][1]["reference"] == "transductive"
    refused = here("rerank", *ALL, "criterion=rgm", "reference=train.npy", "out=other", status=2)
    assert "rgm matches the queries themselves with the items" in refused


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
    assert names_in(files / "there") == RERANKED - {"biases.parquet"}
    ranking = [(files / out / "ranking.parquet").read_bytes() for out in ("there", "unbroken")]
    assert ranking[0] == ranking[1]
    told, unbroken = (record(files / out) for out in ("there", "unbroken"))
    for key in KEYS - {"seconds", "started", "command"}:
        assert told[key] == unbroken[key], key


def test_a_folder_that_holds_a_result(files, here):
    here("diagnose", *ALL, "out=there", "criteria=[is]")
    before = (files / "there" / "result.json").read_bytes()
    said = here("diagnose", *ALL, "out=there", status=2)
    assert "out: there already holds a diagnosis. Give another out=FOLDER, or overwrite=true to replace it" in said
    for overwrite in ("true", "false"):
        said = here("rerank", *ALL, "out=there", f"overwrite={overwrite}", status=2)
        assert "holds a diagnosis, not a reranking of this version. Give another out=FOLDER" in said
    assert (files / "there" / "result.json").read_bytes() == before
    here("diagnose", *ALL, "out=there", "overwrite=true", "criteria=[csls]")
    assert (files / "there" / "result.json").read_bytes() != before
    assert names_in(files / "there") == {"neighbors.parquet", "result.json", "index.html", MARK}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["queries=null"], "queries is not set"),
        (["items=absent.npy"], "items: .*absent.npy"),
        (["k=121"], "k is 121"),
        (["items=raw.npy"], "normalize=true"),
        (["normalize=maybe"], "normalize"),
        (["reference=photos/../q.npy"], "q.npy is the queries' own file"),
        (["device=abacus"], "device"),
        (["seed=none"], "seed"),
        (["item_ids=asked.txt"], "300 ids|comes twice"),
        (["item_labels=asked.txt"], "300 labels"),
        (["item_images=photos"], "found by ids"),
        (["scores=s.npy"], "scores and queries, items are given"),
        (["reference_scores=r.npy"], "reference_scores goes with scores"),
        (["items=cut.npy"], "cut.npy"),
        (["items=nan.npy"], "rows 3, 50 hold NaN"),
        (["items=wide.npy"], "17"),
        (["reference=none.npy"], r"none.npy .*\(0, 16\)"),
        (["reference=copied.npy"], r"300 of 300 queries \(100.0%\) are in .* bit for bit"),
        (["reference=leaking.npy"], r"4 of 300 queries \(1.3%\) are in"),
        (["item_ids=twice.txt"], "'a' comes twice"),
        (["queries=null", "items=null", "scores=s.npy", "normalize=true"], "normalize is for vectors"),
        (["queries=null", "items=null", "scores=turned.npy", "item_ids=ids.txt"], "save scores.T"),
        (["queries=null", "items=null", "scores=s.npy", "reference_scores=s.npy"], "the file of the scores themselves"),
        (["queries=null", "items=null", "scores=s.npy", "reference_scores=narrow.npy"], "119 columns"),
        (["queries=null", "items=null", "scores=nan_scores.npy"], "rows 4, 7 hold NaN"),
    ],
)
def test_what_is_refused_leaves_nothing(files, scores, here, settings, named):
    before = sorted(files.iterdir())
    for command in ("rerank", "diagnose"):
        given = {one.partition("=")[0]: one for one in (*ALL[:2], *settings)}
        assert re.search(named, here(command, *given.values(), status=2))
    assert sorted(files.iterdir()) == before


def test_settings_of_one_command(files, here):
    sides = ("queries=q.npy", "items=m.npy")
    for command, settings, named in (
        ("rerank", ("criterion.k=0",), "criterion.k is 0"),
        ("rerank", ("criterion=rgm", "reference=train.npy"), "rgm matches the queries themselves"),
        ("rerank", ("criterion=gm", "tune_queries=train.npy", "tune_truth=rows.csv"), "for criterion=auto"),
        ("rerank", ("criterion=auto", "tune_queries=train.npy"), "tune_queries and tune_truth belong together"),
        ("rerank", ("criterion=auto", "tune_queries=q.npy", "tune_truth=rows.csv"), "300 of the 300 queries"),
        ("rerank", ("criterion=auto", "criterion.share=1"), "share is 1"),
        ("rerank", ("criterion=auto", "criterion.among=[qb_norm]", "criterion.indexable=true"), "among"),
        ("rerank", ("num_cpus=2",), "num_cpus: for engine=ray"),
        ("rerank", ("engine=ray", "device=cpu"), "engine=ray takes no scores or device"),
        ("diagnose", ("criteria=[csls,clsl]",), r"criterion is 'clsl' \(did you mean csls\?\)"),
        ("diagnose", ("criteria=[csls,auto]",), "auto chooses one criterion"),
        ("diagnose", ("fail_on=ok",), "fail_on is 'ok'"),
    ):
        assert re.search(named, here(command, *sides, *settings, status=2)), settings


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
    kept = "for 135 queries; 135 more were kept to choose the criterion by; 30 queries without a pair are left out"
    assert kept in said
    assert "135 more were kept to choose the criterion by" in (files / "a" / "index.html").read_text()
    assert f"chosen</dt><dd>{choice['criterion']}" in re.sub(r"\s*\n\s*", "", (files / "a" / "index.html").read_text())

    said = here("rerank", *sides, "out=b")
    assert record(files / "b")["choice"] == {"criterion": "csls", "parameters": {"k": 10}, "queries": 0, "gain": None}
    assert "chosen: csls (k 10): the default, since no answers are known to choose by" in said
    here("rerank", *sides, "truth=rows.csv", "out=c", "criterion.indexable=true", "reference=train.npy")
    chosen = record(files / "c")["choice"]
    assert {one["name"] for one in chosen["tried"]} == {"nns", "sinkhorn", "csls", "is", "nnn", "dn"}
    assert (files / "c" / "biases.parquet").is_file()

    np.save(files / "own.npy", np.load(files / "train.npy")[:100])
    nearest = (np.load(files / "own.npy") @ np.load(files / "m.npy").T).argmax(axis=1)
    (files / "own.csv").write_text("\n".join(["query,item", *(f"{q},{m}" for q, m in enumerate(nearest))]))
    tune = ("tune_queries=own.npy", "tune_truth=own.csv")
    here("rerank", *sides, *tune, "truth=rows.csv", "reference=train.npy", "out=d")
    found = record(files / "d")
    assert (found["choice"]["queries"], found["choice"]["folds"]) == (100, 5)
    assert found["truth"]["measured_queries"] == found["choice"]["gain"]["queries"] == 270
    assert found["choice"]["set_aside"] == 0


@pytest.fixture
def scores(files):
    """The scores of the vectors, as files beside them, and files that are damaged, each in one way."""
    queries, items, reference, _ = vectors()
    made = {"s": queries @ items.T, "r": reference @ items.T, "turned": items @ queries.T}
    made["narrow"], made["nan_scores"] = made["r"][:, 1:], made["s"].copy()
    made["nan_scores"][[4, 7]] = np.nan
    made |= {"nan": items.copy(), "wide": np.eye(DIM + 1), "none": reference[:0], "copied": queries[::-1]}
    made["nan"][[3, 50]] = np.nan
    made["leaking"] = np.concatenate((reference, queries[:4]))
    for name, array in made.items():
        np.save(files / f"{name}.npy", array.astype(np.float32))
    (files / "cut.npy").write_bytes((files / "m.npy").read_bytes()[:-1])
    (files / "twice.txt").write_text("a\n" * ITEMS)


def test_scores_instead_of_vectors(files, scores, here):
    """The same result as by the vectors, but for what is said of the files."""
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt", "truth=pairs.csv")
    asked = (*named, "criterion=is")
    here("rerank", "queries=q.npy", "items=m.npy", "reference=train.npy", *asked, "out=vectors")
    said = here("rerank", "scores=s.npy", "reference_scores=r.npy", *asked, "out=scores")
    assert "reference: inductive, r.npy (200 rows)" in said
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
    here("rerank", "scores=s.npy", "reference_scores=r.npy", "criterion=nns", "out=plain")
    here("rerank", "scores=s.npy", "truth=rows.csv", "criterion=csls+rgm", "out=matched")


def test_a_criterion_chosen_on_scores(files, scores, here):
    truth = ("truth=rows.csv", "criterion=auto")
    for reference, own in ((), ()), (("reference=train.npy",), ("reference_scores=r.npy",)):
        here("rerank", "queries=q.npy", "items=m.npy", *reference, *truth, "out=vectors", "overwrite=true")
        here("rerank", "scores=s.npy", *own, *truth, "out=scores", "overwrite=true")
        one, two = (record(files / out)["choice"] for out in ("vectors", "scores"))
        assert (one["criterion"], one["parameters"]) == (two["criterion"], two["parameters"])
        assert one["gain"]["r1"] == pytest.approx(two["gain"]["r1"], abs=0.8)


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
    random = np.random.default_rng(1).normal(size=(2, 200, 12))
    for name, rows in zip(("plainq", "plainm"), random / np.linalg.norm(random, axis=2, keepdims=True), strict=True):
        np.save(files / f"{name}.npy", rows.astype(np.float32))
    here("diagnose", "queries=plainq.npy", "items=plainm.npy", "criteria=[csls]", "out=f", "fail_on=fail")
