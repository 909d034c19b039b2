"""Indexes that serve a corrected ranking, and the FAISS and numpy code that searches them without vsehub.

a·s - b(item) ranks like ⟨(query, 1), (item, -b/a)⟩; with 0 in place of the 1 the same index gives the plain ranking.
The index stores b minus its mean: a constant changes no ranking, and the vectors then have nearly equal lengths, which
approximate indexes need.
"""

import logging
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import InputError, one_of, positive, require
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.tiles import Affine, nearest
from vsehub.neighbors.vectors import as_vectors, given_back, sampled
from vsehub.serving.index_file import KINDS, effort, empty_index, read_index, training_vectors, write_index

log = logging.getLogger(__name__)

# Vectors that are passed to FAISS at a time: they are the memory needed besides the index.
BLOCK = 16384
FAISS_FOR = ("an index", "rank without one (`Criterion.search`, index=null)")


@dataclass(frozen=True)
class IndexFacts:
    """kind; items (M) and their dimension D, that of the index being D + 1; scale (a) and mean_bias (the mean of b)."""

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
        """Lists searched (ivf) or candidates (hnsw) a query, None for an exact index."""
        return effort(self.facts.kind, self._index)

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) of the k best items of each query, best first.

        queries: (Q, D) vectors, normalised as the items were; see `criteria.base.Criterion.search`. Values are a·s - b,
        or s if corrected is false; numpy arrays if the queries are one, else tensors on the CPU. If an approximate
        index finds fewer than k items, the list ends in positions -1 and values -inf. Raises InputError
        if dimensions differ or k exceeds the items.
        """
        asked = as_vectors("queries", queries, columns=self.facts.dim)
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of items in the index")
        parts = [
            self._block(asked.rows(start, min(start + BLOCK, len(asked))), k, corrected)
            for start in range(0, len(asked), BLOCK)
        ]
        return given_back(queries, *(torch.cat(side) for side in zip(*parts, strict=True)))

    def _block(self, queries: Tensor, k: int, corrected: bool) -> tuple[Tensor, Tensor]:
        products, positions = self._index.search(_folded(queries, torch.full((len(queries),), float(corrected))), k)
        values = self.facts.scale * products - self.facts.mean_bias if corrected else products
        return values.masked_fill(positions < 0, -torch.inf), positions

    def save(self, path: str | Path) -> None:
        """Write index and facts atomically to one file, which `faiss.read_index` can open too."""
        write_index(required_faiss(*FAISS_FOR), self._index, asdict(self.facts), path)


@torch.no_grad()
def build_index(
    items: Any, bias: Tensor, scale: float, kind: str = "flat", progress: str | None = None, seed: int = 0
) -> ServedIndex:
    """An index that ranks items (M, D) by a·s - b(item).

    items: a tensor, a numpy array, a memory map or an open file (`data.vectors`), read in blocks; the index holds them
    as float32. bias: b (M,), scale: a, of an `ItemBias`. kind: "flat" is exact; "ivf" and "hnsw" are approximate
    (`measured_recall` says how much). seed: of the sample on which the lists of "ivf" are trained. progress: a label
    shows a bar. Raises InputError if FAISS is missing or the bias does not fit the items.
    """
    one_of("index", kind, KINDS)
    positive("scale", scale)
    items = as_vectors("items", items)
    require(
        tuple(bias.shape) == (len(items),),
        f"bias has shape {tuple(bias.shape)}; expected ({len(items)},), one number per item",
    )
    require(bool(bias.isfinite().all()), "bias has NaN or infinite entries; look for such embeddings")
    faiss = required_faiss(*FAISS_FOR)
    if kind != "flat":
        log.warning("an %s index is approximate: it misses some of the best items; flat finds all", kind)
    bias = bias.detach().cpu().double()
    mean = float(bias.mean())
    last = ((mean - bias) / scale).float()
    index = empty_index(faiss, kind, items.shape[1] + 1, len(items), seed)
    if training_vectors(index):
        rows, positions = sampled(items, training_vectors(index), seed)
        index.train(_folded(rows, last[positions]))
    with tqdm(total=len(items), desc=progress, disable=None if progress else True, unit=" items", leave=False) as bar:
        for start in range(0, len(items), BLOCK):
            rows = items.rows(start, min(start + BLOCK, len(items)))
            index.add(_folded(rows, last[start : start + len(rows)]))
            bar.update(len(rows))
    return ServedIndex(index, IndexFacts(kind, len(items), items.shape[1], float(scale), mean))


def load_index(path: str | Path) -> ServedIndex:
    """The index that `ServedIndex.save` wrote. Raises InputError for other or damaged files, or without FAISS."""
    index, stored = read_index(required_faiss(*FAISS_FOR), path)
    try:
        facts = IndexFacts(**{field.name: stored[field.name] for field in fields(IndexFacts)})
        numbers = all(type(one) in (int, float) and math.isfinite(one) for one in (facts.scale, facts.mean_bias))
        fits = numbers and facts.scale > 0 and (index.d, index.ntotal) == (facts.dim + 1, facts.items)
    except (KeyError, TypeError, OverflowError):
        fits = False
    if not fits:
        raise InputError(f"index: the facts at the end of {path} are not those of its index; build it again")
    return ServedIndex(index, facts)


@torch.no_grad()
def measured_recall(
    index: ServedIndex,
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
    drawn = as_vectors("queries", sampled(as_vectors("queries", queries, columns=index.facts.dim), sample, seed)[0])
    items = as_vectors("items", items, columns=index.facts.dim, device=drawn.rows(0, 1).device)
    exact = nearest(drawn, items, k, [None, Affine(scale, bias.to(drawn.rows(0, 1)))])
    asked = drawn.rows(0, len(drawn))
    return {
        name: _overlap(index.search(asked, k, corrected=name == "corrected")[1], positions.cpu())
        for name, (_, positions) in zip(("plain", "corrected"), exact, strict=True)
    }


def _overlap(found: Tensor, wanted: Tensor) -> float:
    """The mean share of `wanted` (Q, k) that is in `found` (Q, k)."""
    return (found[:, :, None] == wanted[:, None, :]).any(dim=1).double().mean().item()


def _folded(vectors: Tensor, last: Tensor) -> Tensor:
    """Vectors (b, D) with their last component (b,) appended: (b, D + 1), float32, on the CPU, for FAISS."""
    return torch.cat((vectors.detach().cpu().float(), last[:, None]), dim=1)


_EFFORT = {
    "ivf": "index.nprobe = {effort}  # lists that are searched: more is slower and misses less\n",
    "hnsw": "index.hnsw.efSearch = {effort}  # candidates that are followed: more is slower and misses less\n",
}


def usage_note(index: ServedIndex, file: str = "index.faiss", queries: str = "queries.npy", k: int = 10) -> str:
    """Python that searches the index in `file` for the vectors in `queries`: `positions` and `scores`, both (Q, k)."""
    facts = index.facts
    effort = _EFFORT.get(facts.kind, "").format(effort=index.effort)
    k = min(k, facts.items)
    return f"""import faiss
import numpy as np

index = faiss.read_index({file!r})  # {facts.items:,} items
{effort}queries = np.load({queries!r}).astype("float32")  # (Q, {facts.dim}), normalised as the items were
last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking, products the plain scores
products, positions = index.search(np.hstack([queries, last]), {k})  # best first; -1: none found
scores = {facts.scale!r} * products - {facts.mean_bias!r}  # the corrected scores
"""
