"""What needs nothing heavy is refused before torch is imported, which takes seconds."""

import json
import resource
import subprocess
import sys

import pytest

CPU = 3  # seconds; a second on a free machine
RUN = """
import io, json, os, sys
from vsehub.cli import app  # what each command imports
from vsehub.cli.main import main

def refused(words, pipe):
    said, status = io.StringIO(), 0
    sys.argv, sys.stderr, sys.stdout = ["vsehub", *words], said, io.StringIO()
    try:
        main()
    except SystemExit as end:
        status = end.code
    os.write(pipe, json.dumps([status, said.getvalue(), "torch" in sys.modules]).encode())

for words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            refused(words.split(), writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        print(told.read())
"""

REFUSED = [
    ("train data=table data.table=typo.csv", "data.table: no such file or folder: typo.csv"),
    ("train data=karpathy data.json=a data.images=b", "data.json: no such file"),
    ("train data=webdataset data.shards=absent", "data.shards: no such file"),
    ("train data=huggingface data.folder=absent", "data.folder: no such file"),
    ("train experiment=strong", "teacher is an empty list; give teacher="),
    ("train teacher=absent", "checkpoint: no such file or folder: absent"),
    ("train experiment=cca teacher=a", "solver and teacher are both given"),
    ("train data=precomp data.root=absent", "data.root: no such file"),
    ("train data=precomp", "data.root is not set"),
    ("train seed=1.5", "seed is 1.5; expected a whole number"),
    ("train final_split=tset", "final_split is 'tset'"),
    ("train loss=hall", "loss/hall"),
    ("train loss.gama=3", "loss.gama"),
    ("evaluate checkpoint=absent", "checkpoint: no such file"),
    ("evaluate checkpoint=x.npy", "checkpoint: no such file"),
    ("search checkpoint=absent dog", "checkpoint: no such file"),
    ("report absent", "run folder: no such file"),
    ("extract data=karpathy data.json=a data.images=b out=o", "data.json: no such file"),
    ("encode checkpoint=absent images=a.npy out=o", "checkpoint: no such file"),
    ("rerank queries=a.npy items=b.npy", "queries: no such file"),
    ("diagnose queries=a.npy items=b.npy", "queries: no such file"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory, environment):
    """For each command: its status, what it says, and whether torch was imported, each in a fork of one process."""
    folder = tmp_path_factory.mktemp("refused")
    asked = json.dumps([words for words, _ in REFUSED])
    done = subprocess.run(
        [sys.executable, "-c", RUN, asked], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert list(folder.iterdir()) == []
    return dict(zip((words for words, _ in REFUSED), map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_refused_without_torch(words, message, told):
    status, said, has_torch = told[words]
    assert (status, has_torch) == (2, False), said
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("words", ["train loss=hall", "train loss.gama=3", "rerank --help"])
def test_answers_take_little_time(words, tmp_path, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "vsehub", *words.split()]
    status = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert status == (0 if "--help" in words else 2)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU
