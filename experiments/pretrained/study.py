"""Gains of corrections on embeddings of pretrained models: by criterion, reference, its size, and by choosing.

    python -m experiments pretrained measure FOLDER [--more FILE.npz ...]
    python -m experiments pretrained render

FOLDER holds clip_coco500.npz (`image`, `text`) and msrvtt1k_scores.npz (score matrices, rows texts), whose row i
answers column i. --more: files with `image` (I, D), `text` (T, D) and `index` (T,), the image that each text describes.

Of each set half of the queries, drawn by seed, are the pool of reference queries, whose answers may be known; the other
half is measured. "plain": as the set is. "distractors": only queries of half of the items are asked, in the pool and in
what is measured, so that the other items answer none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from experiments.evidence import renew
from experiments.study import MORE_SETS, TO, Given, Study, option, verb
from vsehub.criteria import Auto, Correction
from vsehub.criteria.auto import candidates
from vsehub.criteria.choose import choose
from vsehub.io.files import write_text
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import rank_blocks
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable

SEEDS = range(3)
SIZES = (25, 50, 100, 250, 500)  # of the reference
FIXED = [
    ("sinkhorn", {"temperature": 0.02, "rounds": 10, "weight": 1.0, "relative": False}),
    ("sinkhorn", {"temperature": 0.01, "rounds": 10, "weight": 1.0, "relative": False}),
    ("csls", {"k": 2}),
    ("csls", {"k": 10}),
    ("is", {"beta": 30.0}),
    ("is", {"beta": 50.0}),
    ("nnn", {"k": 128, "weight": 0.75}),
    ("dn", {"weight": 0.5}),
    ("local_scaling", {"k": 5}),
    ("mutual_proximity", {}),
    ("dual_softmax", {"beta": 100.0}),
    ("qb_norm", {"beta": 20.0, "k": 1}),
]
DRAWS = 10_000
CHOSEN_BY = 100  # reference queries with known answers, at least, for a choice by them


class Set(NamedTuple):
    """A test set in one direction: scores (Q, M), and the items (P,) that answer the queries (P,)."""

    name: str
    scores: Tensor
    query: Tensor
    item: Tensor


@verb(option("data", type=Path, metavar="FOLDER"), MORE_SETS, TO)
def measure(given: Given) -> None:
    """Write gains.csv, a row for each set, condition, seed, reference and criterion."""
    torch.set_num_threads(1)
    rows = [row for one in sets(given.data, given.more) for row in measured(one)]
    write_text(given.folder / "gains.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.4g"))


def render(folder: Path) -> None:
    """Write the README's tables from gains.csv."""
    frame = pd.read_csv(folder / "gains.csv", keep_default_na=False)
    for name, text in (("criteria", by_criterion(frame)), ("sizes", by_size(frame)), ("sets", by_set(frame))):
        renew(folder / "README.md", text, name)


def sets(folder: Path, more: list[Path]) -> Iterator[Set]:
    """All test sets, both directions of each."""
    stored = np.load(folder / "clip_coco500.npz")
    yield from of_vectors("coco", stored["image"], stored["text"], np.arange(len(stored["text"])))
    stored = np.load(folder / "msrvtt1k_scores.npz")
    scores = torch.from_numpy(stored["text_to_video"].astype(np.float32))
    own = torch.arange(len(scores))
    yield Set("msrvtt, text to video", scores, own, own)
    yield Set("msrvtt, video to text", scores.T.contiguous(), own, own)
    for path in more:
        stored = np.load(path)
        yield from of_vectors(path.stem, stored["image"], stored["text"], stored["index"])


def of_vectors(name: str, images: np.ndarray, texts: np.ndarray, index: np.ndarray) -> Iterator[Set]:
    """Both directions of encoded images and texts."""
    image, text = (
        torch.nn.functional.normalize(torch.from_numpy(one.astype(np.float32)), dim=1) for one in (images, texts)
    )
    own, owner = torch.arange(len(text)), torch.from_numpy(index.astype(np.int64))
    yield Set(f"{name}, text to image", text @ image.T, own, owner)
    yield Set(f"{name}, image to text", image @ text.T, owner, own)


def measured(one: Set) -> Iterator[dict]:
    """A row for each condition, seed, reference and criterion."""
    for condition in ("plain", "distractors"):
        for seed in tqdm(SEEDS, f"{one.name}, {condition}", disable=None):
            pool, asked = parts(one, condition, seed)
            everything, sizes = torch.cat([asked, pool]), sorted({min(size, len(pool)) for size in SIZES})
            hits = {("nns", "", "none", 0): hit(one, None, asked, None)}
            sides = [(asked, pool[:size], pool[:size], "inductive") for size in sizes]
            for queries, reference, known, kind in [*sides, (everything, everything, pool, "transductive")]:
                criteria = [
                    (
                        name,
                        ", ".join(f"{key} {value:g}" for key, value in settings.items()),
                        candidates()[name].with_parameters(**settings),
                    )
                    for name, settings in FIXED
                    if settings.get("k", 1) <= len(reference)
                ]
                if len(known) >= CHOSEN_BY:
                    criteria.append(("auto", "tuned", chosen(one, known, reference, seed)))
                for name, settings, criterion in criteria:
                    own = hit(one, criterion, queries, reference)[: len(asked)]
                    hits[name, settings, kind, len(reference)] = own
            for key, own in hits.items():
                told = {"set": one.name, "condition": condition, "seed": seed, "queries": len(asked)}
                told |= dict(zip(("criterion", "settings", "kind", "reference"), key, strict=True))
                yield told | {"r1": 100 * own.mean(), **interval(100 * (own - hits["nns", "", "none", 0]), seed)}


def parts(one: Set, condition: str, seed: int) -> tuple[Tensor, Tensor]:
    """The queries of the pool, in drawn order, and those that are measured."""
    random = np.random.default_rng(seed)
    queries = np.arange(len(one.scores))
    if condition == "distractors":
        wanted = random.permutation(one.scores.shape[1])[: one.scores.shape[1] // 2]
        queries = np.unique(one.query[torch.from_numpy(np.isin(one.item.numpy(), wanted))].numpy())
    drawn = torch.from_numpy(random.permutation(queries))
    return drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :].sort().values


def answers(one: Set, queries: Tensor) -> Positives:
    """The items that answer each of these queries."""
    place = torch.full((len(one.scores),), -1)
    place[queries] = torch.arange(len(queries))
    known = place[one.query] >= 0
    return Positives.from_pairs(place[one.query[known]], one.item[known], len(queries), one.scores.shape[1])


def hit(one: Set, criterion: Correction | None, queries: Tensor, reference: Tensor | None) -> np.ndarray:
    """1 for each query that finds an answer first, else 0: (n,)."""
    scores = one.scores[queries]
    if criterion is not None:
        scores = criterion.rescore(scores, None if reference is None else one.scores[reference])
    return (rank_blocks([(0, scores)], answers(one, queries)).ranks == 1).numpy().astype(float)


def chosen(one: Set, known: Tensor, reference: Tensor, seed: int) -> Correction:
    """The criterion that `auto` chooses by the queries `known`.

    The items are unit vectors, so that products give the scores back.
    """
    items, queries = as_vectors("items", torch.eye(one.scores.shape[1])), as_vectors("queries", one.scores[reference])
    if len(known) == len(reference):
        return choose(Auto(), queries, answers(one, known), items, queries, seed).criterion
    told = answers(one, reference)
    first = torch.isin(reference[told.query], known)
    some = Positives.from_pairs(told.query[first], told.item[first], len(reference), told.items, complete=False)
    return choose(Auto(), queries, some, items, None, seed).criterion


def interval(differences: np.ndarray, seed: int) -> dict[str, float]:
    """The mean of differences of -100, 0 and 100 and its 95 % percentile bootstrap interval over queries."""
    shares = [(differences == value).mean() for value in (100, -100, 0)]
    counts = np.random.default_rng(seed).multinomial(len(differences), shares, DRAWS)
    low, high = np.quantile(100 * (counts[:, 0] - counts[:, 1]) / len(differences), [0.025, 0.975])
    return {"gain": differences.mean(), "low": low, "high": high}


def summary(rows: pd.DataFrame) -> list[str]:
    """The mean gain, the least gain of a set on the mean of its splits, and splits that lose beyond their interval."""
    means = rows.groupby("set")["gain"].mean()
    return [f"{means.mean():+.1f}", f"{means.min():+.1f}", f"{(rows['high'] < 0).sum()}/{len(rows)}"]


def by_criterion(frame: pd.DataFrame) -> str:
    """Criteria by condition and kind, each with the largest reference."""
    largest = frame.groupby(["set", "condition", "seed", "kind"])["reference"].transform("max")
    frame = frame[frame["reference"] == largest]
    rows = []
    for (name, settings), own in frame[frame["criterion"] != "nns"].groupby(["criterion", "settings"], sort=False):
        cells = [
            cell
            for kind, condition, shown in (
                ("inductive", "plain", 3),
                ("inductive", "distractors", 3),
                ("transductive", "plain", 1),
            )
            for cell in summary(own[(own["kind"] == kind) & (own["condition"] == condition)])[:shown]
        ]
        rows.append([name, settings, *cells])
    rows.sort(key=lambda row: -float(row[2]))
    head = ["criterion", "settings"]
    head += ["inductive", "least", "losses", "with distractors", "least", "losses"]
    head += ["transductive"]
    return ReportTable(head, rows, "", 2).markdown()


def by_size(frame: pd.DataFrame) -> str:
    """The mean inductive gain without distractors by the number of reference queries, over the sets that have 250."""
    frame = frame[(frame["kind"] == "inductive") & (frame["condition"] == "plain") & frame["reference"].isin(SIZES)]
    full = frame.groupby("set")["reference"].transform("max") >= 250
    one_setting = ~frame["settings"].isin(["k 2", "beta 50", "temperature 0.01"])
    frame = frame[full & one_setting & (frame["reference"] <= 250)]
    table = frame.pivot_table(index=["criterion", "settings"], columns="reference", values="gain", sort=False)
    rows = [
        [*names, *(f"{value:+.1f}" if value == value else "–" for value in line)]
        for names, line in zip(table.index, table.to_numpy(), strict=True)
    ]
    return ReportTable(["criterion", "settings", *map(str, table.columns)], rows, "", 2).markdown()


def by_set(frame: pd.DataFrame) -> str:
    """Gain of `auto` on each set, beside the best of the fixed criteria there, which nobody knows beforehand."""
    rows = []
    for (name, condition), own in frame.groupby(["set", "condition"], sort=False):
        cells = [name, condition, f"{own.loc[own['criterion'] == 'nns', 'r1'].mean():.1f}"]
        for kind in ("inductive", "transductive"):
            here = own[own["kind"] == kind]
            here = here[here["reference"] == here.groupby("seed")["reference"].transform("max")]
            auto = here[here["criterion"] == "auto"]
            best = here[here["settings"] != "tuned"].groupby(["criterion", "settings"])["gain"].mean()
            cells.append(f"{auto['gain'].mean():+.1f} [{auto['low'].mean():+.1f}, {auto['high'].mean():+.1f}]")
            cells.append(f"{best.max():+.1f} ({best.idxmax()[0]})")
        rows.append(cells)
    head = ["set", "condition", "R@1 before", "auto, inductive", "best fixed", "auto, transductive", "best fixed"]
    return ReportTable(head, rows, "", 2).markdown()


STUDY = Study(__file__, render=render, verbs={"measure": measure})
