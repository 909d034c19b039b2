import csv
import json
import logging
from types import SimpleNamespace

import pytest
import torch
from broken_off import stopped
from looped import looped

from vsehub.losses import InfoNCE, MaxMargin, Rescaled, SumMargin, SumToMax
from vsehub.training.callbacks.collapse import CollapseDetector, embedding_variance, signs
from vsehub.training.module import LastStep

QUICK = ("loader.batch_size=16", "+callbacks.collapse.every=5", "+callbacks.collapse.patience=15")
FEW_STEPS = "+trainer.limit_train_batches=25"
SPREAD = {"images": 0.5, "texts": 0.5}


def step(scores, loss, positives=None):
    positives = torch.eye(len(scores), dtype=torch.bool) if positives is None else positives
    terms = loss(scores, positives)
    return LastStep(None, None, scores, positives, None, terms["loss"], terms)


def noise(size, scale, seed=0):
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) * scale


def test_variance_is_0_in_one_direction_and_1_when_balanced():
    row = torch.tensor([[0.6, -0.8, 0.0]])
    lengths = torch.tensor([[1.0], [7.0], [1e-3]])
    assert embedding_variance(lengths * row) == pytest.approx(0, abs=1e-7)
    assert embedding_variance(torch.cat([row, -row])) == pytest.approx(1)
    assert embedding_variance(torch.eye(4)) == pytest.approx(1 - 1 / 4)


@looped(
    ("loss", "plateau"),
    [
        (MaxMargin(0.2), 2 * 0.2 * 8),
        (SumMargin(0.1), 2 * 0.1 * 8 * 7),
        (SumToMax(0.2), 2 * 0.2 * 8 * 7),
        (Rescaled("max", margin=0.3), 2 * 0.3 * 8),
    ],
)
def test_equal_scores_are_seen_at_any_level(loss, plateau):
    for level in (-0.7, 0.0, 0.83):
        last = step(torch.full((8, 8), level), loss)
        assert last.loss.item() == pytest.approx(plateau, rel=1e-5)
        assert len(signs(last, SPREAD, loss)) == 1


@pytest.mark.parametrize("loss", [SumMargin(), InfoNCE()], ids=["sum", "infonce"])
def test_a_fresh_model_has_about_the_loss_of_equal_scores_and_is_no_collapse(loss):
    scores = noise(64, 0.02)
    scores.diagonal().copy_(scores.mean())
    last, equal = step(scores, loss), step(torch.zeros(64, 64), loss)
    assert last.loss.item() == pytest.approx(equal.loss.item(), rel=0.05)
    assert signs(last, SPREAD, loss) == []


def test_pairs_that_stand_out_are_no_collapse_whatever_the_loss_and_the_variance():
    """MAX contracts what it has still to learn: its loss stands at 2·margin·N for epochs while rsum rises."""
    scores = 0.9 + noise(64, 1e-4)
    loss = MaxMargin()
    assert len(signs(step(scores, loss), {"images": 1e-5, "texts": 0.5}, loss)) == 2
    learning = scores + 1e-4 * torch.eye(64)
    assert step(learning, loss).loss.item() == pytest.approx(2 * 0.2 * 64, rel=0.01)
    assert signs(step(learning, loss), {"images": 1e-5, "texts": 1e-5}, loss) == []


def seen_by(detector, steps, collapsed, caplog):
    """The warnings after steps at which the scores are equal where `collapsed` says so; one look each."""
    loss, logged = MaxMargin(), {}
    module = SimpleNamespace(
        loss=loss,
        log_dict=lambda values, **_: logged.update(values),
        log=lambda name, value, **_: logged.update({name: value}),
    )
    trainer = SimpleNamespace(callbacks=[], is_last_batch=False, current_epoch=0)
    with caplog.at_level(logging.WARNING):
        for number in steps:
            trainer.global_step = number
            scores = torch.zeros(4, 4) if collapsed(number) else torch.eye(4)
            vectors = torch.ones(4, 2) if collapsed(number) else torch.eye(4)
            module.last_step = step(scores, loss)._replace(images=vectors, texts=vectors)
            detector.on_train_batch_end(trainer, module, None, None, 0)
    return [record.getMessage().split(" the ")[0] for record in caplog.records], logged


def test_warns_once_until_it_has_recovered(caplog):
    detector = CollapseDetector(every=10, patience=20, after=30)
    messages, logged = seen_by(detector, range(1, 150), lambda number: not 80 <= number <= 95, caplog)
    assert messages == ["training has collapsed: since step 40", "training has collapsed: since step 100"]
    assert detector.first["step"] == 40
    assert logged["train/collapsed"] == 1.0
    assert logged["train/embedding_variance/images"] == pytest.approx(0, abs=1e-7)


def test_a_short_training_is_judged_too(caplog):
    detector = CollapseDetector(every=10, patience=100, after=50)
    detector.on_train_start(SimpleNamespace(estimated_stepping_batches=100), None)
    assert seen_by(detector, range(1, 101), lambda number: True, caplog)[0] == ["training has collapsed: since step 20"]


def test_its_state_travels(caplog):
    before, after = CollapseDetector(10, 20, 0), CollapseDetector(10, 20, 0)
    assert seen_by(before, range(1, 21), lambda number: True, caplog)[0] == []
    after.load_state_dict(before.state_dict())
    assert seen_by(after, range(21, 31), lambda number: True, caplog)[0] == ["training has collapsed: since step 10"]


@pytest.fixture
def collapsing(run_here, undrawn, tmp_path):
    """A function that trains tiny scenes and looks at them often: the run, and `collapsed` of run.json and metrics."""

    def train(*settings):
        run_here("train", *settings)
        run = tmp_path / "run"
        with (run / "metrics.csv").open() as handle:
            looks = [float(row["train/collapsed"]) for row in csv.DictReader(handle)]
        return run, json.loads((run / "run.json").read_text())["collapsed"], looks

    return train


SMALLER = ("data.size=tiny", "text_encoder.word_dim=8", "image_encoder.width=4", "hydra.run.dir=run", *QUICK)


def test_hal_without_a_warm_up_collapses_and_a_resumed_run_knows_of_it(collapsing):
    settings = ["experiment=papers", "embedding_dim=16", "loss=hal", "optimizer.lr=0.01", "callbacks.warmup.steps=0"]
    run, first, looks = collapsing(*settings, "trainer.max_epochs=1", FEW_STEPS, *SMALLER)
    assert "no pair scores above 0" in first["seen"][-1]
    assert looks == [1]
    assert collapsing(f"resume={stopped(run)}", "trainer.max_epochs=2")[1:] == (first, [1, 1])
    assert (run / "train.log").read_text().count("training has collapsed") == 1


@pytest.mark.parametrize("loss", ["sum", "max", "hal", "infonce"])
@pytest.mark.long
def test_ordinary_training_is_not_called_collapsed(loss, collapsing):
    settings = [f"loss={loss}", "trainer.max_epochs=2", "embedding_dim=64", "callbacks.warmup.steps=20"]
    assert collapsing(*settings, *SMALLER)[1:] == (None, [0, 0])
