"""Pictures within larger files, tar shards or saved datasets, as one collection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from vsehub.data.photos.pictures import StoredPicture
from vsehub.data.photos.source import Listing


class PictureContainer(Protocol):
    """A larger file that holds pictures by their rows."""

    def picture(self, row: int, name: str) -> StoredPicture:
        """The picture in a row; its name is for messages."""

    def state(self, row: int) -> list[int]:
        """Numbers that change whenever the picture in a row changes."""


@dataclass(frozen=True)
class ContainedPictures:
    """The pictures of several containers; a `PictureCollection`.

    containers: the larger files. container, row: (I,) the container of each picture and the row in it. names: (I,).
    setting, title, identity: see `PictureCollection`.
    """

    containers: Sequence[PictureContainer]
    container: np.ndarray
    row: np.ndarray
    names: list[str]
    setting: str
    title: str
    identity: str

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, picture: int) -> StoredPicture:
        return self.containers[self.container[picture]].picture(int(self.row[picture]), self.names[picture])

    def take(self, rows: np.ndarray) -> "ContainedPictures":
        """The pictures of these rows."""
        names = [self.names[row] for row in rows.tolist()]
        return replace(self, container=self.container[rows], row=self.row[rows], names=names)

    def located(self, split: str) -> "ContainedPictures":
        """See `PictureCollection`: the containers have been read, so they are there."""
        return self

    def states(self) -> list[list[int]]:
        """See `PictureCollection`."""
        both = zip(self.container.tolist(), self.row.tolist(), strict=True)
        return [[container, row, *self.containers[container].state(row)] for container, row in both]


class Content(NamedTuple):
    """What a container holds: I pictures and C captions.

    container: the larger file. title: its name. names: (I,) of the pictures. images: (C,) the picture of each caption.
    captions: C strings. splits: (I,), or None.
    """

    container: PictureContainer
    title: str
    names: Sequence[str]
    images: np.ndarray
    captions: Sequence[str]
    splits: np.ndarray | None = None


def list_contents(contents: Sequence[Content], setting: str, title: str, identity: str) -> Listing:
    """The pictures and captions of all containers, which all or none have splits.

    If several containers have pictures of one name, every name gets the title of its container before it, or the
    container's number if titles are equal. setting, title, identity: see `PictureCollection`.
    """
    counts = np.array([len(one.names) for one in contents])
    firsts = np.cumsum(counts) - counts
    names = [name for one in contents for name in one.names]
    if len(set(names)) < len(names):
        titles = [one.title for one in contents]
        titles = titles if len(set(titles)) == len(titles) else [str(number) for number in range(len(contents))]
        names = [f"{own}/{name}" for own, one in zip(titles, contents, strict=True) for name in one.names]
    container = np.repeat(np.arange(len(contents)), counts)
    row = np.concatenate([np.arange(count) for count in counts])
    return Listing(
        ContainedPictures([one.container for one in contents], container, row, names, setting, title, identity),
        np.concatenate([one.images + first for one, first in zip(contents, firsts, strict=True)]),
        [caption for one in contents for caption in one.captions],
        None
        if contents[0].splits is None
        else np.concatenate([one.splits for one in contents if one.splits is not None]),
    )
