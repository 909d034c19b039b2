"""`vsehub train`: one run, from data to its final metrics."""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

import vsehub
from vsehub.checks import fail, one_of, regular, require, whole_seed
from vsehub.cli.app import is_multirun, process_number, require_multirun
from vsehub.cli.nodes import as_list, components, config_dirs, plain
from vsehub.cli.overrides import override
from vsehub.cli.run_folder import changed_files, clear, code_of, lock_run, read_run, resumed_config
from vsehub.cli.sweep import digest
from vsehub.components import Components
from vsehub.data.photos.source import ListedPhotos
from vsehub.data.sources import Source
from vsehub.extras import require_packages
from vsehub.io.address import typed_command
from vsehub.models.hub import checkpoint_file

if TYPE_CHECKING:
    from vsehub.evaluation.measurement import Measurement
    from vsehub.training.datamodule import RetrievalDataModule
    from vsehub.training.module import RetrievalModule
    from vsehub.training.run_record import RunRecorder

log = logging.getLogger(__name__)

# Settings of Lightning's Trainer that are refused, since a run decides them itself.
NOT_FOR_RUNS = (
    "check_val_every_n_epoch",
    "val_check_interval",
    "callbacks",
    "logger",
    "plugins",
    "default_root_dir",
    "use_distributed_sampler",
    "limit_val_batches",
    "limit_test_batches",
    "fast_dev_run",
    "max_time",
)


def train(cfg: DictConfig) -> float:
    """Train in the run's folder, unless it holds a finished run; returns the best validation rsum."""
    hydra_config = HydraConfig.get()
    require(
        "minimize" not in str(hydra_config.sweeper.get("direction")),  # a string, or an enumeration of Optuna's plugin
        "validation rsum is to rise; give hydra.sweeper.direction=maximize",
    )
    folder = Path(cfg.run_folder).resolve()
    resumes = cfg.resume is not None
    if resumes:
        read_run(folder)  # raises before the lock is written into a folder without a run
    with nullcontext() if process_number() else lock_run(folder, resumes or is_multirun(), wait=is_multirun()):
        require_multirun(cfg)  # a refusal within the block leaves no folder
        earlier_record = None
        # In a single run without run_folder= the folder's name contains the time of the start, which only the first
        # process knows.
        folder_is_known = is_multirun() or any(text.startswith("run_folder=") for text in hydra_config.overrides.task)
        if resumes:
            cfg, earlier_record = resumed_config(folder)
        elif (folder_is_known or process_number() == 0) and (folder / "run.json").is_file():
            earlier_record = read_run(folder)
            require(
                earlier_record.get("digest") == digest(plain(cfg)),
                f"{folder} holds a run of other settings; leave hydra.sweep.subdir as it is",
            )
        parts = components(cfg.trust, any_class=not resumes)
        teachers = [] if resumes else as_list(cfg.teacher)  # `open_teacher` compares those of a resumed run
        changed = [] if earlier_record is None else changed_files(earlier_record, code_of(plain(cfg), parts), teachers)
        if changed and not resumes and cfg.retrain:
            log.warning("%s is trained again, since %s has changed", folder, ", ".join(changed))
            if process_number() == 0:
                clear(folder)
            earlier_record, changed = None, []
        require(
            not changed,
            f"{folder}: {', '.join(changed[:4])} has changed since the run was trained. "
            + ("Start a new run" if resumes else "retrain=true trains it again, hydra.sweep.dir=FOLDER keeps it"),
        )
        if earlier_record is not None and earlier_record["status"] == "finished":
            print(f"{folder} is finished after {earlier_record['epochs']} epochs; nothing to do")
            return float(earlier_record["best"]["val/rsum"])
        if not resumes:
            choices = hydra_config.runtime.choices
            cfg = OmegaConf.create(plain(cfg) | {"label": run_label(choices), "architecture": architecture(choices)})
        return fit(cfg, folder, earlier_record, parts)


def fit(cfg: DictConfig, folder: Path, earlier_record: dict[str, Any] | None, parts: Components) -> float:
    """Train, measure the best model, and write everything to the run's folder; returns the best validation rsum.

    earlier_record: the record of an earlier start if the run continues. parts: the classes that its configuration may
    name.
    """
    require_settings(cfg)
    source = open_source(cfg, parts, resumed=earlier_record is not None)
    if process_number() == 0:
        log.info("loading the data")

    import torch

    from vsehub.data.noise import INDEX_FILE, NoisySource
    from vsehub.evaluation.measurement import Measurement
    from vsehub.evaluation.scores import require_item_scores
    from vsehub.training.build import build_data, build_module, load_splits
    from vsehub.training.run_record import RunRecorder
    from vsehub.training.teacher import open_teacher
    from vsehub.training.train import build_trainer

    checkpoint = last_checkpoint(folder, earlier_record)
    settings, final_split = plain(cfg), str(cfg.final_split)
    # Everything that may raise an InputError comes before the training.
    # A run that is resumed (any_class is false) has the settings of its record, not of the command's recipe.
    recorder = RunRecorder(folder, recipe_choice() if parts.any_class else None)
    trainer = build_trainer(settings, parts, recorder)
    criterion, protocol = (parts.build(group, settings[group]) for group in ("criterion", "protocol"))
    parts.build("loss", settings["loss"])  # raises InputError before the data are loaded
    measurement = Measurement(final_split, criterion, cfg.criterion_name, protocol)
    torch.manual_seed(cfg.seed)
    data = build_data(settings, parts, source)
    split_metadata = load_splits(data, final_split, earlier_record)
    protocol.slices(len(data.splits[final_split].images))  # raises InputError if the protocol needs more images
    fitted = None
    if settings["solver"]:
        require(trainer.world_size == 1, "solver computes in one process; give trainer.devices=1, or leave it out")
        fitted = parts.build("solver", settings["solver"]).fit(data, protocol)
        settings["embedding_dim"] = fitted.dim
    module = build_module(settings, data, parts, checkpoint, trainer.world_size)
    require_item_scores(criterion, module.similarity)
    teachers = list(map(str, as_list(cfg.teacher)))
    module.teacher, teacher_files = open_teacher(
        teachers, components(cfg.trust), data, split_metadata, earlier_record, settings["distillation"]
    )
    recorder.record |= first_record(cfg, data, split_metadata, earlier_record, parts) | {"teacher": teacher_files}
    if isinstance(data.source, NoisySource) and process_number() == 0:
        data.source.write_index(folder / INDEX_FILE)
    best = fitted.store(module, recorder) if fitted else train_by_gradient(trainer, module, data, checkpoint, folder)
    if process_number() == 0:
        try:
            finish(best, measurement, data, trainer, recorder, parts)
        except BaseException as error:
            recorder.on_exception(trainer, module, error)
            raise
    return recorder.best["val/rsum"]


def last_checkpoint(folder: Path, earlier_record: dict[str, Any] | None) -> Path | None:
    """The checkpoint from which a run continues; None for a new run, and if it has none yet."""
    if earlier_record is None:
        return None
    last = folder / "checkpoints" / "last.ckpt"
    checkpoint = regular(last) if last.exists() else None
    log.info("resuming %s from %s", folder, checkpoint or "its start: it has no checkpoint yet")
    return checkpoint


def first_record(
    cfg: DictConfig,
    data: "RetrievalDataModule",
    split_metadata: Mapping[str, dict[str, Any]],
    earlier_record: dict[str, Any] | None,
    parts: Components,
) -> dict[str, Any]:
    """The record of a run before it trains; a run that continues has the command of its first start."""
    from vsehub.training.run_record import describe_run

    command = typed_command(job_arguments() if is_multirun() else None)
    return {
        **describe_run(plain(cfg), data, split_metadata, code_of(plain(cfg), parts)),
        "digest": digest(plain(cfg)),
        "command": command if earlier_record is None else earlier_record["command"],
    }


def train_by_gradient(
    trainer: Any, module: "RetrievalModule", data: "RetrievalDataModule", checkpoint: Path | None, folder: Path
) -> Path | None:
    """Train by gradient steps; returns the checkpoint of the best epoch, None if no epoch ended."""
    from vsehub.training.train import train_module

    arguments, variables = sys.argv, dict(os.environ)
    # Lightning starts further processes with sys.argv, and sets environment variables.
    sys.argv = command_line(folder)
    try:
        return train_module(trainer, module, data, checkpoint)
    finally:  # the next job of a sweep, in this process, starts without them
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(variables)


def finish(
    best: Path | None,
    measurement: "Measurement",
    data: "RetrievalDataModule",
    trainer: Any,
    recorder: "RunRecorder",
    parts: Components,
) -> None:
    """Measure the model of the best epoch, in the checkpoint `best`, and record the run as finished."""
    from vsehub.evaluation.measurement import measure, table
    from vsehub.io.files import write_json
    from vsehub.models.trained import TrainedModel

    folder, record = recorder.folder, recorder.record
    if best is None:
        fail("training ended before the first epoch was complete; raise trainer.max_steps")
    device = str(trainer.strategy.root_device)
    model = TrainedModel(best, parts, batch_size=data.eval_batch_size, device=device)
    model.source, model.splits = data.source, data.splits
    evaluation = measure(model, measurement)
    write_json(measurement.record_path(model, folder / "evaluations"), evaluation)
    metrics = {f"{measurement.split}/{name}": value for name, value in evaluation["metrics"].items()}
    recorder.finish(trainer, metrics, model.sha256)
    print(f"\n{record['label']}, seed {record['seed']}, {recorder.best_epoch_text()}\n{table(evaluation)}")
    print(f"run folder: {folder}")


def require_settings(cfg: DictConfig) -> None:
    """Raise InputError for settings that can be refused before Lightning is imported, which takes seconds."""
    require_packages("training", "train", "pytorch_lightning")
    teachers = as_list(cfg.teacher)
    require(cfg.teacher is None or teachers != [], "teacher is an empty list; give teacher=FILE or teacher=[FILE,FILE]")
    require(not (cfg.solver and teachers), "solver and teacher are both given; a solver takes no teacher: omit one")
    for path in teachers:
        checkpoint_file(path)
    one_of("final_split", cfg.final_split, ("val", "test"))
    for name in NOT_FOR_RUNS:
        require(
            name not in cfg.trainer,
            f"trainer.{name} is not for runs: they train and measure whole epochs until they are stopped, with the "
            "choices of callbacks and logger; leave it out",
        )
    whole_seed("seed", cfg.seed)
    require(
        not any(text.startswith("logger=[") for text in HydraConfig.get().overrides.task),
        "logger=[...] keeps only the last logger; give several as ~logger +logger@logger.first=csv "
        "+logger@logger.second=tensorboard",
    )


def open_source(cfg: DictConfig, parts: Components, resumed: bool) -> Source:
    """The source of the data, without noise. Raises InputError if its files are missing."""
    data = {name: value for name, value in plain(cfg.data).items() if name != "noise"}
    source: Source = parts.build("data", data, restored=resumed)
    if isinstance(source, ListedPhotos):
        source.require_pictures(["train", "val", cfg.final_split])
    return source


def command_line(folder: Path) -> list[str]:
    """The program and the arguments that start another process of the run in `folder`, which may be a sweep's."""
    program = str(Path(vsehub.__file__).with_name("__main__.py"))
    return [
        program,
        "train",
        f"--config-name={HydraConfig.get().job.config_name}",
        *job_arguments(),
        override("run_folder", str(folder)),
    ]


def job_arguments() -> list[str]:
    """The arguments that start this job without the others of its sweep."""
    return [*(f"--config-dir={path}" for path in config_dirs()), *HydraConfig.get().overrides.task]


def run_label(choices: Mapping[str, str]) -> str:
    """The solver's or the loss's name in reports: "hal+mb" is HAL with the memory bank."""
    if choices["solver"] != "none":
        return choices["solver"]
    bank = choices["bank"]
    return choices["loss"] + {"none": "", "memory": "+mb"}.get(bank, f"+{bank}")


def recipe_choice() -> str | None:
    """The name of the command's recipe; None if no recipe has the loss's name."""
    name = HydraConfig.get().runtime.choices.get("recipe")
    return name if any((folder / "recipe" / f"{name}.yaml").is_file() for folder in components().folders) else None


def architecture(choices: Mapping[str, str]) -> str:
    """Text encoder, image encoder and, unless it is cosine, similarity: "text_gru+image_cnn+order"."""
    sides = [choices["text_encoder"], choices["image_encoder"], choices["similarity"]]
    return "+".join(side for side in sides if side != "cosine")
