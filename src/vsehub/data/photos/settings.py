"""Settings that the sources of photos share."""

from dataclasses import dataclass

from vsehub.checks import one_of, require, whole
from vsehub.components import Component


@dataclass(frozen=True)
class PictureSettings(Component):
    """The settings with which a source reads its pictures.

    size, resize, crops: of `Pictures`. augment: "vsepp", random crops and mirrors in training, or "none". unreadable:
    "stop" at pictures that cannot be decoded, or "leave_out" them and their captions. Raises InputError for other
    values, and for `resize` below `size`.
    """

    size: int = 224
    resize: int = 256
    crops: int = 1
    augment: str = "none"
    unreadable: str = "stop"

    def __post_init__(self) -> None:
        whole("size", self.size)
        whole("resize", self.resize)
        require(self.resize >= self.size, f"resize is {self.resize}, below size, {self.size}; raise resize")
        one_of("crops", self.crops, (1, 10))
        one_of("augment", self.augment, ("none", "vsepp"))
        one_of("unreadable", self.unreadable, ("stop", "leave_out"))


@dataclass(frozen=True)
class PhotoColumns(Component):
    """The names of the columns of a table or a dataset.

    image: of the pictures or their paths. caption: of the captions, or a list of such columns. split: of the splits;
    None: there is none.
    """

    image: str = "image"
    caption: str | list[str] = "caption"
    split: str | None = "split"

    @property
    def captions(self) -> list[str]:
        """The names of all columns of captions."""
        return [self.caption] if isinstance(self.caption, str) else list(self.caption)
