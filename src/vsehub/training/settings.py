"""Checks of trainer, optimizer and schedule settings that the libraries would accept without an error."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pytorch_lightning.accelerators import CPUAccelerator

from vsehub.checks import InputError, boolean, fail, is_finite, require, whole
from vsehub.neighbors.rounded import has_bf16


def require_accelerator(accelerator: str) -> None:
    """Raise InputError for a GPU that torch does not find on this machine."""
    require(
        accelerator not in ("gpu", "cuda") or torch.cuda.is_available() or torch.backends.mps.is_available(),
        f"trainer.accelerator is {accelerator}, but torch {torch.__version__} finds no GPU here; give cpu or auto, or "
        "install a build of torch for your GPU and its driver",
    )


def resolve_precision(precision: str, accelerator: str = "auto") -> str:
    """Lightning's precision; "auto" is bf16-mixed where GPU or CPU multiply bfloat16 in hardware, else 32-true."""
    if precision != "auto":
        return precision
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    return "bf16-mixed" if has_bf16("cuda" if on_gpu else "cpu") else "32-true"


# What `train_module` itself gives the trainer, and what would leave a run without its record.
OURS = ("logger", "callbacks", "plugins", "default_root_dir", "use_distributed_sampler", "fast_dev_run")
# A run has the batches that its sampler draws, and is logged.
NOT_HERE = ("overfit_batches", "barebones", "reload_dataloaders_every_n_epochs")
STRATEGIES = ("auto", "ddp")
MOST_RATE = 10.0
_TRIED_EPOCHS = 1000


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Raise InputError for trainer settings with which a run would not end, would not learn, or would keep nothing."""
    for name in OURS:
        require(name not in settings, f"trainer.{name} is set by vsehub train itself; leave it out")
    for name in NOT_HERE:
        require(
            name not in settings,
            f"trainer.{name} cannot be set: a run has its own batches, and is logged; leave it out",
        )
    strategy = settings.get("strategy", "auto")
    require(
        strategy in STRATEGIES,
        f"trainer.strategy is {strategy!r}; expected auto or ddp: processes train by distributed data parallel, "
        "each with the whole model, since that is what is tested to give the gradients of one process. Leave it out",
    )
    whole("trainer.num_nodes", settings.get("num_nodes", 1))
    boolean("trainer.enable_progress_bar", settings.get("enable_progress_bar", True))
    require(
        settings.get("enable_checkpointing") is not False,
        "trainer.enable_checkpointing must stay true: a run keeps its best model",
    )
    epochs = settings.get("max_epochs")
    if epochs is None or epochs == -1:
        fail(f"trainer.max_epochs is {epochs}: training would never end; give a number")
    whole("trainer.max_epochs", epochs)
    least = settings.get("min_epochs")
    require(
        least is None or (type(least) is int and 0 <= least <= epochs),
        f"trainer.min_epochs is {least!r}; expected a whole number up to trainer.max_epochs, {epochs}",
    )
    steps = settings.get("max_steps", -1)
    require(
        type(steps) is int and (steps == -1 or steps > 0),
        f"trainer.max_steps is {steps!r}; expected a whole number above 0, or -1: no limit",
    )
    whole("trainer.accumulate_grad_batches", settings.get("accumulate_grad_batches", 1))
    require(settings.get("precision", "auto") is not None, "trainer.precision is null; give auto, or 32-true, say")
    clip = settings.get("gradient_clip_val")
    require(
        clip is None or (is_finite(clip) and clip >= 0),
        f"trainer.gradient_clip_val is {clip!r}; expected a number from 0 up, or null: no clipping",
    )
    whole("trainer.log_every_n_steps", settings.get("log_every_n_steps", 50))
    limit = settings.get("limit_train_batches")
    require(
        limit is None or (is_finite(limit) and (limit >= 1 if isinstance(limit, int) else 0 < limit <= 1)),
        f"trainer.limit_train_batches is {limit!r}; expected a whole number above 0, a share up to 1.0, or null",
    )


def check_place(devices: int, nodes: int, accelerator: Any) -> None:
    """Raise InputError where this command cannot start so many processes."""
    require(
        nodes == 1,
        f"trainer.num_nodes is {nodes}: this command starts processes on its own machine only. Start it on each node "
        "by torchrun or srun (docs/training.md)",
    )
    cores = os.cpu_count() or 1
    require(
        not isinstance(accelerator, CPUAccelerator) or devices <= cores,
        f"trainer.devices is {devices}, and this machine has {cores} cores; give at most so many",
    )


def check_batches(settings: Mapping[str, Any], batches: int) -> None:
    """Raise InputError where the trainer's share of an epoch's batches is none of them."""
    limit = settings.get("limit_train_batches")
    require(
        not isinstance(limit, float) or limit * batches >= 1,
        f"trainer.limit_train_batches is {limit}, which of {batches} batches an epoch leaves none; give at least "
        f"{1 / max(batches, 1):.3g}, or a whole number of batches",
    )


def check_numbers(group: str, settings: Any) -> None:
    """Raise InputError for numbers that optimizers, schedules and callbacks would accept without an error.

    Such are numbers below 0, and a learning rate that is not above 0 and at most `MOST_RATE`.
    """
    require(isinstance(settings, Mapping), f"{group} is {settings!r}; expected its settings")
    for name, value in settings.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("last_epoch", "lr"):
            require(value >= 0, f"{group}.{name} is {value}; expected a number from 0 up")
    if "step_size" in settings:
        whole(f"{group}.step_size", settings["step_size"])
    rate = settings.get("lr")  # of which torch checks no kind
    require(
        rate is None or (is_finite(rate) and 0 < rate <= MOST_RATE),
        f"{group}.lr is {rate!r}; expected a number above 0, at most {MOST_RATE:g}",
    )


def try_schedule(optimizer: Callable[..., Any], scheduler: Callable[..., Any], epochs: int) -> None:
    """Run the schedule over all epochs on an unused parameter, so that its errors come before the training.

    Raises InputError for a schedule that fails or leaves the finite numbers.
    """
    made = optimizer([torch.nn.Parameter(torch.zeros(1))])
    schedule = scheduler(made)
    made.zero_grad()
    try:
        for _ in range(min(epochs, _TRIED_EPOCHS)):
            made.step()
            schedule.step()
            now = made.param_groups[0]["lr"]
            require(is_finite(now) and 0 <= now <= MOST_RATE * 100, f"scheduler: it takes the learning rate to {now}")
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"scheduler: {type(schedule).__name__} refuses its settings: {said}") from error
