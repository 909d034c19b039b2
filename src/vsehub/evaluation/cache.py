"""Encoded splits stored in files beside a checkpoint."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError, regular
from vsehub.io.files import atomic, within
from vsehub.sets import Encoding

log = logging.getLogger(__name__)


def cached(folder: Path, name: str, origin: list[str], encode: Callable[[], Encoding]) -> Encoding:
    """The vectors (N, D) of the file `name` of `folder`, on the CPU, or else the result of `encode`, which is stored.

    origin: digests of what is encoded and how. The file is read if it was stored for the same origin in this folder:
    the folder's path and inode count, so that encodings in a copied or downloaded folder are made again. Sets of
    vectors are not stored. Raises InputError if the folder is a link to another one.
    """
    within(folder.parent, folder.name)
    path = folder / f"{name}.safetensors"
    with suppress(OSError):  # nothing can be stored there
        folder.mkdir(parents=True, exist_ok=True)
    inode = folder.stat().st_ino if folder.exists() else 0
    key = {"origin": json.dumps([__version__, *origin, str(folder.resolve()), inode])}
    with suppress(OSError, InputError, SafetensorError), safe_open(regular(path), "pt") as file:
        if file.metadata() == key:
            vectors: Tensor = file.get_tensor("vectors")
            log.info("encodings of %s reused: %s vectors from %s", name, f"{len(vectors):,}", path)
            return vectors
    encoded = encode()
    if isinstance(encoded, Tensor):
        try:
            with atomic(path) as handle:
                handle.write(save({"vectors": encoded.cpu().contiguous()}, key))
        except OSError as error:
            log.warning("%s could not be stored; the next command encodes it again: %s", path, error)
    return encoded
