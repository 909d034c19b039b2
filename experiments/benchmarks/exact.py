"""Exact corrected search beside FAISS's flat index with the bias folded in: processor seconds of one thread.

1,000 queries and one query over 100,000 items of 512 dimensions, k = 10, by products of int8 where the processor has
them (VNNI or AMX) and without. The items are rounded once before, as FAISS's index is filled once before. clustered:
generated.py; isotropic: normal vectors of norm 1. The lists are compared with FAISS's.

    OMP_NUM_THREADS=1 python -m experiments.benchmarks.exact
"""

import time
from collections.abc import Callable

import faiss
import torch

from experiments.benchmarks import common, generated
from vsehub.neighbors import screened
from vsehub.neighbors.screened import CachedItems
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Affine, as_vectors

ITEMS, DIM, K, ROUNDS, SCALE, CPU = 100_000, 512, 10, 5, 2.0, torch.device("cpu")


def isotropic(rows: int, dim: int, seed: int) -> torch.Tensor:
    """Normal vectors (rows, dim) of norm 1."""
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def measure(make: Callable[[int, int, int], torch.Tensor], count: int, int8: bool) -> dict[str, float]:
    """The least seconds of both ways, their ratio and the share of equal entries of the lists."""
    items, queries = make(ITEMS, DIM, 1), make(count, DIM, 2)
    bias = 0.1 * torch.randn(ITEMS, generator=torch.Generator().manual_seed(3))
    index = faiss.IndexFlatIP(DIM + 1)
    index.add(torch.cat([SCALE * items, -bias[:, None]], dim=1).numpy())
    extended = torch.cat([queries, torch.ones(count, 1)], dim=1).numpy()
    among, sides, correct = (
        CachedItems(as_vectors("items", items)),
        as_vectors("queries", queries),
        [Affine(SCALE, bias)],
    )
    had, screened.INT8 = screened.INT8, screened.INT8 and int8
    try:
        ways = {"vsehub": lambda: nearest(sides, among, K, correct), "faiss": lambda: index.search(extended, K)}
        (_, ours), theirs = ways["vsehub"]()[0], ways["faiss"]()[1]
        least = {
            name: min(common.timed(way, CPU, time.process_time) for _ in range(ROUNDS)) for name, way in ways.items()
        }
    finally:
        screened.INT8 = had
    return least | {"ratio": least["vsehub"] / least["faiss"], "equal": float((ours.numpy() == theirs).mean())}


def main(argv: list[str] | None = None) -> None:
    options = common.arguments(__doc__).parse_args(argv)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    faiss.cvar.distance_compute_blas_threshold = 20
    sets = {"clustered": generated.vectors, "isotropic": isotropic}
    entries = [
        {"set": name, "queries": count, "int8": int8} | measure(make, count, int8)
        for name, make in sets.items()
        for count in (1_000, 1)
        for int8 in ([True, False] if screened.INT8 and count > 1 else [False])
    ]
    rows = [
        [
            *(entry["set"], f"{entry['queries']:,}", "int8" if entry["int8"] else "float32"),
            *(f"{entry['vsehub']:.3f}", f"{entry['faiss']:.3f}", f"{entry['ratio']:.2f}", f"{entry['equal']:.2%}"),
        ]
        for entry in entries
    ]
    head = ("items", "queries", "screened in", "vsehub, s", "FAISS flat, s", "ratio", "equal")
    record = {"items": ITEMS, "dim": DIM, "k": K, "entries": entries}
    common.report("exact", "Exact corrected search", record, common.table(head, rows), CPU, options.out)


if __name__ == "__main__":
    main()
