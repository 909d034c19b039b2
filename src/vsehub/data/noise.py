"""Noisy correspondence: a share of the training captions is given to wrong images."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vsehub.checks import one_of, require
from vsehub.data.captioned import CaptionedImages, Source
from vsehub.data.noise_file import PROTOCOLS, NoiseIndex, read_index

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Noise:
    """What noise is asked for.

    protocol: "captions" permutes single captions among images (NCR, Huang 2021); "images" permutes whole images, their
    captions with them (DECL, Qin 2022). rate: the share of captions, or of images, that is permuted, in [0, 1). index:
    a file that says who gets what, instead of drawing; protocol and rate are then the file's, and must agree with it
    where they are given. seed: of the draw. Raises InputError otherwise.
    """

    protocol: str | None = None
    rate: float = 0.0
    index: str | Path | None = None
    seed: int = 0

    def __post_init__(self):
        if self.protocol is not None:
            one_of("data.noise.protocol", self.protocol, PROTOCOLS)
        number = isinstance(self.rate, int | float) and not isinstance(self.rate, bool)
        require(
            number and 0 <= self.rate < 1,
            f"data.noise.rate is {self.rate!r}; expected a share from 0 to below 1, for example 0.2",
        )
        require(
            self.rate == 0 or self.protocol is not None or self.index is not None,
            f"data.noise.rate is {self.rate} but data.noise.protocol is not set; choose one of "
            f"{', '.join(map(repr, PROTOCOLS))}",
        )
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        require(whole and self.seed >= 0, f"data.noise.seed is {self.seed!r}; expected a whole number from 0 up")

    @property
    def wanted(self) -> bool:
        """Whether there is any: a protocol of rate 0 is clean training."""
        return self.rate > 0 or self.index is not None


def drawn(noise: Noise, split: CaptionedImages) -> NoiseIndex:
    """Exactly round(rate x n) of the n captions or images, drawn by seed, permuted at random among each other.

    As in the published protocols a permuted one may stay where it was, by chance, or come to another place of the same
    image; the share that truly changed is the index's to tell.
    """
    rng = np.random.default_rng([noise.seed, PROTOCOLS.index(noise.protocol)])
    if noise.protocol == "captions":
        numbers = split.image_index[_permuted(len(split.captions), noise.rate, rng)]
    else:
        numbers = _permuted(len(split.images), noise.rate, rng)
    return NoiseIndex(noise.protocol, noise.rate, noise.seed, numbers.astype(np.int64), split.fingerprint())


def _permuted(size: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    order = np.arange(size)
    chosen = rng.permutation(size)[: round(rate * size)]
    order[chosen] = rng.permutation(chosen)
    return order


class NoisySource:
    """A source with noise in its training captions; validation and test are as they were, and images stored once.

    kept: the index of a run that goes on, if it was written; then it is taken, not drawn again.
    """

    def __init__(self, source: Source, noise: Noise, kept: str | Path | None = None):
        self._source, self._noise, self.name = source, noise, source.name
        self._kept = None if kept is None or not Path(kept).is_file() else kept
        self.index: NoiseIndex | None = None
        self.facts: dict | None = None

    def load(self, split: str) -> CaptionedImages:
        """The split. InputError where texts may belong to several images, or where no caption changes its image."""
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
        path = self._kept or noise.index
        if path is None:
            return drawn(noise, clean)
        index = read_index(path, clean, noise.protocol, noise.rate)
        require(
            noise.index is not None or index.seed == noise.seed,
            f"data.noise.seed is {noise.seed}, but the run was started with the noise of seed {index.seed} and goes on "
            "with that; leave the seed away, or start a new run",
        )
        return index
