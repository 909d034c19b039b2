"""Pictures and texts in one collection: what closes the gap, the means of the kinds or a correction with a reference.

    python -m experiments mixed measure FOLDER [--more FILE.npz ...] [--seeds SEED ...]
    python -m experiments mixed render

FOLDER and FILE.npz: those of the study `pretrained`, of which sets of vectors are used. In each of ten splits half of
the pictures are items, and a caption stands in for half of these. Reference queries are captions of the other pictures,
one each, or those pictures themselves where pictures ask. Where a picture has several captions, another one asks for
each item. Where it has one, this can ask for a picture that is an item, or the picture for its caption that is one, and
nothing asks for the items of the other kind. "gap": a constant vector of this length is added to all
pictures, and their norms are made 1 again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import normalize

from experiments.evidence import renew
from experiments.study import MORE_SETS, SEEDS, TO, Given, Study, option, verb
from vsehub.criteria import CSLS, Correction, InvertedSoftmax, Sinkhorn
from vsehub.io.files import write_text
from vsehub.metrics import top_k
from vsehub.neighbors import KindMeans, Kinds
from vsehub.report.tables import ReportTable

SPLITS, GAPS, K = range(10), (0.5, 1.0), 10
CRITERIA: dict[str, Correction | None] = {
    "plain": None,
    "CSLS": CSLS(),
    "inverted softmax, β 30": InvertedSoftmax(),
    "inverted softmax, β 50": InvertedSoftmax(50.0),
    "Sinkhorn": Sinkhorn(),
}
SHOWN = ["plain", "CSLS", "inverted softmax, β 30"]  # of which the table has each kind's recalls
MEANS = {"kept": None, "removed": True, "removed, norms as they are": False}  # whether rows are normalised again


class Vectors(NamedTuple):
    """Unit vectors of images (I, D) and texts (T, D), and the image of each text (T,)."""

    images: Tensor
    texts: Tensor
    index: Tensor


class Case(NamedTuple):
    """A mixed collection: items (M, D) of kinds, queries (Q, D), the item that answers each, and a reference (R, D)."""

    items: Tensor
    kinds: Kinds
    queries: Tensor
    answers: Tensor
    reference: Tensor


@verb(option("data", type=Path, metavar="FOLDER"), MORE_SETS, SEEDS, TO)
def measure(given: Given) -> None:
    """Write splits.csv, a row for each set, split, criterion, and whether the means are removed."""
    torch.set_num_threads(1)
    seeds = given.seeds or SPLITS
    rows = [row for name, one in sets(given.data, given.more) for seed in seeds for row in measured(name, one, seed)]
    write_text(given.folder / "splits.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.5g"))


def render(folder: Path) -> None:
    """Write the README's tables from splits.csv."""
    frame = pd.read_csv(folder / "splits.csv")
    renew(folder / "README.md", ndcg(frame), "ndcg")
    renew(folder / "README.md", by_kind(frame), "kinds")
    renew(folder / "README.md", compared(frame), "compared")


def sets(folder: Path, more: list[Path]) -> Iterator[tuple[str, Vectors]]:
    """All sets of vectors, and those with five captions with made-up gaps too."""
    yield "coco", read(folder / "clip_coco500.npz")
    for path in more:
        one = read(path)
        yield path.stem, one
        for gap in GAPS:
            yield f"{path.stem}, gap {gap:g}", one._replace(images=behind_gap(one.images, gap))


def read(path: Path) -> Vectors:
    """The vectors of a file."""
    stored = np.load(path)
    images, texts = (normalize(torch.from_numpy(stored[name].astype(np.float32)), dim=1) for name in ("image", "text"))
    index = stored["index"] if "index" in stored else np.arange(len(texts))
    return Vectors(images, texts, torch.from_numpy(index.astype(np.int64)))


def behind_gap(images: Tensor, gap: float) -> Tensor:
    """Unit vectors with a constant vector of length `gap` added."""
    away = torch.from_numpy(np.random.default_rng(0).normal(size=images.shape[1]).astype(np.float32))
    return normalize(images + gap * normalize(away, dim=0), dim=1)


def cases(one: Vectors, seed: int) -> dict[str, Case]:
    """The collections of a split, by what asks."""
    random = np.random.default_rng(seed)
    others, own = torch.from_numpy(random.permutation(len(one.images))).tensor_split(2)
    textual = torch.arange(len(own)) >= len(own) // 2
    captions = [random.permutation((one.index == image).nonzero()[:, 0].numpy()) for image in range(len(one.images))]
    stands_in = one.texts[[captions[image][-1] for image in own.tolist()]]
    items = torch.where(textual[:, None], stands_in, one.images[own])
    kinds = Kinds.named(["text" if is_text else "picture" for is_text in textual.tolist()])
    first = one.texts[[rows[0] for rows in captions]]
    if len(captions[0]) > 1:
        return {"texts": Case(items, kinds, first[own], torch.arange(len(own)), first[others])}
    return {
        "texts": Case(items, kinds, first[own][~textual], (~textual).nonzero()[:, 0], first[others]),
        "pictures": Case(items, kinds, one.images[own][textual], textual.nonzero()[:, 0], one.images[others]),
    }


def measured(name: str, one: Vectors, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each query side, criterion, and treatment of the means."""
    for asked, case in cases(one, seed).items():
        for means, unit in MEANS.items():
            items, queries, reference = case.items, case.queries, case.reference
            found = KindMeans.of(case.kinds, items, reference, bool(unit))
            if unit is not None:
                items = found.items(items, case.kinds).rows(0, len(items))
                queries = found.queries(queries).rows(0, len(queries))
                reference = found.queries(reference).rows(0, len(reference))
            for criterion, correction in CRITERIA.items():
                scores = queries @ items.T
                if correction is not None:
                    scores = correction.rescore(scores, reference @ items.T)
                row = {"set": name, "asked by": asked, "seed": seed, "means": means, "criterion": criterion}
                yield row | {"gap": found.gaps()["widest"]} | values(scores, case)


def values(scores: Tensor, case: Case) -> dict[str, float]:
    """NDCG@10 and R@k in %, of all queries and of those whose answers are of a kind; the texts' share of the places."""
    nearest = top_k(scores, K)[1]
    hits = nearest == case.answers[:, None]
    gain = (hits / torch.arange(2, K + 2).log2()).sum(dim=1)
    kind, texts = case.kinds.of[case.answers], case.kinds.names.index("text")
    measured = {"ndcg": 100 * gain.mean().item()}
    for number, name in enumerate(case.kinds.names):
        own = kind == number
        if own.any():
            measured[f"ndcg {name}"] = 100 * gain[own].mean().item()
            for k in (1, 5, 10):
                measured[f"R@{k} {name}"] = 100 * hits[own, :k].any(dim=1).double().mean().item()
    measured["texts"] = (case.kinds.of[nearest] == texts).double().mean().item()
    return measured


def spread(column: pd.Series, form: str = ".1f") -> str:
    """The mean of the splits and their standard deviation."""
    return "–" if column.isna().all() else f"{column.mean():{form}} ± {column.std(ddof=1):{form}}"


def named(frame: pd.DataFrame) -> pd.Series:
    """The set and what asks, as tables name them."""
    return frame["set"] + np.where(frame["set"] == "coco", ", " + frame["asked by"] + " ask", "")


def ndcg(frame: pd.DataFrame) -> str:
    """NDCG@10 of each set, criterion and treatment of the means."""
    frame = frame.assign(name=named(frame))
    head = ["NDCG@10", "gap", "means", *CRITERIA]
    rows = []
    for (name, means), own in frame.groupby(["name", "means"], sort=False):
        cells = [spread(own[own["criterion"] == one]["ndcg"]) for one in CRITERIA]
        rows.append([str(name), f"{own['gap'].mean():.2f}", str(means), *cells])
    return ReportTable(head, rows, words=3).markdown()


def by_kind(frame: pd.DataFrame) -> str:
    """The texts' share of the places, and R@1 and R@10 of each kind, of some criteria."""
    frame = frame.assign(name=named(frame))
    frame = frame[(frame["means"] != "removed, norms as they are") & frame["criterion"].isin(SHOWN)]
    columns = ["R@1 picture", "R@10 picture", "R@1 text", "R@10 text"]
    rows = []
    for (name, means, criterion), own in frame.groupby(["name", "means", "criterion"], sort=False):
        cells = [spread(own[column]) for column in columns]
        rows.append([str(name), str(means), str(criterion), f"{own['texts'].mean():.0%}", *cells])
    return ReportTable(["set", "means", "criterion", "texts' places", *columns], rows, words=3).markdown()


def compared(frame: pd.DataFrame) -> str:
    """What is added to NDCG@10 by removing the means, split by split, with 95 % intervals by Student's t."""
    frame = frame.assign(name=named(frame)).set_index(["name", "criterion", "seed"])
    more = frame[frame["means"] == "removed"]["ndcg"] - frame[frame["means"] == "kept"]["ndcg"]
    rows = []
    for name, own in more.groupby(level="name", sort=False):
        cells = []
        for criterion in CRITERIA:
            gains = own.xs(criterion, level="criterion")
            half = stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains))
            cells.append(f"{gains.mean():+.1f} [{gains.mean() - half:+.1f}, {gains.mean() + half:+.1f}]")
        rows.append([str(name), *cells])
    return ReportTable(["NDCG@10 gained by removing the means", *CRITERIA], rows).markdown()


STUDY = Study(__file__, render=render, verbs={"measure": measure})
