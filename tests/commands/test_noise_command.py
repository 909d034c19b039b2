"""Training under noise, as a command."""

import shutil
from collections import Counter

import numpy as np
import torch
from broken_off import stopped
from run_files import record, rows

from vsehub.data import Precomp


def test_a_run_under_noise_records_it_goes_on_with_it_and_lends_it(run_here, features, tmp_path):
    def train(folder, *settings):
        run_here("train", *features, *settings, f"hydra.run.dir={folder}")
        return tmp_path / folder

    noise = ("data.noise.protocol=captions", "data.noise.rate=0.4", "seed=5")
    whole = train("whole", *noise, "trainer.max_epochs=2")
    facts = record(whole)["noise"]
    index = whole / "noise_index.npy"
    numbers = np.load(index)
    source = Precomp(tmp_path / "pre")
    clean = source.load("train")
    assert Counter(numbers.tolist()) == Counter(clean.pairs[:, 0].tolist())
    changed = int((numbers != clean.pairs[:, 0]).sum())
    assert 5 <= changed <= 10
    assert (facts["protocol"], facts["rate"], facts["seed"], facts["index"]) == ("captions", 0.4, 5, None)
    assert (facts["changed"], facts["clean_fingerprint"]) == (changed / 24, clean.fingerprint())
    splits = record(whole)["data"]
    assert splits["train"]["fingerprint"] != clean.fingerprint()
    assert splits["val"]["fingerprint"] == source.load("val").fingerprint()

    broken = train("broken", *noise, "trainer.max_epochs=1")
    assert "data.noise.rate=0.2" in run_here("train", f"resume={stopped(broken)}", "data.noise.rate=0.2", status=2)
    shutil.copytree(tmp_path / "pre", tmp_path / "changed")
    (tmp_path / "changed" / "dev_caps.txt").write_text((tmp_path / "pre" / "dev_caps.txt").read_text() * 2)
    np.save(tmp_path / "changed" / "dev_ims.npy", np.load(tmp_path / "pre" / "dev_ims.npy").repeat(2, axis=0))
    assert "the val data differ" in run_here("train", f"resume={broken}", "data.root=changed", status=2)
    run_here("train", f"resume={stopped(broken)}", "trainer.max_epochs=2")
    assert rows(broken) == rows(whole)
    assert record(broken)["noise"] == facts
    ours, theirs = (torch.load(run / "checkpoints" / "last.ckpt")["state_dict"] for run in (broken, whole))
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())

    lent = train("lent", f"data.noise.index={index}", "data.noise.rate=0.4", "seed=6", "trainer.max_epochs=1")
    assert record(lent)["data"]["train"] == splits["train"]
    assert record(lent)["noise"] == facts | {"index": str(index), "seed": None}


def test_bad_settings_are_said_before_training(run_here, features):
    for settings, named in (
        (["data.noise.protocol=captions"], "data.noise.rate"),
        (["data.noise.protocol=captions", "data.noise.rate=1"], "data.noise.rate is 1"),
    ):
        assert named in run_here("train", *features, *settings, status=2)
    assert "data.noise" in run_here("extract", "data.noise.protocol=images", "out=features", status=2)
