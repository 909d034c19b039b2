"""Training under noise, as a command."""

from collections import Counter

import numpy as np
import pytest
import torch
from broken_off import stopped
from run_files import record, rows

from vsehub.data import Scenes

SMALL = (
    *("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8", "image_encoder.width=4"),
    *("loader.batch_size=64", "callbacks.warmup.steps=4"),
)


@pytest.mark.long
def test_a_run_under_noise_records_it_goes_on_with_it_and_lends_it(run_here, tmp_path):
    def train(folder, *settings):
        run_here("train", "bank=memory", "bank.fraction=0.5", *SMALL, *settings, f"hydra.run.dir={folder}")
        return tmp_path / folder

    noise = ("data.noise.protocol=captions", "data.noise.rate=0.4", "seed=5")
    whole = train("whole", *noise, "trainer.max_epochs=2")
    told = record(whole)["noise"]
    index = whole / "noise_index.npy"
    numbers = np.load(index)
    scenes = Scenes(size="tiny")
    clean = scenes.load("train")
    assert Counter(numbers.tolist()) == Counter(clean.pairs[:, 0].tolist())
    changed = int((numbers != clean.pairs[:, 0]).sum())
    assert 192 - 20 <= changed <= 192
    assert (told["protocol"], told["rate"], told["seed"], told["index"]) == ("captions", 0.4, 5, None)
    assert (told["changed"], told["clean_fingerprint"]) == (changed / 480, clean.fingerprint())
    splits = record(whole)["data"]
    assert splits["train"]["fingerprint"] != clean.fingerprint()
    assert splits["val"]["fingerprint"] == scenes.load("val").fingerprint()

    broken = train("broken", *noise, "trainer.max_epochs=1")
    run_here("train", f"resume={stopped(broken)}", "trainer.max_epochs=2")
    assert rows(broken) == rows(whole)
    assert record(broken)["noise"] == told
    ours, theirs = (torch.load(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (broken, whole))
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    assert "data.noise.rate=0.2" in run_here("train", f"resume={stopped(broken)}", "data.noise.rate=0.2", status=2)

    lent = train("lent", f"data.noise.index={index}", "data.noise.rate=0.4", "seed=6", "trainer.max_epochs=1")
    assert record(lent)["data"]["train"] == splits["train"]
    assert record(lent)["noise"] == told | {"index": str(index), "seed": None}


def test_bad_settings_are_said_before_training(run_here, trained, tmp_path):
    assert "noise" not in record(trained)
    for settings, named in (
        (["data.noise.rate=0.2"], "data.noise.protocol"),
        (["data.noise.protocol=captions"], "data.noise.rate"),
        (["data.noise.protocol=captions", "data.noise.rate=1"], "data.noise.rate is 1"),
        (["data.noise.index=absent.npy"], "data.noise.index: no such file"),
    ):
        assert named in run_here("train", *SMALL, *settings, status=2)
    settings = ["data.json=absent.json", "data.images=.", "data.noise.protocol=images", "data.noise.rate=0.2"]
    assert "data.noise" in run_here("extract", *settings, "out=features", status=2)
