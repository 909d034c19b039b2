"""The warm-up: the rate of each step against a loop, shortened to a tenth of the training, and resumed within it."""

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vsehub.training.callbacks import Warmup

BATCHES = 5


class Line(pl.LightningModule):
    """A module that notes the rate with which the optimizer makes each step; the schedule halves it each epoch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.rates = nn.Linear(3, 2), []

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def on_train_start(self):
        self.optimizers().optimizer.register_step_pre_hook(
            lambda optimizer, *_: self.rates.append(optimizer.param_groups[0]["lr"])
        )


class Ends(pl.Callback):
    """Ends a training without a number of epochs."""

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.current_epoch == 11


def trained(folder, steps, checkpoint=None, **settings):
    """The module after training."""
    saves = pl.callbacks.ModelCheckpoint(folder, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    trainer = pl.Trainer(
        callbacks=[Warmup(steps), Ends(), saves],
        logger=False,
        enable_progress_bar=False,
        accelerator="cpu",
        enable_model_summary=False,
        **settings,
    )
    module = Line()
    trainer.fit(module, DataLoader(TensorDataset(torch.ones(4 * BATCHES, 3)), 4), ckpt_path=checkpoint)
    return module


def by_loop(count, per_epoch, warm):
    """The rate of each step: halved in each epoch, and rising over the first `warm` steps of all."""
    rates = []
    for step in range(count):
        rates.append(0.5 * 0.5 ** (step // per_epoch))
        if step < warm:
            rates[-1] *= (step + 1) / warm
    return rates


@pytest.mark.parametrize(
    ("steps", "settings", "count", "per_epoch", "warm"),
    [
        (50, {"max_epochs": 12}, 60, BATCHES, 6),
        (6, {"max_epochs": 12}, 60, BATCHES, 6),
        (5, {"max_epochs": 12}, 60, BATCHES, 5),
        (0, {"max_epochs": 12}, 60, BATCHES, 0),
        (50, {"max_epochs": 5}, 25, BATCHES, 2),
        (50, {"max_epochs": 1}, 5, BATCHES, 0),
        (50, {"max_epochs": 12, "limit_train_batches": 3}, 36, 3, 3),
        (50, {"max_epochs": 12, "max_steps": 41}, 41, BATCHES, 4),
        (50, {"max_epochs": 12, "accumulate_grad_batches": 2}, 36, 3, 3),
        (50, {"max_epochs": -1, "max_steps": 41}, 41, BATCHES, 4),
        (7, {"max_epochs": -1}, 60, BATCHES, 7),  # without an end
    ],
)
def test_it_is_at_most_a_tenth_of_the_training(tmp_path, steps, settings, count, per_epoch, warm):
    assert trained(tmp_path, steps, **settings).rates == pytest.approx(by_loop(count, per_epoch, warm))


def test_a_run_that_is_resumed_within_its_warm_up_goes_on_with_it(tmp_path):
    """Also if its number of epochs changes."""
    whole = trained(tmp_path, 50, max_epochs=12)
    resumed = trained(tmp_path / "again", 50, tmp_path / "epoch=0.ckpt", max_epochs=12)
    assert resumed.rates == whole.rates[BATCHES:]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
    for epochs in (4, 24):
        other = trained(tmp_path / str(epochs), 50, tmp_path / "epoch=0.ckpt", max_epochs=epochs)
        assert other.rates[:15] == whole.rates[BATCHES:][:15]
