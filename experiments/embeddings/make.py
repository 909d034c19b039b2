"""Write made-up embeddings with hubs, to try `vsehub diagnose` and `vsehub rerank` on: items, queries, truth.

Items are points in a space of few dimensions, put into many, with a common offset as two encoders of one model have it
(the modality gap); a query is an item's point with noise, so that each has one right answer and some items get far too
many wrong ones.

    python experiments/embeddings/make.py OUT [--items 2000] [--queries 5] [--dim 256] [--seed 0]
"""

import argparse
from pathlib import Path

import numpy as np

from vsehub.io.files import atomic, write_text


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for items.npy, queries.npy, train_queries.npy, pairs.csv")
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=5, help="queries of each item, and as many training queries")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    spread = random.normal(size=(24, options.dim)) / np.sqrt(24)
    gap = random.normal(size=(2, options.dim))
    points = random.normal(size=(options.items, 24))
    owners = np.repeat(np.arange(options.items), options.queries)

    def near(index: np.ndarray) -> np.ndarray:
        return points[index] + 1.1 * random.normal(size=(len(index), 24))

    strangers = random.normal(size=(len(owners), 24))  # training queries belong to other items
    sides = {"items": (points, gap[0]), "queries": (near(owners), gap[1]), "train_queries": (strangers, gap[1])}
    for name, (rows, offset) in sides.items():
        vectors = rows @ spread + 0.8 * offset
        with atomic(options.out / f"{name}.npy") as handle:
            np.save(handle, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))
    lines = [f"{query},{item}" for query, item in enumerate(owners)]
    write_text(options.out / "pairs.csv", "\n".join(["query,item", *lines]) + "\n")
    print(f"{len(owners)} queries, as many training queries and {options.items} items in {options.out}")


if __name__ == "__main__":
    main()
