"""`vsehub rerank` and `vsehub diagnose` on vectors of no model of ours, through the real command line."""

import itertools
import json
import re
import sys
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from own_vectors import DIM, ITEMS, QUERIES, K, vectors, write_vectors
from rankings import read_ranking

from vsehub.cli.main import main
from vsehub.criteria import CSLS, DualBankSinkhorn, DualInvertedSoftmax
from vsehub.io.files import MARK
from vsehub.neighbors import tiles
from vsehub.ranking import compare
from vsehub.ranking import measure as search

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
        with pytest.raises(SystemExit) if status else nullcontext() as ended:
            main()
        said = "".join(capsys.readouterr())
        assert not status or ended.value.code == status, said
        return said

    return run


def record(folder):
    return json.loads((folder / "result.json").read_text())


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_rerank(files, here):
    """From the command line to the table, the record and the page, with everything that can be named."""
    (files / "photos" / "photo 007.jpg").touch()
    named = ("item_ids=ids.txt", "item_labels=captions.txt", "query_labels=asked.txt", "item_images=photos")
    settings = ("queries=both.npz::text", "items=both.npz::image", "truth=pairs.csv", "reference=train.npy", *named)
    said = here("rerank", *settings, "criterion=csls", "criterion.k=5", "k=7", "out=there")
    assert names_in(files / "there") == RERANKED
    queries, items, reference, _ = map(torch.from_numpy, vectors())
    values, positions = CSLS(k=5).search(queries, items, reference, 7)
    ids = (files / "ids.txt").read_text().splitlines()
    ranked, scores = read_ranking(files / "there" / "ranking.parquet", item_ids=ids)
    assert torch.equal(ranked, positions)
    torch.testing.assert_close(scores, values)

    result = record(files / "there")
    assert {"kind": "inductive", "set": "train.npy", "rows": 200}.items() <= result["reference"].items()
    assert result["truth"] == {"path": "pairs.csv", "pairs": 270, "measured_queries": 270, "queries_without": 30}
    plain, csls = result["rankings"]
    assert (plain["criterion"], csls["criterion"], csls["parameters"]) == ("nns", "csls", {"k": 5})
    assert csls["hubness"]["largest_hub_10"] < plain["hubness"]["largest_hub_10"]
    assert csls["truth"]["r1"] > plain["truth"]["r1"] > 50
    assert f"{csls['truth']['r1']:.1f}" in said
    worst, query_texts = result["hubs"][0], (files / "asked.txt").read_text().splitlines()
    assert (worst["id"], worst["label"]) == (ids[worst["item"]], f"a photo of thing {worst['item']}")
    assert [query["label"] for query in worst["queries"]] == [query_texts[query["query"]] for query in worst["queries"]]
    for item in (*result["hubs"], *result["antihubs"]["examples"]):
        assert item["image"] == ("photos/photo 007.jpg" if item["item"] == 7 else None)


def test_diagnose(files, here):
    here("diagnose", *ALL, "out=there")
    assert names_in(files / "there") == {"result.json", "index.html", MARK}
    result = record(files / "there")
    assert result["reference"] == {"kind": "transductive", "set": "the queries themselves", "rows": QUERIES}
    assert [ranking["criterion"] for ranking in result["rankings"]] == ["nns", "is", "csls", "nnn", "dn"]
    here("diagnose", *ALL[:2], "criteria=[nns,local_scaling]", "out=bare", "k=3")
    bare = record(files / "bare")
    assert bare["truth"] is bare["hubs"][0]["wrong"] is bare["rankings"][1]["truth"] is None


def test_reference_items(files, here):
    bank = np.random.default_rng(3).normal(size=(40, DIM)).astype(np.float32)
    np.save(files / "bank.npy", bank / np.linalg.norm(bank, axis=1, keepdims=True))
    for name, criterion in (("dual_is", DualInvertedSoftmax()), ("dbsn", DualBankSinkhorn())):
        here("rerank", *ALL, "reference=train.npy", "reference_items=bank.npy", f"criterion={name}", f"out={name}")
        sides = (np.load(files / f"{side}.npy") for side in ("q", "m", "train"))
        wanted = criterion.search(*sides, K, reference_items=np.load(files / "bank.npy"))[1]
        assert np.array_equal(read_ranking(files / name / "ranking.parquet")[0], wanted)


def test_biases_rank_as_the_criterion_does(files, here):
    queries, items, names = np.load(files / "q.npy"), np.load(files / "m.npy"), list(range(ITEMS))
    for criterion in ("csls", "sinkhorn", "nns"):
        here("rerank", *ALL[:2], "reference=train.npy", "k=5", f"criterion={criterion}", f"out={criterion}")
        table = pq.read_table(files / criterion / "biases.parquet")
        assert table["id"].to_pylist() == names
        corrected = float(table.schema.metadata[b"scale"]) * (queries @ items.T) - table["bias"].to_numpy()
        positions, values = read_ranking(files / criterion / "ranking.parquet")
        assert (np.argsort(-corrected, axis=1, kind="stable")[:, :5] == positions.numpy()).mean() > 0.999
        np.testing.assert_allclose(-np.sort(-corrected, axis=1)[:, :5], values, rtol=1e-3, atol=1e-3)
    here("rerank", *ALL[:2], "criterion=dual_softmax", "out=no")
    assert names_in(files / "no") == RERANKED - {"biases.parquet"}


def test_shards_rank_as_one_file_does(files, here):
    np.savetxt(files / "m.csv", np.load(files / "m.npy"), delimiter=",", fmt="%.9g")
    for side in "qm":
        (files / side).mkdir()
        for number, part in enumerate(np.array_split(np.load(files / f"{side}.npy"), 12)):
            pq.write_table(pa.table({"v": list(part)}), files / side / f"part_{number}.parquet")
    here("rerank", *ALL, "out=one")
    for queries, items in (("q", "m"), (f"file://{files}/q", "m.csv"), ("q::v", f"file://{files}/m.npy")):
        here("rerank", f"queries={queries}", f"items={items}", "truth=rows.csv", "out=other", "overwrite=true")
        first, other = (read_ranking(files / name / "ranking.parquet") for name in ("one", "other"))
        assert all(map(torch.equal, first, other))
        assert record(files / "other")["rankings"] == record(files / "one")["rankings"]


def test_a_reference_of_another_domain_is_told(files, here):
    """Noise is as far from its own rows as the queries are from it; twenty captions of one image lie close together."""
    draw, train = np.random.default_rng(0).standard_normal, np.load(files / "train.npy")
    np.save(files / "turned.npy", -train[:, ::-1])
    np.save(files / "noise.npy", draw(train.shape).astype(np.float32))
    np.save(files / "many.npy", np.repeat(train, 20, axis=0) + 0.01 * draw((20 * len(train), DIM)).astype(np.float32))
    for reference in ("train", "many", "turned", "noise"):
        said = here("rerank", *ALL, f"reference={reference}.npy", "normalize=true", f"out={reference}")
        foreign = reference in ("turned", "noise")
        assert ("another domain" in said) == bool(record(files / reference)["warnings"]) == foreign
        assert ("another domain" in (files / reference / "index.html").read_text()) == foreign


def test_queries_in_the_reference_are_left_out(files, here):
    """A log that repeats: the result is that of the reference without the ranked queries, of vectors and of scores."""
    queries, items, train = (np.load(files / f"{name}.npy") for name in ("q", "m", "train"))
    scores, others = queries @ items.T, train @ items.T
    np.save(files / "scores_q.npy", scores)
    np.save(files / "scores_train.npy", others)
    np.save(files / "log.npy", np.concatenate([train[:50], queries[::2], train[50:]]))
    np.save(files / "scores_log.npy", np.concatenate([others[:50], scores[::2], others[50:]]))
    for sides, kind in ((ALL[:2], "reference={}.npy"), (["scores=scores_q.npy"], "reference_scores=scores_{}.npy")):
        here("rerank", *sides, kind.format("train"), "out=without", "overwrite=true")
        said = here("rerank", *sides, kind.format("log"), "out=with", "overwrite=true")
        first, other = (read_ranking(files / name / "ranking.parquet") for name in ("without", "with"))
        assert torch.equal(first[0], other[0])
        assert record(files / "with")["reference"]["left_out"] == QUERIES // 2
        assert f"without {QUERIES // 2} that equal a query" in said


def test_one_item_and_one_query(files, here):
    np.save(files / "one.npy", np.eye(1, DIM, dtype=np.float32))
    here("rerank", "queries=one.npy", "items=one.npy", "k=1", "out=there")
    here("diagnose", "queries=q.npy", "items=one.npy", "k=1", "out=bare")
    assert record(files / "bare")["hubs"][0]["occurrences"] == [QUERIES] * 5


def test_a_killed_command_starts_anew(files, here, monkeypatch):
    """Killed after the second of five blocks."""
    monkeypatch.setattr(tiles, "QUERIES_AT_ONCE", 64)
    whole = search.nearest_blocks

    def broken(*arguments, **settings):
        yield from itertools.islice(whole(*arguments, **settings), 2)
        raise BaseException  # nothing but the process's end answers it

    with monkeypatch.context() as changed:
        changed.setattr(search, "nearest_blocks", broken)
        here("rerank", *ALL, "criterion=qb_norm", "out=there", status=1)
    for out in ("there", "unbroken"):
        here("rerank", *ALL, "criterion=qb_norm", f"out={out}")
    first, two = (files / out for out in ("there", "unbroken"))
    assert names_in(first) == RERANKED - {"biases.parquet"}
    assert (first / "ranking.parquet").read_bytes() == (two / "ranking.parquet").read_bytes()
    for key in record(first).keys() - {"seconds", "started", "command"}:
        assert record(first)[key] == record(two)[key], key


def test_a_file_that_changes_while_it_is_read(files, here, monkeypatch):
    def changed(*arguments, **settings):
        np.save(files / "m.npy", np.eye(ITEMS, DIM, dtype=np.float32))
        return search.measure(*arguments, **settings)

    monkeypatch.setattr(compare, "measure", changed)
    assert "m.npy changed" in here("rerank", *ALL, "out=there", status=2)
    assert not (files / "there").exists()


def test_a_folder_that_holds_a_result(files, here):
    here("diagnose", *ALL, "out=there", "criteria=[is]")
    before = (files / "there" / "result.json").read_bytes()
    for command, overwrite in (("diagnose", "false"), ("rerank", "true"), ("rerank", "false")):
        assert "holds a diagnosis" in here(command, *ALL, "out=there", f"overwrite={overwrite}", status=2)
    assert (files / "there" / "result.json").read_bytes() == before
    here("diagnose", *ALL, "out=there", "overwrite=true", "criteria=[csls]")
    assert (files / "there" / "result.json").read_bytes() != before


REFUSED = [
    (["items=raw.npy"], "normalize=true"),
    (["reference=photos/../q.npy"], "reference: .*300"),
    (["item_ids=asked.txt"], "300 ids|comes twice"),
    (["items=nan.npy"], "rows 3, 50 hold NaN"),
    (["queries=null", "items=null", "scores=s.npy", "reference_scores=s.npy"], "reference: .*300"),
    (["queries=null", "items=null", "scores=nan_scores.npy"], "rows 4, 7 hold NaN"),
    (["reference_scores=s.npy"], "scores=FILE instead"),
    (["criterion=auto", "tune_truth=rows.csv"], "tune_queries and tune_truth together"),
    (["criterion=rgm", "reference=train.npy"], "rgm .* reference"),
    (["criterion=auto", "tune_queries=q.npy", "tune_truth=rows.csv"], "300 of 300 are ranked[^$]*tune_queries: all"),
    (["fail_on=ok"], "fail_on is 'ok'"),
]


def test_what_is_refused_leaves_nothing(files, scores, here):
    before = sorted(files.iterdir())
    commands = {"criterion": "rerank", "criteria": "diagnose", "fail_on": "diagnose"}
    for number, (settings, named) in enumerate(REFUSED):
        arguments = {setting.partition("=")[0]: setting for setting in (*ALL[:2], *settings)}
        command = commands.get(re.split("[.=]", settings[0])[0], ("rerank", "diagnose")[number % 2])
        assert re.search(named, here(command, *arguments.values(), status=2)), settings
    assert sorted(files.iterdir()) == before


def test_a_chosen_criterion(files, here):
    sides = ("queries=q.npy", "items=m.npy", "criterion=auto")
    said = here("rerank", *sides, "truth=rows.csv", "out=a")
    result = record(files / "a")
    choice, ranked = result["choice"], result["rankings"][1]
    assert (choice["queries"], result["truth"]["measured_queries"]) == (270, 270)
    assert (choice["criterion"], choice["parameters"]) == (ranked["criterion"], ranked["parameters"])
    assert f"chosen: {choice['criterion']} (" in said
    assert f"gain of the choice in R@1: {choice['gain']['r1']:+.1f}" in said
    assert choice["gain"]["queries"] == 270

    here("rerank", *sides, "out=b")
    assert (record(files / "b")["choice"]["criterion"], record(files / "b")["choice"]["queries"]) == ("sinkhorn", 0)
    here("rerank", *sides, "truth=rows.csv", "out=c", "criterion.indexable=true")
    assert (files / "c" / "biases.parquet").is_file()


@pytest.fixture
def scores(files):
    """The scores of the vectors, as files beside them, and files that are damaged, each in one way."""
    queries, items, reference, _ = vectors()
    made = {"s": queries @ items.T, "r": reference @ items.T}
    made["narrow"], made["nan_scores"] = made["r"][:, 1:], made["s"].copy()
    made["nan_scores"][[4, 7]] = np.nan
    made |= {"nan": items.copy(), "wide": np.eye(DIM + 1), "none": reference[:0]}
    made["nan"][[3, 50]] = np.nan
    for name, array in made.items():
        np.save(files / f"{name}.npy", array.astype(np.float32))
    (files / "cut.npy").write_bytes((files / "m.npy").read_bytes()[:-1])
    (files / "twice.txt").write_text("a\n" * ITEMS)


def test_a_criterion_of_config_dir_is_a_candidate(files, here):
    folder = files / "own" / "criterion"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("_target_: vsehub.criteria.NNN\nk: 3\nweight: 0.9\n")
    here("rerank", *ALL, "--config-dir", "own", "criterion=auto", "criterion.among=[mine]")
    assert "mine" in {tried["name"] for tried in record(files / "rerank")["choice"]["tried"]}


def test_scores_instead_of_vectors(files, scores, here):
    """The same result as by the vectors, but for what is said of the files."""
    shared = ("item_ids=ids.txt", "item_labels=captions.txt", "truth=pairs.csv", "criterion=is")
    here("rerank", "queries=q.npy", "items=m.npy", "reference=train.npy", *shared, "out=vectors")
    here("rerank", "scores=s.npy", "reference_scores=r.npy", *shared, "out=scores")
    ids = (files / "ids.txt").read_text().splitlines()
    rankings = [read_ranking(files / out / "ranking.parquet", item_ids=ids)[0] for out in ("vectors", "scores")]
    assert (rankings[0] == rankings[1]).float().mean() > 0.999  # products may be rounded otherwise
    result, other = record(files / "scores"), record(files / "vectors")
    assert result["scores"]["range"]["most"] == np.load(files / "s.npy").max()
    assert (result["queries"], result["items"], other["scores"]) == ({"rows": QUERIES}, {"rows": ITEMS}, None)
    assert {"kind": "inductive", "set": "r.npy", "rows": 200}.items() <= result["reference"].items()
    for first, two in zip(result["rankings"], other["rankings"], strict=True):
        assert first["truth"] == pytest.approx(two["truth"], abs=0.5)
        assert first["hubness"] == pytest.approx(two["hubness"], abs=0.05, rel=0.02)
    here("diagnose", "scores=s.npy", "truth=rows.csv", "criteria=[csls]", "out=found")
    here("rerank", "scores=s.npy", "truth=rows.csv", "criterion=csls+rgm", "out=matched")


def test_a_verdict_for_pipelines(files, here):
    sides = ("queries=q.npy", "items=m.npy", "criteria=[csls]")  # these vectors are made with hubs
    for settings, status in (("fail_on=fail", 0), ("fail_on=warn", 3)):
        assert "hubs: warn" in here("diagnose", *sides, settings, "out=a", "overwrite=true", status=status)
    levels = {check["name"]: check["level"] for check in record(files / "a")["verdict"]["checks"]}
    assert levels == {"skewness": "warn", "largest_hub": "warn", "antihubs": "ok"}
