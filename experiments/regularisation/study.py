"""HAL with each regularisation, and with several together, under one recipe.

    python -m experiments regularisation train FOLDER --seeds 0 1 2 --cases none words
    python -m experiments regularisation evaluate --seeds 0 1 2 --cases none words
    python -m experiments regularisation collect
    python -m experiments regularisation render

FOLDER holds features in the layout of VSE++. Trainings are measured on validation; `evaluate` also measures the cases
that it is given on the test split, plainly and corrected.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.evidence import renew
from experiments.running import status
from experiments.study import FEATURES, Study, Trainings
from vsehub.report.tables import ReportTable, spread_text

PLAIN = (
    "experiment=papers",
    "loss=hal",
    "loss.gamma=60",
    "loss.epsilon=0.7",
    "text_encoder.pooling=gpo",
    "scheduler.step_size=8",
)
SHORT = ("embedding_dim=512", "trainer.max_epochs=13")
WORDS, IMAGES, EMBEDDINGS = "text_encoder.word_dropout=0.3", "image_encoder.dropout=0.2", "embedding_dropout=0.1"
LEFT_OUT = "augmentation.drop_words=0.2"
AVERAGE, BOTH_WAYS = "callbacks=ema", "text_encoder.bidirectional=true"
CASES = {
    "none": (*PLAIN, *SHORT),
    "words": (*PLAIN, *SHORT, WORDS),
    "words left out": (*PLAIN, *SHORT, LEFT_OUT),
    "all, words left out": (*PLAIN, *SHORT, AVERAGE, WORDS, IMAGES, EMBEDDINGS, LEFT_OUT),
    "all, both directions": (*PLAIN, *SHORT, AVERAGE, WORDS, IMAGES, EMBEDDINGS, BOTH_WAYS),
    "defaults": SHORT,
    "none, 1024 dimensions": (*PLAIN, "trainer.max_epochs=13"),
    "defaults, 1024 dimensions": (),
}
# Each case, and the one without regularisation that it is compared with.
WITHOUT = {
    **dict.fromkeys(
        ["words", "words left out", "all, words left out", "all, both directions", "defaults"],
        "none",
    ),
    "defaults, 1024 dimensions": "none, 1024 dimensions",
}
EVALUATIONS = ((), *((f"criterion={one}", "reference=train", "tune=true") for one in ("is", "sinkhorn")))
TEST = {"nns": "test_nns", "is": "test_is", "sinkhorn": "test_sinkhorn"}
SHOWN = {
    "val_rsum": "val",
    "test_nns": "test, plain",
    "test_is": "test, is",
    "test_sinkhorn": "test, sinkhorn",
}


def row(run: Path) -> dict[str, Any] | None:
    """A finished run's best epoch by validation rsum, and its rsum on test where it was measured."""
    if status(run) != "finished":
        return None
    record = json.loads((run / "run.json").read_text())
    best = record["best"]
    found = {"seed": record["seed"], "best_epoch": best["epoch"], "val_rsum": best["val/rsum"]}
    measured = [json.loads(path.read_text()) for path in sorted((run / "evaluations").glob("test-*.json"))]
    rsums = {TEST[one["criterion"]]: one["metrics"]["rsum"] for one in measured}
    return found | {name: rsums.get(name) for name in TEST.values()}


def means(frame: pd.DataFrame) -> ReportTable:
    """A row for each case."""
    return over_seeds({case: frame[frame["case"] == case] for case in frame["case"].unique()}, "regularisation", 1)


def over_none(frame: pd.DataFrame) -> ReportTable:
    """What each case of two seeds or more adds to the case without regularisation, with the same seed."""
    runs = {case: frame[frame["case"] == case].set_index("seed")[list(SHOWN)] for case in CASES}
    gains = {case: (runs[case] - runs[without]).dropna(how="all") for case, without in WITHOUT.items()}
    return over_seeds(gains, "over none", 2)


def over_seeds(runs: dict[str, pd.DataFrame], title: str, fewest: int) -> ReportTable:
    """A row for each case that has the fewest seeds or more: mean ± standard deviation of `SHOWN`."""
    rows = [
        [case, str(len(own)), *(spread_text(own[column].mean(), own[column].std(), 1) for column in SHOWN)]
        for case, own in runs.items()
        if len(own) >= fewest
    ]
    return ReportTable([title, "seeds", *SHOWN.values()], rows)


def render(folder: Path) -> None:
    """Write the README's tables from runs.csv, and earlier.csv of what can no longer be trained."""
    frame = pd.read_csv(folder / "runs.csv")
    earlier = pd.read_csv(folder / "earlier.csv")
    renew(folder / "README.md", means(pd.concat([frame, earlier])).markdown(), "means")
    renew(folder / "README.md", over_none(frame).markdown(), "over none")


STUDY = Study(
    __file__,
    trainings={"runs": Trainings(CASES, (*FEATURES, "final_split=val"), (0,), evaluations=EVALUATIONS, row=row)},
    render=render,
)
