"""Loggers beyond Lightning's own constructors: wandb that works without an account, and pictures of N_k."""

import netrc
import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from vsehub.checks import one_of

WANDB_HOST = "api.wandb.ai"


def wandb(
    save_dir: str,
    name: str,
    project: str = "vsehub",
    group: str | None = None,
    tags: Sequence[str] = (),
    mode: str = "auto",
) -> WandbLogger:
    """A wandb run in `save_dir`.

    mode: "online", "offline" (send it later with `wandb sync`), or "auto": online where an account is set up on this
    machine, else offline. Raises InputError for another mode.
    """
    one_of("logger mode", mode, ("auto", "online", "offline"))
    offline = mode == "offline" or (mode == "auto" and not has_wandb_account())
    return WandbLogger(
        name=name, save_dir=save_dir, project=project, group=group, tags=list(tags), offline=offline, log_model=False
    )


def has_wandb_account() -> bool:
    """Whether a wandb key is in the environment or the netrc file; WANDB_MODE wins where it is set."""
    mode = os.environ.get("WANDB_MODE")
    if mode is not None:
        return mode == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    file = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    try:
        return file.is_file() and netrc.netrc(file).authenticators(WANDB_HOST) is not None
    except netrc.NetrcParseError:
        return False


def log_histograms(loggers: Sequence[Logger], histograms: dict, step: int) -> None:
    """Draw the N_10 distributions of both directions where a logger can show pictures."""
    shown = [logger for logger in loggers if isinstance(logger, WandbLogger | TensorBoardLogger)]
    if not shown:
        return
    figure = occurrence_figure(histograms)
    for logger in shown:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_figure("val/n_10", figure, step, close=False)
        else:
            logger.log_image("val/n_10", [_picture(figure)], step=None)


def log_final(loggers: Sequence[Logger], metrics: dict[str, float]) -> None:
    """The final evaluation as a table."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_table("test", columns=["metric", "value"], data=[[k, v] for k, v in metrics.items()])
        elif isinstance(logger, TensorBoardLogger):
            rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in metrics.items())
            logger.experiment.add_text("test", f"| metric | value |\n|---|---|\n{rows}")


def occurrence_figure(histograms: dict) -> Figure:
    """How many items have each N_10, log-log, one panel a direction."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, (direction, by_k) in zip(figure.subplots(1, 2), histograms.items(), strict=True):
        points = [(n, items) for n, items in zip(by_k["10"]["occurrences"], by_k["10"]["items"], strict=True) if n]
        axes.loglog(*zip(*points, strict=True), "o", markersize=3)
        axes.set(title=direction, xlabel="N_10", ylabel="items")
    return figure


def _picture(figure: Figure):
    from io import BytesIO

    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return Image.open(buffer)
