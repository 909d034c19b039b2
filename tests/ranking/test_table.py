import os

import pyarrow.parquet as pq
import pytest
import torch
from rankings import read_ranking

from vsehub.checks import InputError
from vsehub.ranking import table as ranking
from vsehub.ranking.table import write_ranking

QUERY_IDS, ITEM_IDS = [f"q{row}" for row in range(5)], [f"é {row}" for row in range(9)]


def lists(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    positions = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(5)])
    return positions, torch.rand(5, 4, generator=generator, dtype=torch.float64).sort(descending=True).values.to(dtype)


@pytest.mark.parametrize("group_rows", [1, 8, 1000])
@pytest.mark.parametrize("query_ids", [None, QUERY_IDS])
@pytest.mark.parametrize("item_ids", [None, ITEM_IDS])
def test_a_row_for_each_query_and_rank(tmp_path, monkeypatch, group_rows, query_ids, item_ids):
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
