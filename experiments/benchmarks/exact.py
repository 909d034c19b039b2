"""Exact search on a CPU: the queries of one person, of ten and of a thousand, beside what would be taken instead.

FAISS's flat index, the products of numpy and torch with their k best, and usearch's exact search where it is installed
(`pip install usearch`); ours plain and corrected (CSLS), by `CorrectedSearch.search`. All take turns. Ours have
answered MANY_ASKED queries before, so that items of many dimensions are kept in int8 too (`neighbors.int8`); what that
took is told apart. The floor is the larger of two times: reading the items once, and multiplying them with all queries;
numpy's product is near it.

isotropic   directions drawn evenly
clustered   generated.py: clusters, hubs, an offset
clip        the items of an .npz of CLIP's embeddings (`--clip FILE`), repeated with noise

A set and size that is measured again takes the place of its earlier result; the others stay. Processors with and
without VNNI, the instructions for products in int8, have results of their own.

    python -m experiments.benchmarks.exact [--sizes 20000x128 100000x512 1000000x64] [--sets clustered] [--clip FILE]
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch

from experiments.benchmarks import common, generated
from vsehub import CorrectedSearch
from vsehub.io.provenance import code_version, hardware
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.int8 import VNNI
from vsehub.neighbors.rounded import cpu_has

QUERIES, KS, REFERENCE = (1, 10, 1000), (10, 100), 500
NOISE = 0.02  # of each component of a repeated vector
FEW, MANY, OF_CLIP = 1.5, 0.6, 1.0  # the limits of our time beside FAISS's; vectors as CLIP's lie in a cone
SIZES = [(20_000, 128), (100_000, 512), (1_000_000, 64)]
MANY_ASKED = 4096  # queries, of which a search needs so many before int8 pays
SECONDS = 1.0  # about so long one way is repeated
SLOW = 5.0  # times FAISS's seconds, above which a way that takes longer than a second is not repeated


def unit(vectors: np.ndarray) -> np.ndarray:
    """The rows divided by their norms."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def sides(name: str, size: tuple[int, int], options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Items, queries and reference queries; CLIP's keep their own dimension."""
    sizes, dim = (size[0], max(QUERIES), REFERENCE), size[1]
    if name == "clip":
        with np.load(options.clip) as held:
            image, text = (unit(held[one].astype(np.float32)) for one in ("image", "text"))
        half = len(text) // 2
        sources = image, text[:half], text[half:]
        found = []
        for seed, (rows, source) in enumerate(zip(sizes, sources, strict=True)):
            drawn = np.random.default_rng(seed)
            noise = NOISE * drawn.standard_normal((rows, source.shape[1]), dtype=np.float32)
            found.append(unit(source[np.arange(rows) % len(source)] + noise))
        return found[0], found[1], found[2]
    if name == "clustered":
        items, queries, reference = (generated.vectors(rows, dim, seed) for seed, rows in enumerate(sizes, 1))
        return items.numpy(), queries.numpy(), reference.numpy()
    drawn = np.random.default_rng(0)
    items, queries, reference = (unit(drawn.standard_normal((rows, dim), dtype=np.float32)) for rows in sizes)
    return items, queries, reference


def size_of(text: str) -> tuple[int, int]:
    """ITEMSxDIM as two numbers."""
    items, dim = text.split("x")
    return int(items), int(dim)


def of_numpy(queries: np.ndarray, items: np.ndarray, k: int) -> np.ndarray:
    """The positions of the k best by numpy's product, in blocks of queries."""
    found = []
    for block in np.array_split(queries, -(-len(queries) // 128)):
        scores = block @ items.T
        best = np.argpartition(scores, -k, axis=1)[:, -k:]
        found.append(np.take_along_axis(best, -np.take_along_axis(scores, best, 1).argsort(1), 1))
    return np.concatenate(found)


def of_torch(queries: torch.Tensor, items: torch.Tensor, k: int) -> torch.Tensor:
    """The positions of the k best by torch's product, in blocks of queries."""
    return torch.cat([(block @ items.T).topk(k, dim=1).indices for block in queries.split(128)])


def measure(name: str, size: tuple[int, int], options) -> dict:
    """Seconds of each way for each number of queries and each k."""
    items, queries, reference = sides(name, size, options)
    flat = required_faiss("a flat index", "leave it out").IndexFlatIP(items.shape[1])
    flat.add(items)
    plain, corrected = CorrectedSearch("nns").fit(items), CorrectedSearch("csls").fit(items, reference=reference)
    preparation = [prepared(search, queries) for search in (plain, corrected)]
    wide = torch.from_numpy(items)
    ways = {
        "FAISS flat": lambda asked, k: flat.search(asked, k)[1],
        "numpy": lambda asked, k: of_numpy(asked, items, k),
        "torch": lambda asked, k: of_torch(torch.from_numpy(asked), wide, k).numpy(),
        "ours, plain": lambda asked, k: plain.search(asked, k)[1],
        "ours, corrected": lambda asked, k: corrected.search(asked, k)[1],
    }
    if importlib.util.find_spec("usearch"):
        from usearch.index import MetricKind, search

        ways["usearch exact"] = lambda asked, k: (
            search(items, asked, k, MetricKind.IP, exact=True, threads=options.threads).keys
        )
    found = []
    for count in QUERIES:
        for k in KS:
            starts = iter(range(0, 10**9, count))

            def turn(way, count=count, k=k, starts=starts):
                start = next(starts) % (len(queries) - count + 1)
                return way(queries[start : start + count], k)

            calls = {one: (lambda way=way: turn(way)) for one, way in ways.items()}
            once = {one: common.timed(call, common.device_of("cpu")) for one, call in calls.items()}
            rounds = int(min(200, max(options.rounds, SECONDS / once["FAISS flat"])))
            slow = {one: [own] for one, own in once.items() if own > max(1.0, SLOW * once["FAISS flat"])}
            others = {one: call for one, call in calls.items() if one not in slow}
            seconds = common.interleave(others, rounds, common.device_of("cpu")) | slow
            same = float((plain.search(queries[:count], k)[1] == flat.search(queries[:count], k)[1]).mean())
            times = {one: common.summary(own) | {"p99": float(np.quantile(own, 0.99))} for one, own in seconds.items()}
            found.append({"queries": count, "k": k, "seconds": times, "as FAISS": same})
    return {"set": name, "items": len(items), "dim": items.shape[1], "preparation": preparation, "cells": found}


def prepared(search: CorrectedSearch, queries: np.ndarray) -> float:
    """Seconds that the first search of very many queries takes longer than the next one."""
    asked = np.resize(queries, (MANY_ASKED, queries.shape[1]))
    first, second = (common.timed(lambda: search.search(asked, KS[0]), common.device_of("cpu")) for _ in range(2))
    return first - second


def text(results: list[dict]) -> str:
    """A table for each set: milliseconds of each way, and ours beside FAISS's."""
    parts = []
    for result in results:
        ways = list(result["cells"][0]["seconds"])
        rows = []
        for cell in result["cells"]:
            seconds, few = cell["seconds"], cell["queries"] < max(QUERIES)
            medians = {way: seconds[way]["median"] for way in ways}
            ratios = [medians[way] / medians["FAISS flat"] for way in ("ours, plain", "ours, corrected")]
            slow = seconds["ours, plain"]["p99"] / seconds["FAISS flat"]["p99"]
            row = [cell["queries"], cell["k"], *(f"{1e3 * medians[way]:.3g}" for way in ways)]
            limit = FEW if few else OF_CLIP if result["set"] == "clip" else MANY
            row += [*(f"**{one:.2f}**" for one in ratios), f"{slow:.2f}", f"at most {limit:g}"]
            rows.append([*row, f"{100 * cell['as FAISS']:.2f} %"])
        columns = ("queries", "k", *(f"{way}, ms" for way in ways), "plain / FAISS", "corrected / FAISS")
        columns += ("p99 / p99", "limit", "positions as FAISS")
        once = ", ".join(f"{max(0.0, one):.2g}" for one in result["preparation"])
        title = f"{result['set']}: {result['items']:,} x {result['dim']}; preparation, s: {once} (plain, corrected); "
        version = result["git"] or {"sha": "an installation", "dirty": False}
        title += f"vsehub at {version['sha'][:16]}{', changed' if version['dirty'] else ''}"
        parts.append(f"{title}\n\n{common.table(columns, rows)}")
    return "\n\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = common.arguments(__doc__)
    parser.add_argument("--sizes", nargs="+", type=size_of, default=SIZES, metavar="ITEMSxDIM")
    parser.add_argument("--sets", nargs="+", choices=("isotropic", "clustered", "clip"), default=["clustered"])
    parser.add_argument("--clip", type=Path, help="an .npz with image and text, for the set clip")
    parser.add_argument("--threads", type=int, default=1, help="of every way (default: 1)")
    options = parser.parse_args(arguments)
    if "clip" in options.sets and options.clip is None:
        parser.error("the set clip needs --clip FILE")
    torch.set_num_threads(options.threads)
    required_faiss("a flat index", "leave it out").omp_set_num_threads(options.threads)
    name, title = "exact", "Exact search"
    if not cpu_has(*VNNI):
        name, title = f"{name}-without-vnni", f"{title}, a processor without VNNI"
    if options.threads > 1:
        name, title = f"{name}-{options.threads}-threads", f"{title}, {options.threads} threads"
    path = options.out or common.RESULTS / f"{name}-cpu.json"
    results = earlier(path)
    for one in options.sets:
        for size in options.sizes:
            own = measure(one, size, options) | {"git": code_version()}
            results = sorted([own, *(other for other in results if key(other) != key(own))], key=key)
            print(text([own]), file=sys.stderr, flush=True)
            record = {"threads": options.threads, "results": results}
            section = common.written(name, title, record, text(results), common.device_of("cpu"), path)
    print(section)


def key(result: dict) -> tuple[str, int, int]:
    """Which set a result is of."""
    return result["set"], result["items"], result["dim"]


def earlier(path: Path) -> list[dict]:
    """The results that stay: those that are there of the same machine, each with the version that it measured."""
    if not path.is_file():
        return []
    record = json.loads(path.read_text())
    if record["hardware"] != hardware():
        return []
    return [{"git": record["git"]} | result for result in record["results"]]


if __name__ == "__main__":
    main()
