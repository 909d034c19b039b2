"""Seven losses, each with the recipe that an equal search chose for it, three with HAL's too, and several seeds.

python -m experiments losses train DATA                      each case by settings.csv, with five seeds
python -m experiments losses collect
python -m experiments losses train DATA --part wide          the best two with 1,024 dimensions
python -m experiments losses collect --part wide
python -m experiments losses render
"""

from pathlib import Path

import pandas as pd

from experiments import seeds
from experiments.compare import loss_overrides
from experiments.evidence import renew
from experiments.plots import dots, save
from experiments.study import FEATURES, Study, Trainings
from vsehub.report.tables import ReportTable

HERE = Path(__file__).parent

LOSSES = ("sum", "max", "knn_margin", "infonce", "siglip", "hal", "hal+mb")
BORROWED = {"sum-as-hal": "sum", "knn_margin-as-hal": "knn_margin", "siglip-as-hal": "siglip"}  # with HAL's recipe
COMMON = (*FEATURES, "text_encoder.bidirectional=false", "loader.max_words=20", "loader.batch_size=128")
SCHEDULE = ("trainer.max_epochs=7", "scheduler=cosine")
TRAINED, WIDE = ("embedding_dim=512", *SCHEDULE), ("embedding_dim=1024", *SCHEDULE)
WINNERS = ("hal", "infonce")


def cases() -> dict[str, list[str]]:
    """What `vsehub train` is told of each case, by settings.csv; borrowed is all but the loss's own settings."""
    frame = pd.read_csv(HERE / "settings.csv")
    chosen_ones = {row["loss"]: row["settings"].split() for _, row in frame.iterrows()}
    recipe = [one for one in chosen_ones["hal"] if not one.startswith("loss.")]
    told = {label: [*loss_overrides(label), *found] for label, found in chosen_ones.items()}
    for label, loss in BORROWED.items():
        own = [one for one in chosen_ones[loss] if one.startswith("loss.")]
        told[label] = [*loss_overrides(loss), *recipe, *own]
    return told


def winners() -> dict[str, list[str]]:
    """What is told of the best losses, which are not told apart; trained with twice the dimensions too."""
    return {label: told for label, told in cases().items() if label in WINNERS}


def render(folder: Path) -> None:
    """Draw the figure and the README's parts from results.csv, wide.csv, settings.csv and expected.csv."""
    frame = pd.read_csv(folder / "results.csv")
    means = frame.groupby("loss")["rsum"].mean().sort_values(ascending=False)
    frame["place"] = frame["loss"].map({loss: place for place, loss in enumerate(means.index)})
    frame = frame.sort_values(["place", "seed"]).assign(panel="Losses, each with the recipe that a search chose for it")
    seeds.tell(folder, frame, "loss")
    caption = "Losses under their own recipes: mean and deviation over seeds, each run."
    save(folder, dots(frame, "rsum", "loss", "panel", "rsum", caption, "rsum on test, plain search"))
    wide = pd.read_csv(folder / "wide.csv")
    renew(folder / "README.md", seeds.cases(wide, "loss").markdown(), "wide")
    renew(folder / "README.md", settings(pd.read_csv(folder / "settings.csv")).markdown(), "settings")


def settings(frame: pd.DataFrame) -> ReportTable:
    """The chosen settings."""
    rows = [[row["loss"], f"{row['val_rsum']:.1f}", row["settings"]] for _, row in frame.iterrows()]
    return ReportTable(["loss", "val rsum", "settings"], rows, "After 7 epochs at 256 dimensions, one seed.", words=3)


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(cases, (*COMMON, *TRAINED), range(5), dict.fromkeys(BORROWED, range(3)), column="loss"),
        "wide": Trainings(winners, (*COMMON, *WIDE), column="loss"),
    },
    render=render,
)
