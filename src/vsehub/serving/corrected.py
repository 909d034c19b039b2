"""Indexes that serve a corrected ranking, and the FAISS and numpy code that searches them without vsehub.

a·s - b(item) ranks like ⟨(query, 1), (item, -b/a)⟩; with 0 in place of the 1 the same index gives the plain ranking.
The index stores b minus its mean: a constant changes no ranking, and the vectors then have nearly equal lengths, which
approximate indexes need.
"""

import logging
import math
import statistics
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, one_of, positive, require
from vsehub.io.progress import bar
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.screened import Affine
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors, given_back, sampled
from vsehub.serving.index_file import (
    CODES,
    KINDS,
    bias_at,
    effort,
    empty_index,
    read_index,
    training_vectors,
    width,
    write_index,
)

log = logging.getLogger(__name__)

# Vectors passed to FAISS at a time: the memory needed besides the index.
BLOCK = 16384
TIMED = 50  # queries searched one by one to measure the time of one
FAISS_FOR = ("an index", "rank without one (`Criterion.search`, index=null)")


@dataclass(frozen=True)
class IndexFacts:
    """kind; items (M) and their dimension D; scale (a) and mean_bias (the mean of b).

    The dimension of the index is D + 1, that of an ivfpq index `index_file.width`.
    """

    kind: str
    items: int
    dim: int
    scale: float
    mean_bias: float


class ServedIndex:
    """A FAISS index over folded vectors, on the CPU, and the facts that turn its results into scores."""

    def __init__(self, index: Any, facts: IndexFacts):
        self._index, self.facts = index, facts

    def __len__(self) -> int:
        return self.facts.items

    @property
    def effort(self) -> int | None:
        """Lists searched (ivf, ivfpq) or candidates (hnsw) a query, None for an exact index."""
        return effort(self.facts.kind, self._index)

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) of the k best items of each query, best first.

        queries: (Q, D) vectors, normalised as the items were; see `criteria.base.Criterion.search`. Values are a·s - b,
        or s if corrected is false; numpy arrays if the queries are one, else tensors on the CPU. If an approximate
        index finds fewer than k items, the list ends in positions -1 and values -inf. Raises InputError if dimensions
        differ or k exceeds the items.
        """
        asked = as_vectors("queries", queries, columns=self.facts.dim)
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of items in the index")
        parts = []
        for start in range(0, len(asked), BLOCK):
            block = asked.rows(start, min(start + BLOCK, len(asked)))
            found = self._index.search(_folded(self.facts.kind, block, torch.full((len(block),), float(corrected))), k)
            products, positions = map(torch.from_numpy, found)
            parts.append((scored(products, positions, self.facts.scale, self.facts.mean_bias, corrected), positions))
        return given_back(queries, *(torch.cat(side) for side in zip(*parts, strict=True)))

    def save(self, path: str | Path) -> None:
        """Write index and facts atomically to one file, which `faiss.read_index` can open too."""
        write_index(required_faiss(*FAISS_FOR), self._index, asdict(self.facts), path)


@torch.no_grad()
def build_index(
    items: Any,
    bias: Tensor,
    scale: float,
    kind: str = "flat",
    seed: int = 0,
) -> ServedIndex:
    """An index that ranks items (M, D) by a·s - b(item).

    items: a tensor, a numpy array, a memory map or an open file (`data.vectors`), read in blocks; the index holds them
    as float32. bias: b (M,), scale: a, of an `ItemBias`. kind: "flat" is exact; "ivf", "hnsw" and "ivfpq", which is
    small, are approximate (`measured_recall` says how much). seed: of the sample on which the lists of "ivf" and
    "ivfpq" are trained. Raises InputError if FAISS is missing or the bias does not fit the items.
    """
    one_of("index", kind, KINDS)
    positive("scale", scale)
    items = as_vectors("items", items)
    require(
        tuple(bias.shape) == (len(items),),
        f"bias has shape {tuple(bias.shape)}; expected ({len(items)},), one number per item",
    )
    require(bool(bias.isfinite().all()), "bias has NaN or infinite entries; look for such embeddings")
    require(
        kind != "ivfpq" or len(items) >= CODES,
        f"index: ivfpq tells {CODES} values apart, and there are only {len(items)} items; choose flat, ivf or hnsw",
    )
    faiss = required_faiss(*FAISS_FOR)
    if kind != "flat":
        log.warning("an %s index is approximate: it misses some of the best items; flat finds all", kind)
    last, mean = last_components(bias, scale)
    index = empty_index(faiss, kind, width(kind, items.shape[1]), len(items), seed)
    if training_vectors(index):
        rows, positions = sampled(items, training_vectors(index), seed)
        index.train(_folded(kind, rows, last[positions]))
    with bar("building the index", total=len(items), unit=" items") as steps:
        for start in range(0, len(items), BLOCK):
            rows = items.rows(start, min(start + BLOCK, len(items)))
            index.add(_folded(kind, rows, last[start : start + len(rows)]))
            steps.update(len(rows))
    return ServedIndex(index, IndexFacts(kind, len(items), items.shape[1], float(scale), mean))


def load_index(path: str | Path) -> ServedIndex:
    """The index that `ServedIndex.save` wrote. Raises InputError for damaged files, and without FAISS.

    FAISS trusts the contents of a file: load only files whose origin you trust.
    """
    index, stored = read_index(required_faiss(*FAISS_FOR), path)
    try:
        facts = IndexFacts(**{field.name: stored[field.name] for field in fields(IndexFacts)})
        numbers = all(type(one) in (int, float) and math.isfinite(one) for one in (facts.scale, facts.mean_bias))
        sizes = (width(facts.kind, facts.dim), facts.items)
        fits = facts.kind in KINDS and numbers and facts.scale > 0 and (index.d, index.ntotal) == sizes
    except (KeyError, TypeError, OverflowError):
        fits = False
    if not fits:
        raise InputError(f"index: the facts at the end of {path} are not those of its index; build it again")
    return ServedIndex(index, facts)


class Searchable(Protocol):
    """A `ServedIndex`, or a collection in a database: whatever searches by corrected scores."""

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k); see `ServedIndex.search`."""


@torch.no_grad()
def measured_recall(
    index: Searchable,
    queries: Any,
    items: Any,
    bias: Tensor,
    scale: float,
    k: int = 10,
    sample: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """{"plain", "corrected"}: mean share of the k best items of exact search that the index finds.

    queries: (Q, D), of which `sample` are drawn by seed. items, bias, scale: the arguments of `build_index`. Finding
    another item of equal score counts as a miss. Raises InputError if dimensions differ or k exceeds the items.
    """
    drawn = as_vectors("queries", sampled(as_vectors("queries", queries), sample, seed)[0])
    items = as_vectors("items", items, columns=drawn.shape[1], device=drawn.rows(0, 1).device)
    exact = nearest(drawn, items, k, [None, Affine(scale, bias.to(drawn.rows(0, 1)))])
    asked = drawn.rows(0, len(drawn))
    recall = {}
    for name, (_, wanted) in zip(("plain", "corrected"), exact, strict=True):
        recall[name] = found_share(index.search(asked, k, corrected=name == "corrected")[1], wanted)
    return recall


def found_share(positions: Tensor, wanted: Tensor) -> float:
    """The mean share of the wanted items of each query (Q, k) that are among those found (Q, n)."""
    return (positions[:, :, None] == wanted.cpu()[:, None, :]).any(dim=1).double().mean().item()


@torch.no_grad()
def measured_time(index: Searchable, queries: Any, k: int = 10, sample: int = TIMED, seed: int = 0) -> dict[str, float]:
    """{"plain", "corrected"}: median milliseconds of a single query, over `sample` queries (Q, D)."""
    asked = sampled(as_vectors("queries", queries), sample, seed)[0].cpu()
    found = {}
    for name in ("plain", "corrected"):
        seconds = []
        for query in asked.split(1):
            began = time.perf_counter()
            index.search(query, k, corrected=name == "corrected")
            seconds.append(time.perf_counter() - began)
        found[name] = 1e3 * statistics.median(seconds)
    return found


def last_components(bias: Tensor, scale: float, mean: float | None = None) -> tuple[Tensor, float]:
    """The last component of each item, (mean - b) / a as (M,) float32, and the mean.

    mean: that of b (M,) if None; another for items that join those of an index.
    """
    bias = bias.detach().cpu().double()
    mean = float(bias.mean()) if mean is None else mean
    return ((mean - bias) / scale).float(), mean


def formula(scale: float, mean_bias: float) -> str:
    """The formula of `scored`, as a line of Python on `products`."""
    return f"{scale!r} * products {'+' if mean_bias < 0 else '-'} {abs(mean_bias)!r}"


def scored(products: Tensor, positions: Tensor, scale: float, mean_bias: float, corrected: bool) -> Tensor:
    """The values (Q, k) of inner products with folded vectors: a·s - b, or s; -inf where no item was found."""
    values = scale * products - mean_bias if corrected else products
    return values.masked_fill(positions < 0, -torch.inf)


def folded(vectors: Tensor, last: Tensor, place: int, columns: int) -> Tensor:
    """Vectors (b, D) with their last component (b,) at `place`, else zeros: (b, columns), float32, on the CPU."""
    wide = torch.zeros((len(vectors), columns))
    wide[:, : vectors.shape[1]] = vectors.detach()
    wide[:, place] = last
    return wide


def _folded(kind: str, vectors: Tensor, last: Tensor) -> np.ndarray:
    """Vectors (b, D) with their last component (b,), as an index of this kind holds them."""
    dim = vectors.shape[1]
    return folded(vectors, last, bias_at(kind, dim), width(kind, dim)).numpy()


_EFFORT = {
    "ivf": "index.nprobe = {effort}  # lists that are searched: more is slower and misses less\n",
    "ivfpq": "index.nprobe = {effort}  # lists that are searched: more is slower and misses less\n",
    "hnsw": "index.hnsw.efSearch = {effort}  # candidates that are followed: more is slower and misses less\n",
}


def unit_rows(normalize: bool | None) -> str:
    """The line of a note that normalises `queries` if the items were normalised, else ""."""
    if not normalize:
        return ""
    return "queries /= np.linalg.norm(queries, axis=1, keepdims=True)  # as the items were\n"


def usage_note(index: ServedIndex, file: str = "index.faiss", k: int = 10, normalize: bool | None = None) -> str:
    """Python that searches the index in `file` for the vectors in queries.npy: `positions` and `scores`, both (Q, k).

    normalize: whether the items were divided by their norms.
    """
    facts = index.facts
    if facts.kind == "ivfpq":
        vectors = (
            f'vectors = np.zeros((len(queries), {width(facts.kind, facts.dim)}), "float32")\n'
            f"vectors[:, : {facts.dim}] = queries\n"
            f"vectors[:, {bias_at(facts.kind, facts.dim)}] = 1  # without this line: the plain ranking and scores\n"
        )
    else:
        vectors = (
            'last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking and scores\n'
            "vectors = np.hstack([queries, last])\n"
        )
    return (
        "import faiss\nimport numpy as np\n\n"
        f"index = faiss.read_index({file!r})  # {facts.items:,} items\n"
        f"{_EFFORT.get(facts.kind, '').format(effort=index.effort)}"
        f'queries = np.load("queries.npy").astype("float32")  # (Q, {facts.dim})\n'
        f"{unit_rows(normalize)}{vectors}"
        f"products, positions = index.search(vectors, {min(k, facts.items)})  # best first; -1: none found\n"
        f"scores = {formula(facts.scale, facts.mean_bias)}  # the corrected scores\n"
    )
