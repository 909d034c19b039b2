"""Write foils of the embedded scenes: captions with one word made false, to try `vsehub evaluate foil=FILE` on.

    python -m experiments foils OUT.csv [--split test] [--size default] [--data-seed 0] [--seed 0]

Of each caption that names a colour, a shape, a size or a number of things, one such word is replaced by one that fits
nothing in the picture: what is in it is known, since the scenes are composed by their seed.
"""

import csv
import io
import re
from pathlib import Path

import numpy as np

from experiments.study import Given, option, verb
from vsehub.checks import require
from vsehub.data.scenes.captions import NUMBERS, WORDS, describe
from vsehub.data.scenes.images import COLOURS, OUTLINES, RADII, Scene, render
from vsehub.data.scenes.source import SIZES, Scenes, compose
from vsehub.data.sources import SPLITS
from vsehub.io.files import write_text

KINDS = {"colour": tuple(COLOURS), "shape": tuple(OUTLINES), "size": tuple(RADII)}
VALUES = {word: value for values in KINDS.values() for value in values for word in WORDS[value] if word}
COUNTED = {word: number for number, words in NUMBERS.items() for word in words}


def scenes(split: str, size: str, seed: int) -> list[Scene]:
    """What is in each picture of the split: composed again with the draws that made it."""
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    captions = Scenes(size=size, seed=seed).load(split).captions
    found = []
    for _ in range(SIZES[size][SPLITS.index(split)]):
        scene = compose(rng)
        render(scene, rng)  # which draws from the same numbers
        said = describe(scene, rng)
        first = 5 * len(found)
        require(said == captions[first : first + 5], f"{split} {size} {seed} gives other captions when composed again")
        found.append(scene)
    return found


def falsified(caption: str, scene: Scene, rng: np.random.Generator) -> tuple[str, str] | None:
    """The caption with one word replaced and the kind of that word; None where it has none that can be."""
    found = [(kind, match) for kind in (*KINDS, "number") for match in _pattern(kind).finditer(caption.lower())]
    if not found:
        return None
    kind = sorted({kind for kind, _ in found})
    kind = kind[rng.integers(len(kind))]
    matches = [match for one, match in found if one == kind]
    match = matches[rng.integers(len(matches))]
    if kind == "number":
        words = NUMBERS[5 - COUNTED[match[0]]]  # two for three, three for two
    else:
        there = {getattr(thing, kind) for thing in scene.things} | {VALUES[match[0]]}
        words = [next(word for word in WORDS[value] if word) for value in KINDS[kind] if value not in there]
    if not words:
        return None
    word = str(words[rng.integers(len(words))])
    start = caption[: match.start()]
    if re.search(r"\b[Aa]n? $", start):
        start = re.sub(r"n? $", "n " if word[0] in "aeiou" else " ", start)
    foil = f"{start}{word}{caption[match.end() :]}"
    return (foil[0].upper() + foil[1:] if caption[0].isupper() else foil), kind


def _pattern(kind: str) -> re.Pattern:
    """The words of a kind, longer ones first, so that "half moon" is one."""
    words = COUNTED if kind == "number" else [word for word, value in VALUES.items() if value in KINDS[kind]]
    return re.compile(rf"\b({'|'.join(sorted(words, key=len, reverse=True))})\b")


@verb(
    option("out", type=Path, metavar="OUT.csv"),
    option("--split", default="test", choices=SPLITS),
    option("--size", default="default", choices=list(SIZES)),
    option("--data-seed", type=int, default=0, help="the scenes' (data.seed)"),
    option("--seed", type=int, default=0, help="of the choice of words"),
)
def main(options: Given) -> None:
    """Write the file."""
    rng = np.random.default_rng(options.seed)
    split = Scenes(size=options.size, seed=options.data_seed).load(options.split)
    composed = scenes(options.split, options.size, options.data_seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "caption", "foil", "type"])
    written = 0
    for caption, image in zip(split.captions, split.image_index, strict=True):
        made = falsified(caption, composed[image], rng)
        if made is not None:
            writer.writerow([split.names[image], caption, *made])
            written += 1
    write_text(options.out, text.getvalue())
    print(f"{written} foils of {len(split.captions)} captions in {options.out}")
