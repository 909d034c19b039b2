"""`make gpu-check` runs at tiny sizes on the CPU; what benchmarks measure is not tested."""

import re

import torch

from experiments.benchmarks import gpu_check, gpu_equality
from experiments.benchmarks.sources import Synthetic
from vsehub.training.datamodule import RetrievalDataModule

CPU = torch.device("cpu")


def test_gpu_checks_hold_on_the_cpu():
    rows = gpu_equality.bank_rows(CPU, pairs=400, queries=8, k=20, dim=16)
    rows += gpu_equality.text_rows(CPU, dim=16, captions=8)
    rows += gpu_equality.shortlist_rows(CPU, queries=3, entries=20, candidates=7, dim=8)
    assert [name for name, _, holds in rows if holds is False] == []
    assert sum(holds is True for *_, holds in rows) >= 4
    data = RetrievalDataModule(Synthetic(images=80, dim=12), batch_size=16)
    data.setup()
    rows = gpu_check.speed_rows(CPU, data, steps=2, dim=16)
    assert [name for name, measured, _ in rows if not re.search("[1-9]", measured)] == []
