"""What works with `pip install 'vsehub[cpu]'` alone, and what the other commands say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from own_vectors import write_vectors

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


@pytest.fixture
def run(tmp_path, environment):
    """A function that runs commands in one process; the status and the output of each."""

    def called(*commands):
        words = [sys.executable, "-c", SCRIPT, TESTS, TESTS.parent, json.dumps(commands)]
        ended = subprocess.run(list(map(str, words)), cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return called


def test_what_works_and_what_needs_more(run, tmp_path):
    write_vectors(tmp_path)
    sides = ("queries=q.npy", "items=m.npy", "truth=rows.csv")
    *worked, trained, swept, reported, extracted = run(
        ("diagnose", *sides, "out=diagnose"),
        ("rerank", *sides, "criterion=auto", "criterion.indexable=true", "out=rerank"),
        ("index", "rerank"),
        ("train",),
        ("train", "-m", "loss=sum,max"),
        ("report", "runs"),
        ("extract", "data=scenes", "image_encoder=resnet152", "out=features"),
    )
    assert [status for status, _ in worked] == [0, 0, 0], worked
    assert (tmp_path / "rerank" / "index.faiss").is_file()
    packages = ("pytorch_lightning", "pytorch_lightning", "pandas", "torchvision")
    for package, (status, said) in zip(packages, (trained, swept, reported, extracted), strict=True):
        assert (status, package in said, "'vsehub[train]'" in said) == (2, True, True), said
