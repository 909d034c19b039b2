"""Loggers of a resumed run: they continue the files that they wrote before, from the checkpoint's step on."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger, TensorBoardLogger

from vsehub.io.records import RUN, read_record
from vsehub.training.loggers.csv import CSVRows, WholeCSVLogger
from vsehub.training.loggers.wandb import ResumableWandbLogger, require_id

NOT_LOGGED = ("step", "lr", "seconds", "train/")  # what metrics.csv has beside the metrics logged as an epoch ends


def go_on(loggers: Sequence[Logger], folder: Path, state: dict[str, Any] | None) -> None:
    """Make the loggers of the run in `folder` go on from the state of its checkpoint; None: it is begun again.

    What was logged after the checkpoint is logged again, so it is dropped here; and the checkpoint's own epoch is
    added where the run was killed after the checkpoint and before its log. Raises InputError where run.json names a
    wandb run that cannot be one.
    """
    step, epoch = 0, None
    if state is not None:
        step, last = state["global_step"], state["callbacks"]["RunRecorder"]["rows"][-1]
        epoch = {name: value for name, value in last.items() if not name.startswith(NOT_LOGGED)}
    for logger in loggers:
        if isinstance(logger, ResumableWandbLogger):
            _wandb(logger, folder, step, epoch)
        elif isinstance(logger, WholeCSVLogger):
            _csv(logger, step, epoch)
        elif isinstance(logger, TensorBoardLogger):
            _tensorboard(logger, step, epoch)


def _wandb(logger: ResumableWandbLogger, folder: Path, step: int, epoch: dict | None) -> None:
    file = folder / "run.json"
    known = read_record(file, RUN, "Start a new run in another folder").get("wandb")
    if known is not None:  # else the run was logged elsewhere before
        run_id = require_id(known.get("id") if isinstance(known, dict) else known, str(file))
        logger.go_on(run_id, step, epoch)


def _csv(logger: WholeCSVLogger, step: int, epoch: dict | None) -> None:
    version = _last_version(logger.root_dir)
    if version is None:
        return
    file = Path(logger.root_dir) / f"version_{version}" / CSVRows.NAME_METRICS_FILE
    written = file.read_bytes().decode() if file.is_file() else ""
    reader = csv.DictReader(io.StringIO(written[: written.rfind("\n") + 1], newline=""))  # the kill may cut a line off
    rows: list[dict[str, Any]] = [row for row in reader if int(row["step"]) < step]
    if epoch and not any(int(row["step"]) == step - 1 and row.get("val/rsum") for row in rows):
        rows.append(epoch | {"step": step - 1})
    logger.go_on(version, rows)


def _tensorboard(logger: TensorBoardLogger, step: int, epoch: dict | None) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    version = _last_version(logger.root_dir)
    if version is None:
        return
    logger._version = version
    logger._kwargs["purge_step"] = step  # hides what was logged from there on
    if epoch is None:
        return
    events = EventAccumulator(logger.log_dir, size_guidance={"images": 1, "scalars": 0}).Reload()
    logged = events.Scalars("val/rsum") if "val/rsum" in events.Tags()["scalars"] else []
    if not any(event.step == step - 1 for event in logged):
        logger.log_metrics(epoch, step - 1)


def _last_version(folder: str) -> int | None:
    numbers = [path.name.removeprefix("version_") for path in Path(folder).glob("version_*") if path.is_dir()]
    return max((int(number) for number in numbers if number.isdigit()), default=None)
