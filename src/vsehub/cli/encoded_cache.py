"""Encoded splits kept beside the checkpoint that encoded them, so that a second search is quick."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError
from vsehub.data.captioned import CaptionedImages
from vsehub.files import atomic

log = logging.getLogger(__name__)


class EncodedCache:
    """A folder of one file a split and side, each with the key of what it was made from; a stale one is replaced.

    checkpoint: the file; the folder is called after it.
    """

    def __init__(self, checkpoint: str | Path):
        checkpoint = Path(checkpoint)
        self.folder = checkpoint.with_name(f"{checkpoint.stem}.encoded")
        with checkpoint.open("rb") as handle:
            self._checkpoint = hashlib.file_digest(handle, "sha256").hexdigest()

    def get(self, name: str, split: CaptionedImages, encode: Callable[[], Tensor]) -> Tensor:
        """The vectors (N, D) of `name` ("test-images") on the CPU: as they were kept, or as `encode` gives them."""
        path = self.folder / f"{name}.safetensors"
        key = {"checkpoint": self._checkpoint, "data": split.fingerprint(), "vsehub": __version__}
        kept = _read(path, key)
        if kept is not None:
            return kept
        vectors = encode().cpu().contiguous()
        try:
            with atomic(path) as handle:
                handle.write(save({"vectors": vectors}, key))
        except (OSError, SafetensorError, InputError) as error:
            log.warning("%s was not kept, the next search encodes it again: %s", path, error)
        return vectors


def _read(path: Path, key: dict[str, str]) -> Tensor | None:
    """The kept vectors; None where there are none, they are of something else, or the file is damaged."""
    try:
        with safe_open(path, "pt") as kept:
            return kept.get_tensor("vectors") if kept.metadata() == key else None
    except (OSError, SafetensorError):
        return None
