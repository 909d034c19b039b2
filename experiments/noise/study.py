"""Train the losses on captions of which a share belongs to wrong images: both protocols, three rates.

    python -m experiments noise train DATA                      or: train scenes
    python -m experiments noise collect
    python -m experiments noise render

DATA: "scenes", or a folder in the layout of VSE++ with one vector an image. Seed by seed, and within a seed rate by
rate, so that a part is of use.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

from experiments.compare import loss_overrides
from experiments.evidence import judged, judged_table, over_seeds, read_expected, renew, verdict
from experiments.grid import pilot
from experiments.plots import save
from experiments.running import status
from experiments.study import Study, Trainings
from vsehub.report import plots
from vsehub.report.pictures import Picture
from vsehub.report.recipes import Series
from vsehub.report.run_plots import styles
from vsehub.report.tables import ReportTable

LOSSES = ("sum", "max", "knn_margin", "hal", "hal+mb")
PROTOCOLS = ("captions", "images")
RATES = (0.2, 0.4, 0.6)
CLEAN = "clean"
FEATURES = (
    "experiment=papers",
    "data=precomp",
    "data.root={data}",
    "data.name={name}",
    "embedding_dim=256",
    "trainer.max_epochs=8",
    "scheduler.step_size=6",
)
# A few minutes on two cores: it shows that all works, and no more.
SCENES = (
    "experiment=demo",
    "embedding_dim=64",
    "image_encoder.width=8",
    "text_encoder.word_dim=64",
    "trainer.max_epochs=4",
    "scheduler.step_size=3",
)


def chosen() -> dict[str, list[str]]:
    """Each loss's own settings: those that the grid's pilot chose on the clean validation split."""
    settings = pilot.chosen()
    return {
        loss: [setting for setting in settings[loss] if not setting.startswith(("loss=", "bank="))] for loss in LOSSES
    }


def cases(settings: dict[str, list[str]]) -> dict[str, list[str]]:
    """The settings of each protocol, rate and loss, without noise first. own: of single losses."""
    noises: dict[str, list[str]] = {CLEAN: []} | {
        f"{protocol}-{rate:g}": [f"data.noise.protocol={protocol}", f"data.noise.rate={rate:g}"]
        for rate in RATES
        for protocol in PROTOCOLS
    }
    return {
        f"{name}/{loss}": [*loss_overrides(loss), *noise, *settings.get(loss, ())]
        for name, noise in noises.items()
        for loss in LOSSES
    }


RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")
FIGURES = (*RECALLS, "rsum", "hubness/hs_sum")


def row(folder: Path) -> dict[str, Any] | None:
    """A finished run's protocol and rate of noise, and what it reached."""
    if status(folder) != "finished":
        return None
    record = json.loads((folder / "run.json").read_text())
    noise = record.get("noise") or {"protocol": CLEAN, "rate": 0.0, "changed": 0.0}
    return (
        {"loss": record["label"], "protocol": noise["protocol"], "rate": noise["rate"], "seed": record["seed"]}
        | {"changed": round(noise["changed"], 4), "dataset": record["dataset"], "epochs": record["epochs"]}
        | {"best_epoch": record["best"]["epoch"], "val_rsum": round(record["best"]["val/rsum"], 2)}
        | {figure: round(record["metrics"][f"test/{figure}"], 3) for figure in FIGURES}
        | {"collapsed": record.get("collapsed") is not None, "seconds": round(record["wall_seconds"])}
        | {"hardware": record["hardware"]["gpu"] or record["hardware"]["cpu"]}
    )


TEST_IMAGES = 500  # of Flickr8k's test split here
WHAT = {"captions": "single captions are permuted", "images": "images are permuted with all their captions"}


def with_drop(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with `case`, "max captions 0.2", and `drop`: clean rsum less rsum, of the same loss and seed."""
    clean = frame[frame["protocol"] == CLEAN].set_index(["loss", "seed"])["rsum"]
    keys = pd.MultiIndex.from_frame(frame[["loss", "seed"]])
    case = frame["loss"] + " " + frame["protocol"] + " " + frame["rate"].map("{:g}".format)
    return frame.assign(drop=clean.reindex(keys).to_numpy() - frame["rsum"], case=case)


def table(frame: pd.DataFrame, protocol: str) -> str:
    """rsum and what it lost to clean training, by loss and rate, as markdown."""
    part = frame[frame["protocol"].isin([CLEAN, protocol])]
    rates = sorted(part["rate"].unique())
    noisy = [rate for rate in rates if rate > 0]
    head = ["loss", *(f"rsum at {rate:g}" if rate else "clean" for rate in rates)]
    head += [*(f"lost at {rate:g}" for rate in noisy)]
    rows = []
    for loss in [loss for loss in LOSSES if loss in set(part["loss"])]:
        runs = part[part["loss"] == loss]
        at = {rate: runs[runs["rate"] == rate] for rate in rates}
        cells = [over_seeds(at[rate]["rsum"]) for rate in rates]
        rows.append([loss, *cells, *(over_seeds(at[rate]["drop"]) for rate in noisy)])
    return ReportTable(head, rows).markdown()


def facts(frame: pd.DataFrame, protocol: str) -> str:
    """Notes on the runs of a protocol: collapsed runs, best epochs."""
    part = frame[frame["protocol"] == protocol]
    fallen = part[part["collapsed"]].groupby("case", sort=False).size()
    sentence = f"Runs that collapsed in training: {', '.join(f'{case} ({runs})' for case, runs in fallen.items())}."
    first, last = part["best_epoch"].min(), part["best_epoch"].max()
    return f"{sentence} Validation chose an epoch from {first} to {last}; the last epoch is {part['epochs'].max() - 1}."


def curves(frame: pd.DataFrame) -> Picture:
    """Mean and sample deviation of rsum over the rate, a line a loss, a panel a protocol; single runs as faint dots."""
    looks = styles(Series("", "", loss, "") for loss in LOSSES)
    with matplotlib.rc_context(plots.RC):
        whole = plots.new_figure(8, 3.8)
        panels = whole.subplots(1, len(PROTOCOLS), sharey=True)
        for axes, protocol in zip(panels, PROTOCOLS, strict=True):
            part = frame[frame["protocol"].isin([CLEAN, protocol])]
            for loss in LOSSES:
                runs, look = part[part["loss"] == loss], looks[loss]
                if runs.empty:
                    continue
                bare = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
                axes.plot(runs["rate"], runs["rsum"], alpha=0.3, markersize=3.5, **bare)
                spread_of = runs.groupby("rate")["rsum"].agg(["mean", "std"])
                axes.errorbar(
                    spread_of.index, spread_of["mean"], yerr=spread_of["std"].fillna(0), label=loss, capsize=2, **look
                )
            axes.set(
                title=f"protocol {protocol}", xlabel="share of wrong captions", xticks=sorted(part["rate"].unique())
            )
        panels[0].set_ylabel("rsum, test")
        panels[-1].legend()
        caption = "rsum on the test split over the rate of noise in the training captions."
        return plots.render(whole, "rsum_over_rate", caption)


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from results.csv and expected.csv."""
    frame = with_drop(pd.read_csv(folder / "results.csv"))
    claims = judged(frame, read_expected(folder), "case", TEST_IMAGES)
    save(folder, curves(frame))
    parts = [judged_table(claims).markdown()]
    for protocol in [protocol for protocol in PROTOCOLS if protocol in set(frame["protocol"])]:
        parts += [f"**{protocol.capitalize()}**: {WHAT[protocol]}.", table(frame, protocol), facts(frame, protocol)]
    parts.append(f"Data: {', '.join(sorted(frame['dataset'].unique()))}.")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", "\n\n".join(parts), "figures")


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            lambda: cases(chosen()),
            FEATURES,
            row=row,
            scenes=Trainings(cases({"max": ["optimizer.lr=0.0005"]}), SCENES, (0, 1, 2)),
        )
    },
    render=render,
)
