"""Encoded splits stored in files beside a checkpoint."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError, regular
from vsehub.data.contents import content_digest
from vsehub.data.sources import ArrayLike
from vsehub.io.files import atomic, within
from vsehub.sets import Encoding

log = logging.getLogger(__name__)


class EncodedCache:
    """A folder with one file per split and side, each with a key of its origin; stale files are replaced.

    The key names the checkpoint's weights, all images or captions, and how they are encoded (precision, device, code).
    checkpoint: the file; the folder is named after it. sha256: the checkpoint's. Raises InputError if the folder is a
    link to another folder.
    """

    def __init__(self, checkpoint: Path, sha256: str):
        self.folder = within(checkpoint.parent, f"{checkpoint.stem}.encoded")
        self._sha256 = sha256

    def get(self, name: str, rows: list[str] | ArrayLike, how: str, encode: Callable[[], Encoding]) -> Encoding:
        """The vectors (N, D) of `name` ("test-images"): from the file, on the CPU, or the result of `encode`.

        rows: the images or captions. how: the way of encoding. Sets of vectors are not stored.
        """
        path = self.folder / f"{name}.safetensors"
        # Before encoding: rows that change meanwhile are encoded again by the next command.
        key = self._key(how) | {"data": content_digest(rows)}
        kept = _read(path, key)
        if kept is not None:
            log.info("encodings of %s reused: %s vectors from %s", name, f"{len(kept[0]):,}", path)
            return kept[0]
        encoded = encode()
        if isinstance(encoded, Tensor):
            self._write(path, {"vectors": encoded}, key)
        return encoded

    def _key(self, how: str) -> dict[str, str]:
        return {"checkpoint": self._sha256, "encoded": how, "vsehub": __version__}

    def get_pictures(
        self, name: str, contents: np.ndarray, how: str, encode: Callable[[np.ndarray], Encoding]
    ) -> Encoding:
        """The vectors (N, D) of pictures; only pictures missing in the file of `name` are encoded.

        contents: (N,) hashes of the pictures' files. how: their preparation, and the way of encoding. encode: row
        numbers (n,) to their vectors. Sets of vectors are not stored.
        """
        path = self.folder / f"{name}.safetensors"
        key = self._key(how)
        held = _read(path, key, "contents")
        places = {} if held is None else {bytes(one): row for row, one in enumerate(held[1].numpy())}
        digests = np.ascontiguousarray(contents).view(np.uint8).reshape(len(contents), -1)
        rows = np.array([places.get(bytes(one), -1) for one in digests])
        missing = np.flatnonzero(rows < 0)
        if held is not None and not len(missing):
            log.info("encodings of %s reused: %s vectors from %s", name, f"{len(rows):,}", path)
            return held[0][torch.from_numpy(rows)]
        new = encode(missing)
        if not isinstance(new, Tensor):
            return encode(np.arange(len(contents)))
        vectors = new.new_empty(len(contents), new.shape[1])
        vectors[torch.from_numpy(missing).to(new.device)] = new
        if held is not None and len(missing) < len(contents):
            there = torch.from_numpy(np.flatnonzero(rows >= 0))
            vectors[there.to(new.device)] = held[0][torch.from_numpy(rows[rows >= 0])].to(new.device)
        self._write(path, {"vectors": vectors, "contents": torch.from_numpy(digests.copy())}, key)
        return vectors

    def _write(self, path: Path, tensors: dict[str, Tensor], key: dict[str, str]) -> None:
        try:
            with atomic(path) as handle:
                handle.write(save({name: one.cpu().contiguous() for name, one in tensors.items()}, key))
        except (OSError, SafetensorError, InputError) as error:
            log.warning("%s could not be stored; the next command encodes it again: %s", path, error)


def _read(path: Path, key: dict[str, str], *further: str) -> list[Tensor] | None:
    """The stored vectors, and further tensors; None if the file is absent, stale or damaged."""
    try:
        with safe_open(regular(path), "pt") as kept:
            if kept.metadata() != key:
                return None
            return [kept.get_tensor(name) for name in ("vectors", *further)]
    except (OSError, SafetensorError, InputError):
        return None
