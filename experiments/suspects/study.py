"""Items that look planted: false alarms on ordinary sets, and planted items that are found.

    python -m experiments suspects measure FOLDER [--sets 200]
    python -m experiments suspects render

FOLDER holds clip_coco500.npz (`image`, `text`) and msrvtt1k_scores.npz. Each set is drawn by `sets.py`. In every fourth
one an item of each kind takes the place of another, and ten fitted ones at once. rates.csv has a row for each
family and kind.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from tqdm import tqdm

from experiments.evidence import renew
from experiments.study import TO, Given, Study, option, verb
from experiments.suspects.sets import PLANTS, K, Set, ordinary, planted
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable
from vsehub.rerank.suspects import suspects

REACH = (0.1, 0.5, 0.8)  # share of the queries whose ten best hold the planted item: below the first it does little
TEN = "ten fitted"


@verb(option("data", type=Path, metavar="FOLDER"), option("--sets", type=int, default=200, help="of each family"), TO)
def measure(given: Given) -> None:
    """Write rates.csv, a row for each family and kind."""
    pd.DataFrame(rates(given.data, given.sets)).to_csv(given.folder / "rates.csv", index=False)


def render(folder: Path) -> None:
    """Write the README's table from rates.csv."""
    renew(folder / "README.md", table(pd.read_csv(folder / "rates.csv")).markdown(), "rates")


def found(one: Set) -> tuple[set[int], torch.Tensor]:
    """The suspects of a set, and the share (M,) of the queries whose ten best hold each item."""
    positions = (one.queries @ one.items.T).topk(K, dim=1).indices
    named = suspects(positions, as_vectors("queries", one.queries), as_vectors("items", one.items))
    counts = torch.bincount(positions.flatten(), minlength=len(one.items))
    return {suspect.item for suspect in named}, counts / len(one.queries)


def rates(folder: Path, count: int) -> Iterator[dict]:
    """For each family the ordinary sets with a suspect, and for each kind and reach the planted items and those found.

    reach: the planted items in the lists of so large a share of the queries, up to the next reach.
    """
    rows: dict[tuple[str, str, float], list[int]] = defaultdict(lambda: [0, 0])
    for number, one in enumerate(tqdm(ordinary(folder, count), "sets", disable=None)):
        cell = rows[one.family, "ordinary", 0.0]
        cell[0], cell[1] = cell[0] + 1, cell[1] + bool(found(one)[0])
        if number % 4 or one.family == "msrvtt":  # of scores nothing can be made that is near to queries
            continue
        for kind in PLANTS:
            whole, places = planted(one, kind, number)
            named, shares = found(whole)
            for place in places:
                reach = max((least for least in REACH if shares[place] > least), default=None)
                if reach is not None:
                    cell = rows[one.family, kind, reach]
                    cell[0], cell[1] = cell[0] + 1, cell[1] + (place in named)
    for (family, kind, reach), (total, named) in rows.items():
        yield {"family": family, "kind": kind, "reach": reach, "count": total, "suspected": named}


def table(frame: pd.DataFrame) -> ReportTable:
    """A row for each family: ordinary sets with a suspect, and the share of planted items found, by their reach."""
    rows = []
    for family, own in frame.groupby("family", sort=False):
        plain = own[own["kind"] == "ordinary"].iloc[0]
        cells = [family, f"{plain['suspected']} of {plain['count']}"]
        for ten in (False, True):
            some = own[(own["kind"] != "ordinary") & ((own["kind"] == TEN) == ten)]
            for reach in REACH:
                total, named = some[some["reach"] == reach][["count", "suspected"]].sum()
                cells.append(f"{named} of {total}" if total else "–")
        rows.append(cells)
    total, named = frame[frame["kind"] == "ordinary"][["count", "suspected"]].sum()
    rows.append(["all", f"{named} of {total}", *[""] * (2 * len(REACH))])
    ends = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in zip(REACH, (*REACH[1:], 1.0), strict=True)]
    columns = ["family", "ordinary sets with a suspect"]
    return ReportTable([*columns, *[f"one, in {end}" for end in ends], *[f"ten, in {end}" for end in ends]], rows)


STUDY = Study(__file__, render=render, verbs={"measure": measure})
