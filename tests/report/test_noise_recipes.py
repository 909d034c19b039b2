"""Runs under noise in reports: seeds together, protocols and rates apart, and nothing claimed across them."""

import pytest

from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.runs import read_runs

SETTINGS = {"protocol": None, "rate": 0.0, "index": None, "seed": 0}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("vsehub.report.build.draw", lambda *_: [])


@pytest.fixture
def noisy(write_run):
    """A function that writes a run under noise; its training captions are others for each seed."""

    def write(seed, rsum, protocol="captions", rate=0.2, index=None, label="hal"):
        asked = {"protocol": protocol, "rate": rate, "index": index, "seed": seed}
        facts = {"clean_fingerprint": "ab12cd34ef56", "fingerprint": "feedfacecafe", "changed": rate, **asked}
        split = {"images": 2000, "captions": 10000}
        return write_run(
            label,
            seed,
            (rsum,),
            config={"data": {"batch_size": 128, "noise": asked}},
            folder=f"{label}-{protocol}-{rate}-{bool(index)}-{seed}",
            data={"train": split | {"fingerprint": f"noisy{seed}"}, "val": split | {"fingerprint": "val"}},
            noise=facts,
        )

    return write


def variants(tmp_path):
    runs = read_runs([tmp_path / "runs"])
    found = series_of(runs)
    return {(run.record["seed"], found[run.path].variant) for run in runs}


def test_seeds_go_together_and_noise_apart(tmp_path, write_run, noisy):
    clean = {"train": {"fingerprint": "ab12cd34ef56"}, "val": {"fingerprint": "val"}}
    write_run("hal", 0, config={}, data=clean)  # from before there was noise
    write_run("hal", 1, config={"data": {"batch_size": 128, "noise": SETTINGS | {"protocol": "images"}}}, data=clean)
    for seed in (0, 1):
        noisy(seed, 280.0 + seed)
    noisy(0, 260.0, rate=0.4)
    noisy(0, 280.0, protocol="images")
    noisy(2, 280.0, index="some/where.npz")
    assert variants(tmp_path) == {
        *((seed, "noise none") for seed in (0, 1)),
        *((seed, "noise captions 0.2") for seed in (0, 1)),
        (0, "noise captions 0.4"),
        (0, "noise images 0.2"),
        (2, "noise captions 0.2 of index feedfacecafe"),
    }


def test_noise_is_named_and_nothing_is_claimed_across_it(tmp_path, noisy):
    for seed in (0, 1, 2):
        noisy(seed, 280.0 + seed, label="hal")
        noisy(seed, 240.0 + seed, label="max", protocol="images")
    text = build_report([tmp_path / "runs"], tmp_path / "out")["table.md"].read_text()
    assert "noise images 0.2 (max), captions 0.2 (hal)" in text
    assert "nothing is claimed beyond mean ± std" in text
    assert "(ab12cd34ef56, noise of protocol captions 0.2)" in text
    assert "(ab12cd34ef56, noise of protocol images 0.2)" in text
    assert "noisy0" not in text
