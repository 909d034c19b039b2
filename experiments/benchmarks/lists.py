"""What the bias costs in FAISS's approximate indexes, and why: lists, and the scale of the bias.

The vectors are generated (generated.py), turned by a random rotation. Items are searched with their bias as one more
dimension, by queries that have 1 there, or 0 for the plain ranking. Recall: the share of the exact ten best that are
found.

    python -m experiments.benchmarks.lists [--items 20000] [--dim 128]
"""

import numpy as np
import torch
from torch import Tensor

from experiments.benchmarks import common, generated
from vsehub.criteria import CSLS, InvertedSoftmax
from vsehub.criteria.base import fit_all
from vsehub.neighbors.faiss import required_faiss
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.index import TRAINED_A_LIST, empty_index, last_components

K, REFERENCE = 10, 2000
NEEDED = ("an approximate index", "leave this benchmark out")
PROBES, SCALES = (16, 32, 64), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
CRITERIA = {"CSLS": CSLS(), "inverted softmax": InvertedSoftmax()}


def turned(rows: int, dim: int, seed: int) -> Tensor:
    """Generated vectors, in a random basis: the generated ones vary less from dimension to dimension."""
    drawn = torch.randn(dim, dim, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return generated.vectors(rows, dim, seed) @ torch.linalg.qr(drawn).Q.float()


def folded(vectors: Tensor, last: Tensor | float) -> np.ndarray:
    """Vectors with one more component."""
    return torch.cat([vectors, torch.as_tensor(last).expand(len(vectors))[:, None]], dim=1).numpy()


def built(kind: str, vectors: np.ndarray):
    """An index of vsehub's settings."""
    index = empty_index(required_faiss(*NEEDED), kind, vectors.shape[1], len(vectors), 0)
    if not index.is_trained:
        some = np.random.default_rng(0).permutation(len(vectors))[: TRAINED_A_LIST * index.nlist]
        index.train(vectors[some])
    index.add(vectors)
    return index


def exact(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The positions (Q, k) of the best."""
    flat = required_faiss(*NEEDED).IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    return flat.search(queries, K)[1]


def recall(index, queries: np.ndarray, wanted: np.ndarray) -> float:
    """The share of the wanted positions (Q, k) that are found."""
    found = index.search(queries, K)[1]
    return float((found[:, :, None] == wanted[:, None]).any(axis=1).mean())


class Ranking:
    """One correction of the items, and how queries ask for it."""

    def __init__(self, items: Tensor, queries: Tensor, last: Tensor, asked: float):
        self._items, self._queries, self._last, self._asked = items, queries, last, asked
        self.best = exact(self.stored(), self.queries())

    def stored(self, scale: float = 1.0) -> np.ndarray:
        """The items; scale: multiplies the bias, by which the queries divide."""
        return folded(self._items, self._last * scale)

    def queries(self, scale: float = 1.0) -> np.ndarray:
        return folded(self._queries, self._asked / scale)

    def similarity_of_last(self) -> float:
        """The mean similarity of a query and its k-th item."""
        last = self._items[torch.from_numpy(self.best[:, -1])]
        return float((self._queries * last).sum(dim=1).mean())


def rankings(items: Tensor, queries: Tensor, reference: Tensor) -> dict[str, Ranking]:
    """The plain one and those of the criteria."""
    sides = as_vectors("items", items), as_vectors("reference", reference)
    biases = fit_all(list(CRITERIA.values()), *sides)
    last = {
        name: last_components(bias[0], criterion.scale)[0]
        for (name, criterion), bias in zip(CRITERIA.items(), biases, strict=True)
    }
    plain = Ranking(items, queries, torch.zeros(len(items)), 0.0)
    return {"plain": plain} | {name: Ranking(items, queries, one, 1.0) for name, one in last.items()}


def by_probes(of: dict[str, Ranking]) -> tuple[int, list[dict]]:
    """How many lists, and recall by how many of them are searched."""
    indexes = {name: built("ivf", one.stored()) for name, one in of.items()}
    rows = []
    for probes in PROBES:
        row: dict = {"lists searched": probes}
        for name, index in indexes.items():
            index.nprobe = probes
            row[name] = recall(index, of[name].queries(), of[name].best)
        rows.append(row)
    return indexes["plain"].nlist, rows


def by_scale(corrected: Ranking, plain: Ranking) -> list[dict]:
    """Recall of both rankings where the bias is multiplied by a number and the queries' component divided by it."""
    rows = []
    for scale in SCALES:
        stored = corrected.stored(scale)
        for kind in ("ivf", "hnsw"):
            index = built(kind, stored)
            found = {
                "corrected": recall(index, corrected.queries(scale), corrected.best),
                "plain": recall(index, plain.queries(), plain.best),
            }
            rows.append({"index": kind, "bias times": scale} | found)
    return rows


def measure(options) -> dict:
    """Both."""
    counts = (options.items, options.queries, REFERENCE)
    data = [turned(count, options.dim, seed) for seed, count in enumerate(counts, 1)]
    of = rankings(*data)
    lists, probes = by_probes(of)
    return {
        "items": options.items,
        "queries": options.queries,
        "dim": options.dim,
        "k": K,
        "lists": lists,
        "similarity of the last": {name: one.similarity_of_last() for name, one in of.items()},
        "by probes": probes,
        "by scale": by_scale(of["CSLS"], of["plain"]),
    }


def text(result: dict) -> str:
    """The tables."""
    head = (
        f"{result['items']:,} items, {result['queries']:,} queries, D = {result['dim']}, k = {K}, {result['lists']} "
        "lists, made-up vectors with hubs; similarity of a query and its tenth item: "
        + ", ".join(f"{name} {value:.2f}" for name, value in result["similarity of the last"].items())
    )
    tables = [
        common.table(
            rows[0], ([f"{one:.3f}" if isinstance(one, float) else one for one in row.values()] for row in rows)
        )
        for rows in (result["by probes"], result["by scale"])
    ]
    return "\n\n".join([head, *tables])


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--items", type=int, default=20_000, help="(default: 20,000)")
    parser.add_argument("--queries", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--dim", type=int, default=128, help="(default: 128)")
    options = parser.parse_args(argv)
    result = measure(options)
    title = "What the bias costs in approximate indexes"
    common.report("lists", title, result, text(result), torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()
