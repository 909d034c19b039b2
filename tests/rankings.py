"""Rankings as the commands write them."""

import pyarrow.parquet as pq
import torch


def read_ranking(path, item_ids=None):
    """The positions (Q, K) and scores (Q, K) in ranking.parquet. item_ids: the ids in it, in the order of the rows."""
    table = pq.read_table(path)
    depth = max(table["rank"].to_pylist())
    assert table["rank"].to_pylist() == [*range(1, depth + 1)] * (len(table) // depth)
    items = table["item"].to_pylist()
    if item_ids is not None:
        rows = {name: row for row, name in enumerate(item_ids)}
        items = [rows[name] for name in items]
    scores = torch.from_numpy(table["score"].to_numpy().copy())
    return torch.tensor(items).reshape(-1, depth), scores.reshape(-1, depth)
