"""Rankings and biases as tables that any data tool can open."""

import os

import pyarrow.parquet as pq
import pytest
import torch
from rankings import read_ranking

from vsehub.ranking import table
from vsehub.ranking.table import write_biases, write_ranking

QUERY_IDS, ITEM_IDS = [f"q{row}" for row in range(5)], [f"é {row}" for row in range(9)]


def lists(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    positions = torch.stack([torch.randperm(9, generator=generator)[:4] for _ in range(5)])
    return positions, torch.rand(5, 4, generator=generator, dtype=torch.float64).sort(descending=True).values.to(dtype)


@pytest.mark.parametrize("query_ids", [None, QUERY_IDS])
@pytest.mark.parametrize("item_ids", [None, ITEM_IDS])
def test_a_row_for_each_query_and_rank(tmp_path, monkeypatch, query_ids, item_ids):
    monkeypatch.setattr(table, "ROWS", 8)
    positions, scores = lists()
    write_ranking(tmp_path / "new" / "ranking.parquet", positions, scores, query_ids, item_ids)
    written = pq.read_table(tmp_path / "new" / "ranking.parquet")
    assert written.column_names == ["query", "rank", "item", "score"]
    assert written.to_pylist() == [
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


def test_float64_stays_and_halves_are_float32(tmp_path):
    for dtype, stored in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        positions, scores = lists(dtype)
        write_ranking(tmp_path / "r.parquet", positions, scores)
        again = read_ranking(tmp_path / "r.parquet")
        assert torch.equal(again[0], positions)
        assert torch.equal(again[1], scores.to(stored))


def test_biases(tmp_path):
    bias = torch.tensor([0.1, -0.2, 3.0])
    for terms, ids, wanted in (((bias,), ["a", "b", "c"], bias.double().tolist()), ((), None, [0.0] * 3)):
        write_biases(tmp_path / "b.parquet", terms, 2, 3, ids)
        written = pq.read_table(tmp_path / "b.parquet")
        assert written.to_pydict() == {"id": ids or [0, 1, 2], "bias": wanted}
        assert written.schema.metadata[b"scale"] == b"2.0"
