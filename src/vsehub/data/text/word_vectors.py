"""Word vectors from the text files of GloVe and fastText; only the lines of wanted words are kept."""

from pathlib import Path

import numpy as np

from vsehub.checks import existing, require
from vsehub.io.arrays import readable


def read_word_vectors(path: str | Path, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (n, dim) float32 of those `words` that are in the file, and their places (n,) int64 in `words`.

    path: one line per word, followed by its dim numbers, separated by spaces; fastText's `.vec` begins with a line
    "count dim". If a word is repeated, its first line counts. Lines of other words are skipped. Raises InputError if
    the file has another layout, lacks dim finite numbers for a wanted word, or has none of the words.
    """
    path = existing("word vectors", path, "Give a text file of GloVe (.txt) or fastText (.vec)")
    places = {word.encode(): place for place, word in enumerate(words)}
    found: dict[int, np.ndarray] = {}
    with readable(path, kind="word vectors"), path.open("rb") as file:
        first = file.readline(2**20).split()
        dim = int(first[1]) if len(first) == 2 else len(first) - 1
        require(dim > 0, f"{path} begins with neither a word and its numbers nor fastText's count and dim")
        if len(first) != 2:
            file.seek(0)
        for line in file:
            if line.partition(b" ")[0] not in places:
                continue
            word, *parts = line.rstrip(b" \r\n").rsplit(b" ", dim)  # some words of GloVe contain spaces
            if len(parts) == dim and (word not in places or places[word] in found):
                continue
            vector = np.array([float(part) for part in parts], np.float32)
            require(
                word in places and len(vector) == dim and bool(np.isfinite(vector).all()),
                f"{path}: expected a word and {dim} finite numbers; the line begins {line[:60]!r}",
            )
            found[places[word]] = vector
    require(len(found) > 0, f"word vectors: {path} holds none of the {len(words)} words, which are lower-case")
    order = np.array(sorted(found), dtype=np.int64)
    return np.stack([found[place] for place in order]), order
