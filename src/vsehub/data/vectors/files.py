"""Files of vectors in folders and behind URIs, which fsspec lists and fetches into the user's caches."""

import hashlib
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vsehub.checks import InputError, require
from vsehub.data.vectors.paths import file_name, natural, suffix_of
from vsehub.io.address import Address, is_uri, masked
from vsehub.io.arrays import listed, shortened
from vsehub.io.files import atomic, cache_folder

log = logging.getLogger(__name__)

METADATA = "metadata"  # the folder of the ids and captions in clip-retrieval's layout
_CHUNK_BYTES = 8 << 20
_VERSIONS = {"ETag", "Content-MD5", "Digest", "Last-Modified"}  # headers of a web server that change with a file


def fetch(name: str, uri: str) -> Path:
    """The local copy of a file behind a URI; it is used again while the source reports the same size, date and ETag.

    Raises InputError if the file cannot be fetched.
    """
    files, path = _opened(name, uri)
    with _connected(name, uri):
        info = files.info(path)
        version = {key: value for key, value in info.items() if key != "url"}  # a redirection may be signed anew
        digest = hashlib.sha256(f"{Address(uri).opened(name)} {version}".encode()).hexdigest()
        copies = cache_folder(None) / "vectors"
        copies.mkdir(parents=True, exist_ok=True, mode=0o700)
        copy = copies / digest / file_name(uri)
        undated = uri.startswith("http") and not _VERSIONS & info.keys()
        if undated or not copy.exists():
            log.info("fetching %s", uri)
            with atomic(copy) as out, files.open(path, "rb") as source:
                shutil.copyfileobj(source, out, _CHUNK_BYTES)
                size = info.get("size")
                require(size in (None, out.tell()), f"{out.tell()} of {size} bytes came")
    return copy


def shards(name: str, folder: str, inside: str | None) -> tuple[list[str], list[str], str | None]:
    """The addresses of a folder's files in natural order, of the metadata of each, and the array's name.

    folder: a path or URI. inside: a side of clip-retrieval's layout, such as "img_emb", or a column. Files whose names
    begin with a dot or an underscore do not count. Raises InputError for anything but `.npy` or `.parquet` files.
    """
    files, root = _opened(name, folder)
    base, metadata = folder.rstrip("/"), None
    with _connected(name, folder):
        if inside is not None and files.isdir(f"{root}/{inside}"):
            metadata = f"{base}/{METADATA}" if files.isdir(f"{root}/{METADATA}") else None
            root, base, inside = f"{root}/{inside}", f"{base}/{inside}", None
        listing = files.ls(root, detail=False)
    inner = [file_name(path).name for path in listing if path.rstrip("/") != root]  # object stores list the folder too
    names = sorted((one for one in inner if not one.startswith((".", "_"))), key=natural)
    require(
        {suffix_of(one) for one in names} in ({".npy"}, {".parquet"}),
        f"{name}: {base}: expected a folder of .npy or of .parquet files; it holds {listed(names) or 'none'}",
    )
    numbers = [Path(one).stem.rpartition("_")[2] for one in names]
    described = [] if metadata is None else [f"{metadata}/metadata_{number}.parquet" for number in numbers]
    return [f"{base}/{one}" for one in names], described, inside


def _opened(name: str, where: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path there."""
    from fsspec import filesystem
    from fsspec.core import url_to_fs

    if not is_uri(where):
        return filesystem("file"), str(Path(where).absolute())
    opened = Address(where).opened(name)
    with _connected(name, where):
        files, path = url_to_fs(opened)
        files.invalidate_cache()
    return files, path.rstrip("/")


@contextmanager
def _connected(name: str, uri: str) -> Iterator[None]:
    """Turn an error of any file system's library into an InputError."""
    try:
        yield
    except Exception as error:
        said = shortened(masked(str(error)))
        raise InputError(f"{name}: {uri} cannot be read ({type(error).__name__}: {said})") from error
