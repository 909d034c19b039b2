"""A corrected ranking in every index: size, filling time, time of a query, recall plain and corrected.

FAISS's kinds and the databases, each exact and with its approximate index; the embedded forms, and Postgres from the
wheel pgserver. Queries are asked one at a time. The vectors are generated (generated.py). CSLS corrects, its reference
2,000 other queries. What is not installed is left out, with a line.

    python -m experiments.benchmarks.engines [--items 20000] [--dim 128] [--only flat ivf milvus ...]

Results of other numbers of items than the default are kept beside those of the default. Postgres builds its
graph faster with PGOPTIONS='-c maintenance_work_mem=512MB' before the command.
"""

import importlib.util
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from experiments.benchmarks import common, generated
from vsehub.criteria import CSLS
from vsehub.criteria.base import fit_all
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving import build_index, measured_recall, measured_time
from vsehub.serving.databases.collection import Fitted, Items, fill
from vsehub.serving.databases.engines import ENGINES, Location, location_of
from vsehub.serving.index import KINDS

K, REFERENCE, ITEMS = 10, 2000, 20_000
COLUMNS = ("index", "size", "filled in", "a query, corrected", "plain", "recall, corrected", "plain")


def measure(options, folder: Path) -> dict:
    """One row for each index."""
    items = generated.vectors(options.items, options.dim, 1)
    queries = generated.vectors(options.queries, options.dim, 2)
    bias = csls_bias(items)
    rows = []
    for name in options.only:
        for row in faiss_rows(name, items, bias, folder) if name in KINDS else database_rows(name, items, bias, folder):
            index = row.pop("index")
            recall = measured_recall(index, queries, items, bias, CSLS.scale, K)
            rows.append(row | {"recall": recall, "milliseconds": measured_time(index, queries, K)})
            print("  ".join(line(rows[-1])), flush=True)
    return {"items": options.items, "queries": options.queries, "dim": options.dim, "k": K, "rows": rows}


def csls_bias(items: Tensor) -> Tensor:
    """The bias (M,) of items (M, D) by generated reference queries, whose scores are never held all at once."""
    reference = generated.vectors(REFERENCE, items.shape[1], 3)
    return fit_all([CSLS()], as_vectors("items", items), as_vectors("reference", reference))[0][0]


def faiss_rows(kind: str, items: Tensor, bias: Tensor, folder: Path) -> Iterator[dict]:
    """The row of a kind of FAISS index."""
    began = time.perf_counter()
    index = build_index(items, bias, CSLS.scale, kind)
    seconds = time.perf_counter() - began
    index.save(folder / kind)
    yield {"name": f"FAISS {kind}", "seconds": seconds, "bytes": (folder / kind).stat().st_size, "index": index}


def database_rows(engine: str, items: Tensor, bias: Tensor, folder: Path) -> Iterator[dict]:
    """Those of a database: exact, then approximate."""
    if any(importlib.util.find_spec(package) is None for package in ENGINES[engine].packages):
        print(f"{engine} is left out: vsehub[{engine}] is not installed")
        return
    with server(engine, folder) as location:
        if location is None:
            print(f"{engine} is left out: pgserver is not installed")
            return
        stored = Items(as_vectors("items", items), [str(row) for row in range(len(items))])
        fitted = Fitted("csls", CSLS(), bias, stored.vectors, "generated")
        for approximate in (False, True):
            began = time.perf_counter()
            with fill(location, stored, fitted, approximate, overwrite=True) as collection:
                seconds = time.perf_counter() - began
                name = f"{ENGINES[engine].title}, {'approximate' if approximate else 'exact'}"
                yield {"name": name, "seconds": seconds, "bytes": size_of(location), "index": collection}


def size_of(location: Location) -> int | None:
    """The size of a database's folder; None for a server, which may not say."""
    if location.served:
        return None
    return sum(file.stat().st_size for file in Path(location.uri).rglob("*") if file.is_file())


@contextmanager
def server(engine: str, folder: Path) -> Iterator[Location | None]:
    """URI of a database; None for Postgres if it cannot be started."""
    if ENGINES[engine].folder is not None:
        yield location_of(engine, None, "items", folder)
    elif importlib.util.find_spec("pgserver") is None:
        yield None
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pgserver

            started = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
        try:
            yield Location(engine, started.get_uri(), "items")
        finally:
            started.cleanup()


def line(row: dict) -> tuple[str, ...]:
    """A row of the table."""
    times, recall = row["milliseconds"], row["recall"]
    return (
        row["name"],
        "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.1f} MB",
        f"{row['seconds']:.3g} s",
        f"{times['corrected']:.3g} ms",
        f"{times['plain']:.3g} ms",
        f"{recall['corrected']:.3f}",
        f"{recall['plain']:.3f}",
    )


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--items", type=int, default=ITEMS, help=f"(default: {ITEMS:,})")
    parser.add_argument("--queries", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--dim", type=int, default=128, help="(default: 128)")
    every = (*KINDS, *(name for name in ENGINES if name != "qdrant"))  # a server of Qdrant is not started here
    parser.add_argument("--only", nargs="+", choices=every, default=list(every), help="the indexes (default: all)")
    options = parser.parse_args(argv)
    logging.getLogger("vsehub").setLevel(logging.ERROR)  # that approximate indexes are approximate is what is measured
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder))
    sizes = f"{options.items:,} items, {options.queries:,} queries, D = {options.dim}, k = {K}"
    text = f"{sizes}, made-up vectors with hubs\n\n{common.table(COLUMNS, map(line, result['rows']))}"
    name, title = "engines", "A corrected ranking in every index"
    if options.items != ITEMS:
        name, title = f"{name}_{options.items}", f"{title}: {options.items:,} items"
    common.report(name, title, result, text, torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()
