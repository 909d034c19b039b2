"""Noisy correspondence: a share of the training captions is given to wrong images."""

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import existing, one_of, probability, require, whole_seed
from vsehub.data.sources import CaptionedImages, Source, pairs_by_caption
from vsehub.io.arrays import readable
from vsehub.io.files import atomic

log = logging.getLogger(__name__)

PROTOCOLS = ("captions", "images")
INDEX_FILE = "noise_index.npy"  # in a run's folder
# A published file may move this many captions fewer than its rate says: a few permuted captions return to their own
# image by chance, and the papers round down.
_MAY_STAY = 21


@dataclass(frozen=True)
class Noise:
    """The settings of the noise.

    protocol: "captions" permutes single captions among images (NCR, Huang 2021); "images" permutes images together with
    all their captions (DECL, Qin 2022). rate: the share of captions, or of images, that is permuted, in [0, 1); a
    protocol needs one, or an index. index: a .npy file, used instead of a random draw; protocol and rate, if set, must
    agree with it. seed: seed of the draw. Raises InputError for other values.
    """

    protocol: str | None = None
    rate: float | None = None
    index: str | Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("data.noise.protocol", self.protocol, (None, *PROTOCOLS))
        probability("data.noise.rate", self.rate or 0)
        drawn = bool(self.protocol) and self.rate is not None
        clean = not self.protocol and not self.rate
        require(
            drawn or clean or self.index is not None,
            f"data.noise.protocol is {self.protocol} and data.noise.rate {self.rate}; set both: one of "
            f"{', '.join(PROTOCOLS)}, and a share such as 0.2, or 0 for clean training",
        )
        whole_seed("data.noise.seed", self.seed)

    @property
    def moves_captions(self) -> bool:
        """True if any captions are moved; a protocol with rate 0 moves none."""
        return bool(self.rate) or self.index is not None


def draw_noise(protocol: str, rate: float, seed: int, split: CaptionedImages) -> np.ndarray:
    """An index that permutes round(rate x n) of the n captions or images, drawn by seed.

    For the protocol "captions" (T,) int64, the image to which each caption is assigned; for "images" (I,) int64, the
    image to which each image's captions are assigned. As in the published protocols, a permuted caption may by chance
    keep its place or move within the same image.
    """
    rng = np.random.default_rng([seed, PROTOCOLS.index(protocol)])
    order = np.arange(len(split.captions if protocol == "captions" else split.images))
    chosen = rng.permutation(len(order))[: round(rate * len(order))]
    order[chosen] = rng.permutation(chosen)
    return image_of_each(split)[order] if protocol == "captions" else order


def image_of_each(split: CaptionedImages) -> np.ndarray:
    """The image of each caption, (T,) int64. Raises InputError if a caption belongs to several images."""
    require(
        not split.shared,
        "data.noise permutes captions that belong to one image each; in this data a text may belong to several",
    )
    return split.pairs[split.pairs[:, 1].argsort(), 0]


def read_index(
    path: str | Path, clean: CaptionedImages, protocol: str | None = None, rate: float | None = None
) -> tuple[str, float, np.ndarray]:
    """Read the noise of a training split from a .npy file: its protocol, its rate and the numbers of `draw_noise`.

    The file is a run's, or a published one: T image numbers (NCR); T caption numbers, where entry t is the caption that
    gets the image of caption t (RDE); or I image numbers (DECL). clean: the training split without noise. protocol,
    rate: the user's settings; None accepts the file's. Raises InputError if the file is damaged, of another protocol or
    rate, or does not give every image as many captions as before.
    """
    path = existing("data.noise.index", path, f"Give a run's {INDEX_FILE}, or a published .npy")
    clean_numbers = {"captions": image_of_each(clean), "images": np.arange(len(clean.images))}
    with readable(path, Exception):  # numpy parses the header as Python: damage raises almost anything
        numbers: np.ndarray = np.load(path, allow_pickle=False).astype(np.int64, casting="same_kind")
        if len(clean.captions) > len(clean.images) and _is_permutation(numbers, np.arange(len(clean.captions))):
            # RDE's layout: argsort inverts the permutation, so that entry c is the image that caption c gets.
            numbers = clean_numbers["captions"][numbers.argsort()]
        possible = [name for name in clean_numbers if protocol in (None, name)]
        protocols = [name for name in possible if _is_permutation(numbers, clean_numbers[name])]
    require(
        len(protocols) == 1,
        f"data.noise.index: {path} of shape {numbers.shape} does not permute the {len(clean.captions)} captions or the "
        f"{len(clean.images)} images, numbered from 0; give the file of this data and, for one caption an image, "
        "data.noise.protocol",
    )
    moved = int((numbers != clean_numbers[protocols[0]]).sum())
    expected = round((rate or 0) * len(numbers))
    require(
        not rate or expected - _MAY_STAY <= moved <= expected,
        f"data.noise.rate is {rate}, which is {expected} of {len(numbers)}, but {path} moves {moved}; give the rate "
        "that it was made with, or none",
    )
    return protocols[0], rate or round(moved / len(numbers), 3), numbers


def _is_permutation(numbers: np.ndarray, original: np.ndarray) -> bool:
    return np.array_equal(np.sort(numbers), np.sort(original))


class NoisySource:
    """A source with noise in its training captions; validation and test are unchanged."""

    def __init__(self, source: Source, noise: Noise):
        self._source, self._noise, self.name = source, noise, source.name
        self.metadata: dict[str, Any] | None = None

    def load(self, split: str) -> CaptionedImages:
        """The split, with noise if it is "train".

        Raises InputError if texts may belong to several images, or if no caption changes its image.
        """
        clean, noise = self._source.load(split), self._noise
        if split != "train":
            return clean
        before = image_of_each(clean)
        protocol, rate = noise.protocol or PROTOCOLS[0], noise.rate or 0.0
        if noise.index is None:
            self._numbers = draw_noise(protocol, rate, noise.seed, clean)
        else:
            protocol, rate, self._numbers = read_index(noise.index, clean, noise.protocol, noise.rate)
        images = self._numbers if protocol == "captions" else self._numbers[before]
        changed = int((images != before).sum())
        require(
            changed > 0,
            f"data.noise: no caption of the {len(clean.images)} training images came to another image; give a larger "
            "rate, another seed or more data",
        )
        self.metadata = {
            "protocol": protocol,
            "rate": rate,
            "seed": noise.seed if noise.index is None else None,
            "clean_fingerprint": clean.fingerprint(),
            "fingerprint": hashlib.sha256(self._numbers.tobytes()).hexdigest()[:16],
            "index": None if noise.index is None else str(noise.index),
            "changed": changed / len(clean.captions),
            "changed_captions": changed,
        }
        log.info(
            "noise, protocol %s, rate %g: %d of %d training captions (%.2f %%) belong to a wrong image",
            protocol,
            rate,
            changed,
            len(clean.captions),
            100 * changed / len(clean.captions),
        )
        return replace(clean, pairs=pairs_by_caption(images))

    def write_index(self, path: str | Path) -> None:
        """Write the numbers of the noise of the training split, which has been loaded, as a .npy file."""
        with atomic(path) as handle:
            np.save(handle, self._numbers)
