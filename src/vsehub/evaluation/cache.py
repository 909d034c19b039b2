"""Encoded splits kept in files beside a checkpoint."""

import logging
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError, regular
from vsehub.data.sources import CaptionedImages
from vsehub.io.files import atomic, within
from vsehub.sets import Encoding

log = logging.getLogger(__name__)


class EncodedCache:
    """A folder with one file per split and side, each with a key of its origin; stale files are replaced.

    checkpoint: the file, after which the folder is named. sha256: the checkpoint's. Raises InputError if the folder is
    a link to a place elsewhere.
    """

    def __init__(self, checkpoint: Path, sha256: str):
        self.folder = within(checkpoint.parent, f"{checkpoint.stem}.encoded")
        self._sha256 = sha256

    def get(self, name: str, split: CaptionedImages, encode: Callable[[], Encoding]) -> Encoding:
        """The vectors (N, D) of `name` ("test-images"): from the file, on the CPU, or the result of `encode`.

        Sets of vectors are not stored.
        """
        path = self.folder / f"{name}.safetensors"
        key = {"checkpoint": self._sha256, "data": split.fingerprint(), "vsehub": __version__}
        kept = _read(path, key)
        if kept is not None:
            return kept
        encoded = encode()
        if isinstance(encoded, Tensor):
            try:
                with atomic(path) as handle:
                    handle.write(save({"vectors": encoded.cpu().contiguous()}, key))
            except (OSError, SafetensorError, InputError) as error:
                log.warning("%s could not be stored; the next search encodes it again: %s", path, error)
        return encoded


def _read(path: Path, key: dict[str, str]) -> Tensor | None:
    """The kept vectors; None if there are none, they are of something else, or the file is damaged."""
    try:
        with safe_open(regular(path), "pt") as kept:
            return kept.get_tensor("vectors") if kept.metadata() == key else None
    except (OSError, SafetensorError, InputError):
        return None
