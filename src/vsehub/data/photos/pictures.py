"""Picture files as an array of pixels: decoded, turned upright and cropped; checked once before training."""

import hashlib
import io
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from vsehub.checks import InputError, one_of, regular, require, whole
from vsehub.io.files import read_object, write_text
from vsehub.io.pictures import open_picture
from vsehub.io.progress import bar

if TYPE_CHECKING:
    from vsehub.types import Preparation

log = logging.getLogger(__name__)

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
_ORIENTATION = 0x0112  # the EXIF tag
_LYING = (5, 6, 7, 8)  # orientations that exchange width and height
_SPARE = 2  # a JPEG is decoded at 1/2, 1/4 or 1/8 only where that leaves this many pixels for each that is wanted
_LONGEST = 16  # times the shorter side: resizing longer pictures could need any amount of memory
_AREA = (0.08, 1.0)  # of a random crop, as a share of the picture's
_RATIO = (3 / 4, 4 / 3)  # of a random crop, width to height
_TRIES = 10
_VERSION = 2  # of the file that remembers checked pictures; files of other versions are ignored
_CONTENT_BYTES = 16  # of the hash of a picture's file
_CONTENT = f"S{2 * _CONTENT_BYTES}"
_AT_ONCE = 1024  # pictures submitted to the threads at a time, so that a whole split does not wait in memory


class StoredPicture(Protocol):
    """A picture within a larger file, read on demand; `str()` names it in messages."""

    def read(self) -> bytes:
        """The bytes of the picture's file."""


PictureFile = str | Path | StoredPicture  # a file, or a part of a larger one


class PictureFiles(Protocol):
    """The files of the I pictures of a split."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> PictureFile: ...


class Crop(NamedTuple):
    """A part of an upright picture, in pixels, and the width and height to which it is resized.

    interpolation: a name of Pillow's, antialiased. exact: decode a JPEG at its full size, however small the part gets.
    """

    left: int
    top: int
    width: int
    height: int
    size: tuple[int, int]
    interpolation: str = "bilinear"
    exact: bool = False


def read_crop(file: PictureFile, choose: Callable[[int, int], Crop]) -> np.ndarray:
    """The part of a picture that `choose(width, height)` returns, resized: (height, width, 3) uint8.

    Resizing is antialiased. The file's content becomes upright (EXIF) 8-bit RGB: transparency becomes
    white, 16 bits are scaled to 8, CMYK follows its Adobe marker, only the first frame is used. Raises
    InputError if the file cannot be decoded.
    """
    try:
        with _opened(file) as raw, open_picture(raw) as image:
            orientation = _orientation(image)
            width, height = image.size[::-1] if orientation in _LYING else image.size
            crop = choose(width, height)
            shrink = min(crop.width / crop.size[0], crop.height / crop.size[1])
            if not crop.exact and shrink >= 2 * _SPARE:
                image.draft(None, (int(image.width * _SPARE / shrink), int(image.height * _SPARE / shrink)))
            picture = _upright_rgb(image, orientation)
    except Exception as error:
        raise InputError(f"{file} cannot be decoded ({_reason(error)})") from error
    x, y = picture.width / width, picture.height / height  # below 1 if decoded at a smaller size
    right, bottom = min((crop.left + crop.width) * x, picture.width), min((crop.top + crop.height) * y, picture.height)
    box = crop.left * x, crop.top * y, right, bottom
    return np.asarray(picture.resize(crop.size, Image.Resampling[crop.interpolation.upper()], box))


class Inspected(NamedTuple):
    """content: a hash of the bytes of a picture's file. damage: why it cannot be decoded; None if it can."""

    content: str
    damage: str | None


def inspect(file: PictureFile) -> Inspected:
    """Read a picture's file and decode it completely, at full size."""
    content = ""
    try:
        with _opened(file) as raw:
            content = hashlib.file_digest(raw, partial(hashlib.blake2b, digest_size=_CONTENT_BYTES)).hexdigest()
            raw.seek(0)
            with open_picture(raw) as image:
                _upright_rgb(image, _orientation(image))
    except Exception as error:
        return Inspected(content, _reason(error))
    return Inspected(content, None)


def _opened(file: PictureFile) -> io.BufferedReader | io.BytesIO:
    return regular(Path(file)).open("rb") if isinstance(file, str | Path) else io.BytesIO(file.read())


def _reason(error: Exception) -> str:
    # Pillow repeats the path if it recognises no format.
    return "not a picture" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__


def _orientation(file: Image.Image) -> int:
    """The EXIF orientation that has not been applied yet, 1 to 8."""
    if file.format != "JPEG":
        file.load()  # a PNG may have it after the pixels; Pillow turns a TIFF while loading it
    try:
        orientation: int = file.getexif().get(_ORIENTATION, 1)
        return orientation
    except Exception:  # damaged EXIF can raise almost anything although the pixels are intact
        return 1


def _upright_rgb(file: Image.Image, orientation: int) -> Image.Image:
    picture = _rgb(file)
    return picture.transpose(_TURNS[orientation]) if orientation in _TURNS else picture


def _rgb(file: Image.Image) -> Image.Image:
    if file.mode == "I" or file.mode.startswith("I;16"):
        values = np.asarray(file)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("its pixels are integers of more than 16 bits, of no known range")
        return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8)).convert("RGB")
    if file.mode == "F":
        raise ValueError("its pixels are floating-point numbers of no known range")
    if file.has_transparency_data:
        picture = file.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    file.load()
    return file if file.mode == "RGB" else file.convert("RGB")


def resized_crop(width: int, height: int, resize: int) -> Crop:
    """The whole picture with its shorter side resized to `resize`; if it is longer than 16:1, its middle 16:1."""
    across, down = min(width, _LONGEST * height), min(height, _LONGEST * width)
    shorter = min(across, down)
    return Crop(
        *_middle(width, height, across, down), across, down, (resize * across // shorter, resize * down // shorter)
    )


def prepared_crop(width: int, height: int, how: "Preparation") -> Crop:
    """The whole picture, resized for an encoder; `resized_crop` cuts pictures longer than 16:1."""
    crop = resized_crop(width, height, how.resize)
    across, down = crop.size
    if how.mode == "squash":
        across, down = how.resize, how.resize
    elif how.mode == "longest":
        longer = max(crop.width, crop.height)
        across, down = (max(1, round(how.resize * side / longer)) for side in (crop.width, crop.height))
    return crop._replace(size=(across, down), interpolation=how.interpolation, exact=True)


def padded(picture: np.ndarray, how: "Preparation") -> np.ndarray:
    """The picture (3, height, width) in the middle of at least size x size pixels."""
    missing = [max(0, how.size - side) for side in picture.shape[1:]]
    return np.pad(picture, ((0, 0), *((one // 2, one - one // 2) for one in missing)), constant_values=how.fill)


def centre(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Left and top of the middle size x size pixels."""
    return [(round((width - size) / 2), round((height - size) / 2))]


def corners_and_centre(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Left and top of the crops at the upper left, upper right, lower left and lower right, and in the middle."""
    right, bottom = width - size, height - size
    return [(0, 0), (right, 0), (0, bottom), (right, bottom), *centre(width, height, size)]


def random_crop(width: int, height: int, size: int, rng: np.random.Generator) -> Crop:
    """A part of 8 to 100 % of the area and of 3:4 to 4:3, resized to size x size (torchvision's RandomResizedCrop).

    As in VSE++'s training. If ten tries do not fit into a long picture: its middle, as long as the ratio allows.
    """
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(*np.log(_RATIO)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1))
            return Crop(left, top, across, down, (size, size))
    across, down = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    return Crop(*_middle(width, height, across, down), across, down, (size, size))


def _middle(width: int, height: int, across: int, down: int) -> tuple[int, int]:
    return (width - across) // 2, (height - down) // 2


class Pictures:
    """I pictures as an array of uint8 pixels: (I, 3, size, size), or (I, 10, 3, size, size) with ten crops.

    Indexing resizes a picture's shorter side to `resize` and takes the middle size x size pixels. Ten crops are the
    upper left, upper right, lower left and lower right corner and the centre, then their mirrors in that order.

    files: the paths, or positions of the pictures in larger files. contents: hashes (I,) of the files' bytes, if known;
    None: computed on demand. augments: whether training takes `augmented` pictures. threads:
    how many decode at a time; None is one per core, at most 8. Keeps no threads between reads, so that it can be
    pickled and forked. Raises InputError for sizes that are not whole numbers, `resize` below `size`, and crops other
    than 1 and 10.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        files: PictureFiles,
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augments: bool = False,
        threads: int | None = None,
        contents: np.ndarray | None = None,
    ):
        whole("size", size)
        whole("resize", resize)
        require(resize >= size, f"resize is {resize}, below size, {size}: no crop of that size is left; raise resize")
        one_of("crops", crops, (1, 10))
        if threads is not None:
            whole("threads", threads)
        self.files, self.size, self.resize, self.crops, self.augments = files, size, resize, crops, augments
        self.threads = min(8, os.cpu_count() or 1) if threads is None else threads
        self.preparation: Preparation | None = None
        self._contents = contents

    @property
    def contents(self) -> np.ndarray:
        """(I,) hashes of the bytes of the files; equal files have equal hashes."""
        if self._contents is None:
            with ThreadPoolExecutor(self.threads) as pool:
                files = (self.files[row] for row in range(len(self)))
                self._contents = np.array([one.content for one in pool.map(inspect, files)], _CONTENT)
        return self._contents

    def prepared(self, how: "Preparation") -> "Pictures":
        """The same pictures, prepared for an encoder. Raises InputError for ten crops and unknown settings."""
        require(
            self.crops == 1,
            f"crops is {self.crops}, but the image encoder brings its own preprocessing, of one whole picture; leave "
            "data.pictures.crops out",
        )
        one_of("mode", how.mode, ("shortest", "longest", "squash"))
        one_of("interpolation", how.interpolation, tuple(one.name.lower() for one in Image.Resampling))
        found = copy(self)
        found.size, found.resize, found.preparation = how.size, how.resize, how
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """(I, 3, size, size) or (I, 10, 3, size, size)."""
        return (len(self.files), *(() if self.crops == 1 else (self.crops,)), *self._one)

    @property
    def ndim(self) -> int:
        """4, or 5 with ten crops."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One picture (3, size, size), or (n, 3, size, size) by a slice or row numbers; or each with ten crops.

        Raises IndexError beyond the last row, InputError if a file can no longer be decoded.
        """
        rows = np.arange(len(self))[index]
        pixels = np.empty((rows.size, *self.shape[1:]), np.uint8)
        self._fill(self._evaluated, pixels, rows.flat)
        return pixels.reshape(*rows.shape, *self.shape[1:])

    def augmented(self, rows: np.ndarray, draws: np.ndarray, seed: Sequence[int]) -> np.ndarray:
        """Random crops as in VSE++'s training, half of them mirrored: (n, 3, size, size).

        rows, draws: (n,) integers; the crop of picture rows[i] depends on (*seed, draws[i]) only. Raises as indexing.
        """
        rows = np.arange(len(self))[rows]
        pixels = np.empty((len(rows), *self._one), np.uint8)
        keys = [(*seed, int(draw)) for draw in draws]
        self._fill(self._drawn, pixels, rows, keys)
        return pixels

    @property
    def _one(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def _fill(self, fill: Callable[..., None], *arguments: Iterable[Any]) -> None:
        """Call `fill` in threads that end with this call: a forked process would lose threads that are kept."""
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(lambda each: fill(*each), zip(*arguments, strict=True)):
                pass

    def _evaluated(self, pixels: np.ndarray, row: int) -> None:
        how = self.preparation
        picture = read_crop(
            self.files[row],
            lambda width, height: (
                resized_crop(width, height, self.resize) if how is None else prepared_crop(width, height, how)
            ),
        ).transpose(2, 0, 1)
        if how is not None:
            picture = padded(picture, how)
        height, width = picture.shape[1:]
        starts = (centre if self.crops == 1 else corners_and_centre)(width, height, self.size)
        crops = pixels.reshape(-1, *self._one)
        for crop, (left, top) in zip(crops, starts, strict=False):
            crop[:] = picture[:, top : top + self.size, left : left + self.size]
        if self.crops == 10:
            crops[5:] = crops[:5, ..., ::-1]

    def _drawn(self, pixels: np.ndarray, row: int, key: tuple[int, ...]) -> None:
        rng = np.random.default_rng(key)
        mirrored = rng.random() < 0.5
        crop = read_crop(self.files[row], lambda width, height: random_crop(width, height, self.size, rng))
        pixels[:] = (crop[:, ::-1] if mirrored else crop).transpose(2, 0, 1)


class CheckedPictures(NamedTuple):
    """contents: (I,) hashes of the bytes of the files. damaged: row -> why the picture cannot be decoded."""

    contents: np.ndarray
    damaged: dict[int, str]


def check_pictures(
    files: PictureFiles, keys: Sequence[str], states: Sequence[list[int]], memory: Path, title: str, threads: int
) -> CheckedPictures:
    """Decode all pictures once and hash their files.

    Intact pictures are remembered: one with the same key and state as in an earlier check is not read again. keys,
    states: of each picture, its identity and its version. memory: the file with the earlier checks; if the file cannot
    be written, a warning is logged. title: of the progress bar. threads: how many decode at a
    time.
    """
    remembered = read_object(memory)
    stored = remembered.get("whole") if remembered.get("version") == _VERSION else None
    intact: dict[str, Any] = stored if isinstance(stored, dict) else {}
    contents, unknown = np.empty(len(files), _CONTENT), []
    for row, (key, state) in enumerate(zip(keys, states, strict=True)):
        found = intact.get(key)
        if isinstance(found, list) and found[:-1] == state and isinstance(found[-1], str):
            contents[row] = found[-1]
        else:
            unknown.append(row)
    damaged: dict[int, str] = {}
    shown = bar(f"checking pictures in {title}", total=len(unknown), unit=" pictures")
    try:
        with shown, ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(unknown), _AT_ONCE):
                some = unknown[first : first + _AT_ONCE]
                for row, one in zip(some, pool.map(inspect, [files[row] for row in some]), strict=True):
                    contents[row] = one.content
                    if one.damage is None:
                        intact[keys[row]] = [*states[row], one.content]
                    else:
                        damaged[row] = one.damage
                    shown.update()
    finally:  # pictures that passed before the check was killed need not be decoded again
        if unknown:
            try:
                write_text(memory, json.dumps({"version": _VERSION, "whole": intact}, indent=0))
            except (OSError, ValueError) as error:
                said = "%s cannot be written (%s): the pictures will be checked again at the next start"
                log.warning(said, memory, error)
    return CheckedPictures(contents, damaged)


def memory_file(cache: Path, of: str) -> Path:
    """The file that lists the intact pictures of the folder or collection `of`.

    cache: its folder.
    """
    return cache / f"pictures-{hashlib.sha256(of.encode()).hexdigest()[:16]}.json"
