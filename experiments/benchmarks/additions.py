"""Items added to a full collection: seconds, the gate's too, and R@1 beside a collection that is filled anew.

A collection of generated vectors (generated.py) in a database, then ten additions by the calls of `vsehub add`, each
with its biases, the engine's own work and the drift. R@1 of queries that are an item with noise, by exact search with
the biases that the collection holds, and with those of all items computed at once.

    python -m experiments.benchmarks.additions [--items 1000000] [--engine lancedb] [--criterion csls sinkhorn]
"""

import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from experiments.benchmarks import common, generated
from vsehub.criteria import CSLS, Sinkhorn
from vsehub.criteria.base import ItemBias, fit_all
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases.collection import Items, facts_of, fill
from vsehub.serving.databases.engines import ENGINES, placed
from vsehub.serving.databases.gate import Gate
from vsehub.serving.databases.kept import Kept
from vsehub.serving.databases.living import Living, opened

GOES, SENTINELS, NOISE = 10, 2000, 0.8
CRITERIA: dict[str, ItemBias] = {"csls": CSLS(), "sinkhorn": Sinkhorn(0.02)}
COLUMNS = ("criterion", "filled in", "gate", "added in", "most", "drift", "R@1, added", "anew", "difference", "plain")


def measure(options, folder: Path) -> dict:
    """One row for each criterion."""
    total = options.items + GOES * options.added
    items = generated.vectors(total, options.dim, 1)
    queries, answer = asked(items, options.queries, 2)
    reference, _ = asked(items, options.reference, 3)
    rows = []
    for name in options.criterion:
        rows.append(added(name, items, reference, queries, answer, options, folder))
        print("  ".join(line(rows[-1])), flush=True)
    facts = ("items", "added", "queries", "reference", "dim", "engine", "approximate")
    return {key: getattr(options, key) for key in facts} | {"rows": rows}


def asked(items: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries (count, D), each an item with noise, and that item (count,)."""
    random = torch.Generator().manual_seed(seed)
    answer = torch.randint(len(items), (count,), generator=random)
    noise = normalize(torch.randn(count, items.shape[1], generator=random), dim=1)
    return normalize(items[answer] + NOISE * noise, dim=1), answer


def added(name: str, items: Tensor, reference: Tensor, queries: Tensor, answer: Tensor, options, folder: Path) -> dict:
    """The row of a criterion."""
    rule, place = CRITERIA[name], placed(options.engine, None, "items", folder)
    first = as_vectors("items", items[: options.items])
    began = time.perf_counter()
    bias = fit_all([rule], first, as_vectors("reference", reference))[0][0]
    given = Items(first, bias, [str(row) for row in range(options.items)], None)
    kept = Kept.of(rule, first, bias, as_vectors("reference", reference))
    facts = facts_of(
        given,
        rule.scale,
        criterion=name,
        parameters=rule.parameters(),
        reference="generated",
        kept=kept,
        approximate=options.approximate,
        normalize=None,
    )
    with fill(place, facts, given, kept, overwrite=True) as collection:
        collection.complete()
    row = {"name": name, "filling": time.perf_counter() - began, "seconds": []}
    parts = torch.arange(options.items, len(items)).split(options.added)
    biases = [bias]
    with opened(place) as collection:
        began = time.perf_counter()
        gate = Gate.of(collection, reference[:SENTINELS])
        new = as_vectors("items", items[parts[0]])
        gate.entries(collection.new(new, [str(one) for one in parts[0].tolist()]), facts.scale, facts.mean_bias)
        row["gate"] = time.perf_counter() - began
    for rows in parts:
        began = time.perf_counter()
        with opened(place) as collection:  # as the command does
            new = collection.new(as_vectors("items", items[rows]), [str(one) for one in rows.tolist()])
            collection.put(new)
            drift = collection.drift()
        row["seconds"].append(time.perf_counter() - began)
        biases.append(new.bias)
    row["drift"] = None if drift is None else drift.changed
    with opened(place) as collection:
        row |= compared(collection, rule, items, torch.cat(biases), reference, queries, answer)
    return row


def compared(
    collection: Living,
    rule: ItemBias,
    items: Tensor,
    living: Tensor,
    reference: Tensor,
    queries: Tensor,
    answer: Tensor,
) -> dict:
    """R@1 by the biases of the collection, by those of all items at once, and of plain search."""
    assert len(collection) == len(items)
    anew = fit_all([rule], as_vectors("items", items), as_vectors("reference", reference))[0][0]
    ways = {"living": Affine(rule.scale, living), "anew": Affine(rule.scale, anew), "plain": None}
    lists = nearest(as_vectors("queries", queries), as_vectors("items", items), 1, list(ways.values()))
    hits = {name: (places[:, 0] == answer).double() for name, (_, places) in zip(ways, lists, strict=True)}
    difference = 100 * (hits["living"] - hits["anew"])
    interval = 1.96 * difference.std().item() / len(difference) ** 0.5
    found = {name: 100 * one.mean().item() for name, one in hits.items()}
    return found | {"difference": difference.mean().item(), "interval": interval}


def line(row: dict) -> tuple[str, ...]:
    """A row of the table."""
    seconds = sorted(row["seconds"])
    return (
        row["name"],
        f"{row['filling']:.0f} s",
        f"{row['gate']:.1f} s",
        f"{seconds[len(seconds) // 2]:.1f} s",
        f"{seconds[-1]:.1f} s",
        "" if row["drift"] is None else f"{row['drift']:.1%}",
        f"{row['living']:.1f}",
        f"{row['anew']:.1f}",
        f"{row['difference']:+.2f} ± {row['interval']:.2f}",
        f"{row['plain']:.1f}",
    )


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument(
        "--items", type=int, default=1_000_000, help="when the collection is filled (default: 1,000,000)"
    )
    parser.add_argument("--added", type=int, default=10_000, help="each time, ten times (default: 10,000)")
    parser.add_argument("--queries", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--reference", type=int, default=2000, help="reference queries (default: 2000)")
    parser.add_argument("--dim", type=int, default=128, help="(default: 128)")
    parser.add_argument(
        "--engine", choices=[name for name, engine in ENGINES.items() if engine.file], default="lancedb"
    )
    parser.add_argument("--approximate", action="store_true", help="search the engine's approximate index")
    parser.add_argument("--criterion", nargs="+", choices=list(CRITERIA), default=list(CRITERIA))
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    kind = "approximate" if options.approximate else "exact"
    text = (
        f"{options.items:,} items in {ENGINES[options.engine].title} ({kind}), {GOES} x {options.added:,} added; "
        f"{options.reference:,} reference queries, {options.queries:,} queries, D = {options.dim}; the difference with "
        f"its 95 % interval\n\n{common.table(COLUMNS, map(line, result['rows']))}"
    )
    common.report("additions", "Items added to a full collection", result, text, torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()
