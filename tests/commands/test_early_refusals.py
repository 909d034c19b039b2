"""What needs nothing heavy is refused before torch is imported, which takes seconds."""

import json
import subprocess
import sys

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
    ("train experiment=strong", "teacher is an empty list; give teacher="),
    ("train teacher=absent", "checkpoint: no such file or folder: absent"),
    ("train experiment=cca bank=none loss.gamma=3", "without gradient steps, which loss.gamma=3 would change"),
    ("train seed=1.5", "seed is 1.5; expected a whole number"),
    ("train +trainer.callbacks=[]", "trainer.callbacks has no effect"),
    ("train logger=[csv,tensorboard]", "+logger@logger.second=tensorboard"),
    ("train -m loss.gamma=1,2 hydra.run.dir=there", "hydra.sweep.dir=FOLDER"),
    ("train loss.gama=3", "loss.gama (did you mean loss.gamma?)"),
    ("evaluate checkpoint=absent", "checkpoint: no such file"),
    ("evaluate model=torchvision:absent member_weights=val", "member_weights is for an ensemble"),
    ("report absent", "run folder: no such file"),
    ("extract data=karpathy data.json=a data.images=b out=o", "data.json: no such file"),
    ("encode checkpoint=absent images=a.npy out=o", "checkpoint: no such file"),
    ("rerank queries=a.npy items=b.npy", "queries: no such file"),
]


def test_refused_without_torch(tmp_path, environment):
    """Each command in a fork of one process."""
    command = [sys.executable, "-c", RUN, json.dumps([words for words, _ in REFUSED])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    for (words, message), line in zip(REFUSED, done.stdout.splitlines(), strict=True):
        status, said, has_torch = json.loads(line)
        assert (status, has_torch) == (2, False), (words, said)
        assert message in said
        assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
