"""Training under noise and measuring foils, as commands; foils made and converted."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from broken_off import stopped
from run_files import rows

from experiments import foil_coco, foils
from vsehub.checks import InputError
from vsehub.data import Scenes
from vsehub.data.scenes.captions import WORDS

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SMALL = (
    *("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8", "image_encoder.width=4"),
    *("loader.batch_size=64", "callbacks.warmup.steps=4"),
)


def record(run):
    return json.loads((run / "run.json").read_text())


@pytest.fixture
def train(run_here, tmp_path):
    """Trains in this process with HAL's bank and noise; the run's folder."""

    def run(folder, *settings):
        run_here("train", "bank=memory", "bank.fraction=0.5", *SMALL, *settings, f"hydra.run.dir={folder}")
        return tmp_path / folder

    return run


@pytest.mark.long
def test_a_run_under_noise_records_it_goes_on_with_it_and_lends_it(train, run_here, tmp_path):
    noise = ("data.noise.protocol=captions", "data.noise.rate=0.4", "seed=5")
    whole = train("whole", *noise, "trainer.max_epochs=2")
    told = record(whole)["noise"]
    with np.load(whole / "noise_index.npz", allow_pickle=False) as kept:
        numbers = kept["numbers"]
    clean = Scenes(size="tiny", cache=str(tmp_path / "cache")).load("train")
    assert Counter(numbers.tolist()) == Counter(clean.image_index.tolist())
    changed = int((numbers != clean.image_index).sum())
    assert 192 - 20 <= changed <= 192
    assert (told["protocol"], told["rate"], told["seed"], told["index"]) == ("captions", 0.4, 5, None)
    assert (told["changed"], told["clean_fingerprint"]) == (changed / 480, clean.fingerprint())
    splits = record(whole)["data"]
    assert splits["train"]["fingerprint"] != clean.fingerprint()
    assert all(
        splits[name]["fingerprint"] == Scenes(size="tiny", cache=str(tmp_path / "cache")).load(name).fingerprint()
        for name in ("val", "test")
    )

    broken = train("broken", *noise, "trainer.max_epochs=1")
    run_here("train", f"resume={stopped(broken)}", "trainer.max_epochs=2")
    assert rows(broken) == rows(whole)
    assert record(broken)["noise"] == told
    ours, theirs = (torch.load(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (broken, whole))
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    refused = run_here("train", f"resume={stopped(broken)}", "data.noise.rate=0.2", status=2)
    assert "data.noise.rate=0.2 would make the run's record false: it was 0.4 until now" in refused

    lent = train("lent", f"data.noise.index={whole / 'noise_index.npz'}", "seed=6", "trainer.max_epochs=1")
    assert record(lent)["data"]["train"] == splits["train"]
    assert record(lent)["noise"] == told | {"index": str(whole / "noise_index.npz")}
    assert record(lent)["metrics"] != record(whole)["metrics"]

    best = whole / "checkpoints" / "best.safetensors"
    assert "data.noise is not a setting" in run_here("evaluate", f"checkpoint={best}", "data.noise.rate=0.4", status=2)
    together = f"checkpoint=[{best},{lent / 'checkpoints' / 'best.safetensors'}]"
    assert "ensemble of 2" in run_here("evaluate", together)


def test_without_noise_nothing_is_written(trained):
    assert "noise" not in record(trained)
    assert not (trained / "noise_index.npz").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.noise.rate=0.2"], "data.noise.protocol is not set"),
        (
            ["data.noise.protocol=captions"],
            "data.noise.protocol is captions but data.noise.rate is not set; give a share",
        ),
        (["data.noise.protocol=captions", "data.noise.rate=1"], "expected a share from 0 to below 1"),
        (["data.noise.index=absent.npy"], "data.noise.index: no such file or folder: absent.npy"),
    ],
)
def test_bad_settings_are_said_before_training(run_here, settings, said):
    assert said in run_here("train", *SMALL, *settings, status=2)


def test_extraction_has_no_noise(run_here, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "splits.json").write_text("{}")
    settings = ["data.json=splits.json", "data.images=pictures", "data.noise.protocol=images", "data.noise.rate=0.2"]
    assert "data.noise is for training only" in run_here("extract", *settings, "out=features", status=2)


@pytest.fixture(scope="module")
def made(study, tmp_path_factory):
    """foils.csv of the tiny scenes."""
    path = tmp_path_factory.mktemp("foils") / "foils.csv"
    study("foils", path, "--size", "tiny", XDG_CACHE_HOME=str(path.parent))
    return path


def test_made_foils_are_false(made, monkeypatch):
    """Exactly one word or phrase is another, and what is said instead is nowhere in the picture."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parent))
    composed = foils.scenes("test", "tiny", 0)
    value_of = {word: value for value, words in WORDS.items() for word in words if word}
    found = pd.read_csv(made)
    assert set(found["type"]) == {"colour", "shape", "size", "number"}
    for _, pair in found.iterrows():
        things = composed[int(pair["image"].rsplit("-", 1)[1])].things
        caption, foil = (side.lower().replace(" an ", " a ") for side in (pair["caption"], pair["foil"]))
        assert caption != foil
        if pair["type"] == "number":
            continue
        there = {getattr(thing, pair["type"]) for thing in things}
        new = [word for word in value_of if f" {word} " in f" {foil.strip('.')} " and word not in caption]
        assert any(value_of[word] not in there for word in new), (caption, foil)


def test_foils_are_measured(trained, made, run_here, tmp_path):
    best = f"checkpoint={trained / 'checkpoints' / 'best.safetensors'}"
    out = run_here("evaluate", best, f"foil={made}", f"out={tmp_path}")
    (path,) = (tmp_path / "foils").iterdir()
    found = json.loads(path.read_text())
    table = pd.read_csv(made)
    kinds = Counter(table["type"])
    assert {name: one["pairs"] for name, one in found["metrics"].items()} == {"all": len(table)} | kinds
    assert (
        sum(one["right"] for name, one in found["metrics"].items() if name != "all") == found["metrics"]["all"]["right"]
    )
    assert found["read_alike"] <= found["metrics"]["all"]["ties"]
    assert f"{len(found['unknown']['foils'])} words of the foils are unknown to the vocabulary" in out
    assert f"written to {path}" in out
    turned = table.rename(columns={"caption": "foil", "foil": "caption"})
    turned.to_csv(tmp_path / "turned.csv", index=False)
    run_here("evaluate", best, "foil=turned.csv", f"out={tmp_path / 'turned'}")
    (path,) = (tmp_path / "turned" / "foils").iterdir()
    other, first = (one["metrics"]["all"] for one in (json.loads(path.read_text()), found))
    assert (other["right"], other["ties"]) == (len(table) - first["right"] - first["ties"], first["ties"])

    assert "omit tune, criterion" in run_here(
        "evaluate", best, f"foil={made}", "criterion=csls", "tune=true", f"out={tmp_path}", status=2
    )
    assert "name images that the split does not have" in run_here(
        "evaluate", best, f"foil={made}", "split=val", f"out={tmp_path}", status=2
    )
    first = trained / "checkpoints" / "best.safetensors"
    second = shutil.copy(first, tmp_path / "other.safetensors")
    assert "foil takes one checkpoint" in run_here(
        "evaluate",
        f"checkpoint=[{first},{second}]",
        f"foil={made}",
        status=2,
    )


def test_foil_coco(study, tmp_path):
    """Its json in small: two foils of one caption, one of another, whose image is in no split of ours."""
    annotation = {"image_id": 9, "foil": False, "target_word": "ORIG"}
    content = {
        "images": [{"id": 9, "file_name": "COCO_val2014_9.jpg"}, {"id": 4, "file_name": "COCO_val2014_4.jpg"}],
        "annotations": [
            annotation | {"id": 1, "caption": "A cat, asleep.\n"},
            annotation | {"id": 1, "caption": "A dog, asleep.", "foil": True},
            annotation | {"id": 2, "caption": "A bus.", "image_id": 4, "foil": True},
            annotation | {"id": 2, "caption": "A car.", "image_id": 4},
            annotation | {"id": 1, "caption": "A cow, asleep.", "foil": True},
        ],
    }
    (tmp_path / "foil.json").write_text(json.dumps(content))
    pairs = foil_coco.pairs(tmp_path / "foil.json")
    nine, four = "COCO_val2014_9.jpg", "COCO_val2014_4.jpg"
    cat = "A cat, asleep."
    assert pairs == [(nine, cat, "A dog, asleep."), (nine, cat, "A cow, asleep."), (four, "A car.", "A bus.")]
    (tmp_path / "names.txt").write_text(f"{nine}\n")
    done = study("foil_coco", "foil.json", "out.csv", "--names", "names.txt", cwd=tmp_path)
    assert done.out == "2 of 3 pairs in out.csv\n"
    assert pd.read_csv(tmp_path / "out.csv")["foil"].tolist() == ["A dog, asleep.", "A cow, asleep."]
    del content["annotations"][0]
    (tmp_path / "foil.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="no json of FOIL-COCO"):
        foil_coco.pairs(tmp_path / "foil.json")
