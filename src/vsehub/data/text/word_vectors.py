"""Word vectors from the text files of GloVe and fastText, of which only the wanted lines are kept."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vsehub.checks import InputError, existing, require

_LONGEST = 64  # bytes of a number
_DIGITS = 18  # of a count
_BIG = 2**27  # bytes from which reading takes long enough for a progress bar


def read_word_vectors(path: str | Path, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (n, dim) float32 of those of `words` that the file holds, and their places (n,) int64 in `words`.

    path: a line a word, then its dim numbers, divided by spaces; fastText's `.vec` has a first line "count dim" before
    them. Of a word that comes twice the first line counts. Lines of other words are passed over unread. Raises
    InputError where the file is none of these, is cut short, gives a wanted word other than dim finite numbers, or
    holds none of the words.
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
    for last, line in enumerate(lines, number):
        if line[: line.find(b" ")] not in begins:
            continue
        # From the right: some words of GloVe hold spaces.
        parts = line.rstrip(b" \r\n").rsplit(b" ", dim)
        short = len(parts) <= dim
        place = wanted.get(parts[0])
        if short or (place is not None and place not in found):
            vector = None if short else _numbers(parts[1:])
            if vector is None:
                said = line[:60].decode(errors="replace").strip()
                raise InputError(
                    f"word vectors: {path}:{last}: expected a word and {dim} finite numbers, but the line begins "
                    f"{said!r} and has {len(line.split()) - 1} pieces behind its first; get the file again"
                )
            found[place] = vector
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
    """The file's lines, with a progress bar by bytes where it is big."""
    size = path.stat().st_size
    with (
        open(path, "rb", buffering=2**20) as file,
        tqdm(desc=f"reading {path.name}", total=size, unit="B", unit_scale=True, disable=size < _BIG or None) as bar,
    ):
        done = 0
        for line in file:
            done += len(line)
            if done > 2**23:
                bar.update(done)
                done = 0
            yield line
        bar.update(done)


def _layout(path: Path) -> tuple[int, int, int | None]:
    """Which line (from 1) is the first word's, how many numbers a word has, and how many words a header promises."""
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
