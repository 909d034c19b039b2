"""Train the losses on captions of which a share belongs to wrong images: both protocols, three rates.

    python -m experiments noise train DATA                      or: train scenes
    python -m experiments noise collect
    python -m experiments noise render

DATA: "scenes", or a folder in the layout of VSE++ with one vector an image. Seed by seed, and within a seed rate by
rate, so that a part is of use. Where runs without noise by the same recipe lie in another folder,
`--cases "captions*" "images*"` trains the others, and `collect --clean FOLDER` finds them there.
"""

import json
import sys
from pathlib import Path

import matplotlib
import pandas as pd

from experiments.compare import loss_overrides
from experiments.evidence import HOLDS, judged, over_seeds, read_expected, renew, spread, verdict
from experiments.grid import pilot
from experiments.plots import save
from experiments.study import OUT, TO, Given, Study, Trainings, option, verb
from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.plots import RC, Picture, new_figure
from vsehub.report.plots import render as drawn
from vsehub.report.recipes import NOISE, Series, differing, recipe
from vsehub.report.run_plots import styles
from vsehub.report.runs import Run, find_runs
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
    noises = {CLEAN: []} | {
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
KEYS = ["loss", "protocol", "rate", "seed"]


def rows(folders: list[Path]) -> pd.DataFrame:
    """A row a run. InputError where the runs of a loss differ in more than noise and seed."""
    frames, recipes = [], {}
    for path in find_runs(folders):
        record = json.loads((path / "run.json").read_text())
        label = record["label"]
        if label not in LOSSES:
            continue
        if record["status"] != "finished":
            print(f"left out, {record['status']}: {path}", file=sys.stderr)
            continue
        settings = recipe(Run(str(path), record, {}, pd.DataFrame()))
        del settings[NOISE]
        keys = differing([recipes.setdefault(label, settings), settings])
        require(not keys, f"{path} was trained otherwise than other runs of {label}: {', '.join(keys)} differ")
        frames.append(row(record))
    require(bool(frames), f"{folders[0]} has no finished run of noise; train first")
    frame = pd.DataFrame(frames)
    twice = frame.duplicated(KEYS)
    require(not twice.any(), f"runs of the same case and seed: {frame.loc[twice, KEYS].to_dict('records')}")
    return frame


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows by protocol, rate, loss and seed."""
    orders = {"loss": LOSSES, "protocol": (CLEAN, *PROTOCOLS)}
    ranks = {name: {value: rank for rank, value in enumerate(order)} for name, order in orders.items()}
    return frame.sort_values(
        ["protocol", "rate", "loss", "seed"],
        key=lambda column: column.map(ranks[column.name]) if column.name in ranks else column,
        ignore_index=True,
    )


def row(record: dict) -> dict:
    """The row of a run in results.csv."""
    noise = record.get("noise") or {"protocol": CLEAN, "rate": 0.0, "changed": 0.0}
    return (
        {"loss": record["label"], "protocol": noise["protocol"], "rate": noise["rate"], "seed": record["seed"]}
        | {"changed": round(noise["changed"], 4), "dataset": record["dataset"], "epochs": record["epochs"]}
        | {"best_epoch": record["best"]["epoch"], "val_rsum": round(record["best"]["val/rsum"], 2)}
        | {figure: round(record["metrics"][f"test/{figure}"], 3) for figure in FIGURES}
        | {"collapsed": record.get("collapsed") is not None, "seconds": round(record["wall_seconds"])}
        | {"hardware": record["hardware"]["gpu"] or record["hardware"]["cpu"]}
    )


@verb(OUT, option("--clean", type=Path, metavar="FOLDER", help="of runs without noise, where they lie elsewhere"), TO)
def collect(options: Given) -> None:
    """Write results.csv, a row a finished run; rows of runs that are not there stay."""
    path, frame = options.folder / "results.csv", rows([options.out, *([options.clean] if options.clean else [])])
    if path.is_file():
        frame = pd.concat([pd.read_csv(path), frame]).drop_duplicates(KEYS, keep="last")
    write_text(path, ordered(frame).to_csv(index=False, lineterminator="\n"))


TEST_IMAGES = 500  # of Flickr8k's test split here
WHAT = {"captions": "single captions are permuted", "images": "images are permuted, their captions with them"}


def with_drop(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with `case`, "max captions 0.2", and `drop`: clean rsum less rsum, of the same loss and seed."""
    clean = frame[frame["protocol"] == CLEAN].set_index(["loss", "seed"])["rsum"]
    keys = pd.MultiIndex.from_frame(frame[["loss", "seed"]])
    case = frame["loss"] + " " + frame["protocol"] + " " + frame["rate"].map("{:g}".format)
    return frame.assign(drop=clean.reindex(keys).to_numpy() - frame["rsum"], case=case)


def verdicts(claims: pd.DataFrame) -> str:
    """A sentence a protocol, since the two are not to be compared."""
    by_protocol = {name: claims[claims["higher"].str.contains(f" {name} ")] for name in PROTOCOLS}
    return " ".join(f"Protocol {name}: {verdict(rows, names=False)}" for name, rows in by_protocol.items())


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


def matrix(claims: pd.DataFrame) -> ReportTable:
    """A row a claim, a column a protocol and rate: the difference, in bold where the claim holds."""
    parts = claims["claim"].str.split(": ", expand=True)
    texts = [spread(row["difference"], row["deviation"]) for _, row in claims.iterrows()]
    bold = [f"**{text}**" if outcome == HOLDS else text for text, outcome in zip(texts, claims["outcome"], strict=True)]
    cells = dict(zip(zip(parts[0], parts[1], strict=True), bold, strict=True))
    columns = list(dict.fromkeys(parts[1]))
    rows = [[claim, *(cells[claim, column] for column in columns)] for claim in dict.fromkeys(parts[0])]
    return ReportTable(["difference", *columns], rows, "Bold: the claim holds, corrected by Holm over all.")


def facts(frame: pd.DataFrame, protocol: str) -> str:
    """Notes on the runs of a protocol: collapsed runs, best epochs."""
    part = frame[frame["protocol"] == protocol]
    fallen = part[part["collapsed"]].groupby("case", sort=False).size()
    sentence = f"Collapsed in training, runs: {', '.join(f'{case} ({runs})' for case, runs in fallen.items())}."
    first, last = part["best_epoch"].min(), part["best_epoch"].max()
    return f"{sentence} The epochs chosen on val were {first} to {last} of 0 to {part['epochs'].max() - 1}."


def curves(frame: pd.DataFrame) -> Picture:
    """Mean and sample deviation of rsum over the rate, a line a loss, a panel a protocol; single runs as faint dots."""
    looks = styles(Series("", "", loss, "") for loss in LOSSES)
    with matplotlib.rc_context(RC):
        whole = new_figure(8, 3.8)
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
        return drawn(whole, "rsum_over_rate", caption)


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from results.csv and expected.csv."""
    frame = with_drop(pd.read_csv(folder / "results.csv"))
    claims = judged(frame, read_expected(folder), "case", TEST_IMAGES)
    save(folder, curves(frame))
    parts = [matrix(claims).markdown()]
    for protocol in [protocol for protocol in PROTOCOLS if protocol in set(frame["protocol"])]:
        parts += [f"**Protocol {protocol}**: {WHAT[protocol]}.", table(frame, protocol), facts(frame, protocol)]
    parts.append(f"Data: {', '.join(sorted(frame['dataset'].unique()))}.")
    renew(folder / "README.md", verdicts(claims), "verdict")
    renew(folder / "README.md", "\n\n".join(parts), "figures")


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            lambda: cases(chosen()),
            FEATURES,
            scenes=Trainings(cases({"max": ["optimizer.lr=0.0005"]}), SCENES, (0, 1, 2)),
        )
    },
    render=render,
    verbs={"collect": collect},
)
