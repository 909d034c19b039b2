"""What needs nothing heavy is answered before torch is imported, which takes seconds."""

import json
import subprocess
import sys

RUN = """
import contextlib, io, json, sys
from vsehub.cli.main import main

for words in json.loads(sys.argv[1]):
    printed, status = io.StringIO(), 0
    sys.argv = ["vsehub", *words.split()]
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as end:
            status = end.code
    long = {"torch", "pandas", "pytorch_lightning", "matplotlib", "faiss", "hydra", "omegaconf", "numpy"}
    print(json.dumps([status, printed.getvalue(), sorted(long & set(sys.modules))]))
"""

HELP = [
    ("--help", 0, "usage: vsehub COMMAND"),
    ("tran", 2, "train?"),
    ("train loss=infonce --help", 0, "  loss=hal, infonce"),
]
REFUSED = [
    ("train data=table data.table=typo.csv", "data.table: no such file or folder: typo.csv"),
    ("train experiment=strong", "teacher is an empty list; give teacher="),
    ("train teacher=absent", "checkpoint: no such file or folder: absent"),
    ("train seed=1.5", "seed is 1.5; expected a whole number"),
    ("train +trainer.callbacks=[]", "trainer.callbacks is not for runs"),
    ("train logger=[csv,tensorboard]", "+logger@logger.second=tensorboard"),
    ("train -m loss.gamma=1,2 hydra.run.dir=there", "hydra.sweep.dir=FOLDER"),
    ("train loss.gama=3", "loss.gama (did you mean loss.gamma?)"),
    ("evaluate checkpoint=absent", "checkpoint: no such file"),
    ("evaluate model=torchvision:absent member_weights=[2,1]", "member_weights is for an ensemble"),
    ("report absent", "run folder: no such file"),
    ("extract data=karpathy data.json=a data.images=b out=o", "data.json: no such file"),
    ("encode checkpoint=absent images=a.npy out=o", "checkpoint: no such file"),
    ("rerank queries=a.npy items=b.npy", "queries: no such file"),
]


def test_help_and_refusals_take_no_long_imports(tmp_path, environment):
    """All in one process, one after the other."""
    cases = HELP + [(words, 2, message) for words, message in REFUSED]
    command = [sys.executable, "-c", RUN, json.dumps([words for words, _, _ in cases])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    for (words, expected, message), line in zip(cases, done.stdout.splitlines(), strict=True):
        status, printed, imported = json.loads(line)
        heavy = {"torch", "pytorch_lightning"} & set(imported)
        assert (status, heavy, message in printed) == (expected, set(), True), (words, printed)
        assert len(printed.splitlines()) == 1 or expected == 0
        light = set() if words == "--help" else {"hydra", "numpy", "omegaconf"}
        assert {*imported} <= light or (words, expected, message) not in HELP, words
    assert list(tmp_path.iterdir()) == []
