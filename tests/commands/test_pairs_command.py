"""Two modalities that are neither images nor texts, through the console script."""

import json
import shlex
import shutil

import numpy as np
import pytest
from broken_off import stopped
from run_files import rows

from vsehub.evaluation import read_checkpoint

SIZES = {"train": (0, 160), "val": (160, 200), "test": (200, 240)}
SETTINGS = [
    *("data=pairs", "embedding_dim=16", "loader.batch_size=32", "callbacks.warmup.steps=0", "optimizer.lr=0.01"),
    "scheduler.step_size=2",
]
BANK = ["loss=hal", "bank=memory", "bank.fraction=0.5", "bank.k=5"]


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    """Two languages' words for 240 meanings: two words each there, one or two here, all of a meaning paired."""
    folder = tmp_path_factory.mktemp("lexicon")
    generator = np.random.default_rng(0)
    meanings = generator.normal(size=(240, 8))
    here = np.concatenate([np.arange(240), np.arange(0, 240, 3)])
    there = np.repeat(np.arange(240), 2)
    for side, words, dim in (("here", here, 12), ("there", there, 10)):
        turned = meanings[words] @ generator.normal(size=(8, dim)) + 0.3 * generator.normal(size=(len(words), dim))
        np.save(folder / f"{side}.npy", turned.astype(np.float32))
    for split, (first, last) in SIZES.items():
        rows = [
            f"{text},{image}"
            for image in np.flatnonzero((here >= first) & (here < last))
            for text in np.flatnonzero(there == here[image])
        ]
        (folder / f"{split}.csv").write_text("\n".join(["query,item", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(lexicon, vsehub):
    """The folder of a run of three epochs over it."""
    vsehub("train", *files(lexicon), *SETTINGS, *BANK, "trainer.max_epochs=3", "hydra.run.dir=run", cwd=lexicon)
    return lexicon / "run"


def files(folder):
    tables = [f"data.splits.{split}={folder / split}.csv" for split in SIZES]
    return [f"data.images={folder / 'here.npy'}", f"data.texts={folder / 'there.npy'}", *tables]


def read(path):
    return json.loads(path.read_text())


def test_a_run_leaves_its_record(run, lexicon):
    record = read(run / "run.json")
    assert (record["status"], record["label"], record["dataset"]) == ("finished", "hal+mb", lexicon.name)
    assert record["architecture"] == "text_features+image_features"
    counted = {split: (of["images"], of["captions"]) for split, of in record["data"].items()}
    assert counted == {"train": (214, 320), "val": (53, 80), "test": (53, 80)}
    assert rows(run)[1]["bank/pairs"] == "214.0", "half of the training pairs"
    chance = 2 * 100 * 16 / 80 * 2
    assert record["metrics"]["test/rsum"] > 3 * chance


def test_its_checkpoint_is_self_contained(run, lexicon, vsehub, tmp_path):
    """Moved alone, with the data moved too and the training table gone, it gives the same figures."""
    alone = shutil.copy(run / "checkpoints" / "best.safetensors", tmp_path / "moved.safetensors")
    checkpoint = read_checkpoint(alone)
    assert checkpoint.vocabulary is None
    assert (checkpoint.image_shape, checkpoint.text_shape) == ((12,), (10,))
    for name in ("here.npy", "there.npy", "test.csv"):
        shutil.copy(lexicon / name, tmp_path / name)
    moved = [f"data.images={tmp_path / 'here.npy'}", f"data.texts={tmp_path / 'there.npy'}", "data.splits.val=null"]
    moved += ["data.splits.train=null", f"data.splits.test={tmp_path / 'test.csv'}"]
    vsehub("evaluate", f"checkpoint={alone}", *moved, f"out={tmp_path}", cwd=tmp_path)
    again, first = (read(next(folder.glob("test-single-nns-*.json"))) for folder in (tmp_path, run / "evaluations"))
    assert again["metrics"] == first["metrics"]
    np.save(tmp_path / "there.npy", np.load(lexicon / "there.npy")[:, :9])
    refused = vsehub("evaluate", f"checkpoint={alone}", *moved, f"out={tmp_path}", cwd=tmp_path, status=2)
    assert (
        "the texts of the split 'test' have 9 features but the model was made for 10; give features of the same"
        in refused.err
    )


def test_criteria_and_a_report(run, vsehub, tmp_path):
    copied = tmp_path / "runs" / "hal"
    shutil.copytree(run, copied)
    best = f"checkpoint={copied / 'checkpoints' / 'best.safetensors'}"
    vsehub("evaluate", "-m", best, "criterion=csls,is", "reference=queries,train", cwd=tmp_path)
    found = {path.stem.rpartition("-")[0]: read(path) for path in (copied / "evaluations").iterdir()}
    kinds = ("nns", "csls-transductive", "csls-inductive")
    rsums = {kind: found[f"test-single-{kind}"]["metrics"]["rsum"] for kind in kinds}
    assert len(set(rsums.values())) == 3
    assert found["test-single-csls-inductive"]["texts"] == 80
    vsehub("report", "runs", "out=page", cwd=tmp_path, UNDRAWN="1")
    assert f"{rsums['nns']:.1f}" in (tmp_path / "page" / "table.md").read_text()


@pytest.mark.long
def test_a_resumed_run_ends_as_the_unbroken_one(run, lexicon, vsehub, tmp_path):
    vsehub("train", *files(lexicon), *SETTINGS, *BANK, "trainer.max_epochs=2", "hydra.run.dir=broken", cwd=tmp_path)
    refused = vsehub("train", "resume=broken", "trainer.max_epochs=3", cwd=tmp_path, status=2)
    assert "is finished, so its record can no longer change" in refused.err
    stopped(tmp_path / "broken")
    shutil.copy(lexicon / "here.npy", tmp_path / "moved.npy")
    refused = vsehub("train", "resume=broken", "data=scenes", cwd=tmp_path, status=2)
    assert "resume: data=scenes would make the run's record false" in refused.err
    refused = vsehub("train", "resume=broken", "data.draw.val=0.2", cwd=tmp_path, status=2)
    assert "resume: data.draw.val=0.2 would make the run's record false" in refused.err
    vsehub("train", "resume=broken", "data.images=moved.npy", "trainer.max_epochs=3", cwd=tmp_path)
    assert rows(tmp_path / "broken") == rows(run)
    ours, theirs = (read(folder / "run.json")["metrics"] for folder in (tmp_path / "broken", run))
    assert ours == theirs
    typed = shlex.split(read(tmp_path / "broken" / "run.json")["command"])  # of the start, which chose the settings
    assert typed[:2] == ["vsehub", "train"]
    assert {"hydra.run.dir=broken", "trainer.max_epochs=2"} <= set(typed)
    assert not any(one.startswith("resume=") for one in typed)


def test_shares_and_what_cannot_be(run, lexicon, vsehub, tmp_path):
    """One table split by shares; words are no vectors for search, and vectors no captions for a GRU."""
    table = (lexicon / "train.csv").read_text()
    (tmp_path / "all.csv").write_text(table)
    one_table = [*files(lexicon)[:2], "data.pairs=all.csv", *SETTINGS, "loss=max"]
    vsehub("train", *one_table, "trainer.max_epochs=1", "hydra.run.dir=shares", cwd=tmp_path)
    counted = [one["captions"] for one in read(tmp_path / "shares" / "run.json")["data"].values()]
    assert sum(counted) == 320
    best = f"checkpoint={run / 'checkpoints' / 'best.safetensors'}"
    refused = vsehub("search", best, "a dog", cwd=tmp_path, status=2)
    assert "texts: the model was trained on vectors" in refused.err
    refused = vsehub("train", *one_table, "text_encoder=text_gru", "hydra.run.dir=gru", cwd=tmp_path, status=2)
    assert "the data's texts are vectors (10,), but TextGRU takes captions; give text_encoder=" in refused.err
    refused = vsehub("train", "data=pairs", "data.images=a.npy", "hydra.run.dir=none", cwd=tmp_path, status=2)
    assert "data.texts is not set; give data.texts=VALUE" in refused.err
