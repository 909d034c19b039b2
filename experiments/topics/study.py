"""Items planted for one topic: does a scan within topics find more of them than the rule that looks at all queries?

    python -m experiments topics measure FOLDER [--more FILE.npz ...] [--sets 8] [--workers 2]
    python -m experiments topics render

FOLDER holds clip_coco500.npz and msrvtt1k_scores.npz. --more: files with `image` (I, D) and `text` (T, D). Half of the
sets gives each scan its threshold, one alarm in a thousand ordinary items; the other half is reported.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from tqdm import tqdm

from experiments.evidence import renew
from experiments.study import MORE_SETS, TO, Given, Study, option, verb
from experiments.suspects.sets import Set
from experiments.topics.scans import ALL, SCANS, clusters, scan
from experiments.topics.sets import LEAST, TOPICS, Named, drawn, named, planted
from vsehub.io.files import write_text
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable, probability_text
from vsehub.rerank.suspects import suspects

ALARMS = (0.001, 0.0001)  # of the ordinary items
CALIBRATING, REPORTED = "calibrating", "reported"  # the half of the sets that a threshold is taken from
HARM = 0.5  # share of the topic's unknown queries with the planted item in their lists, from which on it counts
# Scores weighed as logistic regression finds best on the calibrating half.
WEIGHED = {"all queries, weighed": len(ALL), "all scans, weighed": len(SCANS)}
SHOWN = ("all queries, nearness", "clusters, nearness", "clusters, both", "all scans, weighed")
PRESENT = "present rule"
BASE = ALL[1]  # the scan without topics that others are compared with
LOCAL = 0.2  # share of all queries' lists, below which a planted item is one of its topic only
REAL = ("clip", "msrvtt", "flickr8k", "flickr8k_cca", "flickr8k_train")
RIDGE, NEWTON = 1.0, 30


class Seen(NamedTuple):
    """A scanned set. ordinary: the scores (M, s). suspected: ordinary items that the present rule names. rows: a dict
    and the scores (s,) of each planted item.
    """

    named: Named
    ordinary: Tensor
    suspected: int
    rows: list[tuple[dict[str, Any], Tensor]]


@verb(
    option("data", type=Path, metavar="FOLDER"),
    MORE_SETS,
    option("--sets", type=int, default=8, help="of each family"),
    option("--workers", type=int, default=2, help="processes"),
    TO,
)
def measure(given: Given) -> None:
    """Write alarms.csv, a row for each family and scan, and found.csv, a row for each planted item."""
    every = list(named(given.data, given.more, given.sets))
    with ProcessPoolExecutor(given.workers) as workers:
        seen = list(tqdm(workers.map(scanned, every), "sets", total=len(every), disable=None))
    alarms, found = figures(seen)
    for name, frame in (("alarms", alarms), ("found", found)):
        write_text(given.folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.4g"))


def render(folder: Path) -> None:
    """Write the README's tables from alarms.csv and found.csv."""
    alarms, found = pd.read_csv(folder / "alarms.csv"), pd.read_csv(folder / "found.csv")
    for name, half, rate in (
        ("scans", REPORTED, ALARMS[0]),
        ("calibrated", CALIBRATING, ALARMS[0]),
        ("strict", CALIBRATING, ALARMS[1]),
    ):
        renew(folder / "README.md", scans_table(alarms, found, half, rate), name)
    for name, column in (("families", "family"), ("topics", "topic"), ("kinds", "kind")):
        renew(folder / "README.md", by(alarms, found, column), name)
    renew(folder / "README.md", alarms_table(alarms), "alarms")


def scanned(one: Named) -> Seen:
    """The scores of a set's items, and of items planted for topics of each size."""
    torch.set_num_threads(1)
    whole = drawn(one)
    groups = clusters(whole.queries)
    ordinary, positions = scan(whole, groups)
    rows: list[tuple[dict[str, Any], Tensor]] = []
    for share in TOPICS:
        if one.family == "msrvtt" or share * len(whole.queries) < LEAST:  # of scores no vector can be made
            continue
        changed, items = planted(whole, share, one.seed)
        scores, lists = scan(changed, groups)
        names = present(changed, lists)
        for item in items:
            listed = (lists == item.place).any(dim=1)
            row = {"family": one.family, "topic": share, "kind": item.kind, "seed": one.seed}
            row |= {"reach": listed[item.unknown].float().mean().item(), "lists": listed.float().mean().item()}
            rows.append((row | {PRESENT: int(item.place in names)}, scores[item.place]))
    return Seen(one, ordinary, len(present(whole, positions)), rows)


def present(one: Set, positions: Tensor) -> set[int]:
    """The items that the present rule names."""
    return {found.item for found in suspects(positions, as_vectors("q", one.queries), as_vectors("i", one.items))}


def figures(seen: list[Seen]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """alarms.csv and found.csv: of the reported half.

    Thresholds are taken from the other half, and once from the reported half itself, so that all scans raise equally
    many alarms there.
    """
    given = [one for one in seen if one.named.calibrating]
    ordinary = torch.cat([one.ordinary for one in given])
    wanted = torch.stack([scores for one in given for row, scores in one.rows if row["reach"] >= HARM])
    weights = [regression(ordinary[:, :first], wanted[:, :first]) for first in WEIGHED.values()]

    def widened(scores: Tensor) -> Tensor:
        both = zip(WEIGHED.values(), weights, strict=True)
        added = [(features(scores[..., :first]) @ own)[..., None].float() for first, own in both]
        return torch.cat([scores, *added], dim=-1)

    names = (*SCANS, *WEIGHED)
    reported = [one for one in seen if not one.named.calibrating]
    limits = {(CALIBRATING, rate): threshold(widened(ordinary), rate) for rate in ALARMS}
    limits[REPORTED, ALARMS[0]] = threshold(widened(torch.cat([one.ordinary for one in reported])), ALARMS[0])
    alarms, found = [], []
    for one in reported:
        of_set = {"family": one.named.family, "items": len(one.ordinary)}
        alarms.append(of_set | {"scan": PRESENT, "alarms": one.suspected})
        for (half, rate), limit in limits.items():
            counts = (widened(one.ordinary) > limit).sum(dim=0).tolist()
            alarms += [
                of_set | {"half": half, "rate": rate, "scan": name, "threshold": least, "alarms": count}
                for name, least, count in zip(names, limit.tolist(), counts, strict=True)
            ]
        found += [row | dict(zip(names, widened(scores).tolist(), strict=True)) for row, scores in one.rows]
    columns = ["family", "half", "rate", "scan", "threshold"]
    summed = pd.DataFrame(alarms).groupby(columns, sort=False, as_index=False, dropna=False).sum()
    return summed, pd.DataFrame(found)


def threshold(scores: Tensor, rate: float) -> Tensor:
    """The score (s,) that a share `rate` of the items (M, s) exceeds."""
    return scores.sort(dim=0, descending=True).values[int(rate * len(scores))]


def features(scores: Tensor) -> Tensor:
    """Scores (..., s) as a regression takes them: bounded, with a constant."""
    return torch.cat([scores.double().clamp(0, 30), torch.ones(*scores.shape[:-1], 1, dtype=torch.float64)], dim=-1)


def regression(ordinary: Tensor, wanted: Tensor) -> Tensor:
    """The weights (s + 1,) of a logistic regression, by Newton's method, that tells `wanted` from `ordinary` items."""
    rows = features(torch.cat([ordinary, wanted]))
    truth = torch.cat([torch.zeros(len(ordinary)), torch.ones(len(wanted))]).double()
    weights = torch.zeros(rows.shape[1], dtype=torch.float64)
    ridge = RIDGE * torch.eye(rows.shape[1], dtype=torch.float64)
    for _ in range(NEWTON):
        chance = (rows @ weights).sigmoid()
        slope = rows.T @ (chance - truth) + ridge @ weights
        weights = weights - torch.linalg.solve(rows.T @ (rows * (chance * (1 - chance))[:, None]) + ridge, slope)
    return weights


def judged(alarms: pd.DataFrame, found: pd.DataFrame, half: str, rate: float) -> pd.DataFrame:
    """The harmful planted items, with whether each scan names them at a threshold instead of its scores."""
    own = found[found["reach"] >= HARM].copy()
    own[PRESENT] = own[PRESENT] == 1
    chosen = alarms[(alarms["half"] == half) & (alarms["rate"] == rate)]
    for name, limit in chosen.groupby("scan")["threshold"].first().items():
        own[name] = own[name] > limit
    return own


def scans_table(alarms: pd.DataFrame, found: pd.DataFrame, half: str, rate: float) -> str:
    """A row for each scan: harmful planted items that are found, and alarms in a thousand ordinary items."""
    own = judged(alarms, found, half, rate)
    local = own["lists"] < LOCAL
    rows = []
    for name in (PRESENT, *SCANS, *WEIGHED):
        counts = alarms[alarms["scan"] == name]
        if name != PRESENT:
            counts = counts[(counts["half"] == half) & (counts["rate"] == rate)]
        per_family = 1000 * counts["alarms"] / counts["items"]
        named = own[name] | own[PRESENT]
        cells = [share(own[name]), share(named), share(named[local]), share(named[local & own["family"].isin(REAL)])]
        cells.append(ahead(own, name))
        for some in (counts, counts[counts["family"].isin(REAL)]):
            cells.append(f"{1000 * some['alarms'].sum() / some['items'].sum():.2f}")
        rows.append([name, *cells, f"{per_family.max():.2f} ({counts['family'][per_family.idxmax()]})"])
    head = ["scan", "planted items found", "with the present rule", f"of those in less than {LOCAL:.0%} of all lists"]
    head += ["of these in real sets", f"sets where it finds more : fewer than {BASE} (p)"]
    return ReportTable([*head, "alarms in 1,000 ordinary items", "in real sets", "most in a family"], rows).markdown()


def ahead(own: pd.DataFrame, name: str) -> str:
    """In how many sets a scan finds more planted items than BASE, and fewer, with the p value of a sign test.

    Each of them together with the present rule.
    """
    if name in (BASE, PRESENT):
        return ""
    both = own[[name, BASE]].apply(lambda one: one | own[PRESENT]).astype(int)
    named = both.groupby([own["family"], own["seed"]]).sum()
    more, fewer = int((named[name] > named[BASE]).sum()), int((named[name] < named[BASE]).sum())
    p = stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
    return f"{more} : {fewer} ({probability_text(p)})"


def by(alarms: pd.DataFrame, found: pd.DataFrame, column: str) -> str:
    """A row for each value of a column: harmful planted items, and those found by the present rule and with a scan."""
    every = judged(alarms, found, REPORTED, ALARMS[0])
    rows = []
    for value, part in found.groupby(column, sort=column == "topic"):
        own = every[every[column] == value]
        cells = [share(own[PRESENT]), *(share(own[name] | own[PRESENT]) for name in SHOWN)]
        name = f"{value:.0%}" if column == "topic" else str(value)
        lists = f"{own['lists'].median():.1%}" if len(own) else "–"
        rows.append([name, f"{len(own)} of {len(part)}", lists, *cells])
    head = [column, "harmful", "lists of such a one, median", PRESENT]
    return ReportTable([*head, *(f"with {name}" for name in SHOWN)], rows).markdown()


def alarms_table(alarms: pd.DataFrame) -> str:
    """A row for each family: alarms in a thousand ordinary items, by scan, at the first rate."""
    wanted = (alarms["scan"] == PRESENT) | ((alarms["half"] == REPORTED) & (alarms["rate"] == ALARMS[0]))
    rows = []
    for family, own in alarms[wanted].groupby("family", sort=False):
        rates = (1000 * own.set_index("scan")["alarms"] / own.set_index("scan")["items"])[[PRESENT, *SHOWN]]
        rows.append([str(family), f"{own['items'].iloc[0]:,}", *(f"{rate:.2f}" for rate in rates)])
    return ReportTable(["family", "items", PRESENT, *SHOWN], rows).markdown()


def share(values: "pd.Series[bool]") -> str:
    """ "12 of 40 (30 %)"."""
    return f"{values.sum()} of {len(values)} ({100 * values.mean():.0f} %)" if len(values) else "–"


STUDY = Study(__file__, render=render, verbs={"measure": measure})
