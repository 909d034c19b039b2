"""Splits of a data set: their names, the files that are given for each, and shares drawn by seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from vsehub.checks import require, whole_seed
from vsehub.components import Component
from vsehub.data.sources import SPLITS

_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words}
SPLIT_WORDS = ", ".join(_SPLIT_OF)


@cache
def split_named(word: str) -> str:
    """ "train", "val" or "test" for a word that a table or a folder uses for it ("validation"), else the word."""
    return _SPLIT_OF.get(word.strip().lower(), word)


def files_or_all(setting: str, all_files: Any, splits: Mapping[str, Any] | None) -> dict[str, Any]:
    """The files by split or, if one setting gives the files of all splits, {setting: all_files}.

    splits: "train", "val" or "test" -> its file or files; None: the split is absent. Raises InputError unless the
    files came in exactly one of these ways.
    """
    given = {split: files for split, files in (splits or {}).items() if files is not None}
    example = " ".join(f"data.splits.{split}=FILE" for split in SPLITS)
    require(
        (all_files is None) != (not given) and set(given) <= set(SPLITS),
        f"{f'neither {setting} nor splits' if all_files is None else f'both {setting} and splits'} came; expected the "
        f"files of each split, {example}, or those of all splits, data.{setting}=FILE",
    )
    return given if all_files is None else {setting: all_files}


@dataclass(frozen=True)
class SplitDraw(Component):
    """The settings for drawing splits if the data have none.

    val, test: the shares of these splits; 0: no such split. The rest is for training. seed: of the draw. Raises
    InputError for shares that leave nothing for training.
    """

    val: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            min(self.val, self.test) >= 0 and self.val + self.test < 1,
            f"val is {self.val} and test {self.test}; expected shares that leave some for train, e.g. 0.1 and 0.1",
        )
        whole_seed("seed", self.seed)
