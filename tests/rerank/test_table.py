import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vsehub.checks import InputError
from vsehub.rerank import table as ranking
from vsehub.rerank.table import read_ranking, write_ranking

QUERY_IDS, ITEM_IDS = [f"q{row}" for row in range(5)], [f"é {row}" for row in range(9)]


def lists(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    positions = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(5)])
    return positions, torch.rand(5, 4, generator=generator, dtype=torch.float64).sort(descending=True).values.to(dtype)


def refused(action, *arguments):
    with pytest.raises(InputError) as caught:
        action(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("group_rows", [1, 8, 1000])
@pytest.mark.parametrize("query_ids", [None, QUERY_IDS])
@pytest.mark.parametrize("item_ids", [None, ITEM_IDS])
def test_there_and_back(tmp_path, monkeypatch, group_rows, query_ids, item_ids):
    monkeypatch.setattr(ranking, "_GROUP_ROWS", group_rows)
    positions, scores = lists()
    write_ranking(tmp_path / "new" / "ranking.parquet", positions, scores, query_ids, item_ids)
    table = pq.read_table(tmp_path / "new" / "ranking.parquet")
    assert pq.ParquetFile(tmp_path / "new" / "ranking.parquet").num_row_groups == {1: 5, 8: 3, 1000: 1}[group_rows]
    assert table.column_names == ["query", "rank", "item", "score"]
    assert table.to_pylist() == [
        {
            "query": query if query_ids is None else query_ids[query],
            "rank": rank + 1,
            "item": item if item_ids is None else item_ids[item],
            "score": scores[query, rank].item(),
        }
        for query, row in enumerate(positions.tolist())
        for rank, item in enumerate(row)
    ]
    for rows in (range(20), np.random.default_rng(0).permutation(20)):
        pq.write_table(table.take(list(rows)), tmp_path / "mixed.parquet", row_group_size=7)
        again = read_ranking(tmp_path / "mixed.parquet", query_ids, item_ids)
        assert torch.equal(again[0], positions)
        assert torch.equal(again[1], scores)
    assert os.listdir(tmp_path / "new") == ["ranking.parquet"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(tmp_path, dtype):
    positions, scores = lists(dtype)
    write_ranking(tmp_path / "r.parquet", positions.int(), scores.requires_grad_())
    again = read_ranking(tmp_path / "r.parquet")
    assert again[1].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(again[0], positions)
    assert torch.equal(again[1], scores.detach().to(again[1].dtype))
    write_ranking(tmp_path / "r.parquet", positions.numpy(), again[1].numpy())
    assert torch.equal(read_ranking(tmp_path / "r.parquet")[1], again[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.zeros(5, 3)}, r"scores has shape (5, 3); expected a matrix (5, 4)"),
        ({"positions": torch.zeros(5, 4)}, "positions is torch.float32 (5, 4); expected whole numbers"),
        ({"positions": torch.zeros(5, 0, dtype=torch.int64), "scores": torch.zeros(5, 0)}, "at least one"),
        ({"positions": torch.full((5, 4), -1)}, "positions go from -1 to -1; expected row numbers"),
        (
            {"item_ids": ITEM_IDS[:8]},
            "positions go from 0 to 8; expected row numbers of items counted from 0, of which",
        ),
        ({"query_ids": QUERY_IDS[:4]}, "there are 4 query_ids for 5 queries"),
        ({"query_ids": [*QUERY_IDS, "more"]}, "there are 6 query_ids for 5 queries"),
        ({"item_ids": [*ITEM_IDS[:8], ITEM_IDS[0]]}, "item_ids: 'é 0' comes twice"),
    ],
)
def test_what_is_not_written(tmp_path, change, message):
    positions, scores = lists()
    with pytest.raises(InputError) as caught:
        write_ranking(tmp_path / "r.parquet", **{"positions": positions, "scores": scores} | change)
    assert message in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_stopped_while_writing(tmp_path, monkeypatch):
    """The second row group fails: what was there before stays."""
    positions, scores = lists()
    write_ranking(tmp_path / "r.parquet", positions, scores)
    monkeypatch.setattr(ranking, "_GROUP_ROWS", 4)
    real, calls = pq.ParquetWriter.write_table, []

    def failing(self, table):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        real(self, table)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", failing)
    with pytest.raises(KeyboardInterrupt):
        write_ranking(tmp_path / "r.parquet", positions.flip(1), scores)
    assert os.listdir(tmp_path) == ["r.parquet"]
    assert torch.equal(read_ranking(tmp_path / "r.parquet")[0], positions)


def test_what_is_not_read(tmp_path):
    path = tmp_path / "r.parquet"
    assert "ranking: no such file" in refused(read_ranking, path)
    write_ranking(path, *lists(), QUERY_IDS, ITEM_IDS)
    assert "the column query holds ids; give the query_ids" in refused(read_ranking, path, None, ITEM_IDS)
    assert "4 entries of the column query are not among the query_ids" in refused(
        read_ranking, path, QUERY_IDS[:4], ITEM_IDS
    )
    assert "has 20 rows for 6 queries; expected the ranks 1 to 4 once for each" in refused(
        read_ranking, path, [*QUERY_IDS, "q5"], ITEM_IDS
    )
    write_ranking(path, *lists())
    assert "the column item holds row numbers; omit item_ids" in refused(read_ranking, path, None, ITEM_IDS)
    table = pq.read_table(path)
    for rows in ([*range(19)], [*range(19), 18], [*range(20), 19], [*range(4), *range(8, 20)]):
        pq.write_table(table.take(rows), path)
        assert f"has {len(rows)} rows for 5 queries; expected the ranks 1 to 4 once" in refused(read_ranking, path)
    moved = table.to_pydict()
    moved["query"][-1], moved["rank"][-1] = 0, 0
    pq.write_table(pa.table(moved), path)
    assert "has 20 rows for 5 queries; expected the ranks 1 to 4 once" in refused(read_ranking, path)
    pq.write_table(table.drop_columns("rank"), path)
    assert "has the columns query, item, score; expected a ranking: query, rank, item, score" in refused(
        read_ranking, path
    )
    pq.write_table(table.slice(0, 0), path)
    assert "is a ranking without rows" in refused(read_ranking, path)
    write_ranking(path, *lists())
    path.write_bytes(path.read_bytes()[:-20])
    assert "r.parquet cannot be read as .parquet (" in refused(read_ranking, path)
