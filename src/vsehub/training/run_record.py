"""run.json and metrics.csv: a run's settings, its progress and its results."""

import logging
import math
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from vsehub import __version__
from vsehub.checks import require
from vsehub.data.noise import NoisySource
from vsehub.data.sources import CaptionedImages
from vsehub.io.address import masked_output, masked_settings
from vsehub.io.files import write_json, write_text
from vsehub.io.provenance import code_version, versions
from vsehub.io.records import RUN
from vsehub.io.text import csv_text
from vsehub.machine import hardware
from vsehub.metrics.ranks import chance_rsum
from vsehub.report.tables import count_text
from vsehub.training.callbacks.average import WeightAverage
from vsehub.training.callbacks.warmup import Warmup
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.gather import process_number

log = logging.getLogger(__name__)

FORECASTS = (4, 20)  # steps after the first, which is slow, before the training's length is estimated


def describe_run(
    config: Mapping[str, Any],
    data: RetrievalDataModule,
    split_metadata: Mapping[str, dict],
    code: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """The record of a run before it trains.

    config: the run's plain configuration. split_metadata: the metadata of each split. code: group -> module -> SHA-256
    of its file.
    """
    source = data.source
    packages = {name.partition(".")[0] for files in code.values() for name in files}
    return {
        "name": f"{source.name}-{config['label']}-{config['seed']}",
        "label": config["label"],
        "dataset": source.name,
        "architecture": config["architecture"],
        "seed": config["seed"],
        "vsehub": __version__,
        "versions": versions(packages - {"vsehub"}),
        "code": code,
        "git": code_version(),
        "hardware": hardware(),
        "config": masked_settings(config),  # loggers get it too
        "data": split_metadata,
        "chance_rsum": chance(data.splits["val"]),
        **({"noise": source.metadata} if isinstance(source, NoisySource) else {}),
    }


class RunRecorder(pl.Callback):
    """Writes `run.json` when training starts, fails and ends, and `metrics.csv`, one row an epoch.

    folder: the run's folder. recipe: name of the run's recipe, None without. record: the content of run.json, to which
    the command adds `describe_run` before training. The rows travel in the checkpoint, so that a resumed run's history
    is whole. Files count epochs from 0, messages from 1; the model before training is epoch -1 in files and 0 in
    messages.
    """

    def __init__(self, folder: str | Path, recipe: str | None = None):
        self.folder, self.recipe = Path(folder), recipe
        self.record: dict[str, Any] = {"schema": RUN.version, "status": "running"}
        self.rows: list[dict[str, float]] = []
        self._first_step: tuple[int, float] | None = None  # its index and the time of its end

    def state_dict(self) -> dict:
        """The rows so far."""
        return {"rows": self.rows, "started": self.record.get("started")}

    def load_state_dict(self, state: dict) -> None:
        """Take up the rows of the run that is resumed."""
        self.rows, self.record["started"] = list(state["rows"]), state["started"]

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The run has begun. Raises InputError where processes have loaded different data."""
        first = trainer.strategy.broadcast(self.record["data"])
        require(self.record["data"] == first, "this process has loaded other data than process 0")
        self.record |= {"precision": trainer.precision, "processes": trainer.world_size}
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.log_hyperparams({**self.record["config"], "dataset": self.record["dataset"]})
                self.record["wandb"] = {"id": logger.experiment.id}
        self.write()

    def on_train_start(self, trainer: Any, module: pl.LightningModule) -> None:
        """Log the budget and start the clock of the first epoch; each later epoch starts when the one before ends."""
        if process_number() == 0:
            dim = self.record["config"]["embedding_dim"]
            log.info("%s; chance rsum %.1f", budget(trainer, dim, self.recipe), self.record["chance_rsum"])
            log.info("if the training is stopped, vsehub train resume=%s continues", self.folder)
        self._epoch_start = time.perf_counter()
        if "val/rsum" in trainer.callback_metrics:
            metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
            self.add_row({"epoch": -1, "step": 0, "seconds": 0.0, **metrics})

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Log how long the training will take, estimated from its first 4 steps and again from its first 20."""
        if self._first_step is None:
            self._first_step = index, time.perf_counter()
        steps = index - self._first_step[0]
        if steps in FORECASTS and trainer.current_epoch == 0 and process_number() == 0:
            all_steps = trainer.num_training_batches * trainer.max_epochs
            minutes = all_steps * (time.perf_counter() - self._first_step[1]) / steps / 60
            log.info("about %.1f minutes at the speed of the first %d steps", minutes, steps)

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Note the epoch's learning rate; at its end the schedule has moved on already."""
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Add the epoch's row."""
        now = time.perf_counter()
        seconds, self._epoch_start = now - self._epoch_start, now
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if name != "step/loss"}
        self.add_row(
            {
                "epoch": trainer.current_epoch,
                "step": trainer.global_step,
                "lr": self._learning_rate,
                "seconds": seconds,
                **metrics,
            }
        )
        if process_number() == 0:
            log.info(
                "epoch %d of %d: loss %.4g, val rsum %.1f (chance %.1f), %.1f s",
                trainer.current_epoch + 1,
                trainer.max_epochs,
                metrics["train/loss"],
                metrics["val/rsum"],
                self.record["chance_rsum"],
                seconds,
            )

    def add_row(self, row: dict[str, float]) -> None:
        """Add an epoch's row to metrics.csv. Of several processes, the first writes."""
        self.rows.append(row)
        if process_number() == 0:
            columns = dict.fromkeys(name for row in self.rows for name in row)
            write_text(self.folder / "metrics.csv", csv_text(columns, self.rows))

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict) -> None:
        """Write the loggers' rows of the steps before the checkpoint, which a resumed run does not repeat."""
        for logger in trainer.loggers:
            logger.save()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Record that the run failed, with the error, or that a signal stopped it.

        Lightning calls this for errors of the training, the command for errors of the measurement after it. A run that
        is refused before its first step has no record.
        """
        if "started" not in self.record:
            return
        stopped = isinstance(exception, KeyboardInterrupt | SystemExit | SIGTERMException)
        self.record["status"] = "stopped" if stopped else "failed"
        if not stopped:
            self.record["error"] = masked_output(f"{type(exception).__name__}: {exception}")
            with (self.folder / "train.log").open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(masked_output("".join(traceback.format_exception(exception))))
        self.write()

    @property
    def best(self) -> dict[str, float]:
        """The row of the best epoch."""
        return max(self.rows, key=lambda row: row["val/rsum"])

    def best_epoch_text(self) -> str:
        """The best epoch in words, and whether it is the last of several."""
        best, epochs = self.best["epoch"] + 1, self.rows[-1]["epoch"] + 1
        text = f"best epoch {best} of {epochs}"
        if self.record.get("collapsed"):
            return f"{text}, COLLAPSED"
        rising = epochs > 1 and best == epochs
        return f"{text}, still rising at the last epoch: more epochs may help" if rising else text

    def finish(self, trainer: pl.Trainer, metrics: dict[str, float], sha256: str) -> None:
        """Record that the run finished, with the final metrics, prefixed with their split, and the model's SHA-256.

        The loggers of the trainer get them too.
        """
        best = {"epoch": self.best["epoch"], "val/rsum": self.best["val/rsum"]}
        self.record |= {"status": "finished", "best": {**best, "sha256": sha256}, "metrics": metrics}
        self.write()
        for logger in trainer.loggers:
            logger.log_metrics(metrics | {f"best/{name}": value for name, value in best.items()}, trainer.global_step)
            logger.save()

    def write(self) -> None:
        """Write run.json, in the first process only; wall_seconds is the training's own, over all resumptions."""
        self.record.setdefault("started", datetime.now(UTC).isoformat(timespec="seconds"))
        if process_number() == 0:
            self.record["wall_seconds"] = sum(row["seconds"] for row in self.rows)
            self.record["epochs"] = sum(row["epoch"] >= 0 for row in self.rows)
            write_json(self.folder / "run.json", self.record)


def budget(trainer: Any, dim: int, recipe: str | None) -> str:
    """A line with the length of the training, and the settings whose defaults surprise."""
    steps = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
    warmup = sum(callback.steps for callback in trainer.callbacks if isinstance(callback, Warmup))
    averaged = any(isinstance(callback, WeightAverage) for callback in trainer.callbacks)
    group = trainer.optimizers[0].param_groups[0]
    rate = group.get("initial_lr", group["lr"])  # of a resumed run, the schedule may have lowered "lr"
    return (
        f"{count_text(trainer.max_epochs, 'epoch')} of {count_text(steps, 'step')}: embedding_dim {dim}, "
        f"optimizer.lr {rate:g}{f' (recipe {recipe})' if recipe else ''}, "
        f"warm-up {count_text(warmup, 'step')}, "
        f"trainer.gradient_clip_val {trainer.gradient_clip_val}, "
        f"averaged weights {'on' if averaged else 'off'}"
    )


def chance(split: CaptionedImages) -> float:
    """The expected rsum of random rankings of a split."""
    images, texts = split.pairs.T
    texts_of, images_of = np.bincount(images, minlength=len(split.images)), np.bincount(texts)
    return chance_rsum(texts_of.tolist(), images_of.tolist())
