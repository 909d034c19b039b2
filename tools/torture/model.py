"""A collection against a dictionary: random fills, additions, removals, searches and interruptions, by a seed.

python tools/torture/model.py --seconds 60 --seed 0 [--engines milvus lancedb]

After each operation the collection must hold what the dictionary holds, and find what numpy finds in it. An interrupted
operation leaves nothing that opens as complete, or is given again; a seed repeats its operations.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.functional import normalize

from vsehub.checks import InputError
from vsehub.criteria import CSLS
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases import collection
from vsehub.serving.databases.collection import Collection, Fitted, Items, fill, open_collection, read_items
from vsehub.serving.databases.engines import Location

DIM, K, IDS = 8, 5, 60
ENGINES = ("lancedb", "milvus")
RULE = CSLS(3)


class Interrupted(Exception):
    """In place of a kill: nothing after this moment happens."""


class Model:
    """One collection, and what must be in it: id -> (vector, label)."""

    def __init__(self, engine: str, folder: Path, draw: random.Random):
        self.location, self.draw = Location(engine, str(folder / "items.db"), "vsehub"), draw
        self.numbers = torch.Generator().manual_seed(draw.randrange(2**31))
        self.reference = self.vectors(20)
        self.items: dict[str, tuple[np.ndarray, str]] = {}
        self.fill()

    def vectors(self, rows: int) -> torch.Tensor:
        """Unit vectors with a common direction, which makes hubs."""
        return normalize(torch.randn(rows, DIM, generator=self.numbers) + 0.5, dim=1)

    def drawn(self, most: int) -> dict[str, tuple[np.ndarray, str]]:
        """Some ids with new vectors and labels."""
        ids = self.draw.sample(range(IDS), self.draw.randint(1, most))
        rows = zip(ids, self.vectors(len(ids)), strict=True)
        return {f"id {number}": (vector.numpy(), f"at {self.draw.random()}") for number, vector in rows}

    def fill(self) -> None:
        """A new collection in place of the old one."""
        new = self.drawn(40)
        vectors = torch.tensor(np.stack([vector for vector, _ in new.values()]))
        items = Items(as_vectors("items", vectors), list(new), [label for _, label in new.values()])
        bias, reference = RULE.bias(self.reference @ vectors.T), as_vectors("reference", self.reference)
        fitted = Fitted("csls", RULE, bias, reference, "train.npy")
        with fill(self.location, items, fitted, overwrite=True):
            pass
        self.items = new

    def add(self) -> None:
        """New items, and other vectors for ids that are there."""
        new = self.drawn(15)
        vectors = as_vectors("items", torch.tensor(np.stack([vector for vector, _ in new.values()])))
        with open_collection(self.location) as now:
            now.change([], vectors, list(new), [label for _, label in new.values()])
        self.items |= new

    def remove(self) -> None:
        """Ids that are there, and ids that are not."""
        gone = list(self.drawn(10))
        with open_collection(self.location) as now:
            now.change(gone)
        self.items = {name: item for name, item in self.items.items() if name not in gone}

    def interrupted(self, name: str) -> None:
        """An operation that stops in the middle, and is given again with the same draws."""
        calls = self.draw.randint(0, 2)

        def stop() -> None:
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise Interrupted

        step = self.draw.choice(("_require_current", "_write"))
        drawn, numbers = self.draw.getstate(), self.numbers.get_state()
        with ExitStack() as stack:
            original = getattr(Collection, step)
            stack.enter_context(patch.object(Collection, step, lambda *arguments: stop() or original(*arguments)))
            stack.enter_context(patch.object(collection, "_BYTES", 4 * (DIM + 1) * 4))  # blocks of a few items
            try:
                getattr(self, name)()
                return
            except Interrupted:
                self.draw.setstate(drawn)
                self.numbers.set_state(numbers)
        getattr(self, "fill" if self.unfinished() else name)()

    def unfinished(self) -> bool:
        """Whether nothing opens as a complete collection."""
        try:
            with open_collection(self.location):
                return False
        except InputError:
            return True

    def check(self) -> None:
        """Raise AssertionError where the collection and the dictionary differ."""
        names, vectors = list(self.items), torch.tensor(np.array([vector for vector, _ in self.items.values()]))
        with open_collection(self.location) as now:
            assert len(now) == len(names), f"{len(now)} items, not {len(names)}"
            ids, stored = read_items(now.database, DIM + 1)
            assert sorted(ids) == sorted(names), "other ids"
            vectors_of = dict(zip(ids, stored[:, :DIM], strict=True))
            assert all(np.allclose(vectors_of[name], self.items[name][0], atol=1e-6) for name in names), "other vectors"
            queries = self.vectors(3)
            lists = now.find(as_vectors("queries", queries), K)
        if not names:
            assert lists == [[], [], []], "something is found in nothing"
            return
        scores = RULE.scale * queries @ vectors.T - RULE.bias(self.reference @ vectors.T)
        for row, hits in zip(scores, lists, strict=True):
            best = row.sort(descending=True).values[:K]
            assert np.allclose([score for _, _, score in hits], best, atol=1e-4), "other scores"
            assert all(abs(row[names.index(name)] - score) < 1e-4 for name, _, score in hits), "scores of others"
            assert all(self.items[name][1] == label for name, label, _ in hits), "other labels"


OPERATIONS = (
    "add",
    "add",
    "add",
    "remove",
    "remove",
    "fill",
    "interrupted add",
    "interrupted remove",
    "interrupted fill",
)


def sequence(engine: str, seed: str, operations: int) -> list[str]:
    """What is wrong with one sequence."""
    folder, steps = Path(tempfile.mkdtemp(prefix="vsehub-model-")), ["fill"]
    draw = random.Random(seed)
    try:
        model = Model(engine, folder, draw)
        model.check()
        for _ in range(operations):
            steps.append(draw.choice(OPERATIONS))
            interrupted, _, name = steps[-1].rpartition(" ")
            model.interrupted(name) if interrupted else getattr(model, name)()
            model.check()
    except Exception:
        return [f"{engine}, seed {seed}, after {', '.join(steps)}: {traceback.format_exc()[-1200:]}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return []


def run(seconds: float | None, seed: int, engines: tuple[str, ...] = ENGINES, operations: int = 25) -> dict[str, Any]:
    """{"cases": how many sequences, "wrong": texts}; seconds: None for one sequence of each engine."""
    wrong: list[str] = []
    count, until = 0, time.monotonic() + (seconds or 0)
    while count < len(engines) or time.monotonic() < until:
        wrong += sequence(engines[count % len(engines)], f"{seed} {count}", operations)
        count += 1
    return {"cases": count, "wrong": wrong}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--operations", type=int, default=25, help="of a sequence")
    result = run(**vars(parser.parse_args()))
    print(*result["wrong"], f"{result['cases']} sequences, {len(result['wrong'])} wrong", sep="\n")
    sys.exit(bool(result["wrong"]))


if __name__ == "__main__":
    main()
