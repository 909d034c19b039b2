"""Trained models and their data, as the studies measure them."""

from pathlib import Path

from omegaconf import OmegaConf

from vsehub.cli.build import restore_module, trained_source
from vsehub.cli.measure import Encodings
from vsehub.training.datamodule import RetrievalDataModule


def restored(run: Path, root: str | None) -> Encodings:
    """A run's best checkpoint with its data, encoded when asked for. root: where the data lies now, if elsewhere."""
    module, trained, vocabulary = restore_module(str(run / "checkpoints" / "best.ckpt"))
    source = trained_source(trained, OmegaConf.create({} if root is None else {"root": root}))
    data = RetrievalDataModule(source, eval_batch_size=256, max_words=trained.loader.max_words)
    data.use_vocabulary(vocabulary)
    return Encodings(module, data)
