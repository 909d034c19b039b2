"""Noisy correspondence: a share of the training captions is given to wrong images."""

import hashlib
import json
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import existing, fail, one_of, probability, require, whole_seed
from vsehub.components import Components, make
from vsehub.data.sources import CaptionedImages, Source
from vsehub.io.arrays import readable
from vsehub.io.files import atomic
from vsehub.io.records import require_version

log = logging.getLogger(__name__)

PROTOCOLS = ("captions", "images")
VERSION = 1  # version of vsehub's file; files without a version have version 1
INDEX_FILE = "noise_index.npz"  # in a run's folder
# How many fewer captions than its rate says a published file may move: a few permuted captions return to their own
# image by chance, and the papers round down.
_STAYED, _ROUNDED = 20, 1


@dataclass(frozen=True)
class Noise:
    """The settings of the noise.

    protocol: "captions" permutes single captions among images (NCR, Huang 2021); "images" permutes images together with
    all their captions (DECL, Qin 2022). rate: the share of captions, or of images, that is permuted, in [0, 1); a
    protocol needs one, or an index. index: a file with the image of each caption, used instead of a random draw; it has
    its own protocol and rate, with which these must agree if they are set. seed: of the draw. Raises InputError for
    other values.
    """

    protocol: str | None = None
    rate: float | None = None
    index: str | Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.protocol is not None:
            one_of("data.noise.protocol", self.protocol, PROTOCOLS)
        if self.rate is not None:
            probability("data.noise.rate", self.rate)
        require(
            self.index is not None or (self.rate is not None if self.protocol else not self.rate),
            f"data.noise.protocol is {self.protocol} and data.noise.rate {self.rate}; set both: one of "
            f"{', '.join(PROTOCOLS)}, and a share such as 0.2, or 0 for clean training",
        )
        whole_seed("data.noise.seed", self.seed)

    @property
    def wanted(self) -> bool:
        """True if any captions are moved; a protocol with rate 0 moves none."""
        return bool(self.rate) or self.index is not None


@dataclass(frozen=True)
class NoiseIndex:
    """The assignment of captions to images under noise.

    numbers: for the protocol "captions" (T,), the image to which each caption is assigned; for "images" (I,), the image
    to which each image's captions are assigned. rate: the permuted share. seed: of the draw, None if unknown.
    data: the fingerprint of the training split without noise.
    """

    protocol: str
    rate: float
    seed: int | None
    numbers: np.ndarray
    data: str

    def image_index(self, split: CaptionedImages) -> np.ndarray:
        """(T,) int64: the image to which each caption of the clean split is assigned."""
        return self.numbers.copy() if self.protocol == "captions" else self.numbers[split.image_index]

    def facts(self) -> dict[str, Any]:
        """The entries for records; `fingerprint` is a short hash of the numbers."""
        given = {"protocol": self.protocol, "rate": self.rate, "seed": self.seed, "clean_fingerprint": self.data}
        return given | {"fingerprint": hashlib.sha256(self.numbers.tobytes()).hexdigest()[:16]}

    def write(self, path: str | Path) -> None:
        """Write a .npz of the numbers and, as JSON text, the facts, without pickles."""
        with atomic(path) as handle:
            facts = json.dumps({"version": VERSION} | self.facts())
            np.savez_compressed(handle, numbers=self.numbers, facts=np.array(facts))


def read_index(path: str | Path, clean: CaptionedImages, protocol: str | None = None, rate: float = 0) -> NoiseIndex:
    """An index for the clean training split, from a file of `NoiseIndex.write` or one that was published.

    Published files are .npy files of T image numbers (NCR), of T caption positions, where position t is the caption for
    caption t's image (RDE), or of I image numbers (DECL). protocol, rate: the user's settings; None and 0 accept the
    file's. Raises InputError if the file is damaged, is of other data or of another protocol or rate, or does not give
    every image as many captions as before.
    """
    path = existing("data.noise.index", path, f"Give a run's {INDEX_FILE}, or a published .npy")
    fingerprint = clean.fingerprint()
    with readable(path, Exception):  # numpy parses the header as Python: damage raises almost anything
        own = zipfile.is_zipfile(path)
        stored = dict(np.load(path, allow_pickle=False)) if own else {"numbers": np.load(path, allow_pickle=False)}
        numbers = stored["numbers"].astype(np.int64, casting="same_kind")
        if own:
            facts = json.loads(str(stored["facts"]))
            name = f"data.noise.index: {path}"
            require_version(name, facts.get("version", VERSION), VERSION, "Or draw it again")
            one_of(f"{name}: protocol", facts["protocol"], PROTOCOLS)
            probability(f"{name}: rate", facts["rate"])
            index = NoiseIndex(facts["protocol"], facts["rate"], facts["seed"], numbers, facts["clean_fingerprint"])
    if not own:
        index = _published(path, numbers, clean, protocol, rate, fingerprint)
    require(
        index.data == fingerprint,
        f"data.noise.index: {path} was made of other training data ({index.data}) than this ({fingerprint}); give an "
        "index of this data, or draw a new one",
    )
    require(
        protocol in (None, index.protocol) and rate in (0, index.rate),
        f"data.noise.index: {path} is of protocol {index.protocol} and rate {index.rate:g}, but data.noise.protocol is "
        f"{protocol} and data.noise.rate {rate:g}; omit these, or give another file",
    )
    _require_permutation(path, index, clean)
    return index


def _published(
    path: Path, numbers: np.ndarray, clean: CaptionedImages, protocol: str | None, rate: float, fingerprint: str
) -> NoiseIndex:
    images, captions = len(clean.images), len(clean.captions)
    fitting = [
        name
        for name, size in (("captions", captions), ("images", images))
        if numbers.shape == (size,) and protocol in (None, name)
    ]
    require(
        len(fitting) == 1,
        f"data.noise.index: {path} has the shape {numbers.shape}, and the training split {captions} captions and "
        f"{images} images; give the file of this data and, for one caption an image, data.noise.protocol",
    )
    if fitting == ["captions"]:
        before = clean.image_index
        if captions > images and _is_permutation(numbers, captions):
            positions, numbers = numbers, np.empty(captions, np.int64)
            numbers[positions] = before
    else:
        before = np.arange(images)
    moved, asked = int((numbers != before).sum()), round(rate * len(numbers))
    require(
        rate == 0 or asked - _STAYED - _ROUNDED <= moved <= asked,
        f"data.noise.rate is {rate:g}, which is {asked} of {len(numbers)}, but {path} moves {moved}; give "
        "the rate that it was made with, or none",
    )
    return NoiseIndex(fitting[0], rate or round(moved / len(numbers), 3), None, numbers, fingerprint)


def _require_permutation(path: Path, index: NoiseIndex, clean: CaptionedImages) -> None:
    """Raise InputError unless each image gets as many captions as it had or, with protocol "images", another had."""
    images, numbers = len(clean.images), index.numbers
    before = clean.image_index if index.protocol == "captions" else np.arange(images)
    require(
        numbers.shape == before.shape and np.array_equal(np.sort(numbers), np.sort(before)),
        f"data.noise.index: {path} is not a permutation of protocol {index.protocol} over {images} images (numbered "
        f"from 0) and {len(clean.captions)} captions; give the file of this data, whole",
    )


def _is_permutation(numbers: np.ndarray, size: int) -> bool:
    return np.array_equal(np.sort(numbers), np.arange(size))


def draw_noise(noise: Noise, split: CaptionedImages) -> NoiseIndex:
    """An index in which round(rate x n) of the n captions or images, drawn by seed, are permuted at random.

    As in the published protocols, a permuted caption may by chance keep its place or move within the same image.
    noise: must have a protocol.
    """
    protocol, rate = noise.protocol or fail("data.noise.protocol is not set"), noise.rate or 0.0
    rng = np.random.default_rng([noise.seed, PROTOCOLS.index(protocol)])
    if protocol == "captions":
        numbers = split.image_index[_permuted(len(split.captions), rate, rng)]
    else:
        numbers = _permuted(len(split.images), rate, rng)
    return NoiseIndex(protocol, rate, noise.seed, numbers.astype(np.int64), split.fingerprint())


def _permuted(size: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    order = np.arange(size)
    chosen = rng.permutation(size)[: round(rate * size)]
    order[chosen] = rng.permutation(chosen)
    return order


class NoisySource:
    """A source with noise in its training captions; validation and test are unchanged.

    resumed: the index file of a resumed run; if it exists, it is used instead of a new draw.
    """

    def __init__(self, source: Source, noise: Noise, resumed: str | Path | None = None):
        self._source, self._noise, self.name = source, noise, source.name
        self._resumed = None if resumed is None or not Path(resumed).is_file() else resumed
        self.index: NoiseIndex | None = None
        self.facts: dict[str, Any] | None = None

    def load(self, split: str) -> CaptionedImages:
        """The split, with noise if it is "train".

        Raises InputError if texts may belong to several images, or if no caption changes its image.
        """
        clean = self._source.load(split)
        if split != "train":
            return clean
        require(
            clean.pairs is None,
            "data.noise permutes captions that belong to one image each; in this data a text may belong to several",
        )
        self.index = self._index(clean)
        noisy = replace(clean, image_index=self.index.image_index(clean))
        changed = int((noisy.image_index != clean.image_index).sum())
        require(
            changed > 0,
            f"data.noise: no caption of the {len(clean.images)} training images came to another image; give a larger "
            "rate, another seed or more data",
        )
        share = changed / len(clean.captions)
        self.facts = {
            **self.index.facts(),
            "index": None if self._noise.index is None else str(self._noise.index),
            "changed": share,
            "changed_captions": changed,
        }
        said = "noise, protocol %s, rate %g: %d of %d training captions (%.2f %%) belong to a wrong image"
        log.info(said, self.index.protocol, self.index.rate, changed, len(clean.captions), 100 * share)
        return noisy

    def _index(self, clean: CaptionedImages) -> NoiseIndex:
        noise = self._noise
        path = self._resumed or noise.index
        if path is None:
            return draw_noise(noise, clean)
        index = read_index(path, clean, noise.protocol, noise.rate or 0)
        require(
            noise.index is not None or index.seed == noise.seed,
            f"data.noise.seed is {noise.seed}, but the run was started with the noise of seed {index.seed} and goes on "
            "with that; omit the seed, or start a new run",
        )
        return index


def clean_source(settings: Mapping[str, Any], known: Components) -> Source:
    """The data source of a node, for a command that does not train. Raises InputError if noise is set."""
    own = dict(settings)
    noise = make("data.noise", Noise, own.pop("noise", None) or {})
    require(not noise.wanted, "data.noise is for training only; omit data.noise.rate and data.noise.index")
    source: Source = known.build("data", own)
    return source
