"""Boosts in every index: recall of the boosted ranking, and the time of a query, against the same index without boosts.

Items have two boosts, a popularity (log-normal) and a freshness (uniform). They are weighed so that each moves
similarities by 0.01, 0.03 and 0.1, as a standard deviation over items. Beside it is what is done without them: the best
items of the unboosted ranking, 10, 100 or 1,000 of them, in the order of the boosted scores. The vectors are generated
(generated.py), CSLS corrects.

    python -m experiments.benchmarks.boosts [--items 20000] [--dim 128] [--only flat ivf hnsw milvus ...]
"""

import logging
import resource
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from experiments.benchmarks import common, generated
from experiments.benchmarks.engines import csls_bias, database_rows, faiss_rows
from vsehub.criteria import CSLS
from vsehub.criteria.boosts import BoostTable
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import measured_recall
from vsehub.serving.boosted_recall import MOVED
from vsehub.serving.corrected import found_share
from vsehub.serving.databases.engines import ENGINES
from vsehub.serving.index_file import KINDS

K, TIMED = 10, 20
SHORTLISTS = (10, 100, 1000)
NAMES = ("popularity", "freshness")


def boosts_of(rows: int) -> BoostTable:
    """A log-normal popularity and a uniform freshness of so many items."""
    generator = torch.Generator().manual_seed(4)
    popular, fresh = torch.randn(rows, generator=generator).exp(), torch.rand(rows, generator=generator)
    return BoostTable.of(NAMES, torch.stack([popular, fresh], dim=1).double(), rows)


def moving(table: BoostTable, moved: float) -> dict[str, float]:
    """The weights with which each boost moves similarities by so much."""
    return {name: moved / wide for name, wide in zip(NAMES, table.values.std(dim=0).tolist(), strict=True)}


def exact(queries: Tensor, items: Tensor, bias: Tensor, k: int) -> Tensor:
    """The k best items (Q, k) by 2s - b."""
    found = nearest(as_vectors("queries", queries), as_vectors("items", items), k, [Affine(CSLS.scale, bias)])
    return found[0][1]


def rescored(queries: Tensor, items: Tensor, bias: Tensor, raised: Tensor, shortlist: Tensor) -> Tensor:
    """The best items (Q, k) of shortlists (Q, n) by boosted scores."""
    scores = CSLS.scale * torch.einsum("qd,qnd->qn", queries, items[shortlist])
    scores += CSLS.scale * raised[shortlist] - bias[shortlist]
    return shortlist.gather(1, scores.argsort(dim=1, descending=True, stable=True)[:, :K])


def measure(options, folder: Path) -> dict:
    """What rescoring finds, and a row for each index."""
    items = generated.vectors(options.items, options.dim, 1)
    queries = generated.vectors(options.queries, options.dim, 2)
    bias = csls_bias(items)
    table, wanted, shortlisted = boosts_of(len(items)), {}, {}
    deepest = exact(queries, items, bias, min(max(SHORTLISTS), len(items)))
    for moved in MOVED:
        raised = table.raised(moving(table, moved)).float()
        wanted[moved] = exact(queries, items, bias - CSLS.scale * raised, K)
        for count in SHORTLISTS:
            shortlist = deepest[:, :count]
            parts = [slice(first, first + 50) for first in range(0, len(queries), 50)]
            best = torch.cat([rescored(queries[part], items, bias, raised, shortlist[part]) for part in parts])
            shortlisted[f"{count} at {moved}"] = found_share(best, wanted[moved])
    rows = []
    for name in options.only:
        make = faiss_rows if name in KINDS else database_rows
        pairs = zip(
            make(name, items, bias, folder / "without"), make(name, items, bias, folder / "with", table), strict=True
        )
        for without, boosted in pairs:
            index, other = boosted.pop("index"), without.pop("index")
            ways = {"without": asking(other, queries, None), "with": asking(index, queries, moving(table, MOVED[1]))}
            times = common.interleave(ways, TIMED * options.rounds, torch.device("cpu"))
            found = {
                str(moved): found_share(index.search(queries, K, True, moving(table, moved))[1], wanted[moved])
                for moved in MOVED
            }
            plain = measured_recall(other, queries, items, bias, CSLS.scale, K)["corrected"]
            seconds = {way: common.summary(spent) for way, spent in times.items()}
            rows.append({"name": boosted["name"], "unboosted": plain, "boosted": found, "seconds": seconds})
            print("  ".join(line(rows[-1])), flush=True)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = {"items": options.items, "queries": options.queries, "dim": options.dim, "k": K, "peak_bytes": peak}
    return sizes | {"rescored": shortlisted, "rows": rows}


def asking(index, queries: Tensor, weights: dict[str, float] | None) -> Callable[[], object]:
    """A call that asks an index for the next of some queries, so that both ways take turns query by query."""
    asked, following = {} if weights is None else {"boost_weights": weights}, cycle(queries[:TIMED].split(1))
    return lambda: index.search(next(following), K, **asked)


def line(row: dict) -> tuple[str, ...]:
    """A row of the table."""
    times = row["seconds"]
    ratio = times["with"]["median"] / times["without"]["median"]
    recalls = (f"{row['boosted'][str(moved)]:.3f}" for moved in MOVED)
    spent = f"{1e3 * times['without']['median']:.3g} ms", f"{ratio:.2f}"
    return row["name"], f"{row['unboosted']:.3f}", *recalls, *spent


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--items", type=int, default=20_000, help="(default: 20,000)")
    parser.add_argument("--queries", type=int, default=500, help="(default: 500)")
    parser.add_argument("--dim", type=int, default=128, help="(default: 128)")
    every = [name for name in (*KINDS, *ENGINES) if name not in ("ivfpq", "qdrant")]  # no room; no server here
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="the indexes (default: all)")
    options = parser.parse_args(argv)
    logging.getLogger("vsehub").setLevel(logging.ERROR)  # that approximate indexes are approximate is what is measured
    with tempfile.TemporaryDirectory() as folder:
        for name in ("with", "without"):
            (Path(folder) / name).mkdir()
        result = measure(options, Path(folder))
    moves = [f"boosts move {moved}" for moved in MOVED]
    columns = ("index", "recall, unboosted", *moves, "a query", "with / without")
    text = (
        f"{options.items:,} items, {options.queries:,} queries, D = {options.dim}, k = {K}, made-up vectors; "
        f"{result['peak_bytes'] / 1e9:.1f} GB of memory at most\n\n"
        f"{common.table(columns, map(line, result['rows']))}\n\nThe best of a shortlist of the unboosted ranking:\n\n"
    )
    lists = [
        (f"{count:,}", *(f"{result['rescored'][f'{count} at {moved}']:.3f}" for moved in MOVED)) for count in SHORTLISTS
    ]
    text += common.table(("shortlist", *moves), lists)
    common.report(
        "boosts", f"Boosts in every index, {options.items:,} items", result, text, torch.device("cpu"), options.out
    )


if __name__ == "__main__":
    main()
