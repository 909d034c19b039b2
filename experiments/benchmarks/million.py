"""Corrected search at a million items: what the correction adds, how time and memory grow, what indexes give away.

folded   the corrected search of a flat FAISS index with the item bias in it, against the plain search of a flat index
         without; target: 1.05 times
engine   the plain and the corrected ranking found in one pass (torch), against the bare product of queries and items in
         the same tiles; target: 1.35 times. The reference pass against its bare product
growth   seconds from 10,000 items to all
memory   the peak of a fresh process that takes the bias from reference queries and finds both rankings, the items read
         from a file; target: 6 GB. With --full 100,000 queries, which are their own reference: two products of 10^11
         scores at a million items, about 40 minutes on two cores
kinds    ivf and hnsw: seconds to build and to search, recall

The vectors are generated (generated.py). CSLS corrects. FAISS searches on the CPU.

    python -m experiments.benchmarks.million [--parts folded engine ...] [--items 1000000] [--full]
"""

import logging
import tempfile
import time
from pathlib import Path

import torch

from experiments.benchmarks import common, million_parts

FOLDED, ENGINE, GIGABYTES = 1.05, 1.35, 6.0
COLUMNS = ("what", "median (least to most)", "note")


def measure(options, folder: Path, device: torch.device) -> dict:
    """The parts that are asked for."""
    setting = million_parts.Setting(folder, options.items, options.queries, options.dim, options.rounds, device)
    result = {"items": options.items, "queries": options.queries, "dim": options.dim, "k": million_parts.K}
    for name in options.parts:
        began = time.perf_counter()
        arguments = (setting, options.full) if name == "memory" else (setting,)
        result[name] = getattr(million_parts, name)(*arguments)
        result[name]["took"] = time.perf_counter() - began
    return result


def text(result: dict) -> str:
    """The tables."""
    head = f"{result['queries']:,} queries, D = {result['dim']}, k = {result['k']}, made-up vectors with hubs"
    return "\n\n".join([head, *(write(result[name]) for name, write in WRITERS.items() if name in result)])


def _of_folded(part: dict) -> str:
    seconds, ratio = part["seconds"], part["ratios"]["corrected"]
    rows = [
        ("plain flat index", common.shown(seconds["plain"], 1, "s"), ""),
        ("corrected, bias folded in", common.shown(seconds["corrected"], 1, "s"), ""),
        ("corrected / plain, each at its shortest", f"**{ratio:.3f}**", common.target(ratio, FOLDED)),
    ]
    return f"FAISS, {part['items']:,} items\n\n{common.table(COLUMNS, rows)}"


def _of_engine(part: dict) -> str:
    search, reference = part["search"], part["reference"]
    ratio = search["ratios"]["both"]
    rows = [
        ("bare product", common.shown(search["seconds"]["plain"], 1, "s"), ""),
        ("plain ranking", common.shown(search["seconds"]["one"], 1, "s"), f"{search['ratios']['one']:.2f} products"),
        ("plain and corrected", common.shown(search["seconds"]["both"], 1, "s"), ""),
        ("both / product, each at its shortest", f"**{ratio:.2f}**", common.target(ratio, ENGINE)),
        (
            f"bias of {reference['items']:,} items from {reference['queries']:,} queries",
            common.shown(reference["seconds"]["fit"], 1, "s"),
            f"{reference['ratios']['fit']:.2f} of its product",
        ),
    ]
    return f"vsehub, {part['items']:,} items in memory\n\n{common.table(COLUMNS, rows)}"


def _of_growth(part: dict) -> str:
    rows = [(f"{row['items']:,}", *(f"{value:.3g} s" for value in row["seconds"].values())) for row in part["rows"]]
    columns = ("items", "FAISS, plain", "FAISS, corrected", "vsehub, both rankings, from the file")
    return f"Growth\n\n{common.table(columns, rows)}"


def _of_memory(part: dict) -> str:
    seconds, peak = part["seconds"], part["peak_gb"]
    rows = [
        ("bias from the reference", f"{seconds['reference']:.0f} s", ""),
        ("both rankings", f"{seconds['search']:.0f} s", ""),
        ("peak memory, pages of the file included", f"**{peak:.2f} GB**", common.target(peak, GIGABYTES)),
    ]
    sizes = f"{part['items']:,} items, {part['queries']:,} queries, {part['reference']:,} reference queries"
    head = f"Whole correction: {sizes}"
    return f"{head}\n\n{common.table(COLUMNS, rows)}"


def _of_kinds(part: dict) -> str:
    rows = [
        (
            row["kind"] if row["effort"] is None else f"{row['kind']} ({row['effort']})",
            f"{row['build']:.3g} s",
            f"{row['search']['together']:.3g} s",
            f"{1e3 * row['search']['single']:.3g} ms",
            *(f"{row['recall'][name]:.3f}" for name in ("corrected", "plain")),
        )
        for row in part["rows"]
    ]
    columns = ("index (lists searched, candidates)", "build", "all queries", "one alone", "recall, corrected", "plain")
    return f"Indexes, {part['items']:,} items\n\n{common.table(columns, rows)}"


WRITERS = {"folded": _of_folded, "engine": _of_engine, "growth": _of_growth, "memory": _of_memory, "kinds": _of_kinds}


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument(
        "--parts", nargs="+", choices=WRITERS, default=list(WRITERS), help="what to measure (default: all)"
    )
    parser.add_argument("--items", type=int, default=1_000_000, help="items of growth and memory (default: a million)")
    parser.add_argument("--queries", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--dim", type=int, default=512, help="(default: 512)")
    parser.add_argument("--full", action="store_true", help="memory: 100,000 queries, their own reference")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    logging.getLogger("vsehub").setLevel(logging.ERROR)  # that approximate indexes are approximate is what is measured
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options, Path(folder), device)
    common.report("million", "A million items", result, text(result), device, options.out)


if __name__ == "__main__":
    main()
