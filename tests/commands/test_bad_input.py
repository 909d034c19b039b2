"""What bad input is answered with: each command's whole path in this process, and single parts where those suffice."""

import copy
import json
import re
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from checkpoint_files import changed
from safetensors.torch import save_file

import vsehub
from vsehub.checks import InputError
from vsehub.io.files import claimed
from vsehub.training.checkpoint import load_state, require_fitting


@pytest.fixture
def refused(run_here):
    """A function that runs a command, which must fail, and returns what it says."""
    return partial(run_here, status=2)


TINY = ("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("train loss=hall", "loss/hall.*hal infonce"),
        ("train loss.gama=3", "loss.gama"),
        ("train lss.gamma=3", "did you mean loss"),
        ("train lr=1", "'lr'"),
        ("train -m lr=1,2", "'lr'"),
        ("train criterion.k=3", "criterion.k"),
        ("train bank=none,memory", "bank=none,memory"),
        ("train nonsense", "nonsense"),
        ("train data.root='a", "data.root="),
        ("evaluate loss=hal", "'loss'"),
        ("rerank criterion=foo", "criterion/foo.*csls"),
        ("rerank queries=a(1).npy", r"queries=a\(1\).npy"),
    ],
)
def test_what_hydra_refuses_is_one_line(refused, arguments, named):
    said = refused(*arguments.split())
    assert re.search(named, said), said
    assert said.startswith(f"vsehub {arguments.split()[0]}: ")
    assert len(said.splitlines()) == 1


def test_help_lists_settings_and_choices(run_here, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        run_here("train", "loss=infonce", "--help")
    said = capsys.readouterr().out
    assert "vsehub train resume=RUN_FOLDER" in said
    assert "seed: 0 # seed of the initial weights" in said
    assert "  loss=hal, infonce" in said
    assert "run_folder: ${first:${resume},${hydra:runtime.output_dir}}" in said
    assert "app_name" not in said


@pytest.mark.long
def test_booleans_are_true_or_false_everywhere(refused):
    """Every other word with one setting, and one with every setting: one function reads them all."""
    words = ("no", "off", "maybe", "yes", "1", "[true]")
    writing = ("evaluate", "rerank", "diagnose", "report", "extract", "wandb-dashboard")
    settings = ("callbacks.collapse.stop", "optimizer.fused", "text_encoder.bidirectional")
    asked = [("evaluate", "tune", word) for word in words]
    asked += [(command, "overwrite", "off") for command in writing] + [("train", key, "off") for key in settings]
    for command, key, word in asked:
        said = refused(command, f"{key}={word}")
        assert re.search(rf"{key.rpartition('.')[2]} is .*true", said), (command, key, word)


def test_unknown_command(refused):
    assert "unknown command 'trian' (did you mean train?); choose one of train, evaluate, extract, encode" in refused(
        "trian"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loader.batch_size=1"], "batch_size is 1; expected at least 2"),
        (["loss.statistics=batch", "bank=memory"], r"the loss HAL takes no global statistics.*\(statistics: bank\)"),
        (["loss=max", "bank=memory"], "the loss MaxMargin takes no global statistics.* bank=none, or use loss=hal"),
        (["image_encoder=image_features"], r"ImageFeatures .*\(3, 64, 64\)"),
        (["loss.gamma=-1"], "loss.gamma is -1; expected a number above 0"),
        (["trainer.max_epochs=null"], "trainer.max_epochs is None"),
        (["trainer.max_epochs=-1"], "trainer.max_epochs is -1"),
        (["trainer.limit_train_batches=0"], "trainer.limit_train_batches"),
        (["trainer.precision=foo"], "trainer: .*'foo'"),
        (["+trainer.speed=3"], "trainer: .*'speed'"),
        (["optimizer.lr=-1"], "optimizer: .*learning rate: -1"),
        (["loader.batch_size=2.5"], "loader.batch_size is 2.5; expected a whole number"),
        (["bank=memory", "bank.k=4", "loss.neighbors_k=5"], "loss.neighbors_k is 5 but the bank gives 4"),
        (["bank=memory", "bank.fraction=0.02"], "a bank of 10 pairs, .* k is 10. Give the bank"),
        (["final_split=train"], "final_split is 'train'; choose one of 'val', 'test'"),
        (["protocol=c1"], r"protocol c1 needs 1000 images \(1 x 1000\) but the split has 32; use protocol=single"),
        (["data.size=small"], "size is 'small'; choose one of 'tiny', 'default', 'large'"),
    ],
)
def test_settings_that_do_not_fit(refused, tmp_path, overrides, message):
    assert re.search(message, refused("train", *TINY, "hydra.run.dir=run", *overrides))
    assert not (tmp_path / "run").exists(), "a run that has not begun leaves no folder"


def test_data_that_is_not_there(refused, tmp_path):
    assert "data.root is not set; give data.root=VALUE" in refused("train", "data=precomp")
    absent = refused("train", "data=precomp", "data.root=absent")
    assert "root: no such file or folder: absent. Put the files of the VSE++ layout there" in absent


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["similarity=scan_t2i"],
            "compares sets but the image encoder ImageCNN gives vectors; choose encoders of regions",
        ),
        (["text_encoder=text_scan"], "compares vectors but the text encoder TextGRU gives sets; pool them"),
        (["similarity=order", "criterion=dual_is"], "DualInvertedSoftmax takes the similarity of items with items"),
        (["similarity=order", "similarity.shift=0"], "never above 0.* set similarity.shift=1"),
        (["text_encoder=text_features"], "texts are captions, but TextFeatures takes vectors"),
    ],
)
def test_parts_that_cannot_go_together(refused, overrides, message):
    assert re.search(message, refused("train", "data.size=tiny", "embedding_dim=16", *overrides))


def test_splits_of_other_features(refused, tmp_path):
    for prefix, size in (("train", 6), ("dev", 7), ("test", 6)):
        np.save(tmp_path / f"{prefix}_ims.npy", np.ones((4, size), np.float32))
        (tmp_path / f"{prefix}_caps.txt").write_text("a dog runs\n" * 20)
    said = refused("train", "data=precomp", f"data.root={tmp_path}", "embedding_dim=16")
    assert (
        "the images of the split 'val' have 7 features but the model was made for 6; give features of the same" in said
    )


def test_resume(refused, run_here, trained, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "absent"):
        assert "Give the folder of a run that `vsehub train` started" in refused("train", f"resume={folder}")
    assert not (tmp_path / "absent").exists()
    stopped = shutil.copytree(trained, tmp_path / "moved")
    record = json.loads((stopped / "run.json").read_text()) | {"status": "stopped"}
    (stopped / "run.json").write_text(json.dumps(record))
    said = refused("train", f"resume={stopped}")
    assert f"was started in {trained} and can only continue there; move it back" in said
    record["config"] |= {"run_folder": str(stopped)}
    (stopped / "run.json").write_text(json.dumps(record))
    before = {path: path.read_bytes() for path in stopped.rglob("*.*") if path.is_file() and path.name != "train.log"}
    for change, message in (
        ("loss=max", "loss=max makes the run's record false"),
        ("seed=5", "seed=5 makes the run's record false"),
        ("optimizer.lr=0.5", "optimizer.lr=0.5 makes the run's record false"),
        ("embedding_dim=8", "embedding_dim=8 makes the run's record false"),
        ("loader.min_count=2", "loader.min_count=2 makes the run's record false"),
        ("data.seed=4", "data.seed=4 makes the run's record false"),
        ("trainer.max_epochs=many", "trainer.max_epochs is 'many'"),
    ):
        assert message in refused("train", f"resume={stopped}", change), change
    assert before == {path: path.read_bytes() for path in before}


def test_a_finished_run_cannot_change(refused, run_here, trained):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    assert "is finished after 4 epochs; nothing to do" in run_here("train", f"resume={trained}")
    for change in ("seed=5", "trainer.max_epochs=9", "optimizer.lr=1"):
        assert f"its record can no longer change; start a new run for {change}" in refused(
            "train", f"resume={trained}", change
        )
    assert f"hydra.run.dir: {trained} already holds a run; continue it with `vsehub train resume={trained}`" in refused(
        "train", f"hydra.run.dir={trained}"
    )
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}


def test_a_run_takes_no_folder_of_somebody_else(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "holds notes.txt, which does not belong to a run; give another" in refused("train", "hydra.run.dir=mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_two_trainings_in_one_folder(refused, tmp_path):
    lock = claimed(tmp_path / "run", "training")
    try:
        assert "another process is training in this folder" in refused("train", *TINY, "hydra.run.dir=run")
    finally:
        lock.release()


def test_checkpoints_that_are_none(refused, trained, tmp_path):
    best = trained / "checkpoints" / "best.safetensors"
    assert "checkpoint is not set; give checkpoint=" in refused("evaluate")
    assert "no such file or folder: absent. Give the path" in refused("evaluate", "checkpoint=absent")
    for path in (trained, trained / "checkpoints" / "last.ckpt"):
        assert f"checkpoint: {path} is" in refused("evaluate", f"checkpoint={path}")
    assert "split is 'dev'; choose one of" in refused("evaluate", f"checkpoint={best}", "split=dev")
    unknown = refused("evaluate", f"checkpoint={best}", "data.rooot=here", "out=out")
    assert "data: Scenes refuses its settings" in unknown
    for name, keep in (("short", 0.5), ("stump", 0.01), ("empty", 0)):
        whole = best.read_bytes()
        (tmp_path / name).write_bytes(whole[: int(keep * len(whole))])
        assert "cannot be read as safetensors" in refused("evaluate", f"checkpoint={name}", "out=out")
    save_file({"weights": torch.zeros(3)}, tmp_path / "foreign")
    assert "was not written by `vsehub train`" in refused("evaluate", "checkpoint=foreign", "out=out")


def test_false_figures_are_refused(refused, trained, tmp_path):
    best = f"checkpoint={trained / 'checkpoints' / 'best.safetensors'}"
    said = refused("evaluate", best, "protocol.fold_images=7", "out=out")
    assert "protocol single has fold_images" in said
    for folds in ("0", "-1"):
        assert "protocol.folds is" in refused("evaluate", best, f"protocol.folds={folds}", "out=out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tampered(trained, tmp_path):
    """A function that changes description and weights of a copy of the best checkpoint and returns the copy's path."""

    def tamper(change, **told):
        best = trained / "checkpoints" / "best.safetensors"
        return changed(best, tmp_path / "tampered.safetensors", change, **told)

    return tamper


def test_tampered_checkpoints(tampered):
    def refused(match, change=lambda description, weights: None, **told):
        with pytest.raises(InputError, match=match):
            vsehub.load(tampered(change, **told))

    refused("weights in .* do not fit its model", lambda told, _: told["vocabulary"].pop())
    refused("the description in .* is damaged", lambda told, _: told.pop("vocabulary"))
    refused("the description in .* is damaged", lambda told, _: told.update(image_shape=[3, -1]))
    refused("the description in .* is damaged", lambda told, _: told["config"].pop("loader"))
    refused("the description in .* is damaged", description="[" * 100_000)
    refused("reads version 2. Use the vsehub that wrote it", version="1")
    refused("was not written by `vsehub train`", format="something else")
    refused("weights in .* do not fit its model", lambda _, weights: weights.popitem())
    refused("but the file holds .* numbers", lambda told, _: told["config"]["image_encoder"].update(width=10**9))
    refused("'widht'", lambda told, _: told["config"]["image_encoder"].update(widht=3))
    refused("a vocabulary is a list", lambda told, _: told.update(vocabulary=[1, 2]))


@pytest.mark.parametrize("change", ["words", "moment", "order"])
def test_a_state_that_does_not_fit(trained, change):
    """Words or parameters in another order, or a tensor of the optimizer of another shape."""
    path, name = trained / "checkpoints" / "last.ckpt", "text_encoder.words.weight"
    state = load_state(path)
    names, weights = state["vsehub"]["parameters"], state["state_dict"]
    own = copy.deepcopy(state["vsehub"]["description"]), {one: weights[one] for one in names}, path
    require_fitting(state, *own)
    if change in ("words", "order"):
        listed = state["vsehub"]["description"]["vocabulary"] if change == "words" else names
        listed[-1], listed[-2] = listed[-2], listed[-1]
    else:
        kept = state["optimizer_states"][0]["state"][names.index(name)]
        kept["exp_avg"] = kept["exp_avg"][:-1]
    with pytest.raises(InputError, match={"words": "vocabulary", "order": "order"}.get(change, name)):
        require_fitting(state, *own)
