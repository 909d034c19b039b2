"""`vsehub train`: one run, from data to its final figures."""

import logging
import sys
import warnings
from functools import partial
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub import __version__
from vsehub.checks import one_of, require
from vsehub.cli import app
from vsehub.cli.nodes import plain
from vsehub.cli.overrides import MULTIRUN, quoted
from vsehub.cli.run_folder import RunFolder, forget_start, require_training
from vsehub.cli.sweep import in_sweep, summary, swept

log = logging.getLogger(__name__)


def main() -> None:
    """Run the command; with resume=FOLDER nothing but that folder is written to."""
    folder = next((argument.removeprefix("resume=") for argument in sys.argv if argument.startswith("resume=")), None)
    if folder not in (None, "", "null"):
        changes = [one for one in sys.argv[1:] if not one.startswith("resume=")]
        require(not MULTIRUN & set(changes), "resume goes on with one run; leave -m out")
        placed = [one for one in changes if one.startswith(("hydra.run.dir=", "hydra.output_subdir="))]
        require(not placed, f"resume goes on in the run's own folder; leave {' '.join(placed)} out")
        if finished(Path(folder), changes):
            return
        sys.argv += [f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"]
    try:
        with summary():
            app.run(swept(train), "train")
    finally:
        RunFolder.release()


def finished(folder: Path, changes: list[str]) -> bool:
    """Whether the run in `folder` is finished, which is then said; asked before Hydra writes anything.

    Raises InputError where there is no run, and for changes to one that is finished.
    """
    from vsehub.cli.resume import run_record
    from vsehub.io.records import RUN, read_record

    record = read_record(run_record(folder), RUN, "Start a new run in another folder")
    if record["status"] != "finished":
        return False
    require(
        not changes,
        f"resume: the run in {folder} is finished, its record cannot change any more; start a new run for "
        f"{' '.join(changes)}",
    )
    print(f"{folder} is finished after {record['epochs']} epochs: nothing is left to do")
    return True


def train(cfg: DictConfig) -> float:
    """Train, then measure the best model; everything is written to the run's folder.

    Returns the best validation rsum, by which a sweep may choose.
    """
    import torch

    from vsehub.cli.build import build_data, build_module, fitting, keep_noise
    from vsehub.cli.measure import Encodings, Measurement, measure, table
    from vsehub.cli.nodes import build, components
    from vsehub.cli.resume import last_checkpoint, require_same_data, resumed
    from vsehub.data.overlap import warn_of_shared
    from vsehub.data.sources import describe_split
    from vsehub.evaluation.checkpoint import read_checkpoint, restore
    from vsehub.io.files import write_json
    from vsehub.io.provenance import code_version, hardware, versions
    from vsehub.training.checkpoint import load_state, require_same_vocabulary
    from vsehub.training.fit import fit
    from vsehub.training.loggers.log import log_final
    from vsehub.training.settings import check_batches, check_numbers, check_trainer, resolve_precision, try_schedule

    hydra_config = HydraConfig.get()
    require_training(cfg, hydra_config.runtime.choices.experiment)
    folder = Path(hydra_config.runtime.output_dir)
    before = None
    if cfg.resume is not None:
        cfg, before = resumed(folder, list(hydra_config.overrides.task))
    else:
        choices = hydra_config.runtime.choices
        cfg = OmegaConf.create(plain(cfg) | {"label": run_label(choices), "architecture": architecture(choices)})
        require(
            Path(cfg.run_folder).resolve() == folder.resolve(),
            f"run_folder is {cfg.run_folder}, but the run's folder is {folder}; give hydra.run.dir=FOLDER alone",
        )
        if in_sweep() and (folder / "run.json").is_file():  # one of the same settings
            before = resumed(folder, [])[1]
    if before is None:
        forget_start(folder)
    checkpoint = None if before is None else last_checkpoint(folder)
    if before is not None:
        log.info("resuming %s from %s", folder, checkpoint or "its start: it has no checkpoint yet")
    one_of("final_split", cfg.final_split, ("val", "test"))
    require(
        isinstance(cfg.seed, int) and 0 <= cfg.seed < 1 << 32, f"seed is {cfg.seed!r}; expected a whole number from 0"
    )
    check_trainer(plain(cfg.trainer))
    for group in ("optimizer", "scheduler"):
        check_numbers(group, plain(cfg[group]))
    precision = resolve_precision(cfg.trainer.precision, cfg.trainer.accelerator)
    bar = cfg.trainer.enable_progress_bar and sys.stderr.isatty()  # in a log file the epochs' lines say it all
    trainer = partial(build, "trainer", cfg.trainer, cfg.trust, precision=precision, enable_progress_bar=bar)
    _quiet()
    trainer(logger=False, enable_checkpointing=False)  # what it refuses is said before the data are read
    try_schedule(
        build("optimizer", cfg.optimizer, cfg.trust),
        build("scheduler", cfg.scheduler, cfg.trust),
        cfg.trainer.max_epochs,
    )
    for name, callback in plain(cfg.callbacks).items():
        check_numbers(f"callbacks.{name}", callback)
    callbacks = [build("callbacks", callback, cfg.trust) for callback in cfg.callbacks.values()]
    if cfg.bank:
        callbacks.insert(0, build("bank", cfg.bank, cfg.trust))
    asked = Measurement(
        cfg.final_split,
        build("criterion", cfg.criterion, cfg.trust),
        cfg.criterion_name,
        build("protocol", cfg.protocol, cfg.trust),
    )
    logger = build("logger", cfg.logger, cfg.trust)

    torch.manual_seed(cfg.seed)
    data = build_data(cfg, None if before is None else folder)
    data.setup()
    data.load(cfg.final_split)
    described = {name: describe_split(split) for name, split in data.splits.items()}
    if before is not None:
        require_same_data(before, described)
    check_batches(plain(cfg.trainer), len(data.train_dataloader()))
    asked.protocol.slices(len(data.splits[cfg.final_split].images))  # said before hours of training
    images = data.splits["train"].images
    module = build_module(cfg, images.shape[1:], data.vocabulary, data.text_shape, resumed=checkpoint is not None)
    for loaded in data.splits.values():
        fitting(module, loaded)
    if checkpoint is None:
        data.start_words(module.text_encoder)
    else:
        require_same_vocabulary(load_state(checkpoint), data.vocabulary, checkpoint)
    for split, loaded in data.splits.items():
        log.info("%s: %d images, %d captions", split, len(loaded.images), len(loaded.captions))
    warn_of_shared(data.splits)

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
    } | keep_noise(data, folder)
    recorder, loggers, best = fit(
        module,
        data,
        folder,
        record,
        callbacks,
        logger=logger,
        trainer=trainer,
        seed=cfg.seed,
        checkpoint=checkpoint,
        goes_on=before is not None,
    )

    try:
        require(
            best != "",
            "the training ended before an epoch was over; give trainer.max_time or trainer.max_steps more",
        )
        model = restore(read_checkpoint(best), components(cfg.trust))
        encodings = Encodings(model, data, best, cfg.trainer.accelerator)
        figures = measure(encodings, asked)
        write_json(asked.file(encodings, folder / "evaluations"), figures)
        named = {f"{cfg.final_split}/{name}": value for name, value in figures["metrics"].items()}
        recorder.finish(named, encodings.sha256[0])
    except BaseException as error:
        recorder.end(error)
        raise
    log_final(loggers, named, recorder.record["best"])
    print(f"\n{cfg.label}, seed {cfg.seed}, best epoch {recorder.record['best']['epoch']}\n{table(figures)}")
    print(f"run folder: {folder}")
    return recorder.record["best"]["val/rsum"]


def run_label(choices: DictConfig) -> str:
    """What reports call the loss: "hal+mb" is HAL with the memory bank."""
    bank = choices["bank"]
    return choices["loss"] + {"none": "", "memory": "+mb"}.get(bank, f"+{bank}")


def architecture(choices: DictConfig) -> str:
    """Text and image encoder, and a similarity other than cosine: "text_gru+image_cnn", "text_gru+image_cnn+order"."""
    sides = [choices["text_encoder"], choices["image_encoder"], choices["similarity"]]
    return "+".join(side for side in sides if side != "cosine")


def _quiet() -> None:
    """Keep Lightning's hints about loader processes and its greetings off the screen; warnings of substance stay."""
    warnings.filterwarnings("ignore", message=".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*module\\(s\\) in eval mode.*")  # frozen models stay there
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*|.*treespec.*")
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*|.*val_dataloader.*validation_step.*")
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.WARNING)
