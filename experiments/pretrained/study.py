"""What corrections gain on embeddings, by where the answers of the reference queries are.

    python -m experiments pretrained measure FOLDER CROSSLINGUAL [--more FILE.npz ...]
    python -m experiments pretrained worlds
    python -m experiments pretrained render

FOLDER holds clip_coco500.npz (`image`, `text`) and msrvtt1k_scores.npz (score matrices, rows texts), whose row i
answers column i; CROSSLINGUAL unit vectors NAME.LANGUAGE.npy, whose row i answers row i of the other language. --more:
files with `image` (I, D), `text` (T, D) and `index` (T,), the image that each text describes, five texts an image.

The four references, outside, shared, popular and inside, are those of README.md.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from experiments.evidence import renew
from experiments.study import MORE_SETS, TO, Given, Study, option, verb
from vsehub.criteria import Auto
from vsehub.criteria.choose import choose, known_corrections
from vsehub.io.files import write_text
from vsehub.neighbors.vectors import as_vectors
from vsehub.positives import Positives
from vsehub.report.tables import ReportTable

SPLITS = range(6)
AUTO = option("--auto", action="store_true", help="also the criterion that `auto` chooses by the reference queries")
DECIDED = "τ 0.5 relative, 1 round, weight 0.75"  # the settings of Sinkhorn that were chosen
SHOWN = (
    "dn weight 1",
    "csls k 10",
    "nnn k 10, weight 0.75",
    "is β 30",
    "sinkhorn τ 0.02, 10 rounds",
    f"sinkhorn {DECIDED}",
    "auto ",
)
NAMES = ("dn", "csls", "nnn", "is", "sinkhorn 0.02", "sinkhorn", "auto")  # of the criteria that most tables show
TATOEBA = ("kat", "khm", "fra", "amh")
Rescore = Callable[[Tensor, Tensor], Tensor]


class Case(NamedTuple):
    """Queries to measure, and a reference.

    scores: (Q, M). answers: (Q, M), True where an item answers. reference_scores: (R, M). numbers: (Q,), the queries'
    numbers in their set. head: (Q,), True for queries of popular items. known: scores (R, M') and answers of the
    reference queries with their own items in the index, which a choice may use.
    """

    name: str
    reference: str
    scores: Tensor
    answers: Tensor
    reference_scores: Tensor
    numbers: np.ndarray
    head: np.ndarray | None = None
    known: tuple[Tensor, Tensor] | None = None


@verb(
    option("data", type=Path, metavar="FOLDER"),
    option("crosslingual", type=Path, metavar="CROSSLINGUAL"),
    MORE_SETS,
    AUTO,
    TO,
)
def measure(options: Given) -> None:
    """Write gains.csv, a row for each set, reference, size and criterion."""
    frame = pd.DataFrame(list(gains(all_cases(options.data, options.crosslingual, options.more), options.auto)))
    write_text(options.folder / "gains.csv", frame.to_csv(index=False, float_format="%.4g"))


@verb(AUTO, TO)
def worlds(options: Given) -> None:
    """Write worlds.csv: the gains where plain search is best, a row for each of 160 generated worlds."""
    noises = {16: 1.2, 32: 1.8, 64: 2.6, 128: 3.8}
    every = (world(noises[dim], dim, *rest) for dim, *rest in product(noises, (200, 1000), (100, 500), range(10)))
    frame = pd.DataFrame(list(gains(every, options.auto)))
    write_text(options.folder / "worlds.csv", frame.to_csv(index=False, float_format="%.4g"))


def world(noise: float, dim: int, items: int, queries: int, seed: int) -> Case:
    """Isotropic unit vectors as items; a query is an item with isotropic noise, and 2,000 are measured."""
    random = np.random.default_rng([dim, items, queries, seed])
    vectors = unit(random.normal(size=(items, dim)))
    sides = []
    for count in (queries, 2000):
        answer = random.integers(0, items, count)
        query_rows = unit(vectors.numpy()[answer] * np.sqrt(dim) + noise * random.normal(size=(count, dim)))
        sides.append((query_rows @ vectors.T, matches(answer, np.arange(items))))
    name = f"{dim} dimensions, {items} items, {queries} queries, seed {seed}"
    return Case(name, "world", *sides[1], sides[0][0], np.arange(2000), known=sides[0])


def unit(rows: np.ndarray) -> Tensor:
    """The rows with length 1, in single precision."""
    return torch.nn.functional.normalize(torch.from_numpy(rows.astype(np.float32)), dim=1)


def matches(queries: np.ndarray, items: np.ndarray) -> Tensor:
    """True (Q, M) where a query and an item have the same group."""
    return torch.from_numpy(queries[:, None] == items[None])


def all_cases(data: Path, crosslingual: Path, more: list[Path]) -> Iterator[Case]:
    """The cases of all sets, both directions of each."""
    stored = np.load(data / "clip_coco500.npz")
    yield from both("coco", ("text", "image"), unit(stored["text"]) @ unit(stored["image"]).T)
    stored = np.load(data / "msrvtt1k_scores.npz")
    for other in ("video", "title"):
        scores = torch.from_numpy(stored[f"text_to_{other}"].astype(np.float32))
        yield from both(f"msrvtt {other}s", ("text", other), scores)
    names = [(f"tatoeba.{code}-eng", code, "eng") for code in TATOEBA]
    for name, first, second in [*names, ("multi30k.test_2016", "en", "cs"), ("multi30k.val", "en", "cs")]:
        vectors = {language: unit(np.load(crosslingual / f"{name}.{language}.npy")) for language in (first, second)}
        yield from both(name, (first, second), vectors[first] @ vectors[second].T)
    for first, second in (("en", "cs"), ("cs", "en")):
        yield from by_training(crosslingual, first, second)
    for path in more:
        stored = np.load(path)
        index = stored["index"].astype(np.int64)
        scores = unit(stored["text"]) @ unit(stored["image"]).T
        yield from both(path.stem, ("text", "image"), scores, index)
        yield from shared(f"{path.stem}, text to image", scores, index)


def both(name: str, sides: tuple[str, str], scores: Tensor, index: np.ndarray | None = None) -> Iterator[Case]:
    """Thirds of both directions of scores (Q, M); index: the item that answers each query, the diagonal if None."""
    items = np.arange(scores.shape[1])
    queries = items if index is None else index
    yield from thirds(f"{name}, {sides[0]} to {sides[1]}", scores, queries, items)
    yield from thirds(f"{name}, {sides[1]} to {sides[0]}", scores.T.contiguous(), items, queries)


def thirds(name: str, scores: Tensor, query_group: np.ndarray, item_group: np.ndarray) -> Iterator[Case]:
    """Thirds of the groups, A, B, D: A is measured, the index holds A and B, the reference is B (inside) or D.

    An item answers the queries of its group. A reference of all queries comes besides those of 100, 300 and 1,000.
    """
    groups = int(query_group.max()) + 1
    for split in SPLITS:
        random = np.random.default_rng(split)
        order = random.permutation(groups)
        third = groups // 3
        index = np.flatnonzero(np.isin(item_group, order[: 2 * third]))
        chosen = np.flatnonzero(np.isin(query_group, order[:third]))
        answers = matches(query_group[chosen], item_group[index])
        for kind, part in (("inside", order[third : 2 * third]), ("outside", order[2 * third : 3 * third])):
            pool = random.permutation(np.flatnonzero(np.isin(query_group, part)))
            for size in sorted({min(size, len(pool)) for size in (100, 300, 1000)}):
                drawn = pool[:size]
                wide = np.flatnonzero(np.isin(item_group, np.r_[order[: 2 * third], query_group[drawn]]))
                known = (scores[drawn][:, wide], matches(query_group[drawn], item_group[wide]))
                case = Case(name, kind, scores[chosen][:, index], answers, scores[drawn][:, index], chosen)
                yield case._replace(known=known if kind == "outside" else None)


def by_training(folder: Path, first: str, second: str) -> Iterator[Case]:
    """Multi30k's test sentences, with training sentences as the reference."""
    queries, items, query_rows, answers = (
        unit(np.load(folder / f"multi30k.{split}.{language}.npy"))
        for split in ("test_2016", "train")
        for language in (first, second)
    )
    numbers = np.arange(len(queries))
    name = f"multi30k and training sentences, {first} to {second}"
    for split in SPLITS:
        order = np.random.default_rng(split).permutation(len(query_rows))
        for size in (100, 300, 1000, 5000):
            reference, wide = query_rows[order[:size]], torch.cat([items, answers[order[:size]]])
            known = (reference @ wide.T, matches(len(items) + np.arange(size), np.arange(len(wide))))
            case = Case(name, "outside", queries @ items.T, matches(numbers, numbers), reference @ items.T, numbers)
            yield case._replace(known=known if size <= 1000 else None)


def shared(name: str, scores: Tensor, index: np.ndarray) -> Iterator[Case]:
    """Three of the five queries (Q,) of each item (M,) are the pool of the reference, two are measured.

    popular: a fifth of the items, the head, has four fifths of the reference queries.
    """
    items = np.arange(scores.shape[1])
    for split in SPLITS:
        random = np.random.default_rng(split)
        queries = random.permuted(np.argsort(index, kind="stable").reshape(len(items), -1), axis=1)
        head = np.isin(items, random.permutation(len(items))[: len(items) // 5])
        pool, texts = queries[:, :3], queries[:, 3:].ravel()
        drawn, popular, others = (random.permutation(part.ravel()) for part in (pool, pool[head], pool[~head]))
        answers = matches(index[texts], items)
        for size in (100, 300, 750, 1000):
            heavy = size * 4 // 5
            for kind, chosen in (("shared", drawn[:size]), ("popular", np.r_[popular[:heavy], others[: size - heavy]])):
                if len(chosen) == size:
                    yield Case(name, kind, scores[texts], answers, scores[chosen], texts, head[index[texts]])


def criteria() -> list[tuple[str, str, Rescore]]:
    """The criteria with their settings in words."""
    known = known_corrections()
    return [
        ("dn", "weight 1", known["dn"].with_parameters(weight=1.0).rescore),
        ("csls", "k 10", known["csls"].with_parameters(k=10).rescore),
        ("nnn", "k 10, weight 0.75", known["nnn"].with_parameters(k=10, weight=0.75).rescore),
        ("nnn", "k 128, weight 0.75", known["nnn"].with_parameters(k=128, weight=0.75).rescore),
        ("is", "β 30", lambda scores, reference: scores - (30 * reference).logsumexp(dim=0) / 30),
        ("sinkhorn", DECIDED, lambda scores, reference: scores - 0.75 * relative_sinkhorn(reference)),
        ("sinkhorn", "τ 0.01, 10 rounds", lambda scores, reference: scores - sinkhorn(reference, 0.01, 10)),
        ("sinkhorn", "τ 0.02, 10 rounds", lambda scores, reference: scores - sinkhorn(reference, 0.02, 10)),
        ("blend", "csls and sinkhorn", lambda scores, reference: scores - blend(reference)),
        ("local_scaling", "k 5", known["local_scaling"].with_parameters(k=5).rescore),
        ("mutual_proximity", "", known["mutual_proximity"].rescore),
        ("dual_softmax", "β 100", known["dual_softmax"].with_parameters(beta=100.0).rescore),
        ("qb_norm", "β 20, k 1", known["qb_norm"].with_parameters(beta=20.0, k=1).rescore),
    ]


def sinkhorn(reference: Tensor, temperature: float, rounds: int) -> Tensor:
    """Sinkhorn's item term (M,) in units of a score, from reference scores (R, M)."""
    scaled = reference / temperature
    term = torch.zeros(scaled.shape[1])
    for _ in range(rounds):
        term = (scaled - (scaled - term).logsumexp(dim=1, keepdim=True)).logsumexp(dim=0)
    return temperature * term


def relative_sinkhorn(reference: Tensor) -> Tensor:
    """One round of Sinkhorn (M,); τ is half the mean standard deviation of a reference query's scores."""
    return sinkhorn(reference, reference.std(dim=1, correction=0).mean().item() / 2, 1)


def blend(reference: Tensor) -> Tensor:
    """Half of CSLS's term (M,) and half of `relative_sinkhorn`."""
    nearest = reference.topk(min(10, len(reference)), dim=0).values.mean(dim=0)
    return nearest / 4 + relative_sinkhorn(reference) / 2


def auto(scores: Tensor, answers: Tensor) -> Rescore:
    """The criterion that `auto` chooses by reference queries with scores (R, M') and answers (R, M')."""
    query, item = answers.nonzero().T
    positives = Positives.from_pairs(query, item, *answers.shape)
    queries = as_vectors("queries", scores)
    items = as_vectors("items", torch.eye(scores.shape[1]))  # unit vectors, so that products give the scores back
    return choose(Auto(), queries, positives, items, queries, 0).criterion.rescore


def gains(cases: Iterator[Case], choosing: bool) -> Iterator[dict]:
    """A row for each set, reference, size and criterion: the mean over its splits. choosing: with `auto`."""
    collected: dict[tuple, list[pd.DataFrame]] = defaultdict(list)
    for case in tqdm(cases, disable=None):
        plain = right(case, case.scores)
        chosen = [("auto", "", auto(*case.known))] if choosing and case.known is not None else []
        for name, settings, rescore in criteria() + chosen:
            reached = right(case, rescore(case.scores, case.reference_scores))
            hits = {"query": case.numbers, "plain": plain, "gain": reached - plain, "head": case.head}
            key = (case.name, case.reference, len(case.reference_scores), name, settings)
            collected[key].append(pd.DataFrame(hits))
    for key, splits in collected.items():
        hits = pd.concat(splits)
        by_query = hits.groupby("query")["gain"].mean()
        yield dict(zip(("set", "reference", "size", "criterion", "settings"), key, strict=True)) | {
            "queries": len(splits[0]),
            "splits": len(splits),
            "plain": hits["plain"].mean(),
            "gain": hits["gain"].mean(),
            "least": min(split["gain"].mean() for split in splits),
            "error": by_query.std() / len(by_query) ** 0.5,
            "head": hits["gain"][hits["head"].eq(True)].mean(),
            "tail": hits["gain"][hits["head"].eq(False)].mean(),
        }


def right(case: Case, scores: Tensor) -> np.ndarray:
    """100 for each query (Q,) whose best item answers, else 0; ties count against it."""
    best = scores.masked_fill(~case.answers, -torch.inf).amax(dim=1)
    other = scores.masked_fill(case.answers, -torch.inf).amax(dim=1)
    return 100 * (best > other).numpy().astype(float)


def render(folder: Path) -> None:
    """Write the README's tables from gains.csv and worlds.csv."""
    frame = pd.read_csv(folder / "gains.csv", keep_default_na=False, na_values={"head": "", "tail": ""})
    columns = pd.Categorical(frame["criterion"] + " " + frame["settings"], SHOWN)
    shown = frame.assign(column=columns.rename_categories(dict(zip(SHOWN, NAMES, strict=True))))
    shown = shown[shown["column"].notna()].assign(plain=shown["plain"].map("{:.1f}".format))
    outside = of_thirds(shown, "max")
    training = shown["set"].str.contains("training")
    several = shown[shown["reference"].isin(["shared", "popular"])]
    several = several[several["size"] == several.loc[several["reference"] == "popular", "size"].max()]
    by_popularity = pd.concat(several.assign(queries=part, gain=several[part]) for part in ("head", "tail"))
    parts = {
        "criteria": by_criterion(frame),
        "sets": wide(outside[outside["reference"] == "outside"], ["set", "size", "plain"]),
        "sizes": wide(
            shown[training | (shown["reference"] == "shared")].sort_values(["set", "size"]),
            ["set", "reference", "size"],
        ),
        "popular": wide(by_popularity, ["set", "queries", "reference"]),
        "worlds": by_world(pd.read_csv(folder / "worlds.csv", keep_default_na=False)),
    }
    for name, table in parts.items():
        renew(folder / "README.md", table, name)


def mean_of_sets(frame: pd.DataFrame) -> tuple[float, float]:
    """The mean gain over sets, each the mean of its directions, and half the width of its 95 % interval.

    The directions of a set are taken as fully dependent, the sets as independent.
    """
    sets = frame.groupby(frame["set"].str.partition(",")[0])[["gain", "error"]].mean()
    return sets["gain"].mean(), 1.96 * (sets["error"] ** 2).sum() ** 0.5 / len(sets)


def of_thirds(frame: pd.DataFrame, which: str) -> pd.DataFrame:
    """The rows with the largest ("max") or smallest ("min") reference of their set, without training sentences."""
    frame = frame[~frame["set"].str.contains("training")]
    return frame[frame["size"] == frame.groupby(["set", "reference"])["size"].transform(which)]


def by_criterion(frame: pd.DataFrame) -> str:
    """Mean gains of the criteria: outside with interval and least direction, then the other references."""
    large, small = of_thirds(frame, "max"), of_thirds(frame, "min")
    rows = []
    for name, part in large.groupby(["criterion", "settings"], sort=False):
        outside = part[part["reference"] == "outside"]
        gain, half = mean_of_sets(outside)
        others = [
            small[(small["criterion"] == name[0]) & (small["settings"] == name[1]) & (small["reference"] == "outside")],
            part[part["reference"] == "shared"],
            part[part["reference"] == "inside"],
        ]
        cells = [f"{mean_of_sets(other)[0]:+.1f}" if len(other) else "–" for other in others]
        interval = f"[{gain - half:+.1f}, {gain + half:+.1f}]"
        rows.append([*name, f"{gain:+.1f}", interval, f"{outside['gain'].min():+.1f}", *cells])
    rows.sort(key=lambda row: -float(row[2]))
    outside = large[(large["reference"] == "outside") & (large["criterion"] == "csls")]
    rows.insert(0, ["plain R@1", "", f"{mean_of_sets(outside.assign(gain=outside['plain']))[0]:.1f}", *[""] * 5])
    head = ["criterion", "settings", "outside", "95 %", "least", "outside, 100 queries", "shared", "inside"]
    return ReportTable(head, rows, "", 2).markdown()


def wide(frame: pd.DataFrame, rows: list[str]) -> str:
    """Markdown: gains by `rows` and criterion."""
    table = frame.pivot_table("gain", rows, "column", sort=False, observed=True)
    table = table[sorted(table.columns, key=list(frame["column"].cat.categories).index)].reset_index()
    cells = [
        [*map(str, line[: len(rows)]), *("–" if pd.isna(value) else f"{value:+.1f}" for value in line[len(rows) :])]
        for line in table.to_numpy().tolist()
    ]
    return ReportTable([*map(str, table.columns)], cells, "", 1).markdown()


def by_world(frame: pd.DataFrame) -> str:
    """Gains in the generated worlds: mean, least, and the number that differ from 0."""
    frame = frame.assign(changed=frame["gain"] != 0)
    rows = [
        [*name, f"{part['gain'].mean():+.2f}", f"{part['gain'].min():+.1f}", str(part["changed"].sum())]
        for name, part in frame.groupby(["criterion", "settings"], sort=False)
    ]
    return ReportTable(["criterion", "settings", "mean", "least", "changed"], rows, "", 2).markdown()


STUDY = Study(__file__, render=render, verbs={"measure": measure, "worlds": worlds})
