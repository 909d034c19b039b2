"""Seven losses, each with the recipe that an equal search chose for it, three with HAL's too, and several seeds.

python -m experiments losses tune DATA                       a sweep a loss: 16 short trainings, then 2
python -m experiments losses choose                          trials.csv and settings.csv
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
from experiments.running import run_all
from experiments.study import DATA, DRY_RUN, FEATURES, NAME, OUT, TO, Given, Study, Trainings, filled, finish, verb
from vsehub.checks import existing
from vsehub.io.files import write_text
from vsehub.report.tables import ReportTable

HERE = Path(__file__).parent

LOSSES = ("sum", "max", "knn_margin", "infonce", "siglip", "hal", "hal+mb")
BORROWED = {"sum-as-hal": "sum", "knn_margin-as-hal": "knn_margin", "siglip-as-hal": "siglip"}  # with HAL's recipe
COMMON = (*FEATURES, "text_encoder.bidirectional=false", "loader.max_words=20", "loader.batch_size=128")
TUNED = ["sweep=tune_loss", "embedding_dim=256", "hydra.sweeper.epochs=[3,7]", "hydra.sweeper.trials=[16,2]"]
SCHEDULE = ("trainer.max_epochs=7", "scheduler=cosine")
TRAINED, WIDE = ("embedding_dim=512", *SCHEDULE), ("embedding_dim=1024", *SCHEDULE)
WINNERS = ("hal", "infonce")


@verb(DATA, OUT, NAME, DRY_RUN)
def tune(given: Given) -> None:
    """Search the settings of each loss, one sweep a loss; what is finished is not done again."""
    commands = [
        [
            *("train", "-m", *TUNED, *(filled(one, given) for one in COMMON), *loss_overrides(label)),
            *(f"study=tune-{label.replace('+', '-')}", f"hydra.sweep.dir={given.out / 'tune' / label}"),
        ]
        for label in LOSSES
    ]
    finish(run_all(commands, given.dry_run), "sweep")


@verb(OUT, TO)
def choose(given: Given) -> None:
    """Write what was tried, and of each loss's last round the settings with the largest rsum on val."""
    tried = pd.concat([trials(given.out, label) for label in LOSSES], ignore_index=True)
    write_text(given.folder / "trials.csv", tried.to_csv(index=False))
    write_text(given.folder / "settings.csv", chosen(tried).to_csv(index=False))


def trials(out: Path, label: str) -> pd.DataFrame:
    """A row for each trial of a loss, round by round."""
    path = existing("tune", out / "tune" / label / "halving.csv", "Run `python -m experiments losses tune` first")
    frame = pd.read_csv(path)
    return frame.assign(loss=label)[["loss", "epochs", "val_rsum", "settings"]]


def chosen(tried: pd.DataFrame) -> pd.DataFrame:
    """The row of each loss that is best on val among those of its longest trainings; of equal ones the first."""
    longest = tried[tried["epochs"] == tried.groupby("loss")["epochs"].transform("max")]
    return longest.loc[longest.groupby("loss", sort=False)["val_rsum"].idxmax()]


def cases() -> dict[str, list[str]]:
    """What `vsehub train` is told of each case, by settings.csv; borrowed is all but the loss's own settings."""
    path = existing("settings", HERE / "settings.csv", "Run `python -m experiments losses tune`, then choose")
    frame = pd.read_csv(path)
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
    verbs={"tune": tune, "choose": choose},
)
