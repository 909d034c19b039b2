"""`make gpu-check` runs at tiny sizes on the CPU; what benchmarks measure is not tested."""

import sys
from importlib import import_module

import pytest
import torch

from vsehub.training.datamodule import RetrievalDataModule

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scripts():
    """The benchmarks' modules."""
    names = ("sources", "gpu_equality", "gpu_check")
    return {name: import_module(f"experiments.benchmarks.{name}") for name in names}


@pytest.fixture(scope="module")
def data(scripts):
    module = RetrievalDataModule(scripts["sources"].Synthetic(images=80, dim=12), batch_size=16)
    module.setup()
    return module


def test_gpu_checks_hold_on_the_cpu(scripts, data):
    check = scripts["gpu_check"]
    rows = scripts["gpu_equality"].bank_rows(CPU, pairs=400, queries=8, k=20, dim=16)
    rows += scripts["gpu_equality"].text_rows(CPU, dim=16, captions=8)
    rows += scripts["gpu_equality"].limit_rows(CPU, queries=2, dim=4)
    rows += scripts["gpu_equality"].rounded_rows(CPU, rows=64, dim=32)
    rows += scripts["gpu_equality"].shortlist_rows(CPU, queries=3, entries=20, candidates=7, dim=8)
    assert scripts["gpu_equality"].memory_rows(CPU) == []
    assert [name for name, _, holds in rows if holds is False] == []
    assert sum(holds is True for *_, holds in rows) >= 7
    speeds = {name: found for name, found, _ in check.speed_rows(CPU, data, steps=2, dim=16)}
    assert len(speeds) == 5
    assert speeds["of a step, each waited for: load, encode, loss, backward, optimiser"].count(",") == 4
    assert check.cost_rows(CPU, data, [260], dim=16)


def test_gpu_check_trains(scripts, vsehub, monkeypatch, tmp_path):
    def run(command, **settings):
        assert command[:3] == [sys.executable, "-m", "vsehub"]
        vsehub(*command[3:], cwd=tmp_path)

    monkeypatch.setattr(scripts["gpu_check"].subprocess, "run", run)
    settings = ["data.size=tiny", "image_encoder.width=4", "text_encoder.word_dim=8", "embedding_dim=8"]
    assert 0 < scripts["gpu_check"].train("32-true", 0, CPU, 1, settings) <= 600
    losses = scripts["gpu_check"].step_losses(1, CPU, [*settings, "image_encoder.norm=group", "loader.batch_size=16"])
    assert len(losses) > 2
    assert losses[-1] != losses[0]
