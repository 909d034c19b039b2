"""Picture files as an array of pixels: decoded, turned upright and cropped."""

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from vsehub.checks import InputError, one_of, regular, require, whole
from vsehub.components import Component
from vsehub.io.arrays import FORMATS

if TYPE_CHECKING:
    from vsehub.data.sources import CaptionedImages
    from vsehub.types import Preparation

# Not by ImageOps.exif_transpose, which also rewrites the EXIF and fails if other entries are damaged: of 4,000 JPEGs
# with changed EXIF bytes it refused 16 whose orientation and pixels can be read.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height
# A JPEG is decoded at 1/2, 1/4 or 1/8 only where that leaves this many pixels for each that is wanted.
_OVERSAMPLING = 2
_LONGEST = 16  # times the shorter side: resizing longer pictures could need any amount of memory
_RATIO = (3 / 4, 4 / 3)  # of a random crop, width to height
THREADS = min(8, os.cpu_count() or 1)  # that decode pictures


class Crop(NamedTuple):
    """A part of a picture in pixels, and its width and height after resizing."""

    left: int
    top: int
    width: int
    height: int
    size: tuple[int, int]


@dataclass(frozen=True)
class PictureSettings(Component):
    """The settings for reading a source's pictures.

    size, crops: as in `Pictures`; its `resize` is `resize_length(size)`. augment: "vsepp", random crops and
    mirrors in training, or "none". unreadable: "stop" at pictures that cannot be decoded, or "leave_out" them and their
    captions. Raises InputError for other values.
    """

    size: int = 224
    crops: int = 1
    augment: str = "none"
    unreadable: str = "stop"

    def __post_init__(self) -> None:
        whole("size", self.size)
        one_of("crops", self.crops, (1, 2, 10))
        one_of("augment", self.augment, ("none", "vsepp"))
        one_of("unreadable", self.unreadable, ("stop", "leave_out"))


def resize_length(size: int) -> int:
    """The length of a picture's shorter side before its middle of `size` pixels is cropped: 256 for 224."""
    return size * 8 // 7


@dataclass(frozen=True)
class StoredPicture:
    """The picture in a row of a dataset, read on demand.

    rows: the dataset. column: name of the column of pictures. stamp: names and stamps of the dataset's files.
    """

    rows: Any = field(repr=False)
    column: str
    row: int
    stamp: str

    def read(self) -> bytes:
        """The bytes of the picture's file."""
        return self.rows[self.row][self.column]["bytes"]

    def __str__(self) -> str:
        return f"row {self.row}"


PictureFile = str | StoredPicture  # a path, or a part of a larger file


def read_crop(
    file: PictureFile, choose: Callable[[int, int], Crop], interpolation: str = "bilinear", exact: bool = False
) -> np.ndarray:
    """The part of a picture that `choose(width, height)` returns, resized: (height, width, 3) uint8.

    interpolation: a name of Pillow's, antialiased. exact: decode a JPEG at its full size, however small the part gets.
    The file's content becomes upright (EXIF) 8-bit RGB: transparency becomes white, CMYK follows its Adobe marker, only
    the first frame is used. Raises InputError if the file cannot be decoded, or has more than 8 bits a channel.
    """
    try:
        with _open(file) as raw, Image.open(raw, formats=FORMATS) as image:
            orientation = _orientation(image)
            width, height = image.size[::-1] if orientation in _SIDEWAYS else image.size
            crop = choose(width, height)
            size = crop.size
            shrink = min(crop.width / size[0], crop.height / size[1])
            if not exact and shrink >= 2 * _OVERSAMPLING:
                image.draft(
                    None, (int(image.width * _OVERSAMPLING / shrink), int(image.height * _OVERSAMPLING / shrink))
                )
            picture = _rgb(image)
            if orientation in _TURNS:
                picture = picture.transpose(_TURNS[orientation])
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)  # whose message is the repr of a file object
        why = "no picture of a known format" if unknown else str(error) or type(error).__name__
        raise InputError(f"{file} cannot be decoded ({why})") from error
    x_scale, y_scale = picture.width / width, picture.height / height  # below 1 if decoded at a smaller size
    right, bottom = crop.left + crop.width, crop.top + crop.height
    box = (
        crop.left * x_scale,
        crop.top * y_scale,
        min(right * x_scale, picture.width),
        min(bottom * y_scale, picture.height),
    )
    return np.asarray(picture.resize(size, Image.Resampling[interpolation.upper()], box))


def hash_if_intact(file: PictureFile) -> str | Exception:
    """A hash of the bytes of a picture's file, or the error if it cannot be decoded at full size."""
    try:
        with _open(file) as raw:
            content = hashlib.file_digest(raw, "sha256").hexdigest()
        read_crop(file, lambda width, height: Crop(0, 0, 1, 1, (1, 1)), exact=True)
    except (OSError, InputError) as error:
        return error
    return content


def _open(file: PictureFile) -> io.BufferedReader | io.BytesIO:
    return regular(Path(file)).open("rb") if isinstance(file, str) else io.BytesIO(file.read())


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation that has not been applied yet, 1 to 8."""
    if image.format != "JPEG":
        image.load()  # a PNG may have it after the pixels; Pillow turns a TIFF while loading it
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF can raise almost anything although the pixels are intact
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    require(image.mode != "F" and not image.mode.startswith("I"), "its pixels have more than 8 bits a channel")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


def whole_crop(width: int, height: int, resize: int, mode: str = "shortest") -> Crop:
    """The whole picture, resized; if it is longer than 16:1, its middle 16:1. resize, mode: as in `Preparation`."""
    across, down = min(width, _LONGEST * height), min(height, _LONGEST * width)
    if mode == "squash":
        size = resize, resize
    elif mode == "longest":
        size = max(1, round(resize * across / max(across, down))), max(1, round(resize * down / max(across, down)))
    else:
        size = resize * across // min(across, down), resize * down // min(across, down)
    return Crop((width - across) // 2, (height - down) // 2, across, down, size)


def random_crop(width: int, height: int, size: int, rng: np.random.Generator) -> Crop:
    """A part of 8 to 100 % of the area and of 3:4 to 4:3, resized to size x size (torchvision's RandomResizedCrop).

    As in VSE++'s training. If ten tries do not fit into a long picture: its middle, as long as the ratio allows.
    """
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(*np.log(_RATIO)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1))
            return Crop(left, top, across, down, (size, size))
    across, down = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    return Crop((width - across) // 2, (height - down) // 2, across, down, (size, size))


class Pictures:
    """I pictures as an array of uint8 pixels: (I, 3, size, size), or (I, crops, 3, size, size).

    Indexing resizes a picture's shorter side to `resize` and takes the middle size x size pixels. Ten crops are the
    upper left, upper right, lower left and lower right corner and the centre, then their mirrors in that order.

    files: paths, or pictures in larger files. contents: (I,) hashes of the files' bytes; equal files have equal hashes.
    augments: whether training takes `augmented` pictures. Keeps no threads between reads, so that it can be pickled and
    forked.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        files: Sequence[PictureFile],
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augments: bool = False,
        contents: np.ndarray | None = None,
    ):
        self.files, self.size, self.resize, self.crops, self.augments = files, size, resize, crops, augments
        self.contents = np.empty(0, "S") if contents is None else contents
        self.preparation: Preparation | None = None

    def prepared(self, preparation: "Preparation") -> "Pictures":
        """The same pictures, prepared for an encoder. Raises InputError for several crops and an unknown mode."""
        require(self.crops == 1, "data.pictures.crops: the image encoder brings its own preprocessing; leave it out")
        one_of("mode", preparation.mode, ("shortest", "longest", "squash"))
        pictures = copy(self)
        pictures.size, pictures.resize, pictures.preparation = preparation.size, preparation.resize, preparation
        return pictures

    @property
    def shape(self) -> tuple[int, ...]:
        """(I, 3, size, size) or (I, crops, 3, size, size)."""
        return (len(self.files), *([self.crops] if self.crops > 1 else []), 3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One picture (3, size, size), or (n, 3, size, size) by a slice or row numbers; or each with its crops.

        Raises IndexError beyond the last row, InputError if a file can no longer be decoded.
        """
        rows = np.arange(len(self))[index]
        pixels = np.empty((rows.size, *self.shape[1:]), np.uint8)
        self._in_threads(self._read_prepared, pixels, rows.flat)
        return pixels.reshape(*rows.shape, *self.shape[1:])

    def augmented(self, rows: np.ndarray, draws: np.ndarray, seed: Sequence[int]) -> np.ndarray:
        """Random crops as in VSE++'s training, half of them mirrored: (n, 3, size, size).

        rows, draws: (n,) integers; the crop of picture rows[i] depends on (*seed, draws[i]) only. Raises as indexing.
        """
        rows = np.arange(len(self))[rows]
        pixels = np.empty((len(rows), 3, self.size, self.size), np.uint8)
        self._in_threads(self._read_augmented, pixels, rows, [(*seed, int(draw)) for draw in draws])
        return pixels

    def _in_threads(self, read: Callable[..., None], *arguments: Iterable[Any]) -> None:
        """Call `read` in threads that end with this call: a forked process would lose threads that are kept."""
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(read, *arguments))  # raises what a thread raised

    def _read_prepared(self, pixels: np.ndarray, row: int) -> None:
        how = self.preparation
        mode, interpolation, fill = "shortest", "bilinear", 0
        if how is not None:
            mode, interpolation, fill = how.mode, how.interpolation, how.fill
        picture = read_crop(
            self.files[row],
            lambda width, height: whole_crop(width, height, self.resize, mode),
            interpolation,
            exact=how is not None,
        ).transpose(2, 0, 1)
        missing = [max(0, self.size - side) for side in picture.shape[1:]]
        picture = np.pad(picture, ((0, 0), *((n // 2, n - n // 2) for n in missing)), constant_values=fill)
        bottom, right = (side - self.size for side in picture.shape[1:])
        centre = round(right / 2), round(bottom / 2)
        starts = [(0, 0), (right, 0), (0, bottom), (right, bottom), centre] if self.crops == 10 else [centre]
        crops = pixels.reshape(-1, 3, self.size, self.size)
        for crop, (left, top) in zip(crops, starts, strict=False):
            crop[:] = picture[:, top : top + self.size, left : left + self.size]
        if self.crops > 1:
            crops[self.crops // 2 :] = crops[: self.crops // 2, ..., ::-1]

    def _read_augmented(self, pixels: np.ndarray, row: int, key: tuple[int, ...]) -> None:
        rng = np.random.default_rng(key)
        mirrored = rng.random() < 0.5
        crop = read_crop(self.files[row], lambda width, height: random_crop(width, height, self.size, rng))
        pixels[:] = (crop[:, ::-1] if mirrored else crop).transpose(2, 0, 1)


def prepared(split: "CaptionedImages", preparation: "Preparation | None") -> "CaptionedImages":
    """The split with its picture files brought to the encoder's size; unchanged where `preparation` is None.

    Raises InputError if the images are stored pixels of another size.
    """
    if preparation is not None and isinstance(split.images, Pictures):
        return replace(split, images=split.images.prepared(preparation))
    require(
        preparation is None or tuple(split.images.shape[1:]) == (3, preparation.size, preparation.size),
        f"the data's images are arrays of shape {tuple(split.images.shape[1:])}, not files to resize, and the image "
        f"encoder takes {preparation}; choose data of picture files, such as data=karpathy, or a model of that size",
    )
    return split
