"""Says when training has collapsed: all embeddings in one direction, or a loss that nothing moves any more."""

import logging

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.losses.hinge import KNNMargin
from vsehub.sets import Encoding, Sets
from vsehub.training.module import LastStep
from vsehub.training.recorder import RunRecorder
from vsehub.types import Loss

log = logging.getLogger(__name__)

# Measured on the scenes and on Flickr8k (docs/training.md): what learns, however slowly, is far from all three at once.
ONE_DIRECTION = 1e-3  # embedding variance
NEAR = 0.01  # of the loss that equal scores give
STANDARD_ERRORS = 2


class CollapseDetector(pl.Callback):
    """Looks at a training step now and then, logs how far the embeddings spread, and warns when training has collapsed.

    Collapsed is what all looks of `patience` steps have seen: see `signs`. every: steps from look to look; the last
    step of an epoch is logged too, not judged. after: so many steps at the start are not judged, the warm-up's. stop:
    end training with the epoch that leaves it collapsed. The first collapse goes to run.json. Raises InputError for
    numbers out of range.
    """

    def __init__(self, every: int = 25, patience: int = 100, after: int = 50, stop: bool = False):
        whole("collapse every", every)
        whole("collapse patience", patience)
        require(after >= 0, f"collapse after is {after!r}; expected 0 or more steps")
        self.every, self.patience, self.after, self.stop = every, patience, after, stop
        self.since: int | None = None
        self.collapsed = False
        self.first: dict | None = None

    def state_dict(self) -> dict:
        """What it has seen so far."""
        return {"since": self.since, "collapsed": self.collapsed, "first": self.first}

    def load_state_dict(self, state: dict) -> None:
        """Go on where the run that is resumed was."""
        self.since, self.collapsed, self.first = state["since"], state["collapsed"], state["first"]

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """run.json says from the start that there was no collapse, or that there was one before the run was resumed."""
        self._record(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs, batch, index: int) -> None:
        """Look, log and judge."""
        step = trainer.global_step
        if step % self.every and not trainer.is_last_batch:
            return
        last = module.last_step
        variances = {"images": embedding_variance(last.images), "texts": embedding_variance(last.texts)}
        if step > self.after and step % self.every == 0:
            self._judge(trainer, module.loss, signs(last, variances, module.loss))
        module.log_dict({f"train/embedding_variance/{side}": value for side, value in variances.items()})
        module.log("train/collapsed", float(self.collapsed))

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Whole epochs, so that the run can be resumed with other settings."""
        if self.stop and self.collapsed:
            trainer.should_stop = True

    def _judge(self, trainer: pl.Trainer, loss: Loss, seen: list[str]) -> None:
        step = trainer.global_step
        if not seen:
            self.since, self.collapsed = None, False
            return
        self.since = step if self.since is None else self.since
        if self.collapsed or step - self.since < self.patience:
            return
        self.collapsed = True
        log.warning("training has collapsed: since step %d %s. %s", self.since, " and ".join(seen), advice(loss))
        if self.first is None:
            self.first = {"epoch": trainer.current_epoch, "step": self.since, "seen": seen}
            self._record(trainer)
            for recorder in _recorders(trainer):
                recorder.write()

    def _record(self, trainer: pl.Trainer) -> None:
        for recorder in _recorders(trainer):
            recorder.record["collapsed"] = self.first


def embedding_variance(encoding: Encoding) -> float:
    """1 - |mean unit vector|² of N encodings, of sets their means: 0 where all point the same way, at most 1."""
    vectors = encoding.means() if isinstance(encoding, Sets) else encoding
    return 1 - F.normalize(vectors.double(), dim=1).mean(dim=0).square().sum().item()


@torch.no_grad()
def signs(step: LastStep, variances: dict[str, float], loss: Loss) -> list[str]:
    """What says that nothing is learned, in words; none while the pairs score higher than the other entries.

    An embedding variance of about 0; the loss that equal scores would give, where that is one value at whatever score
    (2·margin·N for MAX); no pair above the score from which on the loss rewards pairs (`needs_above`: HAL's
    max(0, W_ii S_ii) has no gradient below). Each is seen in trainings that go on well too, when pairs stand out.
    """
    if stand_out(step.scores, step.positives):
        return []
    found = [
        f"the embeddings of the {side} point in one direction (variance {variance:.1e})"
        for side, variance in variances.items()
        if variance < ONE_DIRECTION
    ]
    plateau, higher = (
        loss(torch.full_like(step.scores, score), step.positives, step.neighbors)["loss"].item() for score in (0.0, 0.5)
    )
    value = step.loss.item()
    if abs(plateau - higher) <= 1e-4 * abs(plateau) and abs(value - plateau) <= NEAR * abs(plateau):
        found.append(f"the loss is {value:.4g}, where equal scores for all pairs would give {plateau:.4g}")
    needed, largest = getattr(loss, "needs_above", None), step.scores.diagonal().max().item()
    if needed is not None and largest <= needed:
        found.append(f"no pair scores above {needed:g} (the largest {largest:.2g}), so that none is pulled together")
    return found


def stand_out(scores: Tensor, positives: Tensor) -> bool:
    """Whether the pairs (N, on the diagonal) score higher than the negatives by two standard errors."""
    paired, others = scores.double().diagonal(), scores.double()[~positives]
    if len(others) < 2:
        return True
    error = others.std() / len(paired) ** 0.5
    return (paired.mean() - others.mean()).item() > STANDARD_ERRORS * error.item()


def advice(loss: Loss) -> str:
    """What to change."""
    always = "Lower optimizer.lr or raise callbacks.warmup.steps"
    if hasattr(loss, "warmup_epochs"):
        return f"{always} or loss.warmup_epochs, or train with loss=hal"
    if isinstance(loss, KNNMargin):
        return f"{always}, begin with all negatives (loss=sum_to_max), or train with loss=hal"
    return always


def _recorders(trainer: pl.Trainer) -> list[RunRecorder]:
    return [callback for callback in trainer.callbacks if isinstance(callback, RunRecorder)]
