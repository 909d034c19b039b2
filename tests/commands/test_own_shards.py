"""`vsehub rerank` and `vsehub diagnose` on what people have on disk: shards, clip-retrieval's layout, csv, URIs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rankings import read_ranking


def unit(array):
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def vectors(tmp_path):
    """The same queries and items as .npy and as shards; captions as their ids in the shards of clip-retrieval."""
    generator = np.random.default_rng(0)
    items = unit(generator.normal(size=(90, 8)) + 0.4)
    queries = unit(items[np.arange(120) % 90] + 0.3 * generator.normal(size=(120, 8)))
    np.save(tmp_path / "q.npy", queries)
    np.save(tmp_path / "m.npy", items)
    (tmp_path / "truth.csv").write_text("query,item\n" + "".join(f"{row},{row % 90}\n" for row in range(120)))
    for side, array in (("queries", queries), ("items", items)):
        (tmp_path / side).mkdir()
        for number, part in enumerate(np.array_split(array, 12)):
            pq.write_table(pa.table({"v": list(part)}), tmp_path / side / f"part_{number}.parquet")
    return tmp_path


def record(folder):
    return json.loads((folder / "result.json").read_text())


def test_shards_rank_as_one_file_does(vectors, run_here):
    run_here("rerank", "queries=q.npy", "items=m.npy", "truth=truth.csv", "out=one")
    np.savetxt(vectors / "m.csv", np.load(vectors / "m.npy"), delimiter=",", fmt="%.9g")
    for number, (queries, items) in enumerate(
        (("queries", "items"), (f"file://{vectors}/queries", "m.csv"), ("queries::v", f"file://{vectors}/m.npy"))
    ):
        run_here("rerank", f"queries={queries}", f"items={items}", "truth=truth.csv", f"out=o{number}")
        one, other = (read_ranking(vectors / name / "ranking.parquet") for name in ("one", f"o{number}"))
        assert all(map(np.array_equal, one, other))
        assert record(vectors / f"o{number}")["rankings"] == record(vectors / "one")["rankings"]


def test_bytes_need_normalize(vectors, run_here):
    np.save(vectors / "q8.npy", np.round(127 * np.load(vectors / "q.npy")).astype(np.int8))
    assert "normalize=true" in run_here("diagnose", "queries=q8.npy", "items=m.npy", "criteria=csls", status=2)
    run_here("diagnose", "queries=q8.npy", "items=m.npy", "criteria=csls", "normalize=true", "truth=truth.csv")


def test_clip_retrieval(vectors, run_here):
    rng = np.random.default_rng(1)
    for name in ("img_emb", "text_emb", "metadata"):
        (vectors / "laion" / name).mkdir(parents=True)
    ids = [f"{row:04d}" for row in range(90)]
    for number, rows in enumerate(np.array_split(np.arange(90), 11)):
        part = np.load(vectors / "m.npy")[rows]
        np.save(vectors / "laion" / "img_emb" / f"img_emb_{number}.npy", part.astype(np.float16))
        text = unit(part + 0.2 * rng.normal(size=part.shape)).astype(np.float16)
        np.save(vectors / "laion" / "text_emb" / f"text_emb_{number}.npy", text)
        columns = {"image_path": [ids[row] for row in rows], "caption": [f"picture {row}" for row in rows]}
        pq.write_table(pa.table(columns), vectors / "laion" / "metadata" / f"metadata_{number}.parquet")
    (vectors / "pairs.csv").write_text("query,item\n" + "".join(f"{one},{one}\n" for one in ids))
    run_here("rerank", "queries=laion::text_emb", "items=laion::img_emb", "truth=pairs.csv")
    found = record(vectors / "rerank")
    assert found["rankings"][0]["truth"]["r10"] > 90
    assert (found["hubs"][0]["label"][:8], found["hubs"][0]["id"] in ids) == ("picture ", True)
    assert "img_emb" in run_here("rerank", "queries=laion", "items=laion::img_emb", "out=b", status=2)
