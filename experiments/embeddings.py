"""Write an example to try `vsehub diagnose` and `vsehub rerank` on: Georgian sentences search for their translations.

The 746 pairs of experiments/tatoeba are drawn into three parts of equal size. The queries are the Georgian sentences of
the first part. The index holds the English sentences of the first two parts. The reference is the Georgian sentences of
the third part, whose answers are not in the index.

    python -m experiments embeddings OUT [--seed 4]
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.study import Given, option, verb
from vsehub.io.files import atomic, write_text

SENTENCES = Path(__file__).parent / "tatoeba"


class Example(NamedTuple):
    """Vectors and sentences of queries (Q, D), items (M, D) and reference queries (R, D); item i answers query i."""

    queries: tuple[np.ndarray, list[str]]
    items: tuple[np.ndarray, list[str]]
    reference: tuple[np.ndarray, list[str]]


def draw(seed: int) -> Example:
    """The example with the parts that a seed draws."""
    order = np.random.default_rng(seed).permutation(len(np.load(SENTENCES / "kat.npy")))
    size = len(order) // 3

    def side(language: str, rows: np.ndarray) -> tuple[np.ndarray, list[str]]:
        sentences = (SENTENCES / f"{language}.txt").read_text(encoding="utf-8").splitlines()
        return np.load(SENTENCES / f"{language}.npy")[rows].astype(np.float32), [sentences[row] for row in rows]

    return Example(
        queries=side("kat", order[:size]),
        items=side("eng", order[: 2 * size]),
        reference=side("kat", order[2 * size : 3 * size]),
    )


@verb(
    option("out", type=Path, help="folder for the vectors (.npy), the sentences (.txt) and pairs.csv"),
    option("--seed", type=int, default=4, help="of the drawn parts"),
)
def main(options: Given) -> None:
    """Write the files."""
    example = draw(options.seed)
    for name, (vectors, sentences) in example._asdict().items():
        with atomic(options.out / f"{name}.npy") as handle:
            np.save(handle, vectors)
        write_text(options.out / f"{name}.txt", "\n".join(sentences) + "\n")
    count = len(example.queries[0])
    write_text(options.out / "pairs.csv", "query,item\n" + "".join(f"{row},{row}\n" for row in range(count)))
    print(
        f"{options.out}: {count} Georgian sentences as queries, {len(example.items[0])} English sentences as items, "
        f"{len(example.reference[0])} other Georgian sentences as reference"
    )
