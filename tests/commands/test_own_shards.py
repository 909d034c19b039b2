"""`vsehub rerank` and `vsehub diagnose` on what people have on disk: shards, clip-retrieval's layout, csv, URIs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_vectors import ITEMS, write_vectors
from rankings import read_ranking


@pytest.fixture
def vectors(tmp_path, undrawn):
    """The same queries and items as .npy and as shards."""
    write_vectors(tmp_path)
    for side in ("q", "m"):
        (tmp_path / side).mkdir()
        for number, part in enumerate(np.array_split(np.load(tmp_path / f"{side}.npy"), 12)):
            pq.write_table(pa.table({"v": list(part)}), tmp_path / side / f"part_{number:02d}.parquet")
    return tmp_path


def record(folder):
    return json.loads((folder / "result.json").read_text())


def test_shards_rank_as_one_file_does(vectors, run_here):
    run_here("rerank", "queries=q.npy", "items=m.npy", "truth=rows.csv", "out=one")
    np.savetxt(vectors / "m.csv", np.load(vectors / "m.npy"), delimiter=",", fmt="%.9g")
    for number, (queries, items) in enumerate(
        (("q", "m"), (f"file://{vectors}/q", "m.csv"), ("q::v", f"file://{vectors}/m.npy"))
    ):
        run_here("rerank", f"queries={queries}", f"items={items}", "truth=rows.csv", f"out=o{number}")
        one, other = (read_ranking(vectors / name / "ranking.parquet") for name in ("one", f"o{number}"))
        assert all(map(np.array_equal, one, other))
        assert record(vectors / f"o{number}")["rankings"] == record(vectors / "one")["rankings"]


def test_bytes_need_normalize(vectors, run_here):
    np.save(vectors / "q8.npy", np.round(127 * np.load(vectors / "q.npy")).astype(np.int8))
    assert "normalize=true" in run_here("diagnose", "queries=q8.npy", "items=m.npy", "criteria=csls", status=2)
    run_here("diagnose", "queries=q8.npy", "items=m.npy", "criteria=csls", "normalize=true", "truth=rows.csv")


def test_clip_retrieval(vectors, run_here):
    rng = np.random.default_rng(1)
    for name in ("img_emb", "text_emb", "metadata"):
        (vectors / "laion" / name).mkdir(parents=True)
    ids = [f"{row:04d}" for row in range(ITEMS)]
    for number, rows in enumerate(np.array_split(np.arange(ITEMS), 11)):
        part = np.load(vectors / "m.npy")[rows]
        text = part + 0.1 * rng.normal(size=part.shape)
        text /= np.linalg.norm(text, axis=1, keepdims=True)
        for name, array in (("img_emb", part), ("text_emb", text)):
            np.save(vectors / "laion" / name / f"{name}_{number}.npy", array.astype(np.float16))
        columns = {"image_path": [ids[row] for row in rows], "caption": [f"picture {row}" for row in rows]}
        pq.write_table(pa.table(columns), vectors / "laion" / "metadata" / f"metadata_{number}.parquet")
    (vectors / "pairs.csv").write_text("query,item\n" + "".join(f"{one},{one}\n" for one in ids))
    run_here("rerank", "queries=laion::text_emb", "items=laion::img_emb", "truth=pairs.csv")
    found = record(vectors / "rerank")
    assert found["rankings"][0]["truth"]["r10"] > 90
    assert (found["hubs"][0]["label"][:8], found["hubs"][0]["id"] in ids) == ("picture ", True)
    assert "img_emb" in run_here("rerank", "queries=laion", "items=laion::img_emb", "out=b", status=2)
