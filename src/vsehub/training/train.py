"""Training a module under Lightning: callbacks in the order that works, and their checkpoints."""

import logging
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import ModelCheckpoint, ProgressBar, TQDMProgressBar
from torch import Tensor

from vsehub.checks import InputError, one_of, require, whole
from vsehub.components import Components, component_nodes
from vsehub.io.address import masked
from vsehub.io.progress import bar
from vsehub.machine import cpu_has, reuse_freed_memory
from vsehub.training.checkpoint import BestModel, CheckpointFiles
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.gather import launcher_options, process_number
from vsehub.training.module import RetrievalModule
from vsehub.training.run_record import RunRecorder
from vsehub.types import Batch

STRATEGIES = ("auto", "ddp")
SILENCED = (
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*does not have many workers.*",
    ".*module\\(s\\) in eval mode.*",  # frozen models stay there
    ".*smaller than the logging interval.*|.*treespec.*",
    ".*sync_dist=True.*",  # every process logs the value of the whole batch
    ".*single contiguous chunk.*",  # one direction of a GRU with two, in float32 on a GPU
    ".*no `val_dataloader`.*|.*val_dataloader.*validation_step.*",
)


class EpochSeed(pl.Callback):
    """Seeds torch, numpy and random for each epoch, so that a resumed run draws what an unbroken one would.

    The seed is set at the first batch, not when the epoch begins, since the data loader draws a number in between, and
    does so at another moment in a resumed run. Each of several processes draws its own numbers.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, index: int) -> None:
        """Derive the epoch's seed."""
        if index == 0:
            seed = (self.seed * 1_000_003 + trainer.current_epoch + process_number() * 500_000_003) % 2**32
            pl.seed_everything(seed, verbose=False)


class TermMeans(pl.Callback):
    """Logs the means of the loss's terms over an epoch's pairs as train/..., and now and then a step's loss.

    It adds the terms up itself, since Lightning's `log` would take a fifth of the processor time of each step.
    """

    def on_train_epoch_start(self, *_: Any) -> None:
        """Reset the sums."""
        self._sums: dict[str, Any] = {}
        self._pairs: Counter[str] = Counter()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Batch, index: int) -> None:
        """Add the step's terms; log its loss every trainer.log_every_n_steps."""
        for name, term in module.last_step.terms.items():
            value = term.float() if isinstance(term, Tensor) else term  # sums in bfloat16 have two or three digits
            self._sums[name] = self._sums.get(name, 0) + value * len(batch.image_ids)
            self._pairs[name] += len(batch.image_ids)
        if trainer.log_every_n_steps and trainer.global_step % trainer.log_every_n_steps == 0:
            module.log("step/loss", module.last_step.loss, on_epoch=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Log the means."""
        module.log_dict({f"train/{name}": total / self._pairs[name] for name, total in self._sums.items()})


class TrainingProgress(TQDMProgressBar):
    """A progress bar over all epochs of the training, with the time left."""

    def init_train_tqdm(self) -> Any:
        """A bar over the steps of all epochs, shown on terminals only."""
        steps, epochs = int(self.trainer.num_training_batches), max(self.trainer.max_epochs or 0, 0)
        done = self.trainer.current_epoch * steps
        return bar("training", total=epochs * steps or None, initial=done, unit=" steps", smoothing=0)

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Show the epoch, counted from 1."""
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}")

    def on_train_batch_end(self, *_: Any) -> None:
        """Advance by a step."""
        self.train_progress_bar.update()

    def on_train_epoch_end(self, *_: Any) -> None:
        """Remove the bar from the terminal's line, where the epoch's results are printed."""
        self.train_progress_bar.clear()


def silence_lightning() -> None:
    """Silence Lightning's greetings and its hints about loader processes; other warnings stay."""
    for message in SILENCED:
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger("lightning_fabric.utilities.distributed").setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(
        lambda record: record.levelno >= logging.WARNING or "Profiler Report" in record.getMessage()
    )


def resolve_precision(precision: str, accelerator: str = "auto") -> str:
    """Lightning's precision; "auto" is bf16-mixed where GPU or CPU multiply bfloat16 in hardware, else 32-true."""
    if precision != "auto":
        return precision
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    native = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_has("amx_bf16", "avx512_bf16")
    return "bf16-mixed" if native else "32-true"


def build_trainer(settings: Mapping[str, Any], components: Components, recorder: RunRecorder) -> pl.Trainer:
    """Lightning's Trainer with the callbacks and loggers of a run.

    settings: those of trainer, callbacks, bank, logger and seed, as the configuration has them. The run's folder gets
    checkpoints/best.safetensors, the model with the largest val/rsum, and checkpoints/last.ckpt, for resuming. Raises
    InputError for bad settings, before any data are read.
    """
    silence_lightning()
    options: dict[str, Any] = dict(settings["trainer"])
    # Other strategies are not tested to give the gradients of one process.
    one_of("trainer.strategy", options.get("strategy", "auto"), STRATEGIES)
    whole("trainer.max_epochs", options.get("max_epochs"))
    require(options.get("limit_train_batches") != 0, "trainer.limit_train_batches is 0, so that no epoch would train")
    options = {"enable_model_summary": False, "num_sanity_val_steps": 0} | options
    options["precision"] = resolve_precision(options.get("precision", "auto"), options.get("accelerator", "auto"))
    if overfit_batches := options.pop("overfit_batches", None):  # `EpochSampler` repeats the first epoch's batches
        options["limit_train_batches"] = overfit_batches
    callbacks = [components.build("callbacks", node) for node in component_nodes(settings["callbacks"])]
    if settings["bank"]:
        callbacks.append(components.build("bank", settings["bank"]))
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    if options.get("enable_progress_bar", True) and not has_bar:
        callbacks.append(TrainingProgress())
    if any(masked(argument) != argument for argument in sys.argv):
        os.environ["WANDB__DISABLE_META"] = "true"  # wandb's metadata hold the arguments
    if wandb := sys.modules.get("wandb"):
        wandb.finish()  # Lightning would continue the run of an earlier job of this process
    checkpoints = recorder.folder / "checkpoints"
    saving: dict[str, Any] = {"enable_version_counter": False, "save_on_train_epoch_end": True}
    best = BestModel(checkpoints, "best", monitor="val/rsum", mode="max", save_weights_only=True, **saving)
    return components.build(
        "trainer",
        options | launcher_options(),
        logger=[components.build("logger", node) for node in component_nodes(settings["logger"])],
        # The recorder comes after those that log, and before the checkpoints, which carry its rows.
        callbacks=[
            EpochSeed(settings["seed"]),
            TermMeans(),
            *callbacks,
            recorder,
            best,
            ModelCheckpoint(checkpoints, "last", **saving),
        ],
        plugins=[CheckpointFiles(checkpoints)],
        default_root_dir=recorder.folder,
        use_distributed_sampler=False,
    )


def train_module(
    trainer: pl.Trainer, module: RetrievalModule, data: RetrievalDataModule, checkpoint: Path | None = None
) -> Path | None:
    """Train `module` on `data`, starting from `checkpoint` if there is one.

    Returns the checkpoint of the best epoch, None if no epoch ended.
    """
    reuse_freed_memory()
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning turns Ctrl-C into an exit with status 1
            raise KeyboardInterrupt from None
        raise
    except MisconfigurationException as error:
        raise InputError(f"trainer: {error}") from error
    finally:
        signal.signal(signal.SIGINT, interrupt)  # which Lightning has switched off after Ctrl-C
    if dist.is_initialized():
        dist.destroy_process_group()  # the next job of a sweep has processes of its own
    (best,) = (callback for callback in trainer.checkpoint_callbacks if isinstance(callback, BestModel))
    return Path(best.best_model_path) if best.best_model_path else None
