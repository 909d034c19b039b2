"""`vsehub train`: one run, from data to its final metrics."""

import logging
import sys
import warnings
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub import __version__
from vsehub.checks import fail, one_of, require, whole_seed
from vsehub.cli import app, launch
from vsehub.cli.digest import digest
from vsehub.cli.nodes import base_models, build, components, plain
from vsehub.cli.overrides import MULTIRUN, config_dir, ordered, quoted, text_of
from vsehub.cli.resume import data_choice, last_checkpoint, require_same_data, resumed, run_record
from vsehub.cli.run_folder import RunFolder, forget_start, require_training
from vsehub.cli.sweep import in_sweep, summary, swept
from vsehub.cli.teachers import require_same_teachers, teacher_facts, teachers_of
from vsehub.io.progress import stage
from vsehub.io.records import RUN, read_record

if TYPE_CHECKING:
    from vsehub.evaluation.measurement import Measurement
    from vsehub.training.datamodule import RetrievalDataModule
    from vsehub.training.module import RetrievalModule
    from vsehub.training.train import Lightning

log = logging.getLogger(__name__)

# What loggers import beside Lightning, and the extras of vsehub that install it.
_PACKAGES = {
    "vsehub.training.loggers.wandb_logger": "wandb",
    "pytorch_lightning.loggers.TensorBoardLogger": "tensorboard",
}
_OF_VECTORS = ("vsehub.data.Pairs",)  # whose class needs torch


def main() -> None:
    """Run the command, alone or as one of several processes."""
    if launch.started_together():
        launch.one_of_several(command)
    else:
        command()


def command() -> None:
    """Run the command; with resume=FOLDER only that folder is written to."""
    folder = next((text_of(argument, "train") for argument in sys.argv if argument.startswith("resume=")), None)
    if folder:
        changes = [one for one in sys.argv[1:] if not one.startswith("resume=")]
        require(not MULTIRUN & set(changes), "resume continues one run; omit -m")
        placed = [one for one in changes if one.startswith(("hydra.run.dir=", "hydra.output_subdir="))]
        require(not placed, f"resume continues in the run's own folder; omit {' '.join(placed)}")
        if finished(Path(folder), changes):
            return
        sys.argv += [f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"]
        data = data_choice(read_record(run_record(Path(folder)), RUN, ""))
        if data is not None and not any(one.startswith("data=") for one in changes):
            sys.argv.append(f"data={data}")
    try:
        with summary():
            app.run(swept(train), "train")
    finally:
        RunFolder.release()


def finished(folder: Path, changes: list[str]) -> bool:
    """Whether the run in `folder` is finished; if so, prints it. Called before Hydra writes anything.

    Raises InputError if there is no run, or if `changes` are given for a finished run.
    """
    record = read_record(run_record(folder), RUN, "Start a new run in another folder")
    if record["status"] != "finished":
        return False
    require(
        not changes,
        f"resume: the run in {folder} is finished, so its record can no longer change; start a new run for "
        f"{' '.join(changes)}",
    )
    print(f"{folder} is finished after {record['epochs']} epochs; nothing to do")
    return True


def train(cfg: DictConfig) -> float:
    """Train, then measure the best model; write everything to the run's folder.

    Returns the best validation rsum, for a sweep to choose by.
    """
    early = cfg.resume is None and not launch.started_together()
    if early:
        refuse_early(cfg)
    if launch.number() == 0:
        stage(log, "loading torch and the data")

    import torch

    from vsehub.evaluation.measurement import measure, table
    from vsehub.evaluation.scores import require_item_scores
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.io.files import write_json
    from vsehub.training.build import DESCRIBED, build_module
    from vsehub.training.loggers.log import log_final
    from vsehub.training.processes import process, processes, require_alike, together
    from vsehub.training.teacher import Teacher, encoded_for
    from vsehub.training.train import train_module

    with together():
        cfg, folder, before = begun(cfg)
        if not early:
            refuse_early(cfg)
        checkpoint = None if before is None else last_checkpoint(folder)
        if before is not None:
            log.info("resuming %s from %s", folder, checkpoint or "its start: it has no checkpoint yet")
        launch.Folder.of_run = None if in_sweep() else folder
        how, asked = built(cfg)
        if how.processes > processes():
            launch.launch(how.processes, own_arguments(folder, before), folder)
            return read_record(run_record(folder), RUN, "Start a new run in another folder")["best"]["val/rsum"]

        torch.manual_seed(cfg.seed)
        data, described = loaded(cfg, asked, folder, before)
        own = components(cfg.trust, base_models(cfg))
        settings = {key: plain(cfg[key]) for key in (*DESCRIBED, "embedding_dropout", "loss", "optimizer", "scheduler")}
        module = build_module(settings, data, own, resumed=checkpoint is not None)
        require_item_scores(asked.criterion, module.similarity)
        prepare(module, data, checkpoint)
        if processes() > 1:
            require_divisible(cfg, module)
        teachers = teachers_of(cfg, data, described)
        if before is not None:
            require_same_teachers(before, teachers)
        record = facts(cfg, data, described, how.precision, folder) | {"teacher": teacher_facts(teachers)}
    require_alike({"settings": digest(cfg), "data": described, "versions": record["versions"]})
    if teachers is not None:
        module.teacher = Teacher(encoded_for(teachers), teachers.similarity, **plain(cfg.distillation))
    recorder, loggers, best = train_module(
        module,
        data,
        folder,
        record,
        how,
        cfg.seed,
        checkpoint,
        goes_on=before is not None,
    )

    if process() > 0:
        return recorder.best["val/rsum"]
    with recorder.ending():
        if best is None:
            fail("training ended before the first epoch was complete; raise trainer.max_time or trainer.max_steps")
        device = "cpu" if cfg.trainer.accelerator == "cpu" else None
        model = TrainedModel(best, own, batch_size=data.eval_batch_size, device=device)
        model.use_data(data.source, data.splits)
        evaluation = measure(model, asked)
        write_json(asked.file(model, folder / "evaluations"), evaluation)
        metrics = {f"{cfg.final_split}/{name}": value for name, value in evaluation["metrics"].items()}
        recorder.finish(metrics, model.sha256)
    reached = recorder.record["best"]
    log_final(loggers, metrics, reached)
    print(f"\n{cfg.label}, seed {cfg.seed}, best epoch {reached['epoch']}\n{table(evaluation)}")
    print(f"run folder: {folder}")
    return reached["val/rsum"]


def refuse_early(cfg: DictConfig) -> None:
    """Raise InputError for what can be refused without torch, whose import takes seconds: absent files, for example."""
    require_training(cfg, HydraConfig.get().runtime.choices["experiment"])
    one_of("final_split", cfg.final_split, ("val", "test"))
    whole_seed("seed", cfg.seed)
    package = _PACKAGES.get(str(cfg.logger.get("_target_"))) if cfg.logger else None
    require(
        package is None or find_spec(package) is not None,
        f"this logger needs {package}, which is not installed: pip install 'vsehub[{package}]'; or choose logger=csv",
    )
    data = {name: value for name, value in plain(cfg.data).items() if name != "noise"}
    if data["_target_"] not in _OF_VECTORS:
        components(cfg.trust).build("data", data)  # its files are looked for, and nothing is read


def begun(cfg: DictConfig) -> tuple[DictConfig, Path, dict[str, Any] | None]:
    """The run's configuration, its folder, and the record of an earlier start if the run continues.

    Raises InputError if the chosen row trains nothing, or if the run cannot continue.
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
    if in_sweep() and (folder / "run.json").is_file():  # the sweep has found that its settings are the same
        return cfg, folder, resumed(folder, [])[1]
    if launch.number() == 0:
        forget_start(folder)
    return cfg, folder, None


def own_arguments(folder: Path, before: dict[str, Any] | None) -> list[str]:
    """The arguments that start this job alone, also one of a sweep; before: the record of a run to continue."""
    if before is not None and in_sweep():
        trust = [one for one in HydraConfig.get().overrides.task if one.startswith("trust=")]
        return [f"resume={quoted(str(folder))}", *trust]
    own = list(HydraConfig.get().overrides.task)
    return [*(f"--config-dir={one}" for one in config_dir(ordered(sys.argv[1:]))), *own]


def built(cfg: DictConfig) -> "tuple[Lightning, Measurement]":
    """How the run trains, and what is measured afterwards. Bad settings are refused before the data are read."""
    from vsehub.evaluation.measurement import Measurement
    from vsehub.training.callbacks.progress import ProgressBar
    from vsehub.training.processes import process, processes, started_place
    from vsehub.training.settings import (
        check_numbers,
        check_place,
        check_trainer,
        require_accelerator,
        resolve_precision,
        try_schedule,
    )
    from vsehub.training.train import Lightning

    check_trainer(plain(cfg.trainer))
    for group in ("optimizer", "scheduler"):
        check_numbers(group, plain(cfg[group]))
    require_accelerator(str(cfg.trainer.accelerator))
    precision = resolve_precision(cfg.trainer.precision, cfg.trainer.accelerator)
    bar = cfg.trainer.enable_progress_bar and sys.stderr.isatty()  # a log file has one line per epoch instead
    place = {"devices": cfg.trainer.devices, "num_nodes": cfg.trainer.get("num_nodes", 1)}
    if processes() > 1:
        place = started_place(place)
    trainer = partial(build, "trainer", cfg.trainer, cfg.trust, precision=precision, enable_progress_bar=bar, **place)
    _quiet()
    wanted = trainer(logger=False, enable_checkpointing=False)
    if processes() == 1:
        check_place(wanted.num_devices, wanted.num_nodes, wanted.accelerator)
    optimizer, scheduler = (build(group, cfg[group], cfg.trust) for group in ("optimizer", "scheduler"))
    try_schedule(optimizer, scheduler, cfg.trainer.max_epochs)
    for group in ("similarity", "loss"):
        build(group, cfg[group], cfg.trust)
    for name, callback in plain(cfg.callbacks).items():
        check_numbers(f"callbacks.{name}", callback)
    callbacks = [build("callbacks", callback, cfg.trust) for callback in cfg.callbacks.values()]
    if cfg.bank:
        callbacks.append(build("bank", cfg.bank, cfg.trust))
    if bar:
        callbacks.append(ProgressBar())
    asked = Measurement(
        cfg.final_split,
        build("criterion", cfg.criterion, cfg.trust),
        cfg.criterion_name,
        build("protocol", cfg.protocol, cfg.trust),
    )
    logger = False if process() > 0 else build("logger", cfg.logger, cfg.trust)
    return Lightning(trainer, precision, callbacks, logger, wanted.world_size), asked


def loaded(
    cfg: DictConfig, asked: "Measurement", folder: Path, before: dict[str, Any] | None
) -> "tuple[RetrievalDataModule, dict[str, dict]]":
    """The data with all splits that the run needs, and each split's facts for the record.

    Raises InputError if a resumed run's data have changed, or if there are too few to train or measure on.
    """
    from vsehub.data.overlap import warn_of_shared
    from vsehub.data.sources import describe_split
    from vsehub.training.build import build_data
    from vsehub.training.settings import check_batches

    resumed_folder = None if before is None else folder
    encoders = {side: plain(cfg[side]) for side in ("image_encoder", "text_encoder")}
    own, change = components(cfg.trust), plain(cfg.augmentation)
    data = build_data(plain(cfg.data), plain(cfg.loader), cfg.seed, own, resumed_folder, encoders, change)
    data.setup()
    data.load(cfg.final_split)
    described = {name: describe_split(split) for name, split in data.splits.items()}
    if before is not None:
        require_same_data(before, described)
    check_batches(plain(cfg.trainer), len(data.train_dataloader()))
    asked.protocol.slices(len(data.splits[cfg.final_split].images))  # raises now, not after hours of training
    for name, split in data.splits.items():
        log.info("%s: %d images, %d captions", name, len(split.images), len(split.captions))
    warn_of_shared(data.splits)
    return data, described


def require_divisible(cfg: DictConfig, module: "RetrievalModule") -> None:
    """Raise InputError where an encoder would compute something else on a share of a batch than on the whole."""
    from vsehub.training.chunks import require_rows_apart

    for side, encoder in (("image", module.image_encoder), ("text", module.text_encoder)):
        if not cfg.trainer.get("sync_batchnorm", False):
            require_rows_apart(side, encoder, "several processes share a batch")


def prepare(module: "RetrievalModule", data: "RetrievalDataModule", checkpoint: Path | None) -> None:
    """Set the text encoder's initial word vectors. Raises InputError if module, data and checkpoint do not fit."""
    from vsehub.evaluation.checkpoint import fitting
    from vsehub.training.checkpoint import load_state, require_same_vocabulary

    for split in data.splits.values():
        fitting(split, module.image_shape, module.text_shape)
    if checkpoint is None:
        data.start_words(module.text_encoder)
    else:
        require_same_vocabulary(load_state(checkpoint), data.vocabulary, checkpoint)


def facts(
    cfg: DictConfig, data: "RetrievalDataModule", described: dict[str, dict], precision: str, folder: Path
) -> dict[str, Any]:
    """The record of a run before it trains, for run.json; with noise, also writes the noise index to the folder."""
    from vsehub.data.noise import INDEX_FILE, NoisySource
    from vsehub.io.provenance import code_version, hardware, versions
    from vsehub.training.processes import facts_of_group

    record = {
        "name": f"{data.source.name}-{cfg.label}-{cfg.seed}",
        "label": cfg.label,
        "dataset": data.source.name,
        "architecture": cfg.architecture,
        "seed": cfg.seed,
        "vsehub": __version__,
        "command": " ".join(sys.argv),
        "versions": versions(),
        "git": code_version(),
        "hardware": hardware(),
        "config": plain(cfg),
        "data": described,
        "precision": precision,
        "processes": facts_of_group(),
    }
    if isinstance(data.source, NoisySource):
        assert data.source.index is not None  # the training split is loaded
        if launch.number() == 0:
            data.source.index.write(folder / INDEX_FILE)
        record["noise"] = data.source.facts
    return record


def run_label(choices: Mapping[str, str]) -> str:
    """The loss's name in reports: "hal+mb" is HAL with the memory bank."""
    bank = choices["bank"]
    return choices["loss"] + {"none": "", "memory": "+mb"}.get(bank, f"+{bank}")


def architecture(choices: Mapping[str, str]) -> str:
    """Text encoder, image encoder and, unless it is cosine, similarity: "text_gru+image_cnn+order"."""
    sides = [choices["text_encoder"], choices["image_encoder"], choices["similarity"]]
    return "+".join(side for side in sides if side != "cosine")


def _quiet() -> None:
    """Silence Lightning's greetings and its hints about loader processes; other warnings stay."""
    warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*module\\(s\\) in eval mode.*")  # frozen models stay there
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*|.*treespec.*")
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # every process logs the whole batch's
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*|.*val_dataloader.*validation_step.*")
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
