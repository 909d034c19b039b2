"""Boosts through `rerank` and `add`: the ranking under weights, the index that holds them, and what is refused."""

import json
import re
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from vsehub.rerank.table import read_ranking
from vsehub.serving import load_index

ITEMS, QUERIES = 60, 25
SIDES = ("queries=queries.npy", "items=items.npy", "reference=reference.npy", "item_ids=ids.txt")
BOOSTS = ("boosts.table=views.csv", "boosts.columns=[popularity,age]")


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    found = {}
    for name, rows in (("items", ITEMS), ("queries", QUERIES), ("reference", 40)):
        vectors = random.normal(size=(rows, 6)) + 0.3
        found[name] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", found[name])
    ids = [f"item {row}" for row in range(ITEMS)]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    (tmp_path / "query_ids.txt").write_text("\n".join(f"query {row}" for row in range(QUERIES)))
    found["values"] = random.random((ITEMS, 2))
    order = random.permutation(ITEMS)
    values = found["values"].tolist()
    lines = [f"{ids[row]},{values[row][0]},{values[row][1]}" for row in order]
    (tmp_path / "views.csv").write_text("\n".join(["id,popularity,age", *lines, "nobody,1,1"]))
    return found


def wanted(files, weights, k=5):
    scores = files["queries"] @ files["items"].T
    return scores + (files["values"] - files["values"].mean(axis=0)) @ weights


def test_a_ranking_under_weights_and_the_index_without_them(files, run_here, tmp_path, undrawn):
    pytest.importorskip("faiss")
    given = (
        "criterion=nns",
        "index=flat",
        "biases=true",
        "k=5",
        "boost_weights={popularity: 0.5, age: -0.1}",
        "out=out",
    )
    said = run_here("rerank", *SIDES, *BOOSTS, *given)
    assert "nns+boosts" in said
    assert "boosts: where they move similarities (standard deviation), the index finds 100.0% by 0.01" in said
    raised = wanted(files, np.array([0.5, -0.1]))
    best = np.argsort(-raised, axis=1, kind="stable")[:, :5]
    found, _ = read_ranking(tmp_path / "out" / "ranking.parquet", None, (tmp_path / "ids.txt").read_text().split("\n"))
    assert np.array_equal(found.numpy(), best)
    index = load_index(tmp_path / "out" / "index.faiss")
    plain = np.argsort(-(files["queries"] @ files["items"].T), axis=1, kind="stable")[:, :5]
    assert np.array_equal(index.search(files["queries"], 5)[1], plain)
    assert np.array_equal(index.search(files["queries"], 5, True, {"popularity": 0.5, "age": -0.1})[1], best)
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["boosts"]["weights"] == {"popularity": 0.5, "age": -0.1}
    assert [one["name"] for one in record["boosts"]["columns"]] == ["popularity", "age"]
    biases = pq.read_table(tmp_path / "out" / "biases.parquet")["bias"].to_numpy()
    assert not biases.any(), "what another engine stores is the criterion's, without the weights"
    note = (tmp_path / "out" / "USAGE.md").read_text()
    assert "ranked by nns." in note
    assert 'weights = {"popularity": 0.5, "age": -0.1}' in note


@pytest.fixture
def many(tmp_path):
    """Items enough for lists of which a query searches some, with a popularity that few of them have."""
    random = np.random.default_rng(5)
    centres = random.normal(size=(60, 16))
    for name, rows in (("items", 4000), ("queries", 60), ("reference", 100)):
        vectors = centres[random.integers(0, 60, rows)] + 0.7 * random.normal(size=(rows, 16))
        np.save(tmp_path / f"{name}.npy", (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))
    rows = [f"{one},{other}" for one, other in zip(random.lognormal(size=4000), random.random(4000), strict=True)]
    (tmp_path / "views.csv").write_text("\n".join(["popularity,age", *rows]))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_an_index_that_loses_recall_refuses_boosts(many, run_here, tmp_path, undrawn):
    """The error says what held; with it as the stated reach the command accepts. An earlier result stays whole."""
    pytest.importorskip("faiss")
    given = ("rerank", *SIDES[:3], *BOOSTS, "criterion=csls", "out=out")
    run_here(*given, "index=flat")
    before = contents(tmp_path / "out")
    assert "index.faiss" in before
    said = run_here(*given, "index=ivf", "overwrite=true", status=2)
    found = re.search(
        r"boosts: index=ivf is approximate.* It finds ([\d.]+)% of the 10 best without weights, and where boosts move "
        r"similarities \(standard deviation over items\) ([\d.]+)% by 0.01, ([\d.]+)% by 0.03, ([\d.]+)% by 0.1; at "
        r"most 1% may be lost. It holds up to 0.03, which is a weight of popularity ([\d.]+), age ([\d.]+): set "
        r"boosts.reach=0.03, or take index=flat, which is exact",
        said,
    )
    assert found is not None, said
    plain, *shares = map(float, found.groups()[:4])
    assert min(shares[:2]) >= plain - 1.1
    assert shares[2] < plain - 1
    spread = np.loadtxt(tmp_path / "views.csv", delimiter=",", skiprows=1).std(axis=0)
    assert np.allclose(list(map(float, found.groups()[4:])), 0.03 / spread, rtol=1e-2)
    for rows in (1000, 5000):
        run_here(*given, "index=ivf", f"index_rows={rows}", "boosts.reach=0.1", "overwrite=true", status=2)
    assert contents(tmp_path / "out") == before
    assert not [path for path in (tmp_path / "out").iterdir() if path.name == ".index"]

    weights = ("boosts.reach=0.03", "boost_weights={age: 0.5}")
    said = run_here(*given, "index=ivf", *weights, "overwrite=true", status=2)
    assert "boost_weights: age 0.5 moves similarities by 0.14" in said
    assert "beyond boosts.reach=0.03, up to which an approximate index is measured" in said
    said = run_here(*given, "index=ivf", "boosts.reach=0.03", "index_rows=2000", "overwrite=true")
    assert "boosts: where they move similarities (standard deviation), the index finds " in said
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert list(record["index"]["boosted_recall"]) == ["0.01", "0.03"]
    assert record["index"]["files"] == ["index-00000.faiss", "index-00001.faiss"]
    assert {one for one in contents(tmp_path / "out") if "faiss" in one} == set(record["index"]["files"])


@pytest.mark.long
def test_a_collection_that_loses_recall_refuses_boosts(files, run_here, tmp_path, undrawn, monkeypatch):
    """Nothing of it is left, and an earlier one of the name stays."""
    lancedb = pytest.importorskip("lancedb")
    from vsehub.serving.boosted_recall import BoostedRecall

    def measured(index, queries, items, bias, scale, k, boosts, reach, seed):
        moved = tuple(one for one in (0.01, 0.1) if one <= reach)
        return BoostedRecall(k, 1.0, moved, (0.991, 0.5)[: len(moved)], ({"age": 1.0}, {"age": 10.0})[: len(moved)])

    monkeypatch.setattr(BoostedRecall, "of", measured)
    given = ("rerank", *SIDES, *BOOSTS, "criterion=csls", "index=lancedb")
    approximate = ("index_approximate=true", "index_uri=base")
    said = run_here(*given, *approximate, "out=out", status=2)
    assert "It holds up to 0.01, which is a weight of age 1: set boosts.reach=0.01, or take index_approximate=" in said
    assert not lancedb.connect(tmp_path / "base").list_tables().tables
    assert not (tmp_path / "out" / "result.json").exists()
    run_here(*given, *approximate, "boosts.reach=0.01", "out=out")
    tables = lancedb.connect(tmp_path / "base").list_tables().tables
    version = lancedb.connect(tmp_path / "base").open_table("vsehub").version
    said = run_here(*given, *approximate, "k=5", "overwrite=true", "out=other", status=2)
    assert "index=lancedb is approximate" in said
    np.save(tmp_path / "items.npy", files["items"][::-1])
    said = run_here(*given, *approximate, "overwrite=true", "out=other", status=2)
    assert "index=lancedb is approximate" in said
    assert lancedb.connect(tmp_path / "base").list_tables().tables == tables
    assert lancedb.connect(tmp_path / "base").open_table("vsehub").version == version
    run_here(*given, "index_approximate=false", "out=exact")  # whatever is measured


def test_a_diagnosis_says_what_boosts_do_to_hubness(files, run_here, tmp_path, undrawn):
    weights = "boost_weights={popularity: 0.5, age: -0.1}"
    said = run_here("diagnose", *SIDES, *BOOSTS, weights, "criteria=[csls]", "out=out")
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [one["criterion"] for one in record["rankings"]] == ["nns", "csls", "nns+boosts", "csls+boosts"]
    assert record["boosts"]["weights"] == {"popularity": 0.5, "age": -0.1}
    lists = {
        name: np.argsort(-wanted(files, np.array(weight)), axis=1, kind="stable")[:, :10]
        for name, weight in (("nns", [0, 0]), ("nns+boosts", [0.5, -0.1]))
    }
    largest = {name: int(np.bincount(found.flatten()).max()) for name, found in lists.items()}
    measured = {one["criterion"]: one["hubness"] for one in record["rankings"]}
    assert {name: measured[name]["largest_hub_10"] for name in lists} == largest
    assert largest["nns+boosts"] > largest["nns"]
    sentence = (
        f"nns with popularity 0.5, age -0.1: the largest hub is in the 10 best of {largest['nns+boosts']} queries "
        f"instead of {largest['nns']}, skewness of N_10 {measured['nns+boosts']['skew_10']:.2f} instead of "
        f"{measured['nns']['skew_10']:.2f}"
    )
    assert f"boosts: {sentence}" in said
    assert sentence in (tmp_path / "out" / "index.html").read_text()
    assert "boosts: csls with popularity 0.5, age -0.1: the largest hub" in said
    for settings, message in (
        (BOOSTS, "boosts.table is given without boost_weights; give weights, whose effect on hubness is measured"),
        ((*BOOSTS, weights, "criteria=[qb_norm]"), "qb_norm does not subtract one number from an item's scores"),
        ((weights,), "boost_weights is given without boosts.table"),
    ):
        assert message in run_here("diagnose", *SIDES, *settings, "out=refused", status=2)


def test_weights_are_chosen_by_known_answers(files, run_here, tmp_path, undrawn):
    """With the criterion, in the ranking, its gain, the record and the note; 0 where no others are better."""
    pytest.importorskip("faiss")
    random = np.random.default_rng(3)
    one = files["items"][: ITEMS // 2]
    wanted = random.integers(0, ITEMS // 2, 240)
    near = {"items": np.concatenate([one, one + 0.05 * random.normal(size=one.shape)])}
    near["queries"] = one[wanted] + 0.1 * random.normal(size=(240, 6))
    for name, vectors in near.items():
        np.save(tmp_path / f"{name}.npy", (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))
    rows = [f"{int(row < ITEMS // 2) + random.random() / 3},{random.random()}" for row in range(ITEMS)]
    (tmp_path / "views.csv").write_text("\n".join(["popularity,age", *rows]))
    (tmp_path / "truth.csv").write_text("\n".join(["query,item", *(f"{q},item {m}" for q, m in enumerate(wanted))]))
    given = (*SIDES, *BOOSTS, "criterion=auto", "truth=truth.csv")
    said = run_here("rerank", *given, "index=flat", "k=5", "out=out")
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    choice, rankings = record["choice"], record["rankings"]
    weights = choice["boosts"]["weights"]
    assert weights["popularity"] > 0
    assert record["boosts"]["weights"] == weights == rankings[-1]["parameters"]["boost_weights"]
    assert rankings[-1]["criterion"] == f"{choice['criterion']}+boosts"
    gains = [after["truth"]["r1"] - before["truth"]["r1"] for before, after in pairwise(rankings)]
    assert choice["boosts"]["gain"]["r1"] == pytest.approx(gains[-1])
    assert choice["boosts"]["gain"]["low"] > 0
    assert choice["gain"]["r1"] == pytest.approx(gains[0] if len(gains) == 2 else 0)
    assert f"boost weights: popularity {weights['popularity']:.3g}, age " in said
    assert "gain of the boosts in R@1: +" in said
    assert "over 120 other queries" in said
    assert "gain of the boosts in R@1" in (tmp_path / "out" / "index.html").read_text()
    assert f'"popularity": {weights["popularity"]!r}' in (tmp_path / "out" / "USAGE.md").read_text()
    found = read_ranking(tmp_path / "out" / "ranking.parquet", None, (tmp_path / "ids.txt").read_text().split("\n"))[0]
    index = load_index(tmp_path / "out" / "index.faiss")
    assert np.mean(index.search(np.load(tmp_path / "queries.npy"), 5, True, weights)[1] == found.numpy()) > 0.999

    # By queries of their own, from scores alone, and without any answers, where weights stay 0.
    queries, items = np.load(tmp_path / "queries.npy"), np.load(tmp_path / "items.npy")
    np.save(tmp_path / "own.npy", queries[:100])
    np.save(tmp_path / "queries.npy", queries[100:])
    (tmp_path / "own.csv").write_text("\n".join(["query,item", *(f"{q},item {m}" for q, m in enumerate(wanted[:100]))]))
    tune = ("tune_queries=own.npy", "tune_truth=own.csv")
    run_here("rerank", *SIDES, *BOOSTS, "criterion=auto", *tune, "out=own")
    chosen = json.loads((tmp_path / "own" / "result.json").read_text())["choice"]
    assert (chosen["queries"], chosen["boosts"]["gain"]) == (100, None)
    assert chosen["boosts"]["weights"]["popularity"] > 0
    np.save(tmp_path / "queries.npy", queries)
    np.save(tmp_path / "scores.npy", queries @ items.T)
    run_here("rerank", "scores=scores.npy", *given[len(SIDES) - 1 :], "out=scored")
    scored = json.loads((tmp_path / "scored" / "result.json").read_text())
    assert scored["boosts"]["weights"]["popularity"] > 0
    assert scored["rankings"][-1]["truth"]["r1"] > scored["rankings"][0]["truth"]["r1"]
    said = run_here("rerank", *SIDES, *BOOSTS, "criterion=auto", "out=unknown")
    assert "the default, since no answers are known to choose by" in said
    assert json.loads((tmp_path / "unknown" / "result.json").read_text())["boosts"]["weights"] == {}

    values = random.permutation(rows)  # says nothing of what is wanted
    (tmp_path / "views.csv").write_text("\n".join(["popularity,age", *values]))
    said = run_here("rerank", *given, "out=none")
    record = json.loads((tmp_path / "none" / "result.json").read_text())
    assert record["choice"]["boosts"]["weights"] == {"popularity": 0.0, "age": 0.0}
    assert record["choice"]["boosts"]["gain"] is None
    assert "boosts" not in record["rankings"][-1]["criterion"]
    assert "none is better than no boosts by more than one standard error" in said


@pytest.mark.long
def test_boosts_are_renewed_in_a_collection(files, run_here, tmp_path, undrawn):
    pytest.importorskip("lancedb")
    run_here("rerank", *SIDES, *BOOSTS, "criterion=csls", "index=lancedb", "out=out")
    (tmp_path / "new.csv").write_text("id,age,popularity\nitem 3,0,5\nnobody,1,1\n")
    place = ("index=lancedb", "index_uri=out/index.lancedb")
    said = run_here("add", *place, "boosts.table=new.csv", "boosts.columns=[popularity,age]")
    assert said.startswith("renewed the boosts of 1 of 2 ids; ")
    refused = run_here("add", *place, "boosts.table=new.csv", "boosts.columns=[popularity]", status=2)
    assert "boosts.columns names popularity; " in refused
    (tmp_path / "twice.csv").write_text("id,age,popularity\nitem 3,0,5\nitem 3,1,1\n")
    named = ("boosts.table=twice.csv", "boosts.columns=[popularity,age]")
    assert "has several rows for 'item 3'" in run_here("add", *place, *named, status=2)
    (tmp_path / "bare.csv").write_text("age,popularity\n0,5\n")
    bare = ("boosts.table=bare.csv", "boosts.columns=[popularity,age]")
    assert "has no column 'id'" in run_here("add", *place, *bare, status=2)
    np.save(tmp_path / "more.npy", files["items"][:2])
    (tmp_path / "more.txt").write_text("a\nb")
    more = ("items=more.npy", "item_ids=more.txt")
    assert "has the boosts popularity, age; give those of new items" in run_here("add", *place, *more, status=2)
    run_here("gate", *place, *more, "out=gate")
    assert (tmp_path / "gate" / "gate.json").is_file()
    (tmp_path / "more.csv").write_text("id,popularity,age\nb,1,2\na,3,4\n")
    said = run_here("add", *place, *more, "boosts.table=more.csv", "boosts.columns=[popularity,age]")
    assert "added 2 items" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("boosts.table=absent.csv",), "boosts.table"),
        (("boosts.table=null",), "boosts.columns is"),
        (("boosts.columns=[]",), "name columns, as in"),
        (("boosts.columns=[popularty]",), "no column 'popularty' (did you mean popularity?)"),
        (("boosts.columns=[id]",), "id of row"),
        (("boosts.reach=0",), "boosts.reach is 0; expected a number above 0"),
        (("boosts.reach=far",), "boosts.reach"),
        (("boost_weights={views: 0.1}",), "'views' is no boost"),
        (("boost_weights={popularity: high}",), "popularity is 'high'; expected a number"),
        (("boost_weights=0.5",), "boost_weights is 0.5; expected a weight for each boost"),
        (("criterion=dual_softmax", "boost_weights={age: 1}"), "does not subtract one number"),
        (("criterion=auto", "boost_weights={age: 1}"), "criterion=auto chooses the weights, by the known answers"),
        (("criterion=auto", "engine=ray"), "criterion=auto chooses their weights, and engine=ray ranks without"),
        (("engine=ray", "boost_weights={age: 1}"), "engine=ray ranks without boosts"),
    ],
    ids=lambda one: "" if isinstance(one, str) else " ".join(one)[:40],
)
def test_what_is_refused(changes, said, files, run_here):
    kept = [one for one in BOOSTS if one.split("=")[0] not in [change.split("=")[0] for change in changes]]
    found = run_here("rerank", *SIDES, *kept, *changes, "out=out", status=2)
    assert said in found
    assert len(found.strip().splitlines()) <= 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,popularity,age\nitem 0,1,2\n", "has no row for 59 of 60 items, 'item 1' for example"),
        ("popularity,age\n1,2\n", "has 1 rows for 60 items; expected one for each"),
        ("popularity,age\n" + "1,2\n" * 59 + "1,many\n", "age of row 60 is 'many'; expected a finite number"),
        ("popularity,age\n" + "1,2\n" * 59 + ",2\n", "popularity of row 60 is ''; expected a finite number"),
        ("popularity,age\n" + "1,2\n" * 59 + "nan,2\n", "popularity of row 60 is 'nan'; expected a finite number"),
    ],
)
def test_tables_that_do_not_fit(text, said, files, run_here, tmp_path):
    (tmp_path / "views.csv").write_text(text)
    assert said in run_here("rerank", *SIDES, *BOOSTS, "out=out", status=2)
