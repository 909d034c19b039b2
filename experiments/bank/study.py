"""The effect of the memory bank: HAL with and without it, at two settings, with and without regularisation.

    python -m experiments bank train DATA
    python -m experiments bank collect
    python -m experiments bank render

Statistics of a pair's neighbours come from the bank, from the batch alone ("batch"), or from nowhere ("none"). With
"constant", "permuted", "sorted" and "reversed" the weights of the bank lose whose they are (placebos.py).
"""

import itertools
from pathlib import Path

import matplotlib
import pandas as pd

from experiments.evidence import tell
from experiments.plots import save
from experiments.study import FEATURES, Study, Trainings
from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure
from vsehub.report.plots import render as drawn

HERE = Path(__file__).parent

COMMON = (
    *FEATURES,
    *("loss=hal", "embedding_dim=256", "text_encoder.bidirectional=false", "loader.max_words=20"),
    *("loader.batch_size=128", "trainer.max_epochs=7", "scheduler=cosine"),
)


def placebo(order: str) -> list[str]:
    """HAL with the bank's weights in this order; "own" is HAL itself, whose weights are compared with N_10."""
    return [f"--config-dir={HERE / 'conf'}", "loss=blind", f"loss.order={order}", "bank=counting"]


WEIGHTS = {30: ["loss.gamma=30", "loss.epsilon=0.3"], 60: ["loss.gamma=60", "loss.epsilon=0.7"]}
STATISTICS = {"none": ["bank=none"], "bank": placebo("own"), "batch": ["bank=none", "loss.statistics=batch"]}
STATISTICS |= {order: placebo(order) for order in ("constant", "permuted")}
RECIPES = {
    "plain": ["embedding_dropout=0", "text_encoder.word_dropout=0", "callbacks=plain"],
    "regularised": [],  # the defaults
}
TITLES = {"plain": "plain", "regularised": "with dropout and averaged weights"}
SEEDS = {"bank": range(10), "permuted": range(10), "sorted": range(5, 10), "reversed": range(5, 10)}  # gamma 30, plain
LABELS = {"none": "no bank", "bank": "with the bank", "batch": "the batch's statistics"}
LABELS |= {"sorted": "the bank's weights, sorted by hubness", "reversed": "the bank's weights, the other way round"}
LABELS |= {"constant": "the bank's mean weights", "permuted": "the bank's weights, permuted"}


def grid() -> dict[str, list[str]]:
    """The cases of the study."""
    cases = {
        f"gamma {gamma}, {statistics}, {recipe}": [*WEIGHTS[gamma], *STATISTICS[statistics], *RECIPES[recipe]]
        for gamma, statistics, recipe in itertools.product(WEIGHTS, STATISTICS, RECIPES)
    }
    return cases | {
        f"gamma 30, {order}, plain": [*WEIGHTS[30], *placebo(order), *RECIPES["plain"]]
        for order in ("sorted", "reversed")
    }


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from results.csv and expected.csv."""
    frame = pd.read_csv(folder / "results.csv")
    frame = frame.join(frame["case"].str.extract(r"gamma (?P<gamma>\d+), (?P<statistics>\w+), (?P<recipe>\w+)"))
    order = [frame["recipe"].map(list(TITLES).index), frame["statistics"].map(list(LABELS).index)]
    frame = frame.assign(recipe_place=order[0], place=order[1])
    frame = frame.sort_values(["recipe_place", "gamma", "place", "seed"])
    tell(folder, frame, "case")
    save(folder, picture(frame))


def picture(frame: pd.DataFrame) -> Picture:
    """Test rsum over γ, a line for each kind of statistics, a panel a recipe; single runs as faint dots."""
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.4)
        for axes, (recipe, title) in zip(figure.subplots(1, 2, sharey=True), TITLES.items(), strict=True):
            for place, (name, label) in enumerate(LABELS.items()):
                own = frame[(frame["recipe"] == recipe) & (frame["statistics"] == name)]
                if own.empty:
                    continue
                look = {"color": COLOURS[place], "marker": MARKERS[place]}
                places = own["gamma"].astype(int) + 1.5 * (place - 2)
                axes.plot(places, own["rsum"], linestyle="none", alpha=0.35, markersize=4, **look)
                over = own.assign(at=places).groupby("at")["rsum"].agg(["mean", "std"])
                axes.errorbar(over.index, over["mean"], yerr=over["std"], label=label, **look)
            axes.set(title=title, xlabel="γ (ε 0.3 at 30, 0.7 at 60)", xticks=[30, 60], xlim=(22, 68))
        figure.axes[0].set_ylabel("rsum on test, plain search")
        figure.axes[1].legend(loc="lower right")
        caption = "HAL with a memory bank and without: mean and deviation over seeds, each run."
        return drawn(figure, "rsum", caption)


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            grid(), COMMON, range(5), {f"gamma 30, {case}, plain": seeds for case, seeds in SEEDS.items()}
        ),
    },
    render=render,
)
