"""Encoded splits stored in files beside a checkpoint."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError, regular
from vsehub.data.contents import content_digest
from vsehub.data.sources import ArrayLike
from vsehub.io.files import atomic, cache_folder, read_object, within, write_json
from vsehub.sets import Encoding

log = logging.getLogger(__name__)


class EncodedCache:
    """A folder with one file per split and side, each with a key of its origin; stale files are replaced.

    The key names all images or captions, and how they are encoded (precision, device, code). A record in the user's
    caches, named after the checkpoint's weights, lists key and digest of each file that this user's processes wrote;
    other files, such as those of a downloaded folder, are encoded again.

    checkpoint: the file; the folder is named after it. sha256: the checkpoint's. Raises InputError if the folder is a
    link to another folder.
    """

    def __init__(self, checkpoint: Path, sha256: str):
        self.folder = within(checkpoint.parent, f"{checkpoint.stem}.encoded")
        self._record = cache_folder(None) / "encoded" / f"{sha256}.json"

    def get(self, name: str, rows: list[str] | ArrayLike, how: str, encode: Callable[[], Encoding]) -> Encoding:
        """The vectors (N, D) of `name` ("test-images"): from the file, on the CPU, or the result of `encode`.

        rows: the images or captions. how: the way of encoding. Sets of vectors are not stored.
        """
        path = self.folder / f"{name}.safetensors"
        # Before encoding: rows that change meanwhile are encoded again by the next command.
        key = self._key(how) | {"data": content_digest(rows)}
        kept = self._read(path, key)
        if kept is not None:
            log.info("encodings of %s reused: %s vectors from %s", name, f"{len(kept['vectors']):,}", path)
            return kept["vectors"]
        encoded = encode()
        if isinstance(encoded, Tensor):
            self._write(path, {"vectors": encoded}, key)
        return encoded

    def _key(self, how: str) -> dict[str, str]:
        return {"encoded": how, "vsehub": __version__}

    def get_pictures(
        self, name: str, contents: np.ndarray, how: str, encode: Callable[[np.ndarray], Encoding]
    ) -> Encoding:
        """The vectors (N, D) of pictures; only pictures missing in the file of `name` are encoded.

        contents: (N,) hashes of the pictures' files. how: their preparation, and the way of encoding. encode: row
        numbers (n,) to their vectors. Sets of vectors are not stored.
        """
        path = self.folder / f"{name}.safetensors"
        key = self._key(how)
        held = self._read(path, key)
        places = {} if held is None else {bytes(one): row for row, one in enumerate(held["contents"].numpy())}
        digests = np.ascontiguousarray(contents).view(np.uint8).reshape(len(contents), -1)
        rows = np.array([places.get(bytes(one), -1) for one in digests])
        missing = np.flatnonzero(rows < 0)
        if held is not None and not len(missing):
            log.info("encodings of %s reused: %s vectors from %s", name, f"{len(rows):,}", path)
            return held["vectors"][torch.from_numpy(rows)]
        new = encode(missing)
        if not isinstance(new, Tensor):
            return encode(np.arange(len(contents)))
        vectors = new.new_empty(len(contents), new.shape[1])
        vectors[torch.from_numpy(missing).to(new.device)] = new
        if held is not None and len(missing) < len(contents):
            there = torch.from_numpy(np.flatnonzero(rows >= 0))
            vectors[there.to(new.device)] = held["vectors"][torch.from_numpy(rows[rows >= 0])].to(new.device)
        self._write(path, {"vectors": vectors, "contents": torch.from_numpy(digests.copy())}, key)
        return vectors

    def _write(self, path: Path, tensors: dict[str, Tensor], key: dict[str, str]) -> None:
        content = save({name: one.cpu().contiguous() for name, one in tensors.items()})
        own = {path.name: key | {"digest": hashlib.sha256(content).hexdigest()}}
        try:
            with atomic(path) as handle:
                handle.write(content)
            write_json(self._record, read_object(self._record) | own)
        except OSError as error:
            log.warning("%s could not be stored; the next command encodes it again: %s", path, error)

    def _read(self, path: Path, key: dict[str, str]) -> dict[str, Tensor] | None:
        """The stored tensors; None if the file is absent, stale, damaged or not in the record."""
        try:
            content = regular(path).read_bytes()
        except (OSError, InputError):
            return None
        own = key | {"digest": hashlib.sha256(content).hexdigest()}
        return load(content) if read_object(self._record).get(path.name) == own else None
