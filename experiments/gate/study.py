"""The gate against many small planted items: which it holds, and how many ordinary items it holds with them.

    python -m experiments gate measure FOLDER
    python -m experiments gate render

FOLDER holds clip_coco500.npz. The gate is that of `vsehub gate` at its defaults, over collections in memory, both
rankings the plain one. Planted lie between an item and a query, and each enters no more lists than the budget of one
item allows: 150 of them, or 12 copies of one with noise. They come alone or among ordinary items. Measured queries are
neither sentinels nor the attacker's.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from experiments.evidence import renew
from experiments.study import TO, Given, Study, option, verb
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.tables import ReportTable
from vsehub.serving.databases.collection import Items
from vsehub.serving.databases.gate import Gate

SEEDS, MANY, COPIES, TRIED, K = range(5), 150, 12, 3000, 10


class InMemory:
    """As much of a collection as the gate asks of it: vectors (M, D), searched exactly."""

    def __init__(self, vectors: Tensor):
        self.vectors, self.database, self.place = vectors, self, SimpleNamespace(address="memory")

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """The k nearest (id, score) of each query, whose last component is left out."""
        values, positions = (torch.as_tensor(queries)[:, :-1] @ self.vectors.T).topk(k, dim=1)
        both = zip(positions.tolist(), values.tolist(), strict=True)
        return [[(str(one), value) for one, value in zip(*row, strict=True)] for row in both]


@verb(option("data", type=Path, metavar="FOLDER", help="of clip_coco500.npz"), TO)
def measure(given: Given) -> None:
    """Write groups.csv, a row for each set, seed and attack."""
    pd.DataFrame(measured(given.data)).to_csv(given.folder / "groups.csv", index=False, float_format="%.5g")


def render(folder: Path) -> None:
    """Write the README's table from groups.csv."""
    renew(folder / "README.md", table(pd.read_csv(folder / "groups.csv")).markdown(), "groups")


def sets(folder: Path) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, queries and items: CLIP's, and generated ones behind a gap and without one."""
    with np.load(folder / "clip_coco500.npz") as stored:
        image, text = (normalize(torch.from_numpy(stored[one].astype(np.float32)), dim=1) for one in ("image", "text"))
    yield "CLIP, captions to images", text, image
    for gap in (0.0, 1.0):
        random = torch.Generator().manual_seed(3)
        basis, sides = torch.randn(24, 64, generator=random), 5 * torch.randn(2, 64, generator=random)
        points = torch.randn(5000, 24, generator=random)
        asked = points[torch.randint(5000, (3000,), generator=random)]
        asked = asked + 0.7 * torch.randn(3000, 24, generator=random)
        queries, items = (
            normalize(rows @ basis + gap * side, dim=1) for rows, side in zip((asked, points), sides, strict=True)
        )
        yield f"generated, gap {gap:g}", queries, items


def entering(gate: Gate, vectors: Tensor) -> Any:
    """What the gate counts of new items that no correction changes."""
    ids = [f"new {row}" for row in range(len(vectors))]
    return gate.entries(Items(as_vectors("items", vectors), torch.zeros(len(vectors)), ids, None), 1.0, 0.0)


def measured(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each set, seed and attack."""
    for name, queries, items in sets(folder):
        for seed in SEEDS:
            random = torch.Generator().manual_seed(seed)
            sentinels, known, users = (
                queries[rows][:2000] for rows in torch.randperm(len(queries), generator=random).chunk(3)
            )
            order = torch.randperm(len(items), generator=random)
            held, ordinary = items[order[: len(order) * 4 // 5]], items[order[len(order) * 4 // 5 :]]
            gate = Gate.of(InMemory(held), sentinels, K)  # type: ignore[arg-type]
            hosts = held[torch.randint(len(held), (TRIED,), generator=random)]
            asked = known[torch.randint(len(known), (TRIED,), generator=random)]
            parts = torch.rand(TRIED, 1, generator=random)
            tried = normalize((1 - parts) * hosts + parts * asked, dim=1)
            shares = entering(gate, tried).shares["plain"]
            within = (shares <= gate.budget["plain"]).nonzero().flatten()
            best = within[shares[within].argsort(descending=True)]
            noise = 0.01 * torch.randn(COPIES, held.shape[1], generator=random)
            copies = normalize(0.999 * tried[best[:1]] + noise * tried.shape[1] ** -0.5, dim=1)
            attacks = {
                "none": tried[:0], f"{MANY} small ones": tried[best[:MANY]], f"{COPIES} copies": copies,
            }  # fmt: skip
            least = (users @ held.T).topk(K, dim=1).values[:, -1:]
            for attack, planted in attacks.items():
                entries = entering(gate, torch.cat([planted, ordinary]))
                alone = entries.shares["plain"] > gate.budget["plain"]
                beyond = gate.beyond(entries)
                taken = users @ planted.T > least
                passed = taken[:, ~beyond[: len(planted)]]
                yield {
                    "set": name, "seed": seed, "attack": attack, "planted": len(planted),
                    "budget": gate.budget["plain"],
                    "held": int(beyond[: len(planted)].sum()), "held alone": int(alone[: len(planted)].sum()),
                    "ordinary": len(ordinary), "ordinary held": int(beyond[len(planted) :].sum()),
                    "lists": 100 * taken.any(dim=1).double().mean().item(),
                    "lists, passed": 100 * passed.any(dim=1).double().mean().item(),
                }  # fmt: skip


def table(frame: pd.DataFrame) -> ReportTable:
    """A row for each set and attack, over the seeds."""
    rows = []
    for (name, attack), own in frame.groupby(["set", "attack"], sort=False):
        total = own.sum(numeric_only=True)
        planted = f"{total['held']:.0f} of {total['planted']:.0f}" if total["planted"] else ""
        lists = [f"{own[one].mean():.0f} %" if total["planted"] else "" for one in ("lists", "lists, passed")]
        rows.append(
            [name, attack, planted, *lists, f"{total['ordinary held']:.0f} of {total['ordinary']:.0f}"]
        )  # fmt: skip
    columns = ["set", "planted", "held", "lists they would enter", "lists of those not held", "ordinary items held"]
    return ReportTable(columns, rows)


STUDY = Study(__file__, render=render, verbs={"measure": measure})
