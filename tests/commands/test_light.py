"""What works with `pip install 'vsehub[cpu]'` alone, and what the other commands say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:3]
import light
light.hide()
import contextlib, io, json
from vsehub.cli.main import main

def run(*words):
    said, sys.argv = io.StringIO(), ["vsehub", *words]
    status = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    return [status, said.getvalue()]

print(json.dumps([run(*words) for words in json.loads(sys.argv[3])]))
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & light.Light.names - {"light"}, loaded & light.Light.names
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("light")
    random = np.random.default_rng(0)
    items = random.normal(size=(120, 8))
    for name, rows in {"items": items, "queries": items + 0.3 * random.normal(size=items.shape)}.items():
        np.save(folder / f"{name}.npy", (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))

    def called(*commands):
        words = [sys.executable, "-c", SCRIPT, TESTS, TESTS.parent, json.dumps(commands)]
        ended = subprocess.run(list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    called.folder = folder
    return called


def test_the_commands_on_embeddings(run):
    sides = ("queries=queries.npy", "items=items.npy")
    pairs = "query,item\n" + "".join(f"{row},{row}\n" for row in range(120))
    (run.folder / "truth.csv").write_text(pairs)
    told = run(
        ("diagnose", *sides, "truth=truth.csv", "out=diagnose"),
        ("rerank", *sides, "truth=truth.csv", "criterion=auto", "criterion.indexable=true", "out=rerank"),
        ("index", "rerank"),
    )
    assert [status for status, _ in told] == [0, 0, 0], told
    for name in ("diagnose/index.html", "rerank/index.faiss", "rerank/ranking.parquet"):
        assert (run.folder / name).is_file()


def test_the_commands_that_need_more(run):
    vision = ("extract", "data=scenes", "image_encoder=resnet152", "out=features")
    sweep = ("train", "-m", "loss=sum,max")
    trained, swept, reported, extracted = run(("train",), sweep, ("report", "runs"), vision)
    for status, said in (trained, reported, extracted):
        assert status == 2
        assert len(said.splitlines()) == 1
        assert "'vsehub[train]'" in said
    assert "pytorch_lightning" in trained[1]
    assert swept[0] == 2
    assert swept[1].endswith(trained[1])
    assert "pandas" in reported[1]
    assert "torchvision" in extracted[1]
