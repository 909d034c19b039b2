"""The view of a wandb project that compares losses: what it shows, and saving it."""

import json

from vsehub.checks import InputError
from vsehub.extras import package
from vsehub.training.loggers.wandb import refused, sign_in

SETTING = ("dataset", "architecture", "label")  # metrics of other data or other encoders are never averaged
RECALLS = ("r1", "r5", "r10")
DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
SWEPT = {"loss.gamma": "γ", "loss.epsilon": "ε", "bank.k": "k"}


def comparison(entity: str | None, project: str, study: str | None):
    """The view, not saved yet: curves, test metrics, hubness and settings, runs grouped by data set, encoders and loss.

    study: only runs of this group. Raises InputError where wandb-workspaces, which builds views, is not installed, and
    for names that it refuses.
    """
    ws, _ = libraries()
    try:
        return ws.Workspace(
            entity=entity or "",
            project=project,
            name=f"Losses: {study}" if study else "Losses",
            sections=[validation(), test(), hubness(), settings()],
            settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=50),
            runset_settings=ws.RunsetSettings(
                filters=[ws.Metric("Group") == study] if study else "",
                groupby=[ws.Config(name) for name in SETTING],
                pinned_columns=["run:displayName", "summary:test/rsum", "summary:test/hubness/hs_sum"],
            ),
        )
    except (ValueError, SyntaxError) as error:
        said = " ".join(str(error).split()).partition(" [type=")[0]
        raise InputError(
            f"wandb refuses project {project!r}, entity {entity!r} or study {study!r} ({said}); give other names"
        ) from error


def libraries():
    """wandb's modules for views and for their panels; InputError where they are not installed."""
    names = ("wandb_workspaces.workspaces", "wandb_workspaces.reports.v2")
    return tuple(package("a view of wandb", "wandb", one) for one in names)


def validation():
    """rsum, recalls at 1 and the loss over the epochs."""
    names = {"val/rsum": "rsum, validation", "train/loss": "training loss"}
    names |= {f"val/{side}/r1": f"R@1 {words}, validation" for side, words in DIRECTIONS.items()}
    return section("Validation", [curve(name, title) for name, title in names.items()])


def test():
    """rsum and recalls of the best epoch's checkpoint on the test split."""
    recalls = [
        bars([f"test/{side}/{rank}" for rank in RECALLS], f"R@1, R@5, R@10 {words}, test")
        for side, words in DIRECTIONS.items()
    ]
    return section("Test", [bars(["test/rsum"], "rsum, test"), *recalls])


def hubness():
    """Skewness sums, and the N_10 distributions as the runs drew them."""
    _, wr = libraries()
    pictures = wr.MediaBrowser(title="N_10, validation", media_keys=["val/n_10"], num_columns=2)
    curves = curve("val/hubness/hs_sum", "hs_sum, validation")
    return section("Hubness", [curves, bars(["test/hubness/hs_sum"], "hs_sum, test"), pictures])


def settings():
    """A panel of swept settings beside the metrics that they reach; settings are chosen by the validation metrics."""
    _, wr = libraries()
    axes = [wr.ParallelCoordinatesPlotColumn(wr.Config(name), sign) for name, sign in SWEPT.items()]
    reached = {"best/val/rsum": "rsum, validation", "test/rsum": "rsum, test", "test/hubness/hs_sum": "hs_sum, test"}
    axes += [wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(name), title) for name, title in reached.items()]
    return section("Settings", [wr.ParallelCoordinatesPlot(title="γ, ε, k and what they reach", columns=axes)])


def section(name: str, panels: list):
    """An open section of the view."""
    ws, _ = libraries()
    return ws.Section(name=name, panels=panels, is_open=True)


def curve(name: str, title: str):
    """A metric over the epochs: the mean of each group, with its range."""
    _, wr = libraries()
    return wr.LinePlot(title=title, x="epoch", y=[name], groupby_aggfunc="mean", groupby_rangefunc="minmax")


def bars(names: list[str], title: str):
    """A bar for each group and metric: the mean, with the standard deviation over the seeds."""
    _, wr = libraries()
    metrics = [wr.SummaryMetric(name) for name in names]
    return wr.BarPlot(title=title, metrics=metrics, groupby_aggfunc="mean", groupby_rangefunc="stddev")


def sent(view) -> dict:
    """The content that saving the view sends, without the names that are generated then."""
    model = view._to_model()  # the only door to it: save() calls the same
    spec = json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
    return {
        "entity": model.entity or None,
        "project": model.project,
        "type": "project-view",
        "displayName": model.display_name,
        "spec": spec,
    }


def save(view, renew: str | None = None) -> tuple[str, dict]:
    """Save the view in its project; the address at which it is seen, and what was sent.

    renew: the id of a saved view of the project, `nw` in its address, that becomes this one. Without an entity, the
    account's own. Raises InputError with wandb's words where it refuses.
    """
    api = sign_in()
    ws, _ = libraries()
    try:
        view.entity = view.entity or api.default_entity
        if renew is not None:
            old = ws.Workspace.from_url(f"https://wandb.ai/{view.entity}/{view.project}?nw={renew}")  # any host will do
            old.name, old.sections = view.name, view.sections
            old.settings, old.runset_settings = view.settings, view.runset_settings
            view = old
        return view.save().url, sent(view)
    except Exception as error:  # wandb's classes for what a server refuses have no common base
        refused(error)
