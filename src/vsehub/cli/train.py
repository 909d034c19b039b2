"""`vsehub train`: one run, from data to its final figures."""

import logging
import sys
import warnings
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub import __version__
from vsehub.checks import InputError, one_of
from vsehub.cli import app
from vsehub.cli.resume import last_checkpoint, resumed, run_record
from vsehub.cli.rows import require_training
from vsehub.cli.sweep import summary
from vsehub.cli.sweep_job import in_sweep, swept

log = logging.getLogger(__name__)


def main() -> None:
    """Run the command; with resume=FOLDER nothing but that folder is written to."""
    folder = next((argument.removeprefix("resume=") for argument in sys.argv if argument.startswith("resume=")), None)
    if folder not in (None, "", "null"):
        try:
            run_record(Path(folder))  # before Hydra makes the folder
        except InputError as error:
            app.end(str(error))
        sys.argv += [f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    with summary():
        app.run(swept(train), "train")


def train(cfg: DictConfig) -> float:
    """Train, then measure the best checkpoint; everything is written to the run's folder.

    Returns the best validation rsum, by which a sweep may choose.
    """
    import torch
    from hydra.utils import instantiate

    from vsehub.cli.build import build_data, build_logger, build_module, fitting, keep_noise, plain, restore_module
    from vsehub.cli.measure import Encodings, measure, save, table
    from vsehub.training.checkpoint import load_checkpoint, require_same_vocabulary
    from vsehub.training.fit import fit
    from vsehub.training.loggers import log_final
    from vsehub.training.precision import resolve_precision
    from vsehub.training.provenance import code_version, describe_split, hardware, versions

    hydra_config = HydraConfig.get()
    require_training(cfg, hydra_config.runtime.choices.experiment)
    folder = Path(hydra_config.runtime.output_dir)
    if cfg.resume is None:
        choices = hydra_config.runtime.choices
        cfg = OmegaConf.create(plain(cfg) | {"label": run_label(choices), "architecture": architecture(choices)})
        goes_on = in_sweep() and (folder / "run.json").is_file()  # one of the same settings
    else:
        cfg, goes_on = resumed(folder, list(hydra_config.overrides.task)), True
    checkpoint = last_checkpoint(folder) if goes_on else None
    if goes_on:
        log.info("resuming %s from %s", folder, checkpoint or "its start: it has no checkpoint yet")
    one_of("final_split", cfg.final_split, ("val", "test"))
    logger = build_logger(cfg)

    torch.manual_seed(cfg.seed)
    data = build_data(cfg, folder if goes_on else None)
    data.setup()
    data.load(cfg.final_split)
    instantiate(cfg.protocol).slices(len(data.splits[cfg.final_split].images))  # said before hours of training
    images = data.splits["train"].images
    module = build_module(cfg, images.shape[1:], data.vocabulary, data.text_shape)
    for loaded in data.splits.values():
        fitting(module, loaded)
    if checkpoint is None:
        data.start_words(module.text_encoder)
    else:
        require_same_vocabulary(load_checkpoint(checkpoint), data.vocabulary, checkpoint)
    for split, loaded in data.splits.items():
        log.info("%s: %d images, %d captions", split, len(loaded.images), len(loaded.captions))

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
        "data": {name: describe_split(split) for name, split in data.splits.items()},
    } | keep_noise(data, folder)
    precision = resolve_precision(cfg.trainer.precision, cfg.trainer.accelerator)
    record["precision"] = precision
    bar = cfg.trainer.enable_progress_bar and sys.stderr.isatty()  # in a log file the epochs' lines say it all
    callbacks = [instantiate(callback) for callback in cfg.callbacks.values()]
    if cfg.bank:
        callbacks.insert(0, instantiate(cfg.bank))
    _quiet()
    recorder, loggers, best = fit(
        module,
        data,
        folder,
        record,
        callbacks,
        logger=logger,
        trainer=instantiate(cfg.trainer, _partial_=True, precision=precision, enable_progress_bar=bar),
        seed=cfg.seed,
        checkpoint=checkpoint,
        goes_on=goes_on,
    )

    rule = (cfg.criterion, cfg.criterion_name, cfg.protocol, "queries")
    try:
        module, _, _ = restore_module(best, trusted=True)
        figures = measure(Encodings(module, data, cfg.trainer.accelerator), cfg.final_split, *rule)
    except BaseException:
        recorder.fail()
        raise
    save(figures, folder / "evaluations")
    named = {f"{cfg.final_split}/{name}": value for name, value in figures["metrics"].items()}
    recorder.finish(named)
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
