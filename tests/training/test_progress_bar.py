"""The bar of a training shows what says something of it."""

from types import SimpleNamespace

from pytorch_lightning.callbacks import TQDMProgressBar

from vsehub.training.callbacks.progress import ProgressBar


def test_the_version_of_the_logs_is_not_shown():
    trainer = SimpleNamespace(progress_bar_metrics={"loss": 1.0}, loggers=[SimpleNamespace(version=3)])
    assert TQDMProgressBar().get_metrics(trainer, None) == {"loss": 1.0, "v_num": 3}
    assert ProgressBar().get_metrics(trainer, None) == {"loss": 1.0}
