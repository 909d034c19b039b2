"""Queries without an answer: how well scores tell them apart, and whether calibrated thresholds keep their promise.

    python -m experiments no_match measure FOLDER [--more FILE.npz ...] [--seeds SEED ...]
    python -m experiments no_match render

FOLDER and FILE.npz: those of the study `pretrained`. In each of ten splits the groups of queries that share answers are
divided in three: a reference, calibration queries, and measured ones. The answers of half of the measured groups are
taken out of the items, so that these queries have none. AUROC: of the best score, measured queries with answers against
those without.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from experiments.evidence import renew
from experiments.pretrained.study import Set, sets
from experiments.study import MORE_SETS, SEEDS, TO, Given, Study, option, verb
from vsehub.criteria import CSLS, InvertedSoftmax, NearestNeighbor, Sinkhorn
from vsehub.io.files import write_text
from vsehub.metrics.positives import Positives
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable
from vsehub.serving.calibration import Calibration

SPLITS, RATES, DRAWS, LEVEL = range(10), (0.01, 0.05, 0.1), 20_000, 0.05
CRITERIA = {
    "cosine": NearestNeighbor(),
    "CSLS": CSLS(),
    "inverted softmax": InvertedSoftmax(),
    "Sinkhorn": Sinkhorn(),
}


@verb(option("data", type=Path, metavar="FOLDER"), MORE_SETS, SEEDS, TO)
def measure(given: Given) -> None:
    """Write splits.csv, a row for each set, split and criterion."""
    torch.set_num_threads(1)
    seeds = given.seeds or SPLITS
    rows = [row for one in sets(given.data, given.more) for seed in seeds for row in measured(one, seed)]
    write_text(given.folder / "splits.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))


def render(folder: Path) -> None:
    """Write the README's tables from splits.csv."""
    frame = pd.read_csv(folder / "splits.csv")
    renew(folder / "README.md", separation(frame), "separation")
    renew(folder / "README.md", promise(frame), "promise")
    renew(folder / "README.md", by_set(frame), "sets")


def groups_of(one: Set) -> Tensor:
    """The group (Q,) of each query: that of its first answer, since an item answers one group here."""
    group = torch.full((len(one.scores),), len(one.scores) * one.scores.shape[1])
    # Texts of an image share it, an image has its texts alone: either side's number names the group.
    side = one.item if one.scores.shape[1] <= len(one.scores) else one.query
    return group.scatter_reduce(0, one.query, side, "amin")


def measured(one: Set, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each criterion."""
    random = np.random.default_rng(seed)
    groups = groups_of(one)
    order = torch.from_numpy(random.permutation(groups.unique().numpy()))
    reference, known, others = (torch.isin(groups, part).nonzero()[:, 0] for part in order.tensor_split(3))
    without = torch.isin(groups[others], order.tensor_split(3)[2][::2])
    gone = one.item[torch.isin(one.query, others[without])].unique()
    kept = torch.ones(one.scores.shape[1], dtype=torch.bool)
    kept[gone] = False
    place = kept.long().cumsum(0) - 1
    pairs = torch.isin(one.query, known) & kept[one.item]
    positives = Positives.from_pairs(one.query[pairs], place[one.item[pairs]], len(groups), int(kept.sum()), False)
    queries, items = as_vectors("queries", one.scores[:, kept]), as_vectors("items", torch.eye(int(kept.sum())))
    asked = {"with": drawn(groups, others[~without], random), "without": drawn(groups, others[without], random)}
    for name, criterion in CRITERIA.items():
        terms = criterion.fit(lambda: iter((one.scores[reference][:, kept],)))
        calibration = Calibration.of(criterion, queries, items, terms, positives, seed=seed)
        best = {}
        for kind, rows in asked.items():
            some = as_vectors("queries", one.scores[rows][:, kept])
            best[kind] = criterion.search_fitted(some, items, terms, 1)[0][:, 0].double().numpy()
        above = stats.mannwhitneyu(best["with"], best["without"]).statistic
        row = {"set": one.name, "seed": seed, "criterion": name, "calibration": len(calibration)}
        row |= {kind: len(scores) for kind, scores in best.items()}
        row["auroc"] = above / (len(best["with"]) * len(best["without"]))
        for rate in RATES:
            if rate * (len(calibration) + 1) >= 1:
                for kind, scores in best.items():
                    accepted = calibration.p_values(torch.from_numpy(scores)) <= rate
                    row[f"{kind} {rate:g}"] = accepted.double().mean().item()
        yield row


def drawn(groups: Tensor, rows: Tensor, random: np.random.Generator) -> Tensor:
    """One of the rows of each group, ascending."""
    shuffled = rows[torch.from_numpy(random.permutation(len(rows)))]
    first = np.unique(groups[shuffled].numpy(), return_index=True)[1]
    return shuffled[torch.from_numpy(first)].sort().values


def interval(values: pd.Series) -> tuple[float, float, float]:
    """The mean of the splits' values, and its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def separation(frame: pd.DataFrame) -> str:
    """AUROC and the share of answered queries that are accepted at each rate: the mean of the sets."""
    rows = []
    for name, own in frame.groupby("criterion", sort=False):
        cells = [str(name)]
        for column in ("auroc", *(f"with {rate:g}" for rate in RATES)):
            mean, low, high = interval(own.groupby("seed")[column].mean())
            form = ".3f" if column == "auroc" else ".1%"
            cells.append(f"{mean:{form}} [{low:{form}}, {high:{form}}]")
        rows.append(cells)
    head = ["calibrated score", "AUROC", *(f"answered queries accepted at {rate:g}" for rate in RATES)]
    return ReportTable(head, rows).markdown()


def limit(own: pd.DataFrame, rate: float, sets_measured: int) -> float:
    """The largest mean share of false accepts that chance allows at level 0.05, divided by the number of sets.

    The number accepted in a split is beta-binomial. Splits are taken as independent, which is the stricter limit.
    """
    random = np.random.default_rng(0)
    shares = np.zeros(DRAWS)
    for size, new in zip(own["calibration"], own["without"], strict=True):
        count = np.floor(rate * (size + 1) + 1e-9)
        shares += random.binomial(new, random.beta(count, size + 1 - count, DRAWS)) / new
    return float(np.quantile(shares / len(own), 1 - LEVEL / sets_measured))


def promise(frame: pd.DataFrame) -> str:
    """The accepted share of queries without an answer at each rate: the mean of all sets, and the largest of a set."""
    rows = []
    for name, own in frame.groupby("criterion", sort=False):
        cells = [str(name)]
        for rate in RATES:
            column = f"without {rate:g}"
            mean, low, high = interval(own.groupby("seed")[column].mean())
            parts = {key: part for key, part in own.groupby("set") if part[column].notna().all()}
            largest = max(part[column].mean() for part in parts.values())
            beyond = sum(part[column].mean() > limit(part, rate, len(parts)) for part in parts.values())
            cells += [f"{mean:.1%} [{low:.1%}, {high:.1%}]", f"{largest:.1%}", f"{beyond} of {len(parts)}"]
        rows.append(cells)
    head = ["calibrated score"]
    for rate in RATES:
        head += [f"false accepts at {rate:g}", "largest", "beyond chance"]
    return ReportTable(head, rows).markdown()


def by_set(frame: pd.DataFrame) -> str:
    """AUROC of each set and criterion, the mean of the splits."""
    table = frame.pivot_table(index="set", columns="criterion", values="auroc", sort=False)
    sizes = frame.groupby("set", sort=False)["calibration"].median().astype(int)
    rows = [
        [str(name), str(sizes[name]), *(f"{value:.3f}" for value in line)]
        for name, line in zip(table.index, table.to_numpy(), strict=True)
    ]
    return ReportTable(["AUROC", "calibration queries", *map(str, table.columns)], rows).markdown()


STUDY = Study(__file__, render=render, verbs={"measure": measure})
