"""Train the losses in several architectures, with several seeds each, on extracted features of one data set.

    python -m experiments architectures train DATA
    python -m experiments architectures collect
    python -m experiments architectures train DATA --part photos        a network trained from scratch on photos
    python -m experiments architectures collect --part photos
    python -m experiments architectures render

DATA holds global/ (a feature vector an image) and grid/ (several regions an image), both in the layout of VSE++, and
for the photos themselves dataset_flickr8k.json and images/.
"""

import json
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import matplotlib
import pandas as pd

from experiments.compare import loss_overrides
from experiments.evidence import judged, judged_table, read_expected, renew, spread, verdict
from experiments.plots import dots, save
from experiments.running import status
from experiments.study import RUNS, TO, Given, Study, Trainings, run_folder, verb
from vsehub.io.files import write_text
from vsehub.report.plots import COLOURS, RC, Picture, new_figure
from vsehub.report.plots import render as drawn
from vsehub.report.tables import ReportTable, spread_text

DIM = 512
LOSSES = ("sum", "max", "hal", "hal+mb")


@dataclass(frozen=True)
class Architecture:
    """settings: what makes it. own: further settings of single losses.

    epochs, decay: of training, and after how many the learning rate falls to a tenth.
    """

    settings: tuple[str, ...]
    losses: tuple[str, ...] = LOSSES
    own: dict[str, list[str]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 8
    decay: int = 6


VECTORS = ("data=precomp", "data.root={data}/global")
SCAN = (
    "data=precomp",
    "data.root={data}/grid",
    "image_encoder=image_regions",
    "image_encoder.pooling=none",
    "text_encoder=text_scan",
    "optimizer.lr=0.0005",  # AAAI table 3, rows 1.8 and 2.26, and SCAN's own
)
PHOTOS = (
    "data=karpathy",
    "data.json={data}/dataset_flickr8k.json",
    "data.images={data}/images",
    "data.pictures.size=112",
    "data.pictures.resize=128",
    "data.pictures.augment=vsepp",
    "image_encoder=image_cnn",
)
# Chosen on val with seed 0 among the papers' settings (README): gamma, epsilon of Flickr30k for vectors, of COCO, the
# defaults, for SCAN; a rate for MAX.
FLICKR30K = ["loss.gamma=60", "loss.epsilon=0.7"]
CHOSEN = {"max": ["optimizer.lr=0.0005"], "hal": FLICKR30K, "hal+mb": FLICKR30K}
ARCHITECTURES = {
    "cosine-last": Architecture(VECTORS, own=CHOSEN),
    "cosine-gpo": Architecture((*VECTORS, "text_encoder.pooling=gpo"), own=CHOSEN),
    "order": Architecture((*VECTORS, "similarity=order"), own=CHOSEN),
    "scan-t2i": Architecture((*SCAN, "similarity=scan_t2i"), ("max", "hal", "hal+mb"), epochs=5, decay=4),
    "photos-cnn": Architecture(PHOTOS, ("hal",), CHOSEN, epochs=3, decay=2),
}
LONG = (
    *("text_encoder.bidirectional=false", "loader.max_words=20", "embedding_dim=512"),
    *("trainer.max_epochs=25", "scheduler=cosine"),
)


def cases() -> dict[str, list[str]]:
    """The settings of each architecture and loss."""
    return {
        f"{name}/{loss}": [
            *("experiment=papers", *loss_overrides(loss), *one.settings, f"embedding_dim={DIM}"),
            *(f"trainer.max_epochs={one.epochs}", f"scheduler.step_size={one.decay}", *one.own.get(loss, ())),
        ]
        for name, one in ARCHITECTURES.items()
        for loss in one.losses
    }


RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")
FIGURES = (*RECALLS, "rsum", "hubness/hs_sum")


def row(folder: Path) -> dict | None:
    """What results.csv holds of a finished run."""
    if status(folder) != "finished":
        return None
    record, history = json.loads((folder / "run.json").read_text()), pd.read_csv(folder / "metrics.csv")
    return (
        {"seed": record["seed"], "epochs": record["epochs"], "best_epoch": record["best"]["epoch"]}
        | {"val_rsum": round(record["best"]["val/rsum"], 2)}
        | {figure: round(record["metrics"][f"test/{figure}"], 3) for figure in FIGURES}
        | {"seconds_an_epoch": round(float(history["seconds"].median()), 1)}
        | {"memory_mb": record["peak_memory"]["host_mb"], "hardware": record["hardware"]["cpu"]}
        | {"shortlist_recall": _last(history, "bank/shortlist_recall")}
    )


def read_results(folder: Path) -> pd.DataFrame:
    """The rows of results.csv with their case, "order sum", and its parts."""
    frame = pd.read_csv(folder / "results.csv")
    parts = frame["case"].str.split("/", expand=True)
    frame["case"], frame["architecture"], frame["loss"] = frame["case"].str.replace("/", " "), parts[0], parts[1]
    return frame


def _last(history: pd.DataFrame, column: str) -> float | None:
    values = history[column].dropna() if column in history else []
    return round(float(values.iloc[-1]), 3) if len(values) else None


def pilot(folder: Path) -> pd.DataFrame:
    """One row a run that chose a setting: the setting, and rsum on val epoch by epoch."""
    found = []
    for path in sorted(folder.glob("*/run.json")):
        record = json.loads(path.read_text())
        config, history = record["config"], pd.read_csv(path.parent / "metrics.csv")
        found.append(
            {"similarity": config["similarity"]["_target_"].split(".")[-1], "loss": record["label"]}
            | {"lr": config["optimizer"]["lr"]}
            | {name: config["loss"].get(name) for name in ("gamma", "epsilon")}
            | {"seed": record["seed"], "dim": config["embedding_dim"]}
            | {"val_rsum_by_epoch": " ".join(f"{value:.1f}" for value in history["val/rsum"])}
        )
    return pd.DataFrame(found)


def curve(out: Path) -> pd.DataFrame:
    """val/rsum and the training loss epoch by epoch; the last row is the best epoch's model on the test split."""
    run = run_folder(out, "photos", 0)
    history = pd.read_csv(run / "metrics.csv")[["epoch", "seconds", "train/loss", "val/rsum"]]
    record = json.loads((run / "run.json").read_text())
    last = {"epoch": record["best"]["epoch"], "test/rsum": record["metrics"]["test/rsum"]}
    return pd.concat([history, pd.DataFrame([last])], ignore_index=True)


@verb(RUNS, TO)
def write_pilot(given: Given) -> None:
    """Write pilot.csv from the runs that chose the settings."""
    frame = pd.concat([pilot(folder) for folder in given.runs], ignore_index=True)
    write_text(given.folder / "pilot.csv", frame.to_csv(index=False, lineterminator="\n"))


TEST_IMAGES = 500  # of Flickr8k's test split here


def means(frame: pd.DataFrame) -> str:
    """The means over the seeds, as markdown."""
    head = ["architecture", "loss", "seeds", *RECALLS, "rsum", "hs_sum", "s an epoch", "memory, MB"]
    rows = []
    for (architecture, loss), runs in frame.groupby(["architecture", "loss"], observed=True):
        cells = [architecture, loss, ", ".join(map(str, runs["seed"]))]
        cells += [f"{runs[metric].mean():.1f}" for metric in RECALLS]
        for metric, digits in (("rsum", 1), ("hubness/hs_sum", 2)):
            cells.append(spread_text(runs[metric].mean(), runs[metric].std(), digits))
        rows.append([*cells, f"{runs['seconds_an_epoch'].median():.0f}", f"{runs['memory_mb'].max():,}"])
    return ReportTable(head, rows, words=3).markdown()


def differences(frame: pd.DataFrame) -> str:
    """rsum of one loss less that of another in each architecture, over the seeds that both have, as markdown."""
    names = [name for name in ARCHITECTURES if name in set(frame["architecture"])]
    sums = frame.pivot(index="seed", columns=["architecture", "loss"], values="rsum")
    rows = []
    for one, other in combinations(LOSSES, 2):
        cells = []
        for name in names:
            both = (name, one) in sums and (name, other) in sums
            own = (sums[name, one] - sums[name, other]).dropna() if both else pd.Series(dtype=float)
            cells.append(f"{spread(own.mean(), own.std())} (n {len(own)})" if len(own) else "–")
        rows.append([f"{one} − {other}", *cells])
    caption = "Differences in rsum, seed by seed: mean ± sample deviation over n seeds."
    return ReportTable(["losses", *names], rows, caption).markdown()


def training_curve(frame: pd.DataFrame) -> Picture:
    """rsum on val by epoch of the long training on photos, and on test."""
    epochs, test = frame[frame["val/rsum"].notna()], frame.iloc[-1]
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.2)
        axes = figure.subplots()
        axes.plot(epochs["epoch"], epochs["val/rsum"], color=COLOURS[0], label="val")
        axes.plot(test["epoch"], test["test/rsum"], "D", color=COLOURS[1], label="test, the best epoch by val")
        axes.set(xlabel="epoch, counted from 0", ylabel="rsum, plain search", ylim=(0, None))
        axes.legend(loc="lower right")
        return drawn(figure, "photos", "A small network trained from scratch on photos: rsum by epoch.", None)


def render(folder: Path) -> None:
    """Draw the figures and the README's generated parts from results.csv, photos.csv and expected.csv."""
    frame = read_results(folder)
    claims = judged(frame, read_expected(folder), "case", TEST_IMAGES)
    caption = "rsum on the test split of each loss in each architecture: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "loss", "architecture", "rsum", caption, "rsum, test"))
    save(folder, training_curve(pd.read_csv(folder / "photos.csv")))
    frame["loss"] = pd.Categorical(frame["loss"], LOSSES)
    frame["architecture"] = pd.Categorical(frame["architecture"], list(ARCHITECTURES))
    place = f"One thread of {', '.join(sorted(set(frame['hardware'])))}; other work ran beside it."
    recalls = frame["shortlist_recall"].dropna()
    lists = f"Recall of the bank's shortlists against exact scoring: {recalls.min():.3f} to {recalls.max():.3f}."
    parts = [
        judged_table(claims).markdown(),
        differences(frame),
        means(frame),
        *([lists] if len(recalls) else []),
        place,
    ]
    text = "\n\n".join(parts)
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            cases,
            ("data.name={name}",),
            own_seeds={f"{name}/{loss}": one.seeds for name, one in ARCHITECTURES.items() for loss in one.losses},
            row=row,
        ),
        "photos": Trainings({"photos": (*PHOTOS, *LONG)}, ("data.name={name}",), (0,), table=curve),
    },
    render=render,
    verbs={"pilot": write_pilot},
)
