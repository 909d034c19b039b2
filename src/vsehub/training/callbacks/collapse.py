"""Detects collapsed training: all embeddings point in one direction, or the loss no longer changes."""

import logging
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F

from vsehub.checks import whole
from vsehub.sets import Encoding, Sets
from vsehub.training.module import LastStep, loss_terms
from vsehub.training.run_record import RunRecorder
from vsehub.types import Loss

log = logging.getLogger(__name__)

# Chosen between trainings that collapsed and trainings that went on (docs/train.md).
STANDARD_ERRORS = 2  # pairs stand out if they score above the negatives by more than this
ONE_DIRECTION = 1e-3  # embedding variance
ADVICE = "Lower optimizer.lr or raise callbacks.warmup.steps"
NEAR = 0.01  # relative distance of the loss from the loss of equal scores
NARROW = 0.05  # standard deviation of the negatives' scores, as a share of the loss's margin


class CollapseDetector(pl.Callback):
    """Logs the embedding variance every few steps, and warns if training has collapsed.

    Training has collapsed if all checked steps within `patience` steps show one of the `signs`. every: number of steps
    between checks; the last step of an epoch is logged too, but not checked. after: the number of steps at the start
    that are not checked. The first collapse is written to run.json.
    """

    def __init__(self, every: int = 25, patience: int = 100, after: int = 50):
        whole("collapse every", every)
        self.every, self.patience, self.after = every, patience, after
        self.since: int | None = None
        self.collapsed = False
        self.first: dict | None = None

    def state_dict(self) -> dict:
        """The state of the detector."""
        return {"since": self.since, "collapsed": self.collapsed, "first": self.first}

    def load_state_dict(self, state: dict) -> None:
        """Go on where the run that is resumed was."""
        self.since, self.collapsed, self.first = state["since"], state["collapsed"], state["first"]

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        """Record the first collapse of a resumed run."""
        self._record(trainer)

    def _record(self, trainer: Any) -> None:
        for recorder in trainer.callbacks:
            if isinstance(recorder, RunRecorder):
                recorder.record["collapsed"] = self.first
                recorder.write()

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Shorten `after` and `patience` for a short training: to a tenth and to half of its steps."""
        steps = min(trainer.estimated_stepping_batches, 10**9)  # infinite without a number of epochs
        self.after, self.patience = min(self.after, int(steps // 10)), min(self.patience, int(steps // 2))

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs, batch, index: int) -> None:
        """Look, log and judge."""
        step = trainer.global_step
        if step % self.every and not trainer.is_last_batch:
            return
        last = module.last_step
        variances = {"images": embedding_variance(last.images), "texts": embedding_variance(last.texts)}
        if step > self.after and step % self.every == 0:
            self._judge(trainer, signs(last, variances, module.loss))
        epoch = {"on_step": False, "on_epoch": True, "batch_size": 1}
        module.log_dict({f"train/embedding_variance/{side}": value for side, value in variances.items()}, **epoch)
        module.log("train/collapsed", float(self.collapsed), reduce_fx="max", **epoch)

    def _judge(self, trainer: pl.Trainer, reasons: list[str]) -> None:
        step = trainer.global_step
        if not reasons:
            self.since, self.collapsed = None, False
            return
        self.since = step if self.since is None else self.since
        if self.collapsed or step - self.since < self.patience:
            return
        self.collapsed = True
        log.warning("training has collapsed: since step %d %s. %s", self.since, " and ".join(reasons), ADVICE)
        if self.first is None:
            self.first = {"epoch": trainer.current_epoch, "step": self.since, "seen": reasons}
            self._record(trainer)


def embedding_variance(encoding: Encoding) -> float:
    """1 - |mean unit vector|² of N encodings, a set counting as its mean: 0 where all point the same way, at most 1."""
    vectors = encoding.means() if isinstance(encoding, Sets) else encoding
    return 1 - F.normalize(vectors.double(), dim=1).mean(dim=0).square().sum().item()


@torch.no_grad()
def signs(step: LastStep, variances: dict[str, float], loss: Loss) -> list[str]:
    """The signs of collapse, in words; none while the pairs stand out among the scores.

    Signs: an embedding variance of about 0; for a loss with a margin, scores that hardly differ and a loss near that of
    equal scores (2·margin·N for MAX); no pair above `needs_above` (HAL's max(0, W_ii S_ii) has no gradient below).
    Trainings that go well can show each of these too, but their pairs stand out.
    """
    paired, negatives = step.scores.diagonal().double(), step.scores[~step.positives].double()
    if len(negatives) < 2:
        return []
    by_chance = STANDARD_ERRORS * negatives.std().item() / len(paired) ** 0.5
    if (paired.mean() - negatives.mean()).item() > by_chance:
        return []
    reasons = [
        f"the embeddings of the {side} point in one direction (variance {variance:.1e})"
        for side, variance in variances.items()
        if variance < ONE_DIRECTION
    ]
    if negatives.std().item() < NARROW * loss.margin:
        equal = loss_terms(loss, torch.zeros_like(step.scores), step.positives, step.neighbors)["loss"].item()
        value = step.loss.item()
        if abs(value - equal) <= NEAR * equal:
            reasons.append(f"the loss is {value:.4g}, where equal scores for all pairs would give {equal:.4g}")
    needed, largest = loss.needs_above, paired.max().item()
    if needed is not None and largest <= needed:
        reasons.append(f"no pair scores above {needed:g} (the largest {largest:.2g}), so that none is pulled together")
    return reasons
