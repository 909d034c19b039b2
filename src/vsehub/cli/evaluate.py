"""`vsehub evaluate`: a checkpoint's figures on a split."""

import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, one_of, require
from vsehub.cli import app


def main() -> None:
    """Run the command; data.KEY=VALUE is for settings of the checkpoint's data, which no yaml can list."""
    sys.argv = [f"+{argument}" if argument.startswith("data.") else argument for argument in sys.argv]
    app.run(evaluate, "evaluate")


def evaluate(cfg: DictConfig) -> None:
    """Measure `cfg.checkpoint` and write the evaluation beside it."""
    require(
        not OmegaConf.is_missing(cfg, "checkpoint"),
        "checkpoint is not set; give checkpoint=RUN_FOLDER/checkpoints/best.ckpt",
    )
    from vsehub.cli.build import restore_module, trained_source
    from vsehub.cli.measure import Encodings, measure, save, table
    from vsehub.data.captioned import SPLITS
    from vsehub.training.datamodule import RetrievalDataModule

    one_of("split", cfg.split, SPLITS)
    module, trained, vocabulary = restore_module(cfg.checkpoint)
    source = trained_source(trained, cfg.data)
    data = RetrievalDataModule(source, eval_batch_size=cfg.eval_batch_size, max_words=trained.loader.max_words)
    data.use_vocabulary(vocabulary)
    rule = (cfg.criterion, cfg.criterion_name, cfg.protocol, cfg.reference)
    record = measure(Encodings(module, data), cfg.split, *rule, fitted=cfg.fit)
    path = save(record, out_folder(cfg.out, Path(cfg.checkpoint)))
    print(f"{table(record)}\nwritten to {path}")


def out_folder(out: str | None, checkpoint: Path) -> Path:
    """Where the evaluation goes; InputError where the checkpoint lies in no run folder and no folder is given."""
    if out is not None:
        return Path(out)
    run = checkpoint.parent.parent
    if not (run / "run.json").is_file():
        raise InputError(f"{checkpoint} lies in no run folder; say where the figures go: out=FOLDER")
    return run / "evaluations"
