"""`vsehub export` through the command line: a checkpoint's encoders, and items for programs that show embeddings."""

import hashlib
import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import vsehub
from vsehub.data.text.tokens import TokenTable

ROOT = Path(__file__).parents[2]
QUERIES, ITEMS, DIM, K = 60, 20, 6, 4


def onnx_runtime():
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason=f"format=onnx needs {package}: vsehub[export]")
    return pytest.importorskip("onnxruntime", reason="format=onnx needs onnxruntime: vsehub[export]")


@pytest.mark.long
def test_a_whole_split_is_ranked_as_by_the_checkpoint(trained, run_here, tmp_path):
    runtime = onnx_runtime()
    best = trained / "checkpoints" / "best.safetensors"
    said = run_here("export", f"checkpoint={best}", "format=onnx", "out=out")
    assert "similarity: Cosine" in said
    told = json.loads((tmp_path / "out" / "export.json").read_text())
    assert told["checkpoint"] == {"file": best.name, "sha256": hashlib.sha256(best.read_bytes()).hexdigest()}
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == sorted([*told["files"], "export.json"])

    model = vsehub.load(best, device="cpu")
    split = model.split("test")
    table = TokenTable.build(model.vocabulary, split.captions, model.max_words)
    captions = [one.numpy() for one in table.batch(np.arange(len(table)))]
    found = []
    for side, inputs in (("image", [np.array(split.images[:])]), ("text", captions)):  # without code of vsehub
        session = runtime.InferenceSession(tmp_path / "out" / told[side]["file"])
        found += session.run(None, dict(zip(told[side]["inputs"], inputs, strict=True)))
    wanted = [model.encode_images(split.images).numpy(), model.encode_texts(split.captions).numpy()]
    units = []
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
        units.append([one / np.linalg.norm(one, axis=1, keepdims=True) for one in (got, want)])
    ours, theirs = (units[0][way] @ units[1][way].T for way in (0, 1))
    for ranked in (ours, ours.T):
        scores = theirs if ranked is ours else theirs.T
        order = (-ranked).argsort(axis=1, kind="stable")
        inverted = -np.diff(np.take_along_axis(scores, order, axis=1), axis=1)
        assert inverted.min() > -1e-5  # other positions only where the checkpoint's scores are tied
    assert "overwrite=true" in run_here("export", f"checkpoint={best}", "format=onnx", "out=out", status=2)
    assert "format=onnx" in run_here("export", f"checkpoint={best}", "out=new", status=2)


@pytest.fixture
def given(tmp_path):
    """Items of which two are copies, queries drawn to one of them, and truth."""
    generator = np.random.default_rng(0)
    items = generator.normal(size=(ITEMS, DIM))
    items[7] = items[3]
    wanted = generator.integers(0, ITEMS, QUERIES)
    queries = items[wanted] + 0.8 * generator.normal(size=(QUERIES, DIM)) + items[5]
    for name, rows in (("items", items), ("queries", queries)):
        np.save(tmp_path / f"{name}.npy", (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))
    (tmp_path / "ids.txt").write_text("".join(f"item {row}\n" for row in range(ITEMS)))
    (tmp_path / "labels.txt").write_text("".join(f"thing {row}\n" for row in range(ITEMS)))
    pairs = [f"{query},item {item}\n" for query, item in enumerate(wanted) if query % 5]
    (tmp_path / "pairs.csv").write_text("query,item\n" + "".join(pairs))
    return wanted


VECTORS = ("items=items.npy", "queries=queries.npy", "item_ids=ids.txt", f"k={K}")


def expected(folder, wanted, corrected):
    """N_k, hubs and displaced counts by loops, under CSLS (k = 10, the queries themselves as reference) or plain."""
    items, queries = (np.load(folder / f"{name}.npy").astype(np.float64) for name in ("items", "queries"))
    scores = queries @ items.T
    if corrected:
        scores = 2 * scores - np.sort(scores, axis=0)[-10:].mean(axis=0)
    counts, displaced = np.zeros((2, ITEMS), int)
    for query, row in enumerate(scores):
        answered = False
        for item in sorted(range(ITEMS), key=lambda one: (-row[one], one))[:K]:
            counts[item] += 1
            answered |= item == wanted[query]
            displaced[item] += not answered and query % 5 != 0
    return counts, counts >= 2 * K * QUERIES / ITEMS, displaced


def check_columns(folder, wanted, columns):
    for ending in ("", "_corrected"):
        values = expected(folder, wanted, bool(ending))
        for name, want in zip(("n_k", "hub", "displaced"), values, strict=True):
            assert columns[f"{name}{ending}"] == want.tolist(), f"{name}{ending}"
    assert any(columns["hub"])
    assert columns["n_k"] != columns["n_k_corrected"]


def test_items_for_embedding_atlas(given, run_here, tmp_path):
    said = run_here("export", *VECTORS, "truth=pairs.csv", "item_labels=labels.txt", "format=embedding_atlas")
    table = pq.read_table(tmp_path / "export" / "items.parquet")
    columns = table.to_pydict()
    check_columns(tmp_path, given, columns)
    assert columns["id"] == [f"item {row}" for row in range(ITEMS)]
    assert columns["label"] == [f"thing {row}" for row in range(ITEMS)]
    items = np.load(tmp_path / "items.npy")
    np.testing.assert_array_equal(np.array(columns["vector"], np.float32), items)
    cosines = items.astype(np.float64) @ items.T
    for row, near in enumerate(columns["neighbors"]):
        rounded = cosines[row].round(6)
        others = sorted((one for one in range(ITEMS) if one != row), key=lambda one: (-rounded[one], one))
        assert near["ids"] == others[:K]
        np.testing.assert_allclose(near["distances"], 1 - cosines[row, others[:K]], atol=1e-6)
        assert min(near["distances"]) >= 0
    line = "embedding-atlas export/items.parquet --vector vector --neighbors neighbors --text label"
    assert f"open it: {line}\n" in said
    record = json.loads((tmp_path / "export" / "result.json").read_text())
    assert (record["kind"], record["k"], record["reference"]["kind"]) == ("export", K, "transductive")


def test_copies_do_not_list_themselves(run_here, tmp_path):
    """More copies than a list is long: none is its own neighbour; and a single item has none."""
    rows = np.repeat(np.eye(3, dtype=np.float32), [5, 1, 1], axis=0)
    np.save(tmp_path / "items.npy", rows)
    np.save(tmp_path / "queries.npy", np.eye(3, dtype=np.float32))
    np.save(tmp_path / "one.npy", rows[:1])
    plain = ("queries=queries.npy", "format=embedding_atlas", "criterion=nns")
    run_here("export", "items=items.npy", *plain, "k=2", "out=copies")
    columns = pq.read_table(tmp_path / "copies" / "items.parquet").to_pydict()
    assert set(columns) == {"id", "n_k", "hub", "vector", "neighbors"}
    assert all(row not in near["ids"] and len(set(near["ids"])) == 2 for row, near in enumerate(columns["neighbors"]))
    run_here("export", "items=one.npy", *plain, "k=1", "out=single")
    (near,) = pq.read_table(tmp_path / "single" / "items.parquet").to_pydict()["neighbors"]
    assert near == {"ids": [], "distances": []}


def lines_of(page):
    text = (ROOT / page).read_text()
    text = "\n".join(text.split("```")[1::2]) if page.endswith(".md") else text
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.strip().startswith("vsehub export ")]


@pytest.mark.parametrize(
    ("page", "count"),
    [
        *(pytest.param(one, 2, marks=pytest.mark.long) for one in ("docs/export.md", "conf/export.yaml")),
        ("README.md", 2),
    ],
)
def test_the_lines_of_the_pages(page, count, given, trained, run_here, tmp_path):
    (tmp_path / "items.npy").rename(tmp_path / "images.npy")
    (tmp_path / "queries.npy").rename(tmp_path / "captions.npy")
    (tmp_path / "ids.txt").rename(tmp_path / "image_ids.txt")
    np.save(tmp_path / "train_captions.npy", np.load(tmp_path / "captions.npy")[:, ::-1])
    (tmp_path / "pairs.csv").write_text("query,item\n" + "".join(f"{row},{row % ITEMS}\n" for row in range(QUERIES)))
    (tmp_path / "RUN").symlink_to(trained)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "FOLDER").symlink_to(trained)
    lines = lines_of(page)
    assert len(lines) == count
    for command, *settings in lines:
        if "format=onnx" in settings and _lacks_onnx():
            continue
        run_here(command, *settings)


def _lacks_onnx():
    try:
        onnx_runtime()
    except pytest.skip.Exception:
        return True
    return False
