"""The runner of studies: what a declaration trains, evaluates and collects, and what it refuses."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from experiments import __main__ as commands
from experiments.study import Study, Trainings

ROOT = Path(__file__).parents[2]


def run(monkeypatch, capsys, study, *words):
    """What a command of a study prints, as `python -m experiments` runs it."""
    monkeypatch.setattr(commands, "import_module", lambda name: type("module", (), {"STUDY": study}))
    commands.main(["bank", *map(str, words)])  # under the name of a study that there is
    return capsys.readouterr().out


def finished(folder, seed, rsum, **more):
    (folder / "evaluations").mkdir(parents=True)
    record = {"status": "finished", "seed": seed, "data": {"test": {"images": 500}}, "best": {"epoch": 2}}
    record["best"]["val/rsum"] = rsum
    record["metrics"] = {"test/rsum": rsum, "test/hubness/hs_sum": 1.0}
    (folder / "run.json").write_text(json.dumps(record | more))


@pytest.fixture
def study(tmp_path):
    """Two cases, one of them with fewer seeds, and an evaluation."""
    (tmp_path / "toy").mkdir()
    cases = {"plain, small": ["loss=sum"], "vectors/hal+mb": ["loss=hal", "bank=memory", "data.root={data}/global"]}
    own = Trainings(
        cases,
        own_seeds={"vectors/hal+mb": (0,)},
        evaluations=(["criterion=csls", "reference=train"],),
        scenes=Trainings({"plain, small": ["loss=sum"]}, ("experiment=demo",), (0,)),
    )
    return Study(str(tmp_path / "toy" / "study.py"), {"results": own, "more": Trainings({"one": []}, seeds=(5,))})


def test_trains_seed_by_seed_what_is_not_finished(study, monkeypatch, capsys, tmp_path):
    runs = tmp_path / "out" / "runs"
    finished(runs / "plain+small-1", 1, 300.0)
    finished(runs / "plain+small-0", 0, 300.0, status="running")
    said = run(monkeypatch, capsys, study, "train", tmp_path, "--out", tmp_path / "out", "--dry-run")
    assert said.startswith("4 runs, 1 of them finished before")
    told = [shlex.split(line.partition("] ")[2])[2:] for line in said.splitlines()[1:]]
    assert told[0] == [f"resume={runs / 'plain+small-0'}"]
    assert told[1] == [
        "data=precomp", f"data.root={tmp_path}", "data.name=flickr8k", "study=toy", "loss=hal", "bank=memory",
        f"data.root={tmp_path}/global", "seed=0", f"hydra.run.dir={runs / 'vectors' / 'hal+mb-0'}",
    ]  # fmt: skip
    assert f"hydra.run.dir={runs / 'plain+small-2'}" in told[2]
    assert len(told) == 3


def test_evaluates_and_collects_finished_runs(study, monkeypatch, capsys, tmp_path):
    runs = tmp_path / "out" / "runs"
    finished(runs / "plain+small-0", 0, 300.0)
    finished(runs / "plain+small-10", 10, 301.0)
    finished(runs / "vectors" / "hal+mb-0", 0, 310.0)
    finished(runs / "plain+small-1", 1, 302.0, status="running")
    place = ("--out", tmp_path / "out")
    said = run(monkeypatch, capsys, study, "evaluate", *place, "--dry-run")
    assert said.count("criterion=csls reference=train") == 2
    record = {"criterion": "csls", "reference": "inductive", "tuned": None}
    (runs / "plain+small-0" / "evaluations" / "test-single-csls.json").write_text(json.dumps(record))
    said = run(monkeypatch, capsys, study, "evaluate", *place, "--dry-run")
    assert said.count("vsehub evaluate") == 1
    assert "hal+mb-0" in said
    run(monkeypatch, capsys, study, "collect", *place)
    finished(runs / "vectors" / "hal+mb-3", 3, 320.0)
    (runs / "plain+small-0" / "run.json").unlink()
    run(monkeypatch, capsys, study, "collect", *place)
    frame = pd.read_csv(tmp_path / "toy" / "results.csv")
    assert frame[["case", "seed", "rsum"]].to_numpy().tolist() == [
        ["plain, small", 0, 300.0], ["plain, small", 10, 301.0], ["vectors/hal+mb", 0, 310.0],
        ["vectors/hal+mb", 3, 320.0],
    ]  # fmt: skip
