"""What predicts the gain of a correction: which figure of a model's hubness, over many trained models.

    python -m experiments diagnosis measure RUNS... [--out runs/diagnosis] [--root DATA]
    python -m experiments diagnosis render

RUNS: run folders or folders of them. For each model and direction of the test split: figures of plain search, and what
corrections add to the sum of R@1, R@5 and R@10. Each model is measured once, into OUT; gains.csv, the README's tables
and the figure are made of all that OUT holds.
"""

import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from experiments.checkpoints import chosen, restored
from experiments.evidence import renew
from experiments.plots import save
from experiments.study import DATA_ROOT, RUNS, TO, Given, Study, option, verb
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.trained import TrainedModel
from vsehub.io.files import write_json, write_text
from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure
from vsehub.report.plots import render as drawn
from vsehub.report.runs import find_runs
from vsehub.report.tables import ReportTable

DIRECTIONS = {"t2i": "text to image", "i2t": "image to text"}
# name: criterion, settings, whether the training queries are the reference (inductive) or the test queries
CORRECTIONS = {
    "CSLS": ("csls", {"k": 10}, True),
    "IS": ("is", {"beta": 30.0}, True),
    "Sinkhorn": ("sinkhorn", {"temperature": 0.02}, False),
}
MEASURES = {
    "skew_1": "skewness of N_1",
    "skew_10": "skewness of N_10",
    "robin_hood_1": "Robin Hood index of N_1",
    "robin_hood_10": "Robin Hood index of N_10",
    "antihub_rate_10": "items in no list of 10",
    "largest_hub_10": "largest N_10",
    "bad_skew_1": "skewness of wrong N_1",
    "concentration": "concentration of the items",
    "popularity": "spread of the items' mean scores",
    "recalls": "sum of recalls, plain search",
}
DRAWS, LEVEL = 10_000, 0.95


@verb(RUNS, option("--out", type=Path, default=Path("runs/diagnosis"), help="default: %(default)s"), DATA_ROOT, TO)
def measure(given: Given) -> None:
    """Measure each model once, into OUT, and write gains.csv from all that OUT holds."""
    for run in tqdm(find_runs(given.runs), "models"):
        path = given.out / f"{run.name}.json"
        if not path.exists():
            write_json(path, measured(run, restored(run, given.root)))
    rows = [row for path in sorted(given.out.glob("*.json")) for row in json.loads(path.read_text())]
    write_text(given.folder / "gains.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))


def render(folder: Path) -> None:
    """Draw the figure and the README's tables from gains.csv."""
    frame = pd.read_csv(folder / "gains.csv")
    renew(folder / "README.md", models(frame).markdown(), "models")
    for direction, title in DIRECTIONS.items():
        told = correlations(frame[frame["direction"] == direction], title)
        renew(folder / "README.md", told.markdown(), f"correlations {direction}")
    save(folder, picture(frame))


def measured(run: Path, model: TrainedModel) -> list[dict]:
    """A row a direction. The case of a run is its folder's name without the seed."""
    split, reference = model.encode("test"), model.encode("train")
    protocol = chosen("protocol", "single")
    plain = evaluate(split, model.similarity, chosen("criterion", "nns"), protocol).metrics
    sides = {"i2t": (split.images, split.texts), "t2i": (split.texts, split.images)}
    gains: dict[str, dict[str, float]] = {direction: {} for direction in DIRECTIONS}
    for name, (criterion, settings, inductive) in CORRECTIONS.items():
        known = chosen("criterion", criterion, **settings)
        found = evaluate(split, model.similarity, known, protocol, reference if inductive else None).metrics
        for direction, own in gains.items():
            own[name] = recalls(found, direction) - recalls(plain, direction)
    case, _, seed = run.name.rpartition("-")
    return [
        {"case": case, "seed": int(seed), "direction": direction}
        | {name: plain[f"hubness/{direction}/{name}"] for name in MEASURES if f"hubness/{direction}/{name}" in plain}
        | geometry(*(normalize(one, dim=1) for one in sides[direction]))
        | {"recalls": recalls(plain, direction)}
        | gains[direction]
        for direction in DIRECTIONS
    ]


def recalls(metrics: dict[str, float], direction: str) -> float:
    """R@1 + R@5 + R@10 of a direction."""
    return sum(metrics[f"{direction}/r{k}"] for k in (1, 5, 10))


def geometry(queries: Tensor, items: Tensor) -> dict[str, float]:
    """Concentration and popularity of unit vectors (Q, D) and (M, D).

    Concentration: the squared length of the items' mean, 0 for directions all around and 1 for a single one.
    Popularity: the standard deviation over the items of their mean score, in standard deviations of a query's scores.
    """
    scores = queries @ items.T
    spread = scores.mean(dim=0).std() / scores.std(dim=1).mean()
    return {"concentration": float(items.mean(dim=0).square().sum()), "popularity": float(spread)}


def models(frame: pd.DataFrame) -> ReportTable:
    """What the models are like: ranges over all of them."""
    rows = []
    for direction, title in DIRECTIONS.items():
        own = frame[frame["direction"] == direction]
        cells = [f"{own[name].min():.1f} to {own[name].max():.1f}" for name in ("recalls", "skew_10", *CORRECTIONS)]
        rows.append([title, str(len(own)), str(own["case"].nunique()), *cells])
    head = [
        "direction",
        "models",
        "cases",
        "sum of recalls",
        "skewness of N_10",
        *(f"gain, {one}" for one in CORRECTIONS),
    ]
    return ReportTable(
        head, rows, "The least and the largest of all models; gains in points of the sum of recalls.", words=1
    )


def correlations(frame: pd.DataFrame, title: str) -> ReportTable:
    """Spearman's rank correlation of each measure with each gain, with its interval."""
    values = frame[[*MEASURES, *CORRECTIONS]].to_numpy()
    found = spearman(values)
    drawn = spearman(values, draws(frame["case"].to_numpy()))
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail], axis=0)
    rows = []
    for one, words in enumerate(MEASURES.values()):
        gains = range(len(MEASURES), len(MEASURES) + len(CORRECTIONS))
        told = [f"{found[one, n]:+.2f} [{low[one, n]:+.2f}, {high[one, n]:+.2f}]" for n in gains]
        rows.append([words, *told])
    caption = f"{title}: Spearman's ρ over {len(frame)} models, 95 % interval from drawing cases with all their seeds."
    return ReportTable(["measured on plain search", *(f"gain, {one}" for one in CORRECTIONS)], rows, caption, words=1)


def draws(cases: np.ndarray) -> np.ndarray:
    """How often each row is in each of `DRAWS` bootstrap samples (DRAWS, N): cases come with all their seeds."""
    _, own = np.unique(cases, return_inverse=True)
    count = own.max() + 1
    drawn = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    times = np.zeros((DRAWS, count), dtype=int)
    np.add.at(times, (np.arange(DRAWS)[:, None], drawn), 1)
    return times[:, own]


def spearman(values: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
    """Rank correlations (B, C, C) of the columns of (N, C), in each of B samples; (C, C) without samples.

    times: how often each sample holds each row (B, N). Ties get their mean rank, constant columns NaN.
    """
    if times is None:
        return spearman(values, np.ones((1, len(values))))[0]
    ranks = np.stack([_ranks(column, times) for column in values.T])  # (C, B, N)
    ranks -= (ranks * times).sum(axis=2, keepdims=True) / times.sum(axis=1)[:, None]
    products = np.einsum("cbn,dbn,bn->bcd", ranks, ranks, times, optimize=True)
    lengths = np.sqrt(np.einsum("bcc->bc", products))
    lengths[lengths < 1e-9 * len(values)] = np.nan
    return products / (lengths[:, :, None] * lengths[:, None, :])


def _ranks(column: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The mean rank of each value of (N,) in each sample: (B, N)."""
    levels, own = np.unique(column, return_inverse=True)
    held = times @ (own[:, None] == np.arange(len(levels)))
    return (held.cumsum(axis=1) - held / 2 + 0.5)[:, own]


def kind(case: str) -> str:
    """The loss of a case; cases of the bank's study are all HAL's."""
    return "hal" if re.match(r"gamma|share|k-|every", case) else case.split("+")[0].removesuffix("-as-hal")


def picture(frame: pd.DataFrame) -> Picture:
    """Gain of CSLS over the skewness of N_10 before it, a panel a direction, a colour a loss."""
    kinds = frame["case"].map(kind)
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.4)
        for axes, (direction, title) in zip(figure.subplots(1, 2), DIRECTIONS.items(), strict=True):
            for place, name in enumerate(dict.fromkeys(sorted(kinds))):
                own = frame[(frame["direction"] == direction) & (kinds == name)]
                look = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
                axes.plot(own["skew_10"], own["CSLS"], linestyle="none", label=name, **look)
            axes.axhline(0, color="grey", linewidth=0.8)
            axes.set(title=title, xlabel="skewness of N_10, plain search")
        figure.axes[0].set_ylabel("CSLS adds to R@1 + R@5 + R@10")
        figure.axes[1].legend(fontsize="small")
        caption = "What CSLS (training queries as reference) adds, over the hubness before it; each dot is a model."
        return drawn(figure, "gains", caption, None)


STUDY = Study(__file__, render=render, verbs={"measure": measure})
