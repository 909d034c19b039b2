"""Checks of trainer, optimizer and schedule settings that the libraries would accept without an error."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pytorch_lightning.accelerators import CPUAccelerator

from vsehub.checks import InputError, finite_number, is_finite, one_of, require, whole
from vsehub.neighbors.screened import cpu_has


def resolve_precision(precision: str, accelerator: str = "auto") -> str:
    """Lightning's precision; "auto" is bf16-mixed where GPU or CPU multiply bfloat16 in hardware, else 32-true."""
    if precision != "auto":
        return precision
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = cpu_has("amx_bf16", "avx512_bf16")
    return "bf16-mixed" if native else "32-true"


# What `train_module` itself gives the trainer, and what would have no effect: a run is measured after each epoch.
NOT_HERE = (
    *("logger", "callbacks", "plugins", "default_root_dir", "use_distributed_sampler"),
    *("check_val_every_n_epoch", "val_check_interval"),
)
STRATEGIES = ("auto", "ddp")
MOST_RATE, _TRIED_EPOCHS = 1000.0, 1000


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Raise InputError for trainer settings with which a run would not end, would not learn, or would keep nothing."""
    for name in NOT_HERE:
        require(name not in settings, f"trainer.{name} cannot be set: vsehub train decides it, or measures each epoch")
    # Other strategies are not tested to give the gradients of one process.
    one_of("trainer.strategy", settings.get("strategy", "auto"), STRATEGIES)
    require(settings.get("enable_checkpointing") is not False, "trainer.enable_checkpointing is false; omit it")
    whole("trainer.max_epochs", settings.get("max_epochs"))
    finite_number("trainer.gradient_clip_val", settings.get("gradient_clip_val") or 0, 0)  # below 0 it turns gradients
    limit = settings.get("limit_train_batches")
    require(limit is None or limit > 0, f"trainer.limit_train_batches is {limit!r}; expected a number above 0, or null")


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
            require(is_finite(now) and 0 <= now <= MOST_RATE, f"scheduler: it takes the learning rate to {now}")
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"scheduler: {type(schedule).__name__} refuses its settings: {said}") from error
