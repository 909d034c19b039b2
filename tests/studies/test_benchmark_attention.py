"""The benchmark runs at small sizes; what it measures is not tested."""

import json
from importlib import import_module

import pytest
import torch


@pytest.fixture
def attention():
    """The benchmark's module."""
    return import_module("experiments.benchmarks.attention")


def test_it_writes_its_results(attention, tmp_path, capsys):
    attention.main(["--quick", "--rounds", "1", "--device", "cpu", "--out", str(tmp_path / "attention.json")])
    entries = json.loads((tmp_path / "attention.json").read_text())["entries"]
    assert len(entries) == 13
    assert all(one["to_floor"]["plain"] > 0 for one in entries)
    assert "### Cross-attention and order" in capsys.readouterr().out


def test_the_plain_ways_compute_the_same(attention):
    images, texts = attention.sides(attention.Size(3, 4, 1, 5, 4), torch.device("cpu"))
    for direction, scale in attention.SCALES.items():
        ours = attention.CrossAttention(direction, softmax_scale=scale)(images, texts)
        torch.testing.assert_close(ours, attention.loop(images, texts, direction), rtol=1e-3, atol=1e-5)
    vectors = images.vectors[:5], texts.vectors[:7]
    torch.testing.assert_close(attention.Order()(*vectors), attention.broadcast(*vectors))


def test_plain_ways_that_are_too_large_are_left_out(attention, monkeypatch):
    monkeypatch.setattr(attention, "PLAIN_GIGABYTES", 0)
    entries = attention.measure(attention.QUICK[:1], torch.device("cpu"), 1)
    assert [("plain" in one["seconds"]) for one in entries] == [True, True, False, False, False, False]
    assert attention.text(entries).count("too large") == 4
