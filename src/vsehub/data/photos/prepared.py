"""A split with pictures prepared for an encoder."""

from dataclasses import replace
from typing import TYPE_CHECKING

from vsehub.checks import require
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import CaptionedImages

if TYPE_CHECKING:
    from vsehub.types import Preparation


def prepared(split: CaptionedImages, how: "Preparation | None") -> CaptionedImages:
    """The split with its picture files brought to the encoder's size; unchanged where `how` is None.

    Raises InputError if the images are stored pixels of another size.
    """
    if how is None:
        return split
    if isinstance(split.images, Pictures):
        return replace(split, images=split.images.prepared(how))
    wanted = (3, how.size, how.size)
    require(
        tuple(split.images.shape[1:]) == wanted,
        f"the image encoder takes pictures of {how.size} x {how.size} pixels, but the data's images are arrays of "
        f"shape {tuple(split.images.shape[1:])}, not files to resize; choose data of picture files, such as "
        "data=karpathy, or a model of that size",
    )
    return split
