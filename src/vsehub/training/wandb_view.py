"""The view of a wandb project that compares losses."""

import json

from vsehub.checks import InputError
from vsehub.extras import package

VIEWS = "wandb_workspaces.workspaces"
GROUPED_BY = ("dataset", "architecture", "label")  # metrics of other data or other encoders are never averaged
DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
SWEPT = {"loss.gamma": "γ", "loss.epsilon": "ε", "bank.k": "k"}


def comparison_view(entity: str | None, project: str, study: str | None):
    """The view, not saved yet: curves, test metrics, hubness and settings, runs grouped by data set, encoders and loss.

    study: only runs of this group. Raises InputError if wandb-workspaces, which builds views, is not installed.
    """
    ws, wr = (package("a view of wandb", "wandb", module) for module in (VIEWS, "wandb_workspaces.reports.v2"))

    def curve(name: str, title: str):
        """A metric over the epochs: the mean of each group, with its range."""
        return wr.LinePlot(title=title, x="epoch", y=[name], groupby_aggfunc="mean", groupby_rangefunc="minmax")

    def bars(names: list[str], title: str):
        """A bar for each group and metric: the mean, with the standard deviation over the seeds."""
        metrics = [wr.SummaryMetric(name) for name in names]
        return wr.BarPlot(title=title, metrics=metrics, groupby_aggfunc="mean", groupby_rangefunc="stddev")

    curves = {"val/rsum": "rsum, validation", "train/loss": "training loss"}
    curves |= {f"val/{side}/r1": f"R@1 {words}, validation" for side, words in DIRECTIONS.items()}
    recalls = [
        bars([f"test/{side}/{rank}" for rank in ("r1", "r5", "r10")], f"R@1, R@5, R@10 {words}, test")
        for side, words in DIRECTIONS.items()
    ]
    # Swept settings beside the metrics; settings are chosen by the validation metrics.
    reached = {"best/val/rsum": "rsum, validation", "test/rsum": "rsum, test", "test/hubness/hs_sum": "hs_sum, test"}
    axes = [wr.ParallelCoordinatesPlotColumn(wr.Config(name), sign) for name, sign in SWEPT.items()]
    axes += [wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(name), title) for name, title in reached.items()]
    sections = {
        "Validation": [curve(name, title) for name, title in curves.items()],
        "Test": [bars(["test/rsum"], "rsum, test"), *recalls],
        "Hubness": [curve("val/hubness/hs_sum", "hs_sum, validation"), bars(["test/hubness/hs_sum"], "hs_sum, test")],
        "Settings": [wr.ParallelCoordinatesPlot(title="γ, ε, k and what they reach", columns=axes)],
    }
    return ws.Workspace(
        entity=entity or "",
        project=project,
        name=f"Losses: {study}" if study else "Losses",
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=50),
        runset_settings=ws.RunsetSettings(
            filters=[ws.Metric("Group") == study] if study else "",
            groupby=[ws.Config(name) for name in GROUPED_BY],
            pinned_columns=["run:displayName", "summary:test/rsum", "summary:test/hubness/hs_sum"],
        ),
    )


def content_of(view) -> dict:
    """The content that saving the view sends, without the names that are generated then."""
    model = view._to_model()  # there is no public method; save() calls it too
    return {
        "entity": model.entity or None,
        "project": model.project,
        "type": "project-view",
        "displayName": model.display_name,
        "spec": json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True)),
    }


def save(view) -> tuple[str, dict]:
    """Save the view in its project; returns its address and what was sent.

    A view without an entity goes to the account's own. Raises InputError with wandb's message if wandb refuses it.
    """
    wandb = package("a view of wandb", "wandb", "wandb")
    try:
        view.entity = view.entity or wandb.Api(timeout=10).default_entity
        return view.save().url, content_of(view)
    except Exception as error:  # wandb's classes for what a server refuses have no common base
        raise InputError(f"wandb: {' '.join(str(error).split())}. To send nothing: offline=true") from error
