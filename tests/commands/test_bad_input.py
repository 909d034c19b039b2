"""What bad input is answered with: each command's whole path in this process, and single parts where those suffice."""

import json
import re
import shutil
from functools import partial

import pytest
import torch
from checkpoint_files import changed
from safetensors.torch import save_file

import vsehub
from vsehub.checks import InputError
from vsehub.cli.run_folder import lock_run, require_run_only
from vsehub.io.files import LOCK, lock_folder
from vsehub.training.checkpoint import load_state, require_same_folder


@pytest.fixture
def refused(run_here):
    """A function that runs a command, which must fail, and returns what it says."""
    return partial(run_here, status=2)


TINY = ("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("train lss.gamma=3", "'lss' .did you mean loss"),
        ("train lr=1", "'lr'"),
        ("train -m lr=1,2", "'lr'"),
        ("train -m loss=sum,max --cfg job", "--multirun, --cfg"),
        ("train bank=none,memory", "bank=none,memory"),
        ("train data.root='a", "data.root="),
        ("evaluate loss=hal", "'loss'"),
        ("rerank criterion=cslss", "criterion=cslss.*did you mean csls.*sinkhorn$"),
        ("rerank queries=a(1).npy", r"queries=a\(1\).npy"),
    ],
)
def test_what_hydra_refuses_is_one_line(refused, arguments, named):
    said = refused(*arguments.split())
    assert re.search(named, said)
    assert said.startswith(f"vsehub {arguments.split()[0]}: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["loader.batch_size=2.5"], "loader.batch_size is 2.5"),
        (["loss.statistics=batch", "bank=memory"], "HAL .* global statistics"),
        (["loss=max", "bank=memory"], "MaxMargin .* bank=none"),
        (["bank=memory", "bank.k=4", "loss.neighbors_k=5"], "loss.neighbors_k is 5"),
        (["bank=memory", "bank.fraction=0.02"], "a bank of 10 pairs"),
        (["image_encoder=image_features"], "ImageFeatures"),
        (["similarity=order", "criterion=dual_is"], "DualInvertedSoftmax"),
        (["trainer.max_epochs=null"], "trainer.max_epochs is None"),
        (["+trainer.limit_train_batches=0"], "trainer.limit_train_batches"),
        (["+trainer.speed=3"], "trainer: .*'speed'"),
        (["protocol=c1"], r"protocol c1 .*1000"),
        (["optimizer.fused=off"], "fused is .*true"),
    ],
)
def test_settings_that_do_not_fit(refused, tmp_path, overrides, named):
    assert re.search(named, refused("train", *TINY, "hydra.run.dir=run", *overrides))
    assert not (tmp_path / "run").exists(), "a run that has not begun leaves no folder"


def test_a_run_continues_as_it_was_recorded(refused, trained, tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in ("absent", "mine"):
        assert folder in refused("train", f"resume={folder}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"], "what holds no run is left as it is"
    moved = shutil.copytree(trained, tmp_path / "moved")
    record = json.loads((moved / "run.json").read_text()) | {"status": "stopped"}
    (moved / "run.json").write_text(json.dumps(record))
    assert f"{trained}" in refused("train", f"resume={moved}"), "it goes on only where it began"
    record["config"] |= {"run_folder": str(moved)}
    (moved / "run.json").write_text(json.dumps(record))
    assert f"{trained}" in refused("train", f"resume={moved}"), "last.ckpt is another run's"
    record["config"]["data"] |= {"pictures": {"augment": None}}
    (moved / "run.json").write_text(json.dumps(record))
    for change in ("loss=max", "data.seed=4", "+label=max", "criterion_name=csls", "data.pictures.augment=crop"):
        assert f"{change.lstrip('+')} makes the run's record false" in refused("train", f"resume={moved}", change)


def test_a_finished_run_cannot_change(refused, run_here, trained):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    assert "nothing to do" in run_here("train", f"resume={trained}")
    for change in ("seed=5", "trainer.max_epochs=3"):
        assert change in refused("train", f"resume={trained}", change)
    assert "already holds a run" in refused("train", f"hydra.run.dir={trained}")
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}


def test_a_folder_of_somebody_else_or_in_use(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "notes.txt" in refused("train", "hydra.run.dir=mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    with lock_folder(tmp_path / "run", "training"):
        assert "another process" in refused("train", *TINY, "hydra.run.dir=run")


def test_a_start_that_was_killed_is_no_obstacle(tmp_path):
    """Killed after the noise was drawn and the loggers had begun; a folder without a lock is somebody else's."""
    run = tmp_path / "run"
    (run / "csv" / "version_0").mkdir(parents=True)
    for name in ("train.log", ".run.json.1a2b3c4d.part", "noise_index.npy"):
        (run / name).touch()
    with pytest.raises(InputError, match=r"csv, noise_index.npy"):
        require_run_only(run, False)
    (run / LOCK).touch()
    with lock_run(run, False, False):
        assert run.is_dir()
    assert not run.exists()


def test_what_cannot_be_evaluated(refused, trained, tmp_path):
    best = trained / "checkpoints" / "best.safetensors"
    (tmp_path / "short").write_bytes(best.read_bytes()[:-1])
    save_file({"weights": torch.zeros(3)}, tmp_path / "foreign")
    for arguments, named in (
        ([], "checkpoint is not set"),
        ([f"checkpoint={trained}"], "checkpoint: "),
        ([f"checkpoint={trained}/checkpoints/last.ckpt"], "checkpoint: "),
        (["checkpoint=short"], "safetensors"),
        (["checkpoint=foreign"], "vsehub train"),
        ([f"checkpoint={best}", "split=dev"], "split is 'dev'"),
        ([f"checkpoint={best}", "data.rooot=here"], "rooot"),
        ([f"checkpoint={best}", "protocol.fold_images=7"], "protocol single has fold_images"),
        ([f"checkpoint={best}", "tune=maybe"], "tune is .*true"),
    ):
        assert re.search(named, refused("evaluate", *arguments, "out=out")), arguments
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "facts", "named"),
    [
        (lambda description, _: description["vocabulary"].pop(), {}, "do not fit its model"),
        (lambda description, _: description.pop("vocabulary"), {}, "damaged"),
        (lambda description, _: description.update(vocabulary=[1, 2]), {}, "a vocabulary is a list"),
        (lambda description, _: description.update(image_shape=[3, -1]), {}, "damaged"),
        (lambda description, _: description["config"].pop("loader"), {}, "damaged"),
        (
            lambda description, _: description["config"]["image_encoder"].update(width=10**9),
            {},
            "larger than the .* numbers that the file holds",
        ),
        (lambda description, _: description["config"]["image_encoder"].update(widht=3), {}, "'widht'"),
        (lambda _, weights: weights.popitem(), {}, "do not fit its model"),
        (lambda *_: None, {"description": "[" * 100_000}, "damaged"),
        (lambda *_: None, {"version": "1"}, "reads version 2"),
        (lambda *_: None, {"format": "something else"}, "vsehub train"),
    ],
)
def test_tampered_checkpoints(trained, tmp_path, change, facts, named):
    path = changed(trained / "checkpoints" / "best.safetensors", tmp_path / "tampered.safetensors", change, **facts)
    with pytest.raises(InputError, match=named):
        vsehub.load(path)


def test_a_state_of_another_run_is_refused(trained, tmp_path):
    path = trained / "checkpoints" / "last.ckpt"
    state = load_state(path)
    require_same_folder(state, path)
    with pytest.raises(InputError, match="another run"):
        require_same_folder(state, tmp_path / "last.ckpt")
