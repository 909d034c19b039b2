"""The measurements of million.py, part by part."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

from experiments.benchmarks import common, evaluation, generated
from vsehub.criteria import CSLS
from vsehub.criteria.base import fit_all
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.tiles import TILE_ITEMS, TILE_QUERIES, ScoreColumns, nearest, ranges
from vsehub.neighbors.vectors import VectorSource, as_vectors, scoring
from vsehub.serving import build_index, measured_recall

SMALL = 100_000  # items where not all are needed
STEPS = (10_000, 31_623, 100_000, 316_228)
REFERENCE, FULL = 10_000, 100_000
SINGLE = 100  # queries that are asked one by one
K = 10
RULE = CSLS()
CPU = torch.device("cpu")


class Setting:
    """The sides: items in a float16 file of a temporary folder, queries and reference queries made on the spot."""

    def __init__(self, folder: Path, items: int, queries: int, dim: int, rounds: int, device: torch.device):
        self.path, self.items, self.dim, self.rounds, self.device = folder / "items.npy", items, dim, rounds, device
        self.queries = generated.vectors(queries, dim, seed=2)
        self.reference = generated.vectors(min(REFERENCE, items), dim, seed=3)
        generated.write(self.path, items, dim, seed=1)

    def some(self, count: int) -> np.ndarray:
        """The first items, memory-mapped."""
        return np.load(self.path, mmap_mode="r")[: min(count, self.items)]

    def bias(self, items) -> torch.Tensor:
        """CSLS's bias, from the first thousand reference queries."""
        return fit_all([RULE], as_vectors("items", items), as_vectors("reference", self.reference[:1000]))[0][0]


def plain_index(items: np.ndarray):
    """The flat FAISS index that anybody would build."""
    index = required_faiss("this benchmark", "give it up").IndexFlatIP(items.shape[1])
    for start in range(0, len(items), generated.BLOCK):
        index.add(np.asarray(items[start : start + generated.BLOCK], np.float32))
    return index


def both_rankings(queries, items, bias) -> list:
    """The engine: plain and corrected lists from one pass."""
    sides = as_vectors("queries", queries), as_vectors("items", items)
    return nearest(*sides, K, [None, RULE.tile_correction(*sides, (bias,))])


def folded(setting: Setting) -> dict:
    """The folded flat index against the plain one."""
    items = setting.some(SMALL)
    plain, served, questions = plain_index(items), build_index(items, setting.bias(items), RULE.scale), setting.queries
    ways = {"plain": lambda: plain.search(questions, K), "corrected": lambda: served.search(questions, K)}
    return _compared(ways, setting.rounds, CPU) | {"items": len(items)}


def engine(setting: Setting) -> dict:
    """Both rankings against the bare product, and the reference pass against its own."""
    held = torch.from_numpy(np.asarray(setting.some(SMALL), np.float32)).to(setting.device)
    queries, reference = setting.queries.to(setting.device), setting.reference.to(setting.device)
    bias = setting.bias(held.cpu()).to(setting.device)
    items, asking = as_vectors("items", held), as_vectors("reference", reference)
    few = as_vectors("items", held[: max(1, len(held) // 10)])
    ways = {
        "plain": lambda: _products(queries, items),
        "both": lambda: both_rankings(queries, held, bias),
        "one": lambda: nearest(as_vectors("queries", queries), items, K),
    }
    columns = {
        "plain": lambda: _drain(ScoreColumns(asking, few)()),
        "fit": lambda: fit_all([RULE], few, asking),
    }
    return {
        "items": len(held),
        "search": _compared(ways, setting.rounds, setting.device),
        "reference": _compared(columns, setting.rounds, setting.device)
        | {"items": len(few), "queries": len(reference)},
    }


def growth(setting: Setting) -> dict:
    """Seconds (the least of the rounds) of each way for more and more items."""
    rows = []
    for count in (*(step for step in STEPS if step < setting.items), setting.items):
        items = setting.some(count)
        bias = setting.bias(items)
        plain, served = plain_index(items), build_index(items, bias, RULE.scale)
        ways = {
            "plain": lambda index=plain: index.search(setting.queries, K),
            "corrected": lambda index=served: index.search(setting.queries, K),
            "engine": lambda items=items, bias=bias: both_rankings(setting.queries, items, bias),
        }
        times = common.interleave(ways, max(1, setting.rounds // 2), CPU, warmup=int(count <= SMALL))
        rows.append({"items": count, "seconds": {name: min(values) for name, values in times.items()}})
    return {"rows": rows}


def memory(setting: Setting, full: bool) -> dict:
    """Peak and seconds of the whole correction in a fresh process."""
    queries = FULL if full else len(setting.queries)
    reference = None if full else len(setting.reference)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(_correct, setting.path, queries, reference, setting.dim).result()
    return {"items": setting.items, "queries": queries, "reference": reference or queries, "full": full} | result


def _correct(path: Path, queries: int, reference: int | None, dim: int) -> dict:
    """Bias and both rankings; reference: how many reference queries, None for the queries themselves."""
    questions = generated.vectors(queries, dim, seed=2)
    asking = questions if reference is None else generated.vectors(reference, dim, seed=3)
    items = np.load(path, mmap_mode="r")
    before = evaluation._memory("VmRSS")
    began = time.perf_counter()
    bias = fit_all([RULE], as_vectors("items", items), as_vectors("reference", asking))[0][0]
    fitted = time.perf_counter()
    both_rankings(questions, items, bias)
    return {
        "seconds": {"reference": fitted - began, "search": time.perf_counter() - fitted},
        "start_gb": before / 2**20,
        "peak_gb": evaluation._memory("VmHWM") / 2**20,
    }


def kinds(setting: Setting) -> dict:
    """The approximate indexes beside the flat one."""
    items = setting.some(SMALL)
    bias = setting.bias(items)
    rows = []
    for kind in ("flat", "ivf", "hnsw"):
        index, seconds = None, time.perf_counter()  # the one before is freed
        index = build_index(items, bias, RULE.scale, kind)
        seconds = time.perf_counter() - seconds
        recall = measured_recall(index, setting.queries, items, bias, RULE.scale, min(K, len(items)))
        efforts = {"ivf": lambda ann: ann.nprobe, "hnsw": lambda ann: ann.hnsw.efSearch}
        ways = {
            "together": lambda ann=index: ann.search(setting.queries, K),
            "single": lambda ann=index: [ann.search(query[None], K) for query in setting.queries[:SINGLE]],
        }
        search = {name: min(times) for name, times in common.interleave(ways, setting.rounds, CPU).items()}
        search["single"] /= min(SINGLE, len(setting.queries))
        rows.append(
            {
                "kind": kind,
                "effort": efforts[kind](index.index) if kind in efforts else None,
                "build": seconds,
                "search": search,
                "recall": recall,
            }
        )
    return {"items": len(items), "rows": rows}


def _products(queries: torch.Tensor, items: VectorSource) -> None:
    """All scores once, tile by tile, thrown away."""
    for columns in ranges(len(items), TILE_ITEMS):
        score = scoring(items, columns.start, columns.stop, queries)
        _drain(score(queries[rows], None) for rows in ranges(len(queries), TILE_QUERIES))


def _drain(blocks) -> None:
    for _ in blocks:
        pass


def _compared(ways: dict, rounds: int, device: torch.device) -> dict:
    """Times of each way, and the ratio of its least to that of "plain": on a busy machine the least is truest."""
    times = {name: common.summary(values) for name, values in common.interleave(ways, rounds, device).items()}
    ratios = {name: timing["least"] / times["plain"]["least"] for name, timing in times.items() if name != "plain"}
    return {"seconds": times, "ratios": ratios}
