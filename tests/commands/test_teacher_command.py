"""`vsehub train teacher=...`: alike however it is trained, and teachers that cannot teach."""

import json
import shutil

import numpy as np
import pytest
import torch
from broken_off import stopped
from run_files import rows

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
    own = ("embedding_dim=12", "loader.min_count=30", "text_encoder=text_transformer", "text_encoder.word_dim=8")
    vsehub("train", "loss=sum", *own, "trainer.max_epochs=1", "hydra.run.dir=second", cwd=folder, small=True)
    return folder


@pytest.fixture(scope="module")
def student(place, vsehub):
    both = f"teacher=[{best(place / 'first')},{best(place / 'second')}]"
    vsehub("train", *SETTINGS, *EXACT, both, "hydra.run.dir=student", cwd=place, small=True)
    return place / "student"


def alike(one, other):
    for ours, theirs in zip(rows(one), rows(other), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("train/loss", "train/distillation"):
            assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-4), name
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for run in (one, other)]
    for name, weight in states[0].items():
        torch.testing.assert_close(states[1][name], weight, rtol=1e-2, atol=2e-4, msg=name)


def test_a_student_learns_from_two_and_its_record_names_them(student, place):
    said = json.loads((student / "run.json").read_text())
    assert [one["checkpoint"] for one in said["teacher"]] == [str(best(place / name)) for name in ("first", "second")]
    taught = [float(row["train/distillation"]) for row in rows(student)]
    assert taught[1] < taught[0]
    assert (place / "first" / "checkpoints" / "best.encoded").is_dir(), "what teachers say is kept"


@pytest.mark.long
def test_in_chunks_it_is_the_same(student, place, vsehub):
    both = f"teacher=[{best(place / 'first')},{best(place / 'second')}]"
    vsehub("train", *SETTINGS, *EXACT, both, "loader.chunk=9", "hydra.run.dir=chunks", cwd=place, small=True)
    alike(student, place / "chunks")


@pytest.mark.long
def test_two_processes_do_what_one_does(student, place, vsehub):
    both = f"teacher=[{best(place / 'first')},{best(place / 'second')}]"
    two = ("trainer.devices=2", "trainer.accelerator=cpu", "hydra.run.dir=two")
    vsehub("train", *SETTINGS, *EXACT, both, *two, cwd=place, small=True, console=True)
    alike(student, place / "two")


def test_a_stopped_run_goes_on_with_the_same_teachers_alone(student, place, vsehub):
    both = f"teacher=[{best(place / 'first')},{best(place / 'second')}]"
    run = ("trainer.max_epochs=1", "hydra.run.dir=again")
    vsehub("train", *SETTINGS, *EXACT, both, *run, cwd=place, small=True)
    stopped(place / "again")
    vsehub("train", "resume=again", "trainer.max_epochs=2", cwd=place)
    alike(student, place / "again")
    stopped(place / "again")
    (place / "first").rename(place / "kept")
    try:
        shutil.copytree(place / "second", place / "first")
        said = vsehub("train", "resume=again", cwd=place, status=2).err
    finally:
        shutil.rmtree(place / "first")
        (place / "kept").rename(place / "first")
    assert "put the same checkpoints back" in said


def test_a_teacher_that_saw_the_test_split_is_refused(place, vsehub):
    shutil.copytree(place / "first", place / "seen")
    record = place / "seen" / "run.json"
    facts = json.loads(record.read_text())
    for used, measured, what in (("train", "test", "was trained on the test"), ("val", "test", "chose its epoch")):
        data = facts["data"] | {used: facts["data"][measured]}
        record.write_text(json.dumps(facts | {"data": data}))
        given = f"teacher={best(place / 'seen')}"
        said = vsehub("train", given, "trainer.max_epochs=1", "hydra.run.dir=no", cwd=place, small=True, status=2).err
        assert what in said
        assert not (place / "no").exists()


def test_teachers_that_cannot_read_the_data_are_refused(place, vsehub):
    said = vsehub("train", "teacher=nowhere.safetensors", cwd=place, small=True, status=2).err
    assert "checkpoint: no such file" in said
    said = vsehub("train", "teacher=[]", cwd=place, small=True, status=2).err
    assert "teacher is an empty list" in said
    random = np.random.default_rng(0)
    np.save(place / "images.npy", random.normal(size=(40, 6)).astype(np.float32))
    np.save(place / "texts.npy", random.normal(size=(40, 4)).astype(np.float32))
    (place / "pairs.csv").write_text("query,item\n" + "".join(f"{row},{row}\n" for row in range(40)))
    own = ("data=pairs", "data.images=images.npy", "data.texts=texts.npy", "data.pairs=pairs.csv")
    said = vsehub("train", *own, f"teacher={best(place / 'first')}", cwd=place, status=2).err
    assert "features but the model was made for" in said
    assert "have 6 features but the model was made for" in said
