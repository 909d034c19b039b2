"""What bad input is answered with: each command's whole path in this process, and single parts where those suffice."""

import re
import shutil
from functools import partial

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.cli.build import restore_module
from vsehub.neighbors.bank import MemoryBank
from vsehub.training.checkpoint import load_checkpoint, require_same_vocabulary
from vsehub.training.datamodule import RetrievalDataModule


@pytest.fixture
def refused(run_here):
    """A function that runs a command, which must fail, and returns what it says."""
    return partial(run_here, status=2)


TINY = ("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=hall"], r"'loss'(.|\n)*hal\n(.|\n)*infonce\n(.|\n)*knn_margin\n(.|\n)*max\n(.|\n)*sum\n"),
        (["loss.gama=3"], "Could not override 'loss.gama'"),
    ],
)
def test_unknown_choices_and_settings(refused, overrides, message):
    assert re.search(message, refused("train", *overrides, status=1))


@pytest.mark.parametrize(
    "arguments", [("train", "protocol=5k"), ("evaluate", "-m", "protocol=c1,5k"), ("train", "+protocol=5k")]
)
def test_the_papers_5k_is_asked_about(refused, tmp_path, arguments):
    said = refused(*arguments)
    assert "protocol=c2, the mean over five folds of 1,000" in said
    assert "one ranking over 5,000 images, which later papers call 5K, is protocol=full5k" in said
    assert list(tmp_path.iterdir()) == []


def test_unknown_command(refused):
    assert "unknown command 'trian'; choose one of train, evaluate, extract, report" in refused("trian")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loader.batch_size=1"], "batch_size is 1; expected at least 2"),
        (["loss=max", "bank=memory"], "the loss MaxMargin takes no global statistics.* bank=none, or use loss=hal"),
        (["image_encoder=image_features"], r"image_features takes one feature vector an image, .* \(3, 64, 64\)"),
        (["loss.gamma=-1"], "gamma is -1; expected a number above 0"),
        (["bank=memory", "bank.k=4", "loss.neighbors_k=5"], "loss.neighbors_k is 5 but the bank gives 4 neighbours"),
        (["bank=memory", "bank.fraction=0.02"], "a bank of 10 pairs, .* k is 10. Give the bank"),
        (["final_split=train"], "final_split is 'train'; choose one of 'val', 'test'"),
        (["protocol=c1"], r"protocol c1 needs 1000 images \(1 x 1000\) but the split has 32; use protocol=single"),
        (["data.size=small"], "size is 'small'; choose one of 'tiny', 'default', 'large'"),
    ],
)
def test_settings_that_do_not_fit(refused, tmp_path, overrides, message):
    assert re.search(message, refused("train", *TINY, "hydra.run.dir=run", *overrides))
    assert not (tmp_path / "run" / "metrics.csv").exists(), "it was said after an epoch"


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
        (["similarity=order", "similarity.shift=0"], "never above 0.* set similarity.shift=1"),
        (["text_encoder=text_features"], "takes texts that are vectors, but the data's are captions"),
    ],
)
def test_parts_that_cannot_go_together(refused, overrides, message):
    assert re.search(message, refused("train", "data.size=tiny", "embedding_dim=16", *overrides))


def test_splits_of_other_features(refused, tmp_path):
    for prefix, size in (("train", 6), ("dev", 7), ("test", 6)):
        np.save(tmp_path / f"{prefix}_ims.npy", np.ones((4, size), np.float32))
        (tmp_path / f"{prefix}_caps.txt").write_text("a dog runs\n" * 20)
    said = refused("train", "data=precomp", f"data.root={tmp_path}", "embedding_dim=16")
    assert "the images have 7 features but the model was made for 6; give features of the same extraction" in said


def test_resume(refused, trained, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "absent"):
        assert "Give the folder of a run that `vsehub train` started" in refused("train", f"resume={folder}")
    assert not (tmp_path / "absent").exists()
    shutil.copytree(trained, tmp_path / "moved")
    said = refused("train", f"resume={tmp_path / 'moved'}")
    assert f"was started in {trained} and goes on only there; move it back" in said
    before = (trained / "metrics.csv").read_text()
    assert "loss=max would change a whole component of a run" in refused("train", f"resume={trained}", "loss=max")
    assert "bank=none would change a whole component" in refused("train", f"resume={trained}", "bank=none")
    other = refused("train", f"resume={trained}", "loader.min_count=2")
    assert re.search(r"last.ckpt is of another vocabulary \(\d+ words, \w+\) than the training captions give", other)
    assert (trained / "metrics.csv").read_text() == before


def test_checkpoints_that_are_none(refused, trained, tmp_path):
    best = trained / "checkpoints" / "best.safetensors"
    assert "checkpoint is not set; give checkpoint=" in refused("evaluate")
    assert "no such file or folder: absent.ckpt. Give the path" in refused("evaluate", "checkpoint=absent.ckpt")
    assert f"{trained} is a folder; give a .ckpt file, e.g. {best}" in refused("evaluate", f"checkpoint={trained}")
    assert "split is 'dev'; choose one of" in refused("evaluate", f"checkpoint={best}", "split=dev")
    unknown = refused("evaluate", f"checkpoint={best}", "data.rooot=here")
    assert "data.rooot is no setting of the checkpoint's data; choose among _target_, size, seed, cache" in unknown
    for name, keep in (("short", 0.5), ("stump", 0.01), ("empty", 0)):
        whole = best.read_bytes()
        (tmp_path / name).write_bytes(whole[: int(keep * len(whole))])
        assert "cannot be read" in refused("evaluate", f"checkpoint={name}")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "foreign")
    assert "was not written by `vsehub train`" in refused("evaluate", "checkpoint=foreign")


@pytest.fixture
def tampered(trained, tmp_path):
    """A function that changes a copy of the best checkpoint and returns the copy's path."""

    def tamper(change):
        checkpoint = torch.load(trained / "checkpoints" / "best.safetensors", weights_only=True)
        change(checkpoint)
        torch.save(checkpoint, tmp_path / "tampered.ckpt")
        return tmp_path / "tampered.ckpt"

    return tamper


class Payload:
    def __reduce__(self):
        return exec, ("raise SystemExit('the checkpoint ran code')",)


def test_tampered_checkpoints(tampered):
    def foreign(checkpoint):
        checkpoint["vsehub"]["config"]["loss"]["_target_"] = "os.system"

    def foreign_within(checkpoint):
        checkpoint["vsehub"]["config"]["loss"]["gamma"] = [{"_target_": "os.system", "command": "true"}]

    for change in (foreign, foreign_within):
        with pytest.raises(InputError, match=r"asks for os.system, which is not part of vsehub; refused"):
            restore_module(tampered(change))
    with pytest.raises(InputError, match=r"is of another vocabulary: it has .* word vectors but"):
        load_checkpoint(tampered(lambda checkpoint: checkpoint["vsehub"]["vocabulary"].pop()))
    with pytest.raises(InputError, match="holds no vocabulary"):
        load_checkpoint(tampered(lambda checkpoint: checkpoint["vsehub"].pop("vocabulary")))
    with pytest.raises(InputError, match="cannot be read"):
        load_checkpoint(tampered(lambda checkpoint: checkpoint.update(more=Payload())))


def test_words_in_another_order(tampered, trained):
    def swap(checkpoint):
        words = checkpoint["vsehub"]["vocabulary"]
        words[-1], words[-2] = words[-2], words[-1]

    vocabulary = restore_module(trained / "checkpoints" / "best.safetensors")[2]
    path = tampered(swap)
    with pytest.raises(InputError, match="is of another vocabulary"):
        require_same_vocabulary(load_checkpoint(path), vocabulary, path)


def test_parts():
    with pytest.raises(InputError, match="batch_size is 1; expected at least 2"):
        RetrievalDataModule(None, batch_size=1)
    with pytest.raises(InputError, match=r"leaves 9 neighbours .* k is 10. Give the bank a larger share"):
        MemoryBank(10, "exact").fill(torch.eye(10), torch.eye(10), torch.arange(10), torch.arange(10))
