"""`engine=ray` against `engine=local`: items a second with one and two workers, the overhead, and a billion on paper.

Items are float16 in four files, of 512 dimensions. Each way ranks all queries under CSLS (one pass over the reference)
and under Sinkhorn with two rounds (three passes), in turns. A worker has one thread, and so has the local engine. The
overhead is named: the start, a shard without work, and what workers take beyond the local engine, in seconds of CPU
too, since other programs on the machine change its time.

    OMP_NUM_THREADS=1 python -m experiments.benchmarks.cluster

The second table is no measurement: it divides the arithmetic and the bytes of a billion items among GPUs, with every
assumption beside it.
"""

import os
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.benchmarks import common
from experiments.benchmarks.generated import vectors, write
from vsehub.criteria import CSLS, Sinkhorn
from vsehub.data.vectors.embeddings import VectorFile, open_vectors
from vsehub.rerank.cluster import Cluster
from vsehub.rerank.engines import Engine, Local
from vsehub.rerank.measure import measure
from vsehub.rerank.shards import divided, lists_bytes, shard_rows, terms_bytes
from vsehub.rerank.sides import Sides

DIM, FILES, K, EMPTY = 512, 4, 10, 256
CRITERIA = {"csls": CSLS(), "sinkhorn": Sinkhorn(rounds=2)}
# On paper: what is asked, and what is assumed of each GPU and of its machine.
BILLION, REFERENCE, QUERIES, ROUNDS = 10**9, 10_000, 16_384, 10
GPU_FLOPS = 67e12  # float32 outside of the tensor cores, an H100's data sheet
READ = 1e9  # bytes a second that each GPU's machine reads from where the items lie, float16
HOST = 25e9  # bytes a second from main memory to the GPU, float32
CLUSTERS = (8, 64)


def peak_memory() -> int:
    """In a worker: the most main memory that its process held, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def nothing(number: int) -> int:
    """In a worker: no work at all."""
    return number


def cpu_seconds() -> float:
    """Of this process and of Ray's: other programs on the machine change the time of a ranking, but hardly these."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has ended
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name.startswith(("ray::", "raylet", "gcs_server")):
                ticks += sum(map(int, rest.split()[11:15]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def ranked(
    items: VectorFile,
    queries: np.ndarray,
    reference: np.ndarray,
    name: str,
    engine: Engine,
    cpu: list[float],
) -> None:
    """The rankings under a criterion, by the engine or in this process; its seconds of CPU are added to `cpu`."""
    began = cpu_seconds()
    measure(Sides.of(queries, items, reference), {name: CRITERIA[name]}, K, engine)
    cpu.append(cpu_seconds() - began)


def compare(count: int, queries: int, reference: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way and criterion, of the start, of a shard without work; memory of a worker and its bound."""
    asked, seen = vectors(queries, DIM, 1).numpy(), vectors(reference, DIM, 2).numpy()
    seconds: dict[str, Any] = {}
    cpu: dict[str, Any] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            write(Path(folder) / f"part_{number}.npy", count // FILES, DIM, 3 + number)
        items = open_vectors(folder, "items")
        # Ray gives its workers the lowest priority but four: beside other programs that would measure these.
        os.environ.update({"RAY_worker_niceness": "0"})
        began = time.perf_counter()
        with Cluster(workers=1).started() as (one, named), Cluster(workers=2).started() as (two, _):
            start = time.perf_counter() - began
            engines: dict[str, Engine] = {"local": Local(), "1 worker": one, "2 workers": two}
            for name in CRITERIA:
                own: dict[str, list[float]] = {way: [] for way in engines}
                ways = {way: partial(ranked, items, asked, seen, name, one_, own[way]) for way, one_ in engines.items()}
                taken = common.interleave(ways, rounds, torch.device("cpu"))
                seconds[name] = {way: common.summary(values) for way, values in taken.items()}
                cpu[name] = {way: common.summary(values[1:]) for way, values in own.items()}  # the first one warms up
            began = time.perf_counter()
            list(one.workers.run(nothing, ((number, (number,)) for number in range(EMPTY))))
            empty = (time.perf_counter() - began) / EMPTY
            ((_, peak),) = one.workers.run(peak_memory, [(0, ())])
    return {
        "items": len(items),
        "queries": queries,
        "reference": reference,
        "ray": named["version"],
        "shards": len(divided(items)),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "load": load,
        "start_seconds": start,
        "shard_seconds": empty,
        "peak_bytes": peak,
        "bound_bytes": max(terms_bytes(DIM, reference, 0), lists_bytes(DIM, queries, K, 2, False)),
        "product_flops": product_flops(),
    }


def product_flops() -> float:
    """Floating-point operations a second of the bare product of a tile of the local engine, on one thread."""
    left, right = torch.randn(512, DIM), torch.randn(4096, DIM)
    times = common.interleave({"product": lambda: left @ right.T}, 20, torch.device("cpu"))["product"]
    return 2 * 512 * 4096 * DIM / common.summary(times)["median"]


def flops(items: int, queries: int, reference: int, passes: int) -> float:
    """Of the products of a ranking, with `passes` over the reference."""
    return 2.0 * DIM * items * (queries + passes * reference)


def product_share(result: dict[str, Any]) -> float:
    """The rate of the local engine as a share of the bare product's, at most 1; assumed of a GPU too."""
    needed = flops(result["items"], result["queries"], result["reference"], 1)
    return min(1.0, needed / result["product_flops"] / result["cpu_seconds"]["csls"]["local"]["median"])


def on_paper(result: dict[str, Any]) -> list[tuple[object, ...]]:
    """(criterion, GPUs, hours of arithmetic, reading, shards, all of them, GPU hours) of a billion items."""
    rows = []
    for name, passes in (("csls", 1), ("sinkhorn", ROUNDS + 1)):
        for count in CLUSTERS:
            arithmetic = flops(BILLION, QUERIES, REFERENCE, passes) / (GPU_FLOPS * product_share(result)) / count
            # Norms are read first, then the passes over the reference, then the search.
            reading = (passes + 2) * BILLION * DIM * (2 / READ + 4 / HOST) / count
            shards = (passes + 2) * BILLION / shard_rows(BILLION, DIM) * result["shard_seconds"]
            whole = arithmetic + reading + shards
            hours = [one / 3600 for one in (arithmetic, reading, shards, whole)]
            rows.append((name, count, *(f"{one:.2f}" for one in hours), f"{hours[-1] * count:.1f}"))
    return rows


def text(result: dict[str, Any]) -> str:
    """Both tables."""
    rows, items = [], result["items"]
    for name, taken in result["seconds"].items():
        for way, seconds in taken.items():
            own = result["cpu_seconds"][name][way]["median"]
            beyond = "" if way == "local" else f"{own / result['cpu_seconds'][name]['local']['median']:.2f}"
            rate = f"{items / seconds['median']:,.0f}"
            rows.append((name, way, common.shown(seconds, 1, "s"), rate, f"{own:.2f} s", f"{items / own:,.0f}", beyond))
    shape = (
        f"{items:,} items, {result['queries']:,} queries, {result['reference']:,} reference queries, D = {DIM}, in "
        f"{result['shards']} shards; Ray {result['ray']}; "
        f"load average before the start {result['load']:.1f}"
    )
    start = f"{result['start_seconds']:.1f} s to start Ray and the first worker, once"
    empty = f"{1000 * result['shard_seconds']:.1f} ms for a shard without work, in each pass"
    memory = (
        f"{result['peak_bytes'] / 2**20:.0f} MB held by a worker at most, bound {result['bound_bytes'] / 2**20:.0f} MB"
    )
    assumed = (
        f"On paper: {BILLION:,} float16 items of {DIM} dimensions, {REFERENCE:,} reference queries, {QUERIES:,} "
        f"queries, Sinkhorn with {ROUNDS} rounds. Assumed of each GPU: {GPU_FLOPS / 1e12:.0f} TFLOP/s of float32 (an "
        "H100's data sheet) times the share of the bare product that the local engine reached above, "
        f"{product_share(result):.2f}; "
        f"{READ / 1e9:g} GB/s read from the object store and {HOST / 1e9:g} GB/s from main memory to the GPU, not "
        f"overlapped with the arithmetic; shards of {shard_rows(BILLION, DIM):,} items, each pass of which costs the "
        "driver the overhead above, one after the other. Norms, each pass over the reference and the search each read "
        "all items once. Starting machines, a lost worker and copying the result are left out"
    )
    paper = common.table(
        ("criterion", "GPUs", "hours of arithmetic", "of reading", "of the driver", "in all", "GPU hours"),
        on_paper(result),
    )
    columns = ("criterion", "way", "time", "items a second", "CPU", "items a CPU second", "CPU of local's")
    measured = common.table(columns, rows)
    return f"{shape}\n\n{measured}\n\nOverhead: {start}; {empty}; {memory}.\n\n{assumed}.\n\n{paper}"


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--items", type=int, default=100_000, help="items in all (default: 100000)")
    options = parser.parse_args(argv)
    result = compare(options.items, 1000, 1000, options.rounds)
    common.report("cluster", "Items in shards, by Ray", result, text(result), torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()
