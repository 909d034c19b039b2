"""What needs nothing heavy is refused before torch is imported, which takes seconds."""

import subprocess
import sys

import pytest

RUN = """
import sys
from vsehub.cli.main import main

sys.argv = ["vsehub", *sys.argv[1:]]
try:
    main()
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train data=table data.table=typo.csv", "data.table: no such file or folder: typo.csv"),
        ("train data=karpathy data.json=a data.images=b", "data.json: no such file"),
        ("train data=webdataset data.shards=absent", "data.shards: no such file"),
        ("train data=huggingface data.folder=absent", "data.folder: no such file"),
        ("train experiment=strong", "teacher is an empty list; give teacher="),
        ("train -m sweep=tune_student", "teacher is an empty list; give teacher="),
        ("train teacher=absent", "teacher: checkpoint: no such file or folder: absent"),
        ("train -m loss=sum,max teacher=[absent]", "teacher: checkpoint: no such file or folder: absent"),
        ("train experiment=cca teacher=a", "solver and teacher are both given"),
        ("train data=precomp data.root=absent", "data.root: no such file"),
        ("train data=precomp", "data.root is not set"),
        ("train seed=1.5", "seed is 1.5; expected a whole number"),
        ("train final_split=tset", "final_split is 'tset'"),
        ("train loss=hall", "loss=hall is not a choice"),
        ("evaluate checkpoint=absent", "checkpoint: no such file"),
        ("evaluate checkpoint=x.npy", "checkpoint: no such file"),
        ("search checkpoint=absent dog", "checkpoint: no such file"),
        ("report absent", "run folder: no such file"),
        ("extract data=karpathy data.json=a data.images=b out=o", "data.json: no such file"),
        ("encode checkpoint=x images=a.npy out=o", "images: no such file"),
        ("rerank queries=a.npy items=b.npy", "queries: no such file"),
        ("diagnose queries=a.npy items=b.npy", "queries: no such file"),
        ("gate index=milvus index_uri=x.db items=a.npy", "items: no such file"),
        ("calibrate queries=a.npy items=b.npy truth=c.csv", "queries: no such file"),
        ("add index=milvus index_uri=x.db items=a.npy", "items: no such file"),
    ],
)
def test_refused_without_torch(arguments, message, tmp_path, environment):
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *arguments.split()], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 2, ended.stderr
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(("logger", "package"), [("wandb", "wandb"), ("tensorboard", "tensorboard")])
def test_a_logger_that_is_not_installed(logger, package, tmp_path, environment):
    hidden = f"import importlib.util as u; f = u.find_spec; g = lambda n, *r: None if n == {package!r} else f(n, *r)\n"
    hidden += "u.find_spec = g"
    ended = subprocess.run(
        [sys.executable, "-c", hidden + RUN, "train", f"logger={logger}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert f"logger={package} needs {package}, not wholly installed here: pip install" in ended.stderr
    assert f"'vsehub[{package}]'" in ended.stderr
    assert ended.stdout.splitlines()[-1] == "False"
    assert not list(tmp_path.rglob("run.json"))
