"""Losses on a made-up bilingual lexicon: the word vectors of two languages, and which words translate each other.

    python -m experiments lexicon make OUT [--meanings 4000] [--dim 64] [--seed 0]
    python -m experiments lexicon render

A meaning is a point near its topic, in a space of few dimensions that is put into the space of each language; one of
these is a rotation of the other. The rarer a meaning (Zipf), the more its words' vectors are noise. A meaning has one
word or more in each language, and some words have two meanings, so that translations are many each way. Topics, and a
direction in which frequent words are pulled, make hubs.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.evidence import judged, judged_table, read_expected, renew, verdict
from experiments.plots import dots, save
from experiments.study import Given, Study, option, verb
from vsehub.io.files import atomic, write_text
from vsehub.report.recipes import label_rank
from vsehub.report.results import aggregate, results_table

HIDDEN, TOPICS = 40, 60
MORE_WORDS = 0.3  # chance of each further word for a meaning
TWO_MEANINGS = 0.08  # share of words that have a second meaning
NOISE = (0.9, 1.7)  # of the most frequent and the rarest meaning's words
PULL = 1.5


def language(random: np.random.Generator, points: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A language's word vectors (W, D), and its words' meanings: (word, meaning) in rows."""
    meanings, dim = len(points), len(turn)
    first = np.repeat(np.arange(meanings), random.geometric(1 - MORE_WORDS, meanings))
    second = np.where(random.random(len(first)) < TWO_MEANINGS, random.integers(0, meanings, len(first)), first)
    words = np.arange(len(first))
    pairs = np.unique(np.concatenate([np.stack([words, first], 1), np.stack([words, second], 1)]), axis=0)
    rarity = np.log1p(first) / np.log1p(meanings)  # meanings lie by falling frequency, 1 / rank
    noise = NOISE[0] + (NOISE[1] - NOISE[0]) * rarity
    hidden = (points[first] + points[second]) / 2 + noise[:, None] * random.normal(size=(len(first), HIDDEN))
    pulled = PULL * (1 - rarity) * np.exp(0.5 * random.normal(size=len(first)))
    vectors = hidden @ turn[:HIDDEN] + pulled[:, None] * np.sqrt(HIDDEN) * unit(random, dim)
    return vectors + 0.1 * random.normal(size=vectors.shape), pairs


def unit(random: np.random.Generator, dim: int) -> np.ndarray:
    """A direction (D,)."""
    direction = random.normal(size=dim)
    return direction / np.linalg.norm(direction)


@verb(
    option("out", type=Path, help="folder for here.npy, there.npy, lexicon.csv (query: there, item: here)"),
    option("--meanings", type=int, default=4000),
    option("--dim", type=int, default=64, help=f"of the word vectors, at least {HIDDEN}"),
    option("--seed", type=int, default=0),
)
def make(options: Given) -> None:
    """Write the lexicon: vectors of both languages, and which words translate each other."""
    random = np.random.default_rng(options.seed)
    topics = random.normal(size=(TOPICS, HIDDEN))[random.integers(0, TOPICS, options.meanings)]
    points = topics + random.normal(size=(options.meanings, HIDDEN))
    turns = [np.linalg.qr(random.normal(size=(options.dim, options.dim)))[0] for _ in range(2)]
    sides = {name: language(random, points, turn) for name, turn in zip(("here", "there"), turns, strict=True)}
    for name, (vectors, _) in sides.items():
        with atomic(options.out / f"{name}.npy") as handle:
            np.save(handle, vectors.astype(np.float32))
    here = sides["here"][1][sides["here"][1][:, 1].argsort(kind="stable")]
    starts = np.searchsorted(here[:, 1], np.arange(options.meanings + 1))
    rows = sorted({(t, i) for t, m in sides["there"][1].tolist() for i in here[starts[m] : starts[m + 1], 0].tolist()})
    write_text(options.out / "lexicon.csv", "\n".join(["query,item", *(f"{t},{i}" for t, i in rows)]) + "\n")
    counts = " and ".join(f"{len(vectors)} words {name}" for name, (vectors, _) in sides.items())
    print(f"{counts}, {len(rows)} pairs of translations in {options.out}")


def render(folder: Path) -> None:
    """Draw table.md, the figure and the README's generated parts from results.csv and expected.csv."""
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    frame["variant"] = ""
    frame = frame.sort_values("label", key=lambda names: names.map(label_rank), kind="stable")
    frame = frame.sort_values("criterion", ascending=False, kind="stable")
    frame["case"] = frame["criterion"] + " " + frame["label"]
    claims = judged(frame, read_expected(folder), "case")
    text = f"{judged_table(claims).markdown()}\n\n{results_table(aggregate(frame)).markdown()}\n"
    write_text(folder / "table.md", f"# Losses on a made-up lexicon\n\n{text}")
    caption = "rsum of the test words by loss, under each criterion: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "label", "criterion", "rsum", caption, "rsum, test words"))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


STUDY = Study(__file__, render=render, verbs={"make": make})
