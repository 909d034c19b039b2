"""Items that come and go: what additions cost in R@1, what the drift says of it, and whom the gate holds back.

    python -m experiments living measure FOLDER [--more FILE.npz ...]
    python -m experiments living render

FOLDER holds clip_coco500.npz (`image`, `text`), whose row i answers row i. --more: files with `image` (I, D), `text`
(T, D) and `index` (T,), the image that each text describes. A generated set is added. All items are put into LanceDB
with exact search, half of them (additions) or four fifths (gate) when the collection is filled.

Additions: the other half in ten goes, by the same calls as `vsehub add`; after some of them, R@1 of the queries whose
item is there, beside a collection that is filled anew. Gate: the last fifth are ordinary items, let through or not;
planted ones are made from queries that are neither sentinels nor those that are measured.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from experiments.benchmarks import generated
from experiments.evidence import renew
from experiments.study import MORE_SETS, TO, Given, Study, option, verb
from vsehub.criteria import CSLS, InvertedSoftmax, Sinkhorn
from vsehub.criteria.base import ItemBias
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable
from vsehub.serving.databases.collection import Items, facts_of, fill
from vsehub.serving.databases.engines import placed
from vsehub.serving.databases.gate import RANKINGS, Gate
from vsehub.serving.databases.kept import Kept
from vsehub.serving.databases.living import DUE, Living, opened

SEEDS, GOES, SHOWN_GOES = range(3), 10, (1, 2, 5, 10)
CRITERIA = {
    "csls": CSLS(),
    "is": InvertedSoftmax(),
    "sinkhorn, τ 0.02": Sinkhorn(0.02),
    "sinkhorn, τ 0.01": Sinkhorn(0.01),
}
GENERATED, DIM, QUERIES, NOISE = 10_000, 128, 4000, 1.1
PLANTED, SHOWN, TOPICS, STEPS, K = 20, 100, 16, 200, 10
HARM = 0.05  # share of the queries whose lists a planted item is in, from which on it is called harmful


class Set(NamedTuple):
    """Queries (Q, D), items (M, D) and the item (Q,) that answers each query."""

    name: str
    queries: Tensor
    items: Tensor
    answer: Tensor


@verb(option("data", type=Path, metavar="FOLDER"), MORE_SETS, TO)
def measure(given: Given) -> None:
    """Write additions.csv and gate.csv."""
    sets = list(read_sets(given.data, given.more))
    for name, rows in (("additions", additions(sets)), ("gate", gates(sets))):
        pd.DataFrame(rows).to_csv(given.folder / f"{name}.csv", index=False, float_format="%.5g")


def read_sets(folder: Path, more: list[Path]) -> Iterator[Set]:
    """All sets, each direction a set of its own."""
    with np.load(folder / "clip_coco500.npz") as coco:
        image, text = (normalize(torch.from_numpy(coco[name].astype("float32")), dim=1) for name in ("image", "text"))
    yield Set("COCO, captions to images", text, image, torch.arange(len(text)))
    yield Set("COCO, images to captions", image, text, torch.arange(len(text)))
    for path in more:
        with np.load(path) as file:
            image, text = (
                normalize(torch.from_numpy(file[name].astype("float32")), dim=1) for name in ("image", "text")
            )
            yield Set(
                f"{path.stem.replace('_', ' ')}, captions to images", text, image, torch.from_numpy(file["index"])
            )
    items = generated.vectors(GENERATED, DIM, 1)
    random = torch.Generator().manual_seed(2)
    answer = torch.randint(GENERATED, (QUERIES,), generator=random)
    noise = normalize(torch.randn(QUERIES, DIM, generator=random), dim=1)
    yield Set("generated", normalize(items[answer] + NOISE * noise, dim=1), items, answer)


def divided(one: Set, seed: int, parts: int) -> list[Tensor]:
    """The queries, drawn by seed, in equal parts."""
    return list(torch.randperm(len(one.queries), generator=torch.Generator().manual_seed(seed)).chunk(parts))


def shuffled(one: Set, seed: int) -> Tensor:
    """The items in an order that has nothing to do with that of the queries."""
    return torch.randperm(len(one.items), generator=torch.Generator().manual_seed(1000 + seed))


def begun(one: Set, rule: ItemBias, name: str, rows: Tensor, reference: Tensor, folder: str) -> None:
    """Fill a collection with some of the items."""
    bias = rule.bias(reference @ one.items[rows].T)
    given = Items(as_vectors("items", one.items[rows]), bias, [str(row) for row in rows.tolist()], None)
    kept = Kept.of(rule, given.vectors, bias, as_vectors("reference", reference))
    facts = facts_of(
        given,
        rule.scale,
        criterion=name.partition(",")[0],
        parameters=rule.parameters(),
        reference="training queries",
        kept=kept,
        approximate=False,
        normalize=None,
    )
    with fill(placed("lancedb", None, "items", Path(folder)), facts, given, kept) as collection:
        collection.complete()


def biases(collection: Living, items: int) -> Tensor:
    """b (M,) of all items, as the collection holds them; infinite for those that are not in it."""
    found = torch.full((items,), torch.inf)
    for rows in collection.database.read():
        last = torch.from_numpy(rows.vectors[:, -1].copy())
        found[[int(one) for one in rows.ids]] = collection.facts.mean_bias - collection.facts.scale * last
    return found


def additions(sets: list[Set]) -> Iterator[dict]:
    """A row for each set, criterion, seed and go."""
    work = [(one, name, seed) for one in sets for name in CRITERIA for seed in SEEDS]
    for one, name, seed in tqdm(work, desc="additions"):
        rule, (known, asked) = CRITERIA[name], divided(one, seed, 2)
        reference, queries, answer = one.queries[known], one.queries[asked], one.answer[asked]
        order = shuffled(one, seed)
        half = len(order) // 2
        with tempfile.TemporaryDirectory() as folder:
            begun(one, rule, name, order[:half], reference, folder)
            with opened(placed("lancedb", None, "items", Path(folder))) as collection:
                there = order[:half]
                for go, rows in enumerate(order[half:].chunk(GOES), 1):
                    new = as_vectors("items", one.items[rows])
                    collection.put(collection.new(new, [str(row) for row in rows.tolist()]))
                    there = torch.cat([there, rows])
                    if go not in SHOWN_GOES:
                        continue
                    anew = torch.full((len(one.items),), torch.inf)
                    anew[there] = rule.bias(reference @ one.items[there].T)
                    living, drift = biases(collection, len(one.items)), collection.drift(seed)
                    first = [firsts(rule, reference, one.items, bias) for bias in (living, anew)]
                    present = torch.isin(answer, there)
                    hits = [
                        (firsts(rule, queries[present], one.items, bias) == answer[present]).double().mean().item()
                        * 100
                        for bias in (living, anew, torch.zeros(len(anew)).masked_fill(anew.isinf(), torch.inf))
                    ]
                    yield {
                        "set": one.name,
                        "criterion": name,
                        "seed": seed,
                        "go": go,
                        "items": len(there),
                        "queries": int(present.sum()),
                        "living": hits[0],
                        "anew": hits[1],
                        "plain": hits[2],
                        "drift": np.nan if drift is None else 100 * drift.changed,
                        "changed": 100 * (first[0] != first[1]).double().mean().item(),
                    }


def firsts(rule: ItemBias, queries: Tensor, items: Tensor, bias: Tensor) -> Tensor:
    """The first item (Q,) of each query, by exact search."""
    return torch.cat([(rule.scale * part @ items.T - bias).argmax(dim=1) for part in queries.split(1000)])


def gates(sets: list[Set]) -> Iterator[dict]:
    """A row for each set, seed and kind of item."""
    rule = CRITERIA["csls"]
    for one, seed in tqdm([(one, seed) for one in sets for seed in SEEDS], desc="gate"):
        sentinels, attackers, users = (one.queries[rows] for rows in divided(one, seed, 3))
        order = shuffled(one, seed)
        most = len(order) * 4 // 5
        with tempfile.TemporaryDirectory() as folder:
            begun(one, rule, "csls", order[:most], sentinels, folder)
            with opened(placed("lancedb", None, "items", Path(folder))) as collection:
                gate = Gate.of(collection, sentinels[:2000], K)
                held, scale, mean = one.items[order[:most]], collection.facts.scale, collection.facts.mean_bias
                bias = biases(collection, len(one.items))[order[:most]]
                kinds = {"ordinary": one.items[order[most:]], **planted(attackers, held, seed)}
                for kind, vectors in kinds.items():
                    new = collection.new(as_vectors("items", vectors), [f"new {row}" for row in range(len(vectors))])
                    beyond = gate.beyond(gate.entries(new, scale, mean)).double()
                    harm = {
                        "plain": entered(users, held, 1.0, 0 * bias, vectors, 0 * new.bias),
                        "corrected": entered(users, held, scale, bias, vectors, new.bias),
                    }
                    worst = torch.maximum(harm["plain"], harm["corrected"])
                    yield {
                        "set": one.name,
                        "seed": seed,
                        "kind": kind,
                        "items": len(vectors),
                        "held": len(held),
                        "sentinels": len(gate.sentinels),
                        **{f"budget, {name}": 100 * gate.budget[name] for name in RANKINGS},
                        **{f"harm, {name}": 100 * harm[name].mean().item() for name in RANKINGS},
                        "quarantined": int(beyond.sum()),
                        "harmful": int((worst > HARM).sum()),
                        "harmful, quarantined": int(beyond[worst > HARM].sum()),
                    }


def entered(queries: Tensor, held: Tensor, scale: float, bias: Tensor, new: Tensor, own: Tensor) -> Tensor:
    """The share (n,) of the queries whose ten best each new item would be among, alone."""
    counts = torch.zeros(len(new))
    for part in queries.split(1000):
        least = (scale * part @ held.T - bias).topk(K, dim=1).values[:, -1:]
        counts += (scale * part @ new.T - own > least).sum(dim=0)
    return counts / len(queries)


def planted(attackers: Tensor, held: Tensor, seed: int) -> dict[str, Tensor]:
    """Items that an attacker would plant who knows some queries and the collection, 20 of each kind."""
    random = torch.Generator().manual_seed(seed)

    def drawn(rows: Tensor, count: int) -> Tensor:
        return rows[torch.randperm(len(rows), generator=random)[:count]]

    centres = torch.stack([drawn(attackers, SHOWN).mean(dim=0) for _ in range(PLANTED)])
    hosts = drawn(held, PLANTED)
    topics = torch.stack(
        [(attackers @ one).topk(max(2, len(attackers) // TOPICS)).indices for one in drawn(attackers, PLANTED)]
    )
    return {
        "mean of 100 queries": normalize(centres, dim=1),
        "half-way to it from an item": normalize(hosts + normalize(centres, dim=1), dim=1),
        "mean of a topic": normalize(attackers[topics].mean(dim=1), dim=1),
        "fitted to enter most lists": fitted(attackers, held, normalize(centres, dim=1)),
    }


def fitted(attackers: Tensor, held: Tensor, start: Tensor) -> Tensor:
    """Unit vectors moved by gradient to be among the ten plain best of as many queries as they can."""
    least = (attackers @ held.T).topk(K, dim=1).values[:, -1:]
    spread = (attackers @ start.T - least).std()
    moving = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([moving], lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-((attackers @ normalize(moving, dim=1).T - least) / (0.2 * spread)).sigmoid().mean(dim=0).sum()).backward()
        optimizer.step()
    return normalize(moving.detach(), dim=1)


def render(folder: Path) -> None:
    """Write the README's tables from additions.csv and gate.csv."""
    page = folder / "README.md"
    added, gated = pd.read_csv(folder / "additions.csv"), pd.read_csv(folder / "gate.csv")
    last = added[added["go"] == GOES]
    rows = []
    for (name, criterion), one in last.groupby(["set", "criterion"], sort=False):
        difference = one["living"] - one["anew"]
        drift = "" if one["drift"].isna().all() else f"{one['drift'].mean():.1f} %"
        rows.append(
            [name, criterion, f"{one['plain'].mean():.1f}", f"{one['anew'].mean():.1f}", f"{one['living'].mean():.1f}",
             f"{difference.mean():+.1f} ± {difference.std():.1f}", f"{one['changed'].mean():.1f} %", drift]
        )  # fmt: skip
    columns = ["set", "criterion", "plain", "anew", "added", "added - anew", "first items that differ", "drift"]
    renew(page, ReportTable(columns, rows).markdown(), "additions")
    coupled = added[added["drift"].notna()]
    early = coupled[coupled["drift"] < 100 * DUE]
    rows = [
        [label, str(len(one)), f"{one['changed'].mean():.1f} %", f"{(one['living'] - one['anew']).mean():+.2f}",
         f"{(one['living'] - one['anew']).min():+.1f}"]
        for label, one in ((f"below {DUE:.0%}", early), (f"from {DUE:.0%} on", coupled.drop(early.index)))
    ]  # fmt: skip
    columns = ["drift", "collections", "first items that differ", "R@1, added - anew", "the least"]
    renew(page, ReportTable(columns, rows).markdown(), "drift")
    rows = []
    for (name, kind), one in gated.groupby(["set", "kind"], sort=False):
        total = one.sum(numeric_only=True)
        caught = (
            ""
            if kind == "ordinary" or not total["harmful"]
            else f"{total['harmful, quarantined']:.0f} of {total['harmful']:.0f}"
        )
        rows.append(
            [name, kind, f"{total['items']:.0f}", *(f"{one[f'harm, {ranking}'].mean():.1f} %" for ranking in RANKINGS),
             f"{100 * total['quarantined'] / total['items']:.1f} %", caught]
        )  # fmt: skip
    columns = ["set", "kind", "items", "of the ten best, plain", "corrected", "quarantined", "harmful ones"]
    renew(page, ReportTable(columns, rows).markdown(), "gate")


STUDY = Study(__file__, render=render, verbs={"measure": measure})
