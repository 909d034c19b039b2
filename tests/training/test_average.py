"""The moving average of the weights: against a loop, and what is measured, saved and resumed with it."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vsehub.training.callbacks import WeightAverage


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.states, self.measured = [{name: value.clone() for name, value in self.state_dict().items()}], []

    def training_step(self, batch, index):
        return (self.norm(self.layer(batch[0])) - batch[0][:, :2]).square().mean()

    def on_train_batch_end(self, *_):
        self.states.append({name: value.clone() for name, value in self.state_dict().items()})

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.05)


class Measures(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        module.measured.append({name: value.clone() for name, value in module.state_dict().items()})


def trained(folder, epochs, average, checkpoint=None, accumulated=1):
    module = Line()
    data = DataLoader(TensorDataset(torch.randn(12, 3, generator=torch.Generator().manual_seed(1))), 4)
    saves = pl.callbacks.ModelCheckpoint(folder, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[average, Measures(), saves],
        logger=False,
        enable_progress_bar=False,
        accelerator="cpu",
        enable_model_summary=False,
        accumulate_grad_batches=accumulated,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return module


def close(first, other):
    return all(torch.allclose(first[name].double(), other[name].double(), atol=1e-6) for name in other)


def test_what_is_measured_and_saved_is_the_average_of_a_loop(tmp_path):
    module = trained(tmp_path, 3, WeightAverage(0.9))
    averages, average = [], {name: value.double() for name, value in module.states[0].items()}
    for step, weights in enumerate(module.states[1:], 1):
        moved = 1 - min(0.9, (1 + step) / (10 + step))
        for name, value in weights.items():
            whole = not value.is_floating_point()
            average[name] = value if whole else average[name] + moved * (value.double() - average[name])
        averages.append(dict(average))
    for epoch, measured in enumerate(module.measured):
        assert close(measured, averages[3 * epoch + 2]), epoch
    assert not close(module.states[-1], module.measured[-1])
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert close(saved["state_dict"], module.measured[-1])
    assert close(saved["callbacks"]["WeightAverage"]["weights"], module.states[-1])


def test_a_resumed_run_goes_on_with_the_weights_and_ends_as_an_unbroken_one(tmp_path):
    whole = trained(tmp_path / "whole", 4, WeightAverage(0.99))
    trained(tmp_path / "broken", 2, WeightAverage(0.99))
    resumed = trained(tmp_path / "broken", 4, WeightAverage(0.99), tmp_path / "broken" / "last.ckpt")
    for name, value in whole.states[-1].items():
        assert torch.equal(value, resumed.states[-1][name]), name
    for name, value in whole.measured[-1].items():
        assert torch.equal(value, resumed.measured[-1][name]), name


def test_frozen_parameters_are_not_copied(tmp_path, monkeypatch):
    average = WeightAverage(0.9)
    monkeypatch.setattr(Line, "setup", lambda module, stage: module.layer.bias.requires_grad_(False))
    module = trained(tmp_path, 1, average)
    assert "layer.bias" not in average.state_dict()["weights"]
    assert torch.equal(module.measured[0]["layer.bias"], module.states[0]["layer.bias"])


def test_batches_between_two_steps_of_the_optimizer_do_not_count(tmp_path):
    average = WeightAverage(0.9)
    trained(tmp_path, 2, average, accumulated=3)
    assert average.steps == 2
