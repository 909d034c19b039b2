"""The effect of the memory bank: HAL with and without it, at two settings, with and without regularisation.

    python -m experiments bank train DATA
    python -m experiments bank collect
    python -m experiments bank render

Statistics of a pair's neighbours come from the bank, from the batch alone ("batch"), or from nowhere ("none"). With
"constant", "permuted", "sorted" and "reversed" the weights of the bank lose whose they are (placebos.py).
"""

import itertools
from pathlib import Path

import pandas as pd

from experiments.evidence import tell
from experiments.study import FEATURES, Study, Trainings

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
SEEDS = {"bank": range(10), "permuted": range(10), "sorted": range(5, 10), "reversed": range(5, 10)}  # gamma 30, plain


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
    """Write the README's generated parts from results.csv and expected.csv."""
    tell(folder, pd.read_csv(folder / "results.csv"), "case")


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            grid(), COMMON, range(5), {f"gamma 30, {case}, plain": seeds for case, seeds in SEEDS.items()}
        ),
    },
    render=render,
)
