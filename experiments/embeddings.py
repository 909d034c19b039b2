"""Write made-up embeddings that behave like CLIP's, to try `vsehub diagnose` and `vsehub rerank` on: items, queries,
truth.

Points of few dimensions, in clusters of unequal density, are put into many dimensions. All vectors lie in a cone, and
queries and items apart from each other (the modality gap of Liang et al. 2022). A query is an item's point with noise,
so that each has one right answer and some items get far too many wrong ones.

    python -m experiments embeddings OUT [--items 2000] [--queries 5] [--dim 256] [--seed 0]
"""

from pathlib import Path

import numpy as np

from experiments.study import Given, option, verb
from vsehub.io.files import atomic, write_text

INNER, CLUSTERS = 24, 40


@verb(
    option("out", type=Path, help="folder for items.npy, queries.npy, train_queries.npy, pairs.csv"),
    option("--items", type=int, default=2000),
    option("--queries", type=int, default=5, help="queries of each item, and as many training queries"),
    option("--dim", type=int, default=256),
    option("--seed", type=int, default=0),
)
def main(options: Given) -> None:
    """Write the files."""
    random = np.random.default_rng(options.seed)
    spread = random.normal(size=(INNER, options.dim)) / np.sqrt(INNER)
    cone, *gaps = random.normal(size=(3, options.dim))
    centres, density = random.normal(size=(CLUSTERS, INNER)), np.exp(0.8 * random.normal(size=CLUSTERS))

    def points(clusters: np.ndarray) -> np.ndarray:
        return centres[clusters] + 0.8 * density[clusters, None] * random.normal(size=(len(clusters), INNER))

    def near(rows: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        blur = 1.1 * np.minimum(density[clusters, None], 1.5)
        return rows + blur * random.normal(size=rows.shape)

    clusters = random.integers(0, CLUSTERS, options.items)
    items, owners = points(clusters), np.repeat(np.arange(options.items), options.queries)
    others = random.integers(0, CLUSTERS, len(owners))  # training queries belong to other items
    sides = {
        "items": (items, gaps[0]),
        "queries": (near(items[owners], clusters[owners]), gaps[1]),
        "train_queries": (near(points(others), others), gaps[1]),
    }
    for name, (rows, gap) in sides.items():
        vectors = rows @ spread + 0.8 * cone + 1.1 * gap
        with atomic(options.out / f"{name}.npy") as handle:
            np.save(handle, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))
    lines = [f"{query},{item}" for query, item in enumerate(owners)]
    write_text(options.out / "pairs.csv", "\n".join(["query,item", *lines]) + "\n")
    print(f"made up: {len(owners)} queries, as many training queries and {options.items} items in {options.out}")
