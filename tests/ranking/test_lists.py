"""Result lists without vectors: `vsehub diagnose ranking=`."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from vsehub.checks import InputError
from vsehub.ranking.lists import compare_lists
from vsehub.report.pages.embeddings import embeddings_page

ITEMS, MISSING = 40, 55  # MISSING: an answer that no list holds


def drawn_lists(seed, queries):
    """Query -> items, best first, a few hubs among them; every fourth list is short."""
    random, weights = np.random.default_rng(seed), 1 / np.arange(1, ITEMS + 1)
    weights /= weights.sum()
    return {query: random.choice(ITEMS, 12 if query % 4 else 3, replace=False, p=weights).tolist() for query in queries}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Lists in a table of shuffled rows, others in a TREC run, and true pairs, some of an item that no list holds."""
    monkeypatch.chdir(tmp_path)
    before, after = drawn_lists(0, range(50)), drawn_lists(1, range(5, 60))
    rows = [(query, f"=doc_{item}", rank) for query, items in before.items() for rank, item in enumerate(items)]
    columns = zip(*(rows[row] for row in np.random.default_rng(2).permutation(len(rows))), strict=True)
    pq.write_table(pa.table(list(map(list, columns)), names=["query", "item", "rank"]), "before.parquet")
    lines = [f"{query} Q0 =doc_{item} {rank} 0.5 run" for query in after for rank, item in enumerate(after[query], 1)]
    (tmp_path / "after.run").write_text("\n".join(lines))
    truth = {query: {query % ITEMS, MISSING} if query % 2 else {MISSING} for query in range(50) if query % 3}
    pairs = [f"{query},'=doc_{item}" for query, items in truth.items() for item in items]
    (tmp_path / "truth.csv").write_text("\n".join(["query,item", *pairs]))
    return before, after, truth


def test_lists_by_loops(files):
    """N_k, hubs, recalls and changes of two lists, over the queries that are in both."""
    before, after, truth = files
    settings = {"ranking": "before.parquet", "against": "after.run", "truth": "truth.csv", "items": 70}
    record = compare_lists(settings, 10).record
    embeddings_page(record)
    common, first = range(5, 50), record["hubs"][0]
    assert (record["queries"]["rows"], record["items"]["rows"], record["ks"]) == (45, 70, [1, 5, 10])
    never = []
    for number, (lists, ranking) in enumerate(zip((before, after), record["rankings"], strict=True)):
        counts = np.zeros(70, int)
        for query in common:
            counts[lists[query][:10]] += 1
        judged = [(item in truth[query]) for query in common if query in truth for item in lists[query][:10]]
        assert ranking["hubness"]["skew_10"] == pytest.approx(stats.skew(counts))
        assert ranking["hubness"]["antihub_rate_10"] == (counts == 0).mean()
        assert ranking["hubness"]["bad_share_10"] == pytest.approx(1 - np.mean(judged))
        for k in (1, 5, 10):
            answered = [not truth[query].isdisjoint(lists[query][:k]) for query in common if query in truth]
            assert ranking["truth"][f"r{k}"] == pytest.approx(100 * np.mean(answered))
        assert first["occurrences"][number] == counts[int(first["id"].removeprefix("=doc_"))]
        never.append(np.count_nonzero(counts == 0))
    assert record["antihubs"]["count"] == never
    stays = [len({*before[query][:10]} & {*after[query][:10]}) / len(before[query][:10]) for query in common]
    assert record["rankings"][1]["changed"]["overlap"] == pytest.approx(np.mean(stays))


def test_items_are_ids_unknown_or_row_numbers(files, tmp_path):
    ids = [f"=doc_{item}" for item in range(60)]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    listed = compare_lists({"ranking": "after.run", "items": "ids.txt"}, 5).record
    assert {entry["id"] for entry in listed["antihubs"]["examples"]} <= {*ids}
    unknown = compare_lists({"ranking": "after.run"}, 5).record
    assert unknown["items"]["rows"] <= ITEMS
    assert "items" in unknown["warnings"][0]
    numbers = pa.table({"query": [0, 0, 1], "item": [6, 2, 6], "rank": [1, 2, 1]})
    pq.write_table(numbers, "rows.parquet")
    record = compare_lists({"ranking": "rows.parquet", "items": 9}, 5).record
    assert (record["hubs"][0]["item"], record["hubs"][0]["id"], record["hubs"][0]["occurrences"]) == (6, None, [2])
    assert record["antihubs"]["count"] == [8]  # of the first places: two lists, the longer of two items


@pytest.mark.parametrize("items", [None, 9])
def test_aligned_rows_answer_each_other(tmp_path, items):
    """Query 6 has item 6 first; query 2 has it instead of item 2; item 8 is in no list."""
    (tmp_path / "lists.csv").write_text("query,item,rank\n8,6,1\n8,2,2\n6,6,1\n6,2,2\n2,6,1\n")
    settings = {"ranking": str(tmp_path / "lists.csv"), "truth": "aligned"} | ({"items": items} if items else {})
    record = compare_lists(settings, 5).record
    assert record["rankings"][0]["truth"]["r1"] == pytest.approx(100 / 3)
    assert record["items"]["rows"] == (items or 3)


@pytest.mark.parametrize(
    ("rows", "items", "named"),
    [
        ("a,x,1\na,y,1", 9, "one rank: a"),
        ("a,x,1\nb,x,1\nb,x,2", 9, "twice: b"),
        ("a,x,1\na,,2", 9, "each row"),
        ("a,x,best", 9, "best"),
        ("a,x,1\na,y,2", 1, "items: 1 .* y"),
        ("a,x,1\n", "ids.txt", "x"),
    ],
)
def test_lists_that_would_be_measured_wrongly(tmp_path, monkeypatch, rows, items, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists.csv").write_text(f"query,item,rank\n{rows}\n")
    (tmp_path / "ids.txt").write_text("z\n")
    with pytest.raises(InputError, match=named):
        compare_lists({"ranking": "lists.csv", "items": items}, 10)


@pytest.mark.parametrize(("rows", "items"), [("a,x,1", 9), ("0,0,1", "ids.txt")])
def test_aligned_ids_are_refused(tmp_path, monkeypatch, rows, items):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists.csv").write_text(f"query,item,rank\n{rows}\n")
    (tmp_path / "ids.txt").write_text("0\n1\n")
    with pytest.raises(InputError, match="truth=FILE"):
        compare_lists({"ranking": "lists.csv", "items": items, "truth": "aligned"}, 10)
