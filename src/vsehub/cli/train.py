"""`vsehub train`: one run, from data to its final metrics."""

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import fail, one_of, require, whole_seed
from vsehub.cli import app, launch
from vsehub.cli.nodes import components, config_dirs, plain
from vsehub.cli.overrides import MULTIRUN, quoted, text_of
from vsehub.cli.run_folder import (
    RunFolder,
    data_choice,
    forget_start,
    last_checkpoint,
    read_run,
    require_same_data,
    resumed,
)
from vsehub.cli.sweep import swept
from vsehub.components import TARGET, component_nodes
from vsehub.data.photos.source import ListedPhotos
from vsehub.evaluation.hub import checkpoint_file
from vsehub.extras import require_packages

log = logging.getLogger(__name__)

# Packages that loggers import beside Lightning, and the extras of vsehub that install them.
_PACKAGES = {
    "pytorch_lightning.loggers.WandbLogger": "wandb",
    "pytorch_lightning.loggers.TensorBoardLogger": "tensorboard",
}
# The settings of a run beside those that its checkpoint describes.
TRAINED = (
    *("loss", "embedding_dropout", "optimizer", "scheduler", "trainer", "callbacks", "bank", "logger"),
    *("augmentation", "teacher", "distillation", "criterion", "protocol", "solver"),
)
_OF_VECTORS = ("vsehub.data.Pairs",)  # whose class needs torch


def main() -> None:
    """Run the command; with resume=FOLDER only that folder is written to."""
    require(
        not (MULTIRUN & set(sys.argv) and launch.started_together()),
        "a sweep starts the processes of each of its runs itself; omit torchrun or srun and give trainer.devices=N",
    )
    if launch.number() > 0:
        launch.silence()
    folder = next((text_of(argument) for argument in sys.argv if argument.startswith("resume=")), None)
    if folder:
        changes = [one for one in sys.argv[1:] if not one.startswith("resume=")]
        require(not MULTIRUN & set(changes), "resume continues one run; omit -m")
        record = read_run(Path(folder))
        if launch.number() == 0 and record["status"] == "finished":
            require(
                not changes,
                f"resume: the run in {folder} is finished, so its record can no longer change; start a new run for "
                f"{' '.join(changes)}",
            )
            print(f"{folder} is finished after {record['epochs']} epochs; nothing to do")
            return
        sys.argv += [f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"]
        data = data_choice(record)
        if data is not None and not any(one.startswith("data=") for one in changes):
            sys.argv.append(f"data={data}")
    try:
        app.run(swept(train), "train")
    finally:
        RunFolder.release()


def train(cfg: DictConfig) -> float:
    """Train, then measure the best model; write everything to the run's folder.

    Returns the best validation rsum, for a sweep to choose by.
    """
    own = cfg.resume is None  # else the classes are named by a record
    cfg, folder, before = begun(cfg)
    refuse_early(cfg, own)
    if launch.number() == 0:
        log.info("loading torch and the data")

    import torch

    from vsehub.data.noise import INDEX_FILE, NoisySource
    from vsehub.evaluation.measurement import Measurement, measure, table
    from vsehub.evaluation.scores import require_item_scores
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.io.files import write_json
    from vsehub.training.build import DESCRIBED, build_data, build_module, load_splits, prepare_module
    from vsehub.training.run_record import RunRecorder, describe_run
    from vsehub.training.teacher import open_teacher
    from vsehub.training.train import build_trainer, train_module

    checkpoint = None if before is None else last_checkpoint(folder)
    if before is not None:
        log.info("resuming %s from %s", folder, checkpoint or "its start: it has no checkpoint yet")
    launch.of_run = None if app.is_multirun() else folder
    settings = {key: plain(cfg[key]) for key in (*DESCRIBED, *TRAINED)}
    parts, final = components(cfg.trust, own), str(cfg.final_split)

    recorder = RunRecorder(folder)
    trainer = build_trainer(settings, parts, recorder)
    for group in ("similarity", "loss"):
        parts.build(group, settings[group])  # refused before the data are read
    criterion, protocol = (parts.build(group, settings[group]) for group in ("criterion", "protocol"))
    asked = Measurement(final, criterion, cfg.criterion_name, protocol)
    torch.manual_seed(cfg.seed)
    data = build_data(settings, parts, resumed=before is not None)
    described = load_splits(data, final)
    if before is not None:
        require_same_data(before, described)
    data.train_dataloader()  # raises now where batches cannot be drawn
    protocol.slices(len(data.splits[final].images))  # raises now, not after hours of training
    began, fitted = time.perf_counter(), None
    if settings["solver"]:
        require(trainer.world_size == 1, "solver computes in one process; give trainer.devices=1, or leave it out")
        fitted = parts.build("solver", settings["solver"]).fit(data, protocol)
        settings = fitted.sized(settings)
    module = build_module(settings, data, parts, resumed=checkpoint is not None)
    require_item_scores(criterion, module.similarity)
    shared = trainer.world_size > 1 and not settings["trainer"].get("sync_batchnorm", False)
    prepare_module(module, data, checkpoint, shared)
    known = components(cfg.trust)  # a teacher names no class of the command line's own
    module.teacher, teachers = open_teacher(
        teacher_files(cfg), known, data, described, before, settings["distillation"]
    )
    recorder.record |= describe_run(plain(cfg), data.source, described) | {"teacher": teachers}
    if before is not None and before.get("command"):  # the one that chose the settings
        recorder.record["command"] = before["command"]
    if isinstance(data.source, NoisySource) and launch.number() == 0:
        data.source.write_index(folder / INDEX_FILE)
    if fitted is not None:
        best: Path | None = fitted.train(module, recorder, time.perf_counter() - began)
    else:
        with launch.launched_with(own_arguments(folder, before)):
            best = train_module(trainer, module, data, checkpoint)

    if launch.number() > 0:
        return recorder.best["val/rsum"]
    if settings["trainer"].get("fast_dev_run"):
        print("fast_dev_run: all went well; Lightning keeps no checkpoint, and so nothing is measured")
        return recorder.best["val/rsum"]
    try:
        if best is None:
            fail("training ended before the first epoch was complete; raise trainer.max_time or trainer.max_steps")
        device = "cpu" if settings["trainer"].get("accelerator") == "cpu" else None
        model = TrainedModel(best, parts, batch_size=data.eval_batch_size, device=device)
        model.source, model.splits = data.source, data.splits
        evaluation = measure(model, asked)
        write_json(asked.file(model, folder / "evaluations"), evaluation)
        metrics = {f"{final}/{name}": value for name, value in evaluation["metrics"].items()}
        recorder.finish(trainer, metrics, model.sha256)
    except BaseException as error:
        recorder.end(error)
        raise
    reached = recorder.record["best"]
    print(f"\n{cfg.label}, seed {cfg.seed}, best epoch {reached['epoch']}\n{table(evaluation)}")
    print(f"run folder: {folder}")
    return reached["val/rsum"]


def refuse_early(cfg: DictConfig, own: bool) -> None:
    """Raise InputError for what can be refused without torch, whose import takes seconds: absent files, for example."""
    require_packages("training", "train", "pytorch_lightning")
    teachers = teacher_files(cfg)
    require(not (cfg.solver and teachers), "solver and teacher are both given; what is solved has no teacher: omit one")
    for path in teachers:
        checkpoint_file(path)
    one_of("final_split", cfg.final_split, ("val", "test"))
    whole_seed("seed", cfg.seed)
    for node in component_nodes(plain(cfg.logger)):
        if package := _PACKAGES.get(node.get(TARGET)):
            require_packages(f"logger={package}", package, package)
    data = {name: value for name, value in plain(cfg.data).items() if name != "noise"}
    if data["_target_"] not in _OF_VECTORS:
        source = components(cfg.trust, own=own).build("data", data)
        if isinstance(source, ListedPhotos):
            source.require_files(["train", "val", cfg.final_split])


def teacher_files(cfg: DictConfig) -> list[str]:
    """The checkpoints of the teachers. Raises InputError for an empty list."""
    given = plain(cfg.teacher)
    require(given != [], "teacher is an empty list; give teacher=FILE or teacher=[FILE,FILE]")
    return [str(one) for one in (given if isinstance(given, list) else [given]) if one is not None]


def begun(cfg: DictConfig) -> tuple[DictConfig, Path, dict[str, Any] | None]:
    """The run's configuration, its folder, and the record of an earlier start if the run continues.

    Raises InputError if the run cannot continue.
    """
    hydra_config = HydraConfig.get()
    choices = hydra_config.runtime.choices
    folder = Path(hydra_config.runtime.output_dir)
    if cfg.resume is not None:
        cfg, before = resumed(folder, list(hydra_config.overrides.task))
        return cfg, folder, before
    own: dict[str, Any] = plain(cfg) | {"label": run_label(choices), "architecture": architecture(choices)}
    cfg = OmegaConf.create(own)
    require(
        Path(cfg.run_folder).resolve() == folder.resolve(),
        f"run_folder is {cfg.run_folder}, but the run's folder is {folder}; give only hydra.run.dir=FOLDER",
    )
    if app.is_multirun() and (folder / "run.json").is_file():  # the sweep has found that its settings are the same
        return cfg, folder, resumed(folder, [])[1]
    if launch.number() == 0:
        forget_start(folder)
    return cfg, folder, None


def own_arguments(folder: Path, before: dict[str, Any] | None) -> list[str]:
    """The arguments that start this run alone, also one of a sweep; before: the record of a run to continue."""
    if not app.is_multirun():
        return sys.argv[1:]
    overrides = HydraConfig.get().overrides.task
    if before is not None:
        overrides = [f"resume={quoted(str(folder))}", *(one for one in overrides if one.startswith("trust="))]
    return [*(f"--config-dir={one}" for one in config_dirs()), *overrides]


def run_label(choices: Mapping[str, str]) -> str:
    """The solver's or the loss's name in reports: "hal+mb" is HAL with the memory bank."""
    if choices["solver"] != "none":
        return choices["solver"]
    bank = choices["bank"]
    return choices["loss"] + {"none": "", "memory": "+mb"}.get(bank, f"+{bank}")


def architecture(choices: Mapping[str, str]) -> str:
    """Text encoder, image encoder and, unless it is cosine, similarity: "text_gru+image_cnn+order"."""
    sides = [choices["text_encoder"], choices["image_encoder"], choices["similarity"]]
    return "+".join(side for side in sides if side != "cosine")
