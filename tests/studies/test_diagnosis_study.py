"""What the study of gains computes: rank correlations, geometry, gains; and the bank that it and others leave stale."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.nn.functional import normalize

from experiments.bank.stale import StaleBank

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def study():
    return import_module("experiments.diagnosis.study")


def test_rank_correlations_are_scipys_with_ties(study):
    values = np.random.default_rng(0).integers(0, 5, (30, 4)).astype(float)
    np.testing.assert_allclose(study.spearman(values), stats.spearmanr(values).statistic, atol=1e-12)
    assert np.isnan(study.spearman(np.c_[values[:, 0], np.ones(30)])[0, 1])


def test_rank_correlations_of_samples_are_those_of_repeated_rows(study):
    random = np.random.default_rng(0)
    values, times = random.integers(0, 5, (30, 4)).astype(float), random.integers(0, 4, (8, 30))
    for found, own in zip(study.spearman(values, times), times, strict=True):
        np.testing.assert_allclose(found, stats.spearmanr(values.repeat(own, axis=0)).statistic, atol=1e-12)


def test_a_case_is_drawn_with_all_its_seeds(study, monkeypatch):
    monkeypatch.setattr(study, "DRAWS", 50)
    drawn = study.draws(np.array(["a", "b", "a", "c", "a", "b"]))
    assert drawn.shape == (50, 6)
    for counts in drawn:
        assert counts[0] == counts[2] == counts[4]
        assert counts[1] == counts[5]
        assert counts[0] + counts[1] + counts[3] == 3
    assert len({tuple(rows) for rows in drawn}) > 5


def test_geometry_is_that_of_loops(study):
    generator = torch.Generator().manual_seed(0)
    queries, items = (normalize(torch.randn(n, 5, generator=generator) + 0.5, dim=1) for n in (7, 4))
    found = study.geometry(queries, items)
    means = [sum(float(query @ item) for query in queries) / 7 for item in items]
    spreads = [np.std([float(query @ item) for item in items], ddof=1) for query in queries]
    assert found["popularity"] == pytest.approx(np.std(means, ddof=1) / np.mean(spreads), rel=1e-5)
    pairs = [float(one @ other) for one in items for other in items]
    assert found["concentration"] == pytest.approx(np.mean(pairs), rel=1e-5)


@pytest.mark.long
def test_a_model_is_measured_with_and_without_correction(study, trained):
    model = study.restored(trained, None)
    rows = study.measured(trained.with_name("case+one-3"), model)
    assert [(row["case"], row["seed"], row["direction"]) for row in rows] == [
        ("case+one", 3, d) for d in study.DIRECTIONS
    ]
    assert all(set(study.MEASURES) | set(study.CORRECTIONS) <= set(row) for row in rows)
    plain = study.evaluate(
        model.encode("test"), model.similarity, study.chosen("criterion", "nns"), study.chosen("protocol", "single")
    )
    csls = study.evaluate(
        model.encode("test"),
        model.similarity,
        study.chosen("criterion", "csls", k=10),
        study.chosen("protocol", "single"),
        model.encode("train"),
    )
    for row in rows:
        before, after = (sum(found.metrics[f"{row['direction']}/r{k}"] for k in (1, 5, 10)) for found in (plain, csls))
        assert row["recalls"] == pytest.approx(before)
        assert row["CSLS"] == pytest.approx(after - before)
    table = study.correlations(pd.DataFrame(rows * 4), "both").markdown()
    assert "Spearman's ρ over 8 models" in table


def test_a_stale_bank_is_refilled_when_it_is_due(monkeypatch):
    bank, filled = StaleBank(every=3, first_epoch=1, k=1), []

    def refill(trainer, module):
        filled.append(trainer.current_epoch)
        bank.bank.fill(torch.eye(2), torch.eye(2), torch.arange(2), torch.arange(2))

    monkeypatch.setattr(bank, "refill", refill)
    module = SimpleNamespace(device=torch.device("cpu"), log_dict=lambda values: None)
    for epoch in range(9):
        bank.on_train_epoch_start(SimpleNamespace(current_epoch=epoch), module)
    assert filled == [1, 4, 7]


@pytest.mark.long
def test_the_command_trains_with_a_stale_bank(vsehub, tmp_path):
    conf = EXPERIMENTS / "bank" / "conf"
    told = [
        "bank=stale",
        "bank.every=2",
        "bank.fraction=0.5",
        "trainer.max_epochs=2",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    vsehub(
        "train",
        f"--config-dir={conf}",
        *told,
        cwd=tmp_path,
        small=True,
        console=True,
        PYTHONPATH=str(EXPERIMENTS.parent),
    )
    history = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert history["bank/pairs"].notna().tolist() == [False, True]
