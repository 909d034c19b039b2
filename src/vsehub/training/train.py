"""Training a module under Lightning: callbacks in the order that works, checkpoints, the record of the run."""

import logging
import signal
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch.distributed as dist
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import Logger

from vsehub.checks import InputError
from vsehub.training.checkpoint import BestModel, CheckpointFiles
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.loggers.log import log_facts
from vsehub.training.module import RetrievalModule
from vsehub.training.processes import is_lost, process
from vsehub.training.run_record import RunRecorder


class EpochSeed(pl.Callback):
    """Seeds torch, numpy and random for each epoch, so that a resumed run draws what an unbroken one would.

    At the first batch, not as the epoch begins: the data loader draws a number in between, when its iterator is made,
    which a resumed run does at another moment. Each of several processes draws its own numbers.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int) -> None:
        """Derive the epoch's seed."""
        if index == 0:
            own = self.seed * 1_000_003 + trainer.current_epoch + process() * 500_000_003
            pl.seed_everything(own % 2**32, verbose=False)


def silence_lightning() -> None:
    """Silence Lightning's greetings and its hints about loader processes; other warnings stay."""
    warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*module\\(s\\) in eval mode.*")  # frozen models stay there
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*|.*treespec.*")
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # every process logs the whole batch's
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*|.*val_dataloader.*validation_step.*")
    logging.getLogger("lightning_fabric.utilities.distributed").setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_says_enough)


def _says_enough(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or "Profiler Report" in record.getMessage()


class Lightning(NamedTuple):
    """The Lightning parts of a training.

    trainer: makes the Trainer from callbacks, logger and plugins. precision: the Trainer's. callbacks: in their order.
    loggers: [] on other processes than the first. processes: how many train together.
    """

    trainer: Callable[..., pl.Trainer]
    precision: str
    callbacks: Sequence[pl.Callback]
    loggers: Sequence[Logger]
    processes: int = 1


class Training(NamedTuple):
    """The results of a training: recorder, loggers, and the checkpoint of the best epoch, None if no epoch ended."""

    recorder: RunRecorder
    loggers: Sequence[Logger]
    best: Path | None


def train_module(
    module: RetrievalModule,
    data: RetrievalDataModule,
    folder: Path,
    record: dict[str, Any],
    how: Lightning,
    seed: int,
    checkpoint: Path | None = None,
) -> Training:
    """Train `module` on `data`, starting from `checkpoint` where one is given.

    folder: where checkpoints/best.safetensors (the model with the largest val/rsum), checkpoints/last.ckpt (everything,
    written each epoch), run.json and metrics.csv go. record: the facts for run.json. seed: of what an epoch draws.
    """
    recorder = RunRecorder(folder, record)
    best = BestModel(
        folder / "checkpoints",
        filename="best",
        monitor="val/rsum",
        mode="max",
        save_weights_only=True,
        enable_version_counter=False,
        save_on_train_epoch_end=True,
    )
    last = ModelCheckpoint(
        folder / "checkpoints", filename="last", enable_version_counter=False, save_on_train_epoch_end=True
    )
    # The recorder comes after those that log, and before the checkpoints, which carry its rows.
    lightning = how.trainer(
        logger=list(how.loggers),
        callbacks=[EpochSeed(seed), *how.callbacks, recorder, best, last],
        plugins=[CheckpointFiles(folder / "checkpoints")],
        default_root_dir=folder,
        use_distributed_sampler=False,
    )
    recorder.record |= log_facts(lightning.loggers, record)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        lightning.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning makes an exit of it, of status 1
            raise KeyboardInterrupt from None
        raise
    except MisconfigurationException as error:
        raise InputError(f"trainer: {error}") from error
    except RuntimeError as error:
        if is_lost(error):
            raise ConnectionError(f"another process has ended; `vsehub train resume={folder}` continues") from error
        raise
    finally:
        signal.signal(signal.SIGINT, interrupt)  # which Lightning has switched off after Ctrl-C
    if dist.is_initialized():
        dist.destroy_process_group()  # the next job of a sweep has processes of its own
    written = best.best_model_path
    return Training(recorder, lightning.loggers, Path(written) if written else None)
