"""The example of docs/serve.md, followed line by line: its result is the exact corrected ranking."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from test_embedding_lines import unit, write_pairs, written

from vsehub.criteria.choose import named_criterion

ROOT = Path(__file__).parents[2]
IMAGES = 40


def near(generator, vectors, shared):
    """Captions of images, noisy, and all alike in one direction, which makes hubs of images that have more of it."""
    noisy = vectors + 0.12 * generator.normal(size=vectors.shape) + shared
    return (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)


def write_parquet(path, names, vectors):
    pq.write_table(pa.table({"id": names, "vector": list(vectors)}), path)


@pytest.mark.long
def test_the_page_followed_line_by_line(run_here, undrawn, tmp_path):
    pytest.importorskip("milvus_lite")
    from milvus_lite.server_manager import server_manager_instance

    generator = np.random.default_rng(0)
    images, shared = unit(generator, IMAGES), unit(generator, 1)
    answers = generator.permutation(np.arange(240) % IMAGES)
    captions, training = (near(generator, images[rows], shared) for rows in (answers, answers[:60]))
    names = [f"image {row}" for row in range(IMAGES)]
    write_parquet(tmp_path / "captions.parquet", [f"caption {row}" for row in range(240)], captions)
    write_parquet(tmp_path / "images.parquet", names[:30], images[:30])
    write_parquet(tmp_path / "new_images.parquet", names[29:], images[29:])
    pairs = [(f"caption {row}", names[answer]) for row, answer in enumerate(answers) if answer < 30]
    write_pairs(tmp_path / "pairs.csv", pairs)
    (tmp_path / "gone.txt").write_text("image 3\nimage 4\n")
    np.save(tmp_path / "train_captions.npy", training)
    np.save(tmp_path / "queries.npy", captions)
    said = [run_here(*command) for command in written("docs/serve.md")[:4]]
    assert "added 11 items, 1 replaced" in said[2]
    assert "removed 2 of 2 ids; " in said[3]
    chosen = json.loads((tmp_path / "served" / "result.json").read_text())["rankings"][-1]
    assert chosen["criterion"] != "nns"

    ran = {}
    exec((ROOT / "docs" / "serve.md").read_text().partition("```python\n")[2].partition("```")[0], ran)
    ran["client"].close()
    server_manager_instance.release_all()
    remaining = [row for row in range(IMAGES) if row not in (3, 4)]
    sides = map(torch.from_numpy, (captions, images[remaining], training))
    _, positions = named_criterion(chosen["criterion"], chosen["parameters"]).search(*sides, 10)
    assert ran["ids"] == [[names[remaining[item]] for item in row] for row in positions.tolist()]

    uri = ("engine=milvus", "uri=served/index.milvus.db")
    for settings, named in (
        (("items=new_images.parquet",), "engine is None"),
        (("engine=milvus", "items=new_images.parquet"), "uri is not set"),
        (uri, "items=FILE"),
        ((*uri, "items=queries.npy"), "item_ids"),
        ((*uri, "items=absent.npy"), "absent.npy"),
        ((*uri, "collection=other", "remove_ids=gone.txt"), "collection other"),
        (("engine=milvus", "uri=no.db", "remove_ids=gone.txt"), "no.db"),
    ):
        assert named in run_here("add", *settings, status=2), settings
    assert not (tmp_path / "no.db").exists()
