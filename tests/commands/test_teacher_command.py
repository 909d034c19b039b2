"""`vsehub train teacher=...`: alike however it is trained, and teachers that cannot teach."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from broken_off import stopped
from run_files import record, rows

SETTINGS = (
    "bank=memory",
    "bank.fraction=0.5",
    "trainer.max_epochs=2",
    "scheduler.step_size=1",
    "seed=5",
    "trainer.precision=32-true",
)
EXACT = ("text_encoder.word_dropout=0", "image_encoder.norm=group")  # chunks draw their own dropout


def best(folder):
    return folder / "checkpoints" / "best.safetensors"


@pytest.fixture(scope="module")
def place(trained, vsehub, tmp_path_factory):
    """A teacher in a folder that may be changed, and a second one of other words and dimension."""
    folder = tmp_path_factory.mktemp("teachers")
    shutil.copytree(trained, folder / "first")
    settings = ("embedding_dim=12", "loader.min_count=30", "text_encoder=text_transformer", "text_encoder.word_dim=8")
    vsehub("train", "loss=sum", *settings, "trainer.max_epochs=1", "hydra.run.dir=second", cwd=folder, small=True)
    return folder


@pytest.fixture(scope="module")
def student(place, vsehub):
    return taught(vsehub, place, "student")


def lesson(place, name):
    """The command that trains a student of both."""
    both = f"teacher=[{best(place / 'first')},{best(place / 'second')}]"
    return ["train", *SETTINGS, *EXACT, both, f"hydra.run.dir={name}"]


def taught(vsehub, place, name, *settings):
    """The folder of a student of both."""
    vsehub(*lesson(place, name), *settings, cwd=place, small=True)
    return place / name


def alike(first, second):
    for ours, theirs in zip(rows(first), rows(second), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("train/loss", "train/distillation"):
            assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-4), name
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for run in (first, second)]
    for name, weight in states[0].items():
        torch.testing.assert_close(states[1][name], weight, rtol=1e-2, atol=2e-4, msg=name)


def test_a_student_learns_from_two_and_its_record_names_them(student, place):
    said = record(student)
    assert [facts["checkpoint"] for facts in said["teacher"]] == [
        str(best(place / name)) for name in ("first", "second")
    ]
    terms = [float(row["train/distillation"]) for row in rows(student)]
    assert terms[1] < terms[0]
    assert (place / "first" / "checkpoints" / "best.encoded").is_dir(), "what teachers say is kept"


@pytest.mark.long
def test_in_chunks_it_is_the_same(student, place, vsehub):
    alike(student, taught(vsehub, place, "chunks", "loader.chunk=9"))


@pytest.mark.long
def test_two_processes_do_what_one_does(student, place, small, environment):
    two = ("trainer.devices=2", "trainer.accelerator=cpu")
    command = [sys.executable, "-m", "vsehub", *lesson(place, "two"), *small, *two]
    subprocess.run(command, check=True, cwd=place, env=environment)
    alike(student, place / "two")


def test_a_stopped_run_goes_on_with_the_same_teachers_alone(student, place, vsehub):
    stopped(taught(vsehub, place, "again", "trainer.max_epochs=1"))
    vsehub("train", "resume=again", "trainer.max_epochs=2", cwd=place)
    alike(student, place / "again")
    stopped(place / "again")
    (place / "first").rename(place / "kept")
    shutil.copytree(place / "second", place / "first")
    said = vsehub("train", "resume=again", cwd=place, status=2).err
    shutil.rmtree(place / "first")
    (place / "kept").rename(place / "first")
    assert "put the same checkpoints back" in said


def test_a_sweep_notices_a_replaced_teacher(place, vsehub):
    command = ("train", "-m", "teacher=alone.safetensors", "trainer.max_epochs=1", "hydra.sweep.dir=sweep")
    shutil.copy(best(place / "second"), place / "alone.safetensors")
    vsehub(*command, cwd=place, small=True)
    shutil.copy(best(place / "first"), place / "alone.safetensors")
    assert "alone.safetensors has changed" in vsehub(*command, cwd=place, small=True, status=2).err


def test_a_teacher_that_saw_what_is_measured_is_refused(place, vsehub):
    teacher = shutil.copytree(place / "first", place / "seen")
    facts = record(teacher)
    settings = (f"teacher={best(teacher)}", "trainer.max_epochs=1", "hydra.run.dir=no")
    for used, measured, what in (
        ("train", "test", "was trained on the test"),
        ("train", "val", "was trained on the validation"),
        ("val", "test", "chose its epoch"),
    ):
        data = facts["data"] | {used: facts["data"][measured]}
        (teacher / "run.json").write_text(json.dumps(facts | {"data": data}))
        assert what in vsehub("train", *settings, cwd=place, small=True, status=2).err
    assert not (place / "no").exists()


def test_a_teacher_of_other_data_is_refused(place, vsehub):
    for name, size in (("images", 6), ("texts", 4)):
        np.save(place / f"{name}.npy", np.random.default_rng(0).normal(size=(40, size)).astype(np.float32))
    (place / "pairs.csv").write_text("query,item\n" + "".join(f"{row},{row}\n" for row in range(40)))
    settings = ("data=pairs", "data.images=images.npy", "data.texts=texts.npy", "data.pairs=pairs.csv")
    said = vsehub("train", *settings, f"teacher={best(place / 'first')}", cwd=place, status=2).err
    assert "features of shape (6,)" in said
