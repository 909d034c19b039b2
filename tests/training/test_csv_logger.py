"""The CSV logger: the file of Lightning's own, whole after whatever breaks a write off."""

import csv

import pytest
from pytorch_lightning.loggers import CSVLogger

from vsehub.training.loggers import WholeCSVLogger
from vsehub.training.loggers import csv as module

LOGGED = [({"loss": 0.5}, 0), ({"loss": 0.25}, 1), ({"val/rsum": 108.125, "epoch": 0}, 1), ({"loss": 0.125}, 2)]


def rows(logger):
    with open(f"{logger.log_dir}/metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def logged(logger, entries=LOGGED):
    for metrics, step in entries:
        logger.log_metrics(metrics, step)
        logger.save()
    return rows(logger)


def test_the_file_is_that_of_lightning(tmp_path):
    ours, theirs = (kind(tmp_path / kind.__name__, name="csv") for kind in (WholeCSVLogger, CSVLogger))
    assert logged(ours) == logged(theirs)
    assert len(rows(ours)) == 4
    assert ours.log_dir.endswith("version_0")


@pytest.mark.parametrize("broken", range(4))
@pytest.mark.parametrize("after", [False, True])
def test_a_write_that_is_broken_off_is_made_up_for(tmp_path, monkeypatch, broken, after):
    """As by Ctrl-C, before or after a row is in the file; Lightning saves once more as it ends."""
    logger, expected = WholeCSVLogger(tmp_path, name="csv"), logged(WholeCSVLogger(tmp_path / "whole", name="csv"))
    for place, (metrics, step) in enumerate(LOGGED):
        logger.log_metrics(metrics, step)
        if place == broken:
            text = module._text

            def interrupted(columns, entries, text=text):
                if after:  # half of a row has been appended
                    with open(logger.experiment._file, "a") as file:
                        file.write(text(columns, entries)[:-3])
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(module, "_text", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    logger.save()
        logger.save()
    assert rows(logger) == expected


def test_rows_wait_for_a_save(tmp_path):
    """Lightning saves every so many steps; what a module's hyperparameters are stands beside."""
    ours, theirs = (kind(tmp_path / kind.__name__, name="csv") for kind in (WholeCSVLogger, CSVLogger))
    for logger in (ours, theirs):
        logger.log_hyperparams({"lr": 0.1})
        for metrics, step in LOGGED:
            logger.log_metrics(metrics, step)
        logger.save()
        for metrics, step in LOGGED:
            logger.log_metrics(metrics, step + 3)
        logger.finalize("success")
    assert rows(ours) == rows(theirs)
    assert len(rows(ours)) == 8
    for logger in (ours, theirs):
        with open(f"{logger.log_dir}/hparams.yaml") as file:
            assert file.read() == "lr: 0.1\n"


def test_an_earlier_version_goes_on(tmp_path):
    logged(WholeCSVLogger(tmp_path, name="csv"), LOGGED[:3])
    logger = WholeCSVLogger(tmp_path, name="csv")
    logger.go_on(0, [{"step": "0", "loss": "0.5"}])
    logger.log_metrics({"val/rsum": 1.0}, 1)
    logger.finalize("success")
    assert rows(logger) == [{"step": "0", "loss": "0.5", "val/rsum": ""}, {"step": "1", "loss": "", "val/rsum": "1.0"}]
