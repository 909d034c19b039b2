"""The study of noise: from run folders to its verdict, a protocol at a time."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd

NOISE = Path(__file__).parents[2] / "experiments" / "noise"


def finished_run(folder, loss, seed, rsum, noise=None, **config):
    """A run folder as training leaves it, as far as the study reads it."""
    path = folder / f"{loss}-{seed}"
    path.mkdir(parents=True)
    recalls = {f"test/{side}/r{k}": rsum / 6 for side in ("i2t", "t2i") for k in (1, 5, 10)}
    told = {
        "status": "finished",
        "label": loss,
        "dataset": "flickr8k",
        "seed": seed,
        "config": {"loss": {"margin": 0.2}} | config,
        "data": {"train": {"fingerprint": f"noisy {seed}" if noise else "clean"}},
        "best": {"epoch": 3, "val/rsum": rsum},
        "metrics": recalls | {"test/rsum": rsum, "test/hubness/hs_sum": 5.0},
        "epochs": 13,
        "wall_seconds": 60.0,
        "hardware": {"gpu": None, "cpu": "Some CPU"},
    }
    if noise:
        told["noise"] = noise | {"clean_fingerprint": "clean", "index": None, "changed": noise["rate"] - 0.001}
        told["collapsed"] = {"epoch": 1}
    (path / "run.json").write_text(json.dumps(told))


def test_the_study_from_runs_to_verdict(study, tmp_path):
    """SUM loses 10 points a tenth of noise, MAX 20, with one point between seeds; the bank's runs are clean alone."""
    runs, clean, page = tmp_path / "runs", tmp_path / "grid", tmp_path / "study"
    for seed in (0, 1):
        for loss, start, loss_a_tenth in (("sum", 310, 10), ("max", 300, 20)):
            finished_run(clean, loss, seed, start + seed)
            for protocol in ("captions", "images"):
                noise = {"protocol": protocol, "rate": 0.4}
                finished_run(runs / protocol, loss, seed, start + seed - 4 * loss_a_tenth, noise)
        finished_run(clean, "infonce", seed, 400)
    finished_run(clean, "hal+mb", 0, 333)
    left_out = shutil.ignore_patterns("__pycache__", "results.csv", "figures")
    shutil.copytree(NOISE, page, ignore=left_out)

    def run(name, *arguments, status=0):
        return study("noise", name, *arguments, status=status).err

    collecting = ("collect", "--out", runs, "--clean", clean, "--to", page)
    run(*collecting)
    found = pd.read_csv(page / "results.csv")
    assert list(zip(found["protocol"], found["loss"], found["seed"], strict=True)) == [
        *((("clean", loss, seed)) for loss in ("sum", "max") for seed in (0, 1)),
        ("clean", "hal+mb", 0),
        *((protocol, loss, seed) for protocol in ("captions", "images") for loss in ("sum", "max") for seed in (0, 1)),
    ]
    written = (page / "results.csv").read_bytes()
    run("collect", "--out", runs, "--to", page)
    assert (page / "results.csv").read_bytes() == written, "rows of runs that are not there stay"
    finished_run(tmp_path / "begun", "sum", 0, 300)
    (record,) = (tmp_path / "begun").rglob("run.json")
    record.write_text(record.read_text().replace('"finished"', '"running"'))
    assert "has no finished run of noise" in run("collect", "--out", tmp_path / "begun", "--to", page, status=2)
    run("render", page)
    text = (page / "README.md").read_text()
    for protocol in ("captions", "images"):
        assert f"Protocol {protocol}: Of 21 claims: not measured 19, too few seeds 2." in text
    text = re.sub(" +", " ", text)
    assert "| sum | 0, 1 | 310.5 ± 0.7 | 270.5 ± 0.7 | 40.0 ± 0.0 |" in text
    assert "| hal+mb | 0 | 333.0 | – | – |" in text
    assert "Collapsed in training: sum captions 0.4 seed 0" in text
    assert (page / "figures" / "rsum_over_rate.png").stat().st_size > 10_000

    finished_run(runs / "other", "sum", 7, 300, {"protocol": "captions", "rate": 0.4}, optimizer={"lr": 0.1})
    assert "was trained otherwise than other runs of sum: optimizer.lr differ" in run(*collecting, status=2)
