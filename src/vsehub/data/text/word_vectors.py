"""Word vectors from the text files of GloVe and fastText; only the lines of wanted words are kept."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vsehub.checks import InputError, existing, require
from vsehub.io.progress import byte_bar

_LONGEST = 64  # bytes of a number
_DIGITS = 18  # of a count
_UPDATE = 2**23  # bytes between two updates of the progress bar


def read_word_vectors(path: str | Path, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (n, dim) float32 of those `words` that are in the file, and their places (n,) int64 in `words`.

    path: one line per word, followed by its dim numbers, separated by spaces; fastText's `.vec` begins with a line
    "count dim". If a word is repeated, its first line counts. Lines of other words are skipped. Raises InputError if
    the file has another layout, is cut short, lacks dim finite numbers for a wanted word, or has none of the words.
    """
    path = existing("word vectors", path, "Give a text file of GloVe (.txt) or fastText (.vec)")
    require(path.is_file(), f"word vectors: {path} is a folder; give the text file in it")
    wanted: dict[bytes, int] = {}
    for place, word in enumerate(words):
        wanted.setdefault(word.encode(), place)
    begins = {word.split(b" ", 1)[0] for word in wanted}
    lines = _lines(path)
    number, dim, count = _layout(path)
    for _ in range(number - 1):
        next(lines)
    found: dict[int, np.ndarray] = {}
    last = number - 1
    for line in lines:
        last += 1
        if line[: line.find(b" ")] not in begins:
            continue
        # From the right, since some words of GloVe contain spaces.
        parts = line.rstrip(b" \r\n").rsplit(b" ", dim)
        short = len(parts) <= dim
        at = wanted.get(parts[0])
        if short or (at is not None and at not in found):
            vector = None if short or at is None else _numbers(parts[1:])
            if at is None or vector is None:
                said = line[:60].decode(errors="replace").strip()
                raise InputError(
                    f"word vectors: {path}:{last}: expected a word and {dim} finite numbers, but the line begins "
                    f"{said!r} and has {len(line.split()) - 1} entries after the first; get the file again"
                )
            found[at] = vector
    require(
        count is None or last - number + 1 >= count,
        f"word vectors: {path} says that it holds {count} words but {last - number + 1} lines follow; get it again, it "
        "is cut short",
    )
    require(
        len(found) > 0,
        f"word vectors: {path} holds none of the {len(words)} words; give a file of the captions' language, with "
        "lower-case words",
    )
    places = np.array(sorted(found), dtype=np.int64)
    return np.stack([found[place] for place in places]), places


def _lines(path: Path) -> Iterator[bytes]:
    """The file's lines, with a progress bar by bytes if it is large."""
    with (
        open(path, "rb", buffering=2**20) as file,
        byte_bar(f"reading {path.name}", path.stat().st_size) as bar,
    ):
        done = 0
        for line in file:
            done += len(line)
            if done > _UPDATE:
                bar.update(done)
                done = 0
            yield line
        bar.update(done)


def _layout(path: Path) -> tuple[int, int, int | None]:
    """The number of the first word's line (from 1), the length of the vectors, and the header's count of words."""
    with open(path, "rb") as file:
        first = file.readline(2**20).split()
    if len(first) == 2 and all(part.isdigit() for part in first):
        require(
            max(map(len, first)) <= _DIGITS and 0 < int(first[1]) <= path.stat().st_size,
            f"word vectors: {path}:1 promises {first[0][:40].decode()} words of {first[1][:40].decode()} numbers, "
            "which the file cannot hold; get the file again",
        )
        return 2, int(first[1]), int(first[0])
    require(
        len(first) > 2 and _numbers(first[1:]) is not None,
        f'word vectors: {path}:1 is neither a word and its numbers nor fastText\'s "count dim"; give a text file of '
        "GloVe (.txt) or fastText (.vec), unpacked",
    )
    return 1, len(first) - 1, None


def _numbers(parts: list[bytes]) -> np.ndarray | None:
    """The parts as finite float32, or None."""
    if max(map(len, parts)) > _LONGEST:
        return None
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(parts).astype(np.float32)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None
