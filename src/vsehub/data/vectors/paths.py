"""Files of vectors: `FILE`, `FOLDER` or a URI, each with or without `::ARRAY`. Does not import torch."""

import hashlib
import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from vsehub.checks import InputError, existing, require
from vsehub.io.address import is_uri, masked, remember
from vsehub.io.arrays import listed, shortened
from vsehub.io.files import atomic, cache_folder, stamp_of

log = logging.getLogger(__name__)

Stamps = dict[Path, tuple[int, ...] | None]

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv", ".jsonl", ".pt", ".pth")
METADATA = "metadata"  # the folder of the ids and captions in clip-retrieval's layout
_EXPECTED = f"expected one vector per row in a {', '.join(SUFFIXES)}, or a folder of .npy or of .parquet files"
_CHUNK_BYTES = 8 << 20
_VERSION_HEADERS = {"ETag", "Content-MD5", "Digest", "Last-Modified"}  # they change with a file


def split_path(path: str) -> tuple[str, str | None]:
    """The file, folder or URI, and the array's name, of `FILE::ARRAY`; a file's own name may contain two colons.

    A URI of this machine, `file:///...`, becomes the path.
    """
    file, colons, array = path.rpartition("::")
    in_brackets = file.count("[") > file.count("]")  # as in the IPv6 address http://[::1]/vectors.npy
    colons_in_name = in_brackets if is_uri(path) else Path(path).exists()
    where, key = (file, array) if colons and not colons_in_name else (path, None)
    return where.removeprefix("file://"), key


def file_name(path: str) -> PurePosixPath:
    """The name of a file or folder, without the query that follows it in a web address."""
    plain = re.split("[?#]", path)[0] if path.startswith(("http://", "https://")) else path
    return PurePosixPath(PurePosixPath(plain).name)


def suffix_of(path: str) -> str:
    """The ending of a path or URI in lower case."""
    return file_name(path).suffix.lower()


def is_folder(path: str) -> bool:
    """Return True for a folder, and for a URI without an ending."""
    return suffix_of(path) == "" if is_uri(path) else Path(path).is_dir()


def require_vectors(name: str, path: str) -> None:
    """Raise InputError if a path or URI cannot be one of vectors: absent, or of another format. Opens nothing."""
    if not is_uri(path):
        existing(name, path, _EXPECTED)
    require(is_folder(path) or suffix_of(path) in SUFFIXES, f"{name}: {path}: {_EXPECTED}")


def natural(name: str) -> list[int | str]:
    """A key that sorts names by the numbers in them: img_emb_2 before img_emb_10."""
    return [int(piece) if number % 2 else piece for number, piece in enumerate(re.split("([0-9]+)", name))]


def stamps(files: Iterable[Path]) -> Stamps:
    """The stamp of each file, to detect changes; None for an absent file."""
    return {file: stamp_of(file) if file.exists() else None for file in files}


def fetch(name: str, uri: str) -> Path:
    """The local copy of a file behind a URI; it is used again while the source reports the same size, date and ETag.

    Copies of its earlier versions are deleted. Raises InputError if the file cannot be fetched.
    """
    with _connected(name, uri) as (files, path):
        info = files.info(path)
        version = {key: value for key, value in info.items() if key != "url"}  # a redirection may be signed anew
        folder = cache_folder() / "vectors" / hashlib.sha256(uri.encode()).hexdigest()
        copy = folder / hashlib.sha256(str(version).encode()).hexdigest() / file_name(uri)
        if not copy.exists() or (uri.startswith("http") and not _VERSION_HEADERS & info.keys()):
            log.info("fetching %s", masked(uri))
            with atomic(copy) as out, files.open(path, "rb") as source:
                shutil.copyfileobj(source, out, _CHUNK_BYTES)
            for old in folder.iterdir():
                if old != copy.parent:
                    shutil.rmtree(old, ignore_errors=True)
    return copy


def shards(name: str, folder: str, key: str | None) -> tuple[list[str], list[str], str | None]:
    """The paths or URIs of a folder's files in natural order, those of their metadata, and the array to read in each.

    There is one file of metadata for each file, or none at all. folder: a path or URI. key: a side of clip-retrieval's
    layout, such as "img_emb", or a column. Files whose names begin with a dot or an underscore do not count. Raises
    InputError for anything but `.npy` or `.parquet` files.
    """
    base, has_metadata = folder.rstrip("/"), False
    with _connected(name, folder) as (files, root):
        if key is not None and files.isdir(f"{root}/{key}"):
            has_metadata = files.isdir(f"{root}/{METADATA}")
            root, base, key = f"{root}/{key}", f"{base}/{key}", None
        listing = files.ls(root, detail=False)
    below = [file_name(path).name for path in listing if path.rstrip("/") != root]  # object stores list the folder too
    names = sorted((file for file in below if not file.startswith((".", "_"))), key=natural)
    require(
        {suffix_of(file) for file in names} in ({".npy"}, {".parquet"}),
        f"{name}: {base}: expected a folder of .npy or of .parquet files; it holds {listed(names) or 'none'}",
    )
    numbers = [Path(file).stem.rpartition("_")[2] for file in names] if has_metadata else []
    metadata = [f"{folder.rstrip('/')}/{METADATA}/metadata_{number}.parquet" for number in numbers]
    return [f"{base}/{file}" for file in names], metadata, key


@contextmanager
def _connected(name: str, where: str) -> Iterator[tuple[Any, str]]:
    """The file system of a path or URI, and the path there. Turns an error of its library into an InputError."""
    from fsspec.core import url_to_fs

    remember(where)
    try:
        files, path = url_to_fs(where if is_uri(where) else str(Path(where).absolute()))
        files.invalidate_cache()
        yield files, path.rstrip("/")
    except Exception as error:
        said = shortened(masked(str(error)))
        raise InputError(f"{name}: {masked(where)} cannot be read ({type(error).__name__}: {said})") from error
