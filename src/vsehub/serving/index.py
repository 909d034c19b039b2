"""FAISS indexes of a corrected ranking, and the FAISS and numpy code that searches them without vsehub.

a·s - b(item) ranks like ⟨(query, 1), (item, -b/a)⟩; with 0 in place of the 1 the same index gives the plain ranking.
The index stores b minus its mean: a constant changes no ranking, and the vectors then have nearly equal lengths, which
approximate indexes need.
"""

import logging
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import one_of, positive, require
from vsehub.io.files import atomic
from vsehub.io.progress import bar
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Affine, as_vectors, sample_rows, to_type_of

log = logging.getLogger(__name__)

KINDS = ("flat", "ivf", "hnsw")
BLOCK = 16384  # vectors passed to FAISS at a time: the memory needed besides the index
FAISS_FOR = ("an index", "rank without one (`Criterion.search`)")
_SETTINGS = {
    "flat": "",
    "ivf": "index.nprobe = {0.nprobe}  # lists that are searched: more is slower and misses less\n",
    "hnsw": "index.hnsw.efSearch = {0.hnsw.efSearch}  # candidates that are followed: more is slower and misses less\n",
}


@dataclass(frozen=True)
class ServedIndex:
    """A FAISS index over the items with their bias as the last component, (M, D + 1).

    kind: one of `KINDS`. scale: a. mean_bias: the mean of b.
    """

    index: Any
    kind: str
    scale: float
    mean_bias: float

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) of the k best items of each query, best first.

        queries: (Q, D) vectors, normalised as the items were. Values are a·s - b, or s if corrected is false; numpy
        arrays if the queries are one, else tensors on the CPU. If an approximate index finds fewer than k items, the
        list ends in positions -1 and values -inf. Raises InputError if dimensions differ or k exceeds the items.
        """
        source = as_vectors("queries", queries, columns=self.index.d - 1)
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of items in the index")
        vectors = folded(source.rows(0, len(source)), torch.full((len(source),), float(corrected)))
        products, positions = map(torch.from_numpy, self.index.search(vectors, k))
        return to_type_of(queries, scored(products, positions, self.scale, self.mean_bias, corrected), positions)

    def look_further(self) -> bool:
        """Double the lists or candidates that a search looks at; False where it looks at all of them already."""
        if self.kind == "flat":
            return False
        if self.kind == "ivf":
            parameters, name, most = self.index, "nprobe", self.index.nlist
        else:
            parameters, name, most = self.index.hnsw, "efSearch", len(self)
        before = getattr(parameters, name)
        if before < most:
            setattr(parameters, name, min(2 * before, most))
            log.info("%s of the index is raised to %d of %d, for its recall", name, getattr(parameters, name), most)
        return bool(before < most)

    def save(self, path: str | Path) -> None:
        """Write the index atomically to one file, which `faiss.read_index` opens."""
        faiss = required_faiss(*FAISS_FOR)
        with atomic(path) as handle:
            faiss.write_index(self.index, faiss.PyCallbackIOWriter(handle.write))


@torch.no_grad()
def build_index(items: Any, bias: Tensor, scale: float, kind: str = "flat", seed: int = 0) -> ServedIndex:
    """An index that ranks items (M, D) by a·s - b(item).

    items: a tensor, a numpy array, a memory map or an open file (`data.vectors`), read in blocks; the index holds them
    as float32. bias: b (M,), scale: a, of an `ItemBias`. kind: "flat" is exact; "ivf" and "hnsw" are approximate
    (`measured_recall` says how much). seed: seed of the training sample of "ivf". Raises InputError if FAISS is
    missing or the bias does not fit the items.
    """
    one_of("index", kind, KINDS)
    positive("scale", scale)
    items = as_vectors("items", items)
    require(
        tuple(bias.shape) == (len(items),) and bool(bias.isfinite().all()),
        f"bias has shape {tuple(bias.shape)}; expected one finite number for each of {len(items)} items",
    )
    faiss = required_faiss(*FAISS_FOR)
    last, mean = last_components(bias, scale)
    # 4·√M lists, fewer for few items: k-means wants at least 39 vectors per list; more than 64 change little.
    lists = max(1, min(round(4 * math.sqrt(len(items))), len(items) // 39))
    factory = {"flat": "Flat", "hnsw": "HNSW32", "ivf": f"IVF{lists},Flat"}
    index = faiss.index_factory(items.shape[1] + 1, factory[kind], faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        # Candidates of a query. Those while building, efConstruction, stay at FAISS's default of 40: with more, FAISS,
        # which prunes by inner product, keeps fewer links, and recall falls from 0.99 to 0.96 with 80 (100,000 items
        # with many hubs).
        index.hnsw.efSearch = 128
    if kind == "ivf":
        index.nprobe = min(lists, max(16, lists // 16))
        index.cp.seed, index.cp.min_points_per_centroid = seed, 1
        rows, positions = sample_rows(items, 64 * lists, seed)
        index.train(folded(rows, last[positions]))
    with bar("building the index", total=len(items), unit=" items") as steps:
        for start in range(0, len(items), BLOCK):
            rows = items.rows(start, min(start + BLOCK, len(items)))
            index.add(folded(rows, last[start : start + len(rows)]))
            steps.update(len(rows))
    return ServedIndex(index, kind, float(scale), mean)


@torch.no_grad()
def measured_recall(
    index: Any,
    queries: Any,
    items: Any,
    bias: Tensor,
    scale: float,
    k: int = 10,
    sample: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """{"plain", "corrected"}: mean share of the k best items of exact search that the index finds.

    index: a `ServedIndex`, or a collection in a database. queries: (Q, D); `sample` of them are drawn by seed. items,
    bias, scale: the arguments of `build_index`. Finding another item of equal score counts as a miss. Raises InputError
    if dimensions differ or k exceeds the items.
    """
    chosen = sample_rows(as_vectors("queries", queries), sample, seed)[0]
    items = as_vectors("items", items, columns=chosen.shape[1], device=chosen.device)
    exact = nearest(as_vectors("queries", chosen), items, k, [None, Affine(scale, bias.to(chosen))])
    recalls = {}
    for name, (_, wanted) in zip(("plain", "corrected"), exact, strict=True):
        positions = index.search(chosen, k, corrected=name == "corrected")[1]
        hits = (positions[:, :, None] == wanted.cpu()[:, None, :]).any(dim=1)
        recalls[name] = hits.double().mean().item()
    return recalls


@torch.no_grad()
def measured_time(index: Any, queries: Any, k: int = 10, sample: int = 50, seed: int = 0) -> dict[str, float]:
    """{"plain", "corrected"}: median milliseconds of a single query, over `sample` queries (Q, D)."""
    chosen = sample_rows(as_vectors("queries", queries), sample, seed)[0].cpu()
    times = {}
    for name in ("plain", "corrected"):
        seconds = []
        for query in chosen.split(1):
            began = time.perf_counter()
            index.search(query, k, corrected=name == "corrected")
            seconds.append(time.perf_counter() - began)
        times[name] = 1e3 * statistics.median(seconds)
    return times


def last_components(bias: Tensor, scale: float, mean: float | None = None) -> tuple[Tensor, float]:
    """The last component of each item, (mean - b) / a as (M,) float32, and the mean.

    mean: mean bias to subtract; None: that of b (M,). Items that join an index need the index's.
    """
    bias = bias.detach().cpu().double()
    mean = float(bias.mean()) if mean is None else mean
    return ((mean - bias) / scale).float(), mean


def folded(vectors: Tensor, last: Tensor) -> np.ndarray:
    """Vectors (b, D) with their last component (b,): (b, D + 1) float32."""
    return torch.cat([vectors.detach().cpu().float(), last.float()[:, None]], dim=1).numpy()


def scored(products: Tensor, positions: Tensor, scale: float, mean_bias: float, corrected: bool) -> Tensor:
    """The values (Q, k) of inner products with folded vectors: a·s - b, or s; -inf where no item was found."""
    values = scale * products - mean_bias if corrected else products
    return values.masked_fill(positions < 0, -torch.inf)


def formula(scale: float, mean_bias: float) -> str:
    """The formula of `scored`, as a line of Python on `products`."""
    return f"{scale!r} * products {'+' if mean_bias < 0 else '-'} {abs(mean_bias)!r}"


def normalize_code(normalize: bool | None) -> str:
    """The line of a note that normalises `queries` if the items were normalised, else ""."""
    return "queries /= np.linalg.norm(queries, axis=1, keepdims=True)  # as the items were\n" if normalize else ""


def usage_note(index: ServedIndex, file: str = "index.faiss", k: int = 10, normalize: bool | None = None) -> str:
    """Python that searches the index in `file` for the vectors in queries.npy: `positions` and `scores`, both (Q, k).

    normalize: whether the items were divided by their norms.
    """
    return (
        "import faiss\nimport numpy as np\n\n"
        f"index = faiss.read_index({file!r})  # {len(index):,} items\n"
        f"{_SETTINGS[index.kind].format(index.index)}"
        f'queries = np.load("queries.npy").astype("float32")  # (Q, {index.index.d - 1})\n'
        f"{normalize_code(normalize)}"
        'last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking and scores\n'
        f"products, positions = index.search(np.hstack([queries, last]), {min(k, len(index))})"
        "  # best first; -1: none found\n"
        f"scores = {formula(index.scale, index.mean_bias)}  # corrected; without terms of the query\n"
    )
