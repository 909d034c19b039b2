"""The data that loggers get besides metrics: the configuration, the distribution of N_k, and the final evaluation."""

from collections.abc import Sequence

from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from vsehub.training.loggers.wandb import occurrence_figure, picture


def log_facts(loggers: Sequence[Logger], record: dict) -> dict:
    """Log a run's configuration to wandb, with loss, data set and study as tags beside those it has.

    Returns {"wandb": {"id": ..., "project": ..., "entity": ...}} for the run's record, {} without wandb.
    """
    known = {}
    facts = {key: record[key] for key in ("dataset", "architecture", "label", "seed")}
    tags = [facts["label"], facts["dataset"], record["config"].get("study")]
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams(record["config"] | facts)
            run = logger.experiment
            run.tags = tuple(dict.fromkeys([*(run.tags or ()), *(str(tag) for tag in tags if tag is not None)]))
            known = {"wandb": {"id": run.id, "project": run.project, "entity": run.entity or None}}
    return known


def log_histograms(loggers: Sequence[Logger], histograms: dict, step: int) -> None:
    """Draw the N_10 distributions of both directions where a logger can show pictures."""
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_figure("val/n_10", occurrence_figure(histograms), step, close=False)
        elif isinstance(logger, WandbLogger):
            logger.log_image("val/n_10", [picture(occurrence_figure(histograms))])


def log_final(loggers: Sequence[Logger], metrics: dict[str, float], best: dict[str, float]) -> None:
    """Log the final evaluation as a table; a wandb run ends, its summary with these metrics and the best epoch's."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_table("test", columns=["metric", "value"], data=[[k, v] for k, v in metrics.items()])
            logger.experiment.summary.update(metrics | {f"best/{name}": value for name, value in best.items()})
            logger.experiment.finish()
        elif isinstance(logger, TensorBoardLogger):
            rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in metrics.items())
            logger.experiment.add_text("test", f"| metric | value |\n|---|---|\n{rows}")
            logger.experiment.flush()  # nothing else closes it before the process ends
