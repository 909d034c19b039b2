"""Names of vectors, `FILE`, `FOLDER` or a URI, each with or without `::ARRAY`, checked before anything is read.

Does not import torch, so that a command can refuse a name at once.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vsehub.checks import InputError, existing, fail, require
from vsehub.extras import package
from vsehub.io.address import is_uri
from vsehub.io.rows import listed

Stamps = dict[Path, tuple[int, ...] | None]

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv", ".jsonl", ".pt", ".pth")
SHARDS = (".npy", ".parquet")
METADATA = "metadata"  # the folder of the ids and captions in clip-retrieval's layout
_FORMATS = ", ".join(SUFFIXES)
_SIDE = "_emb"  # ends the names of the folders of vectors there: img_emb, text_emb
_ADVICE = f"Give a file of vectors, one per row: {_FORMATS}, or a folder of shards: .npy or .parquet"


def split_path(path: str) -> tuple[str, str | None]:
    """The file, folder or URI, and the array's name, of `FILE::ARRAY`; a file's own name may contain two colons.

    A URI of this machine, `file:///...`, becomes the path.
    """
    file, colons, array = path.rpartition("::")
    # The colons of an address of IPv6 stand in brackets: http://[::1]/vectors.npy.
    named = colons and file.count("[") == file.count("]") if is_uri(path) else colons and not Path(path).exists()
    where, inside = (file, array) if named else (path, None)
    require(
        inside is None or not is_uri(inside),
        f"{path} chains several addresses; expected one, with at most the name of an array after two colons",
    )
    if where.startswith("file://"):
        where = where.removeprefix("file://")
        require(where.startswith("/"), f"{path} names another machine; expected file:/// and a path of this one")
    return where, inside


def suffix_of(path: str) -> str:
    """The ending of a path or URI in lower case, without the query that follows it in a web address."""
    name = urlsplit(path).path if path.startswith(("http://", "https://")) else path
    return Path(name).suffix.lower()


def require_vectors(name: str, path: str) -> None:
    """Raise InputError if a path cannot be one of vectors: absent, empty, or of a format that holds none.

    path: a file, folder or URI, without an array's name. Of a folder the names of the files are checked, of a URI only
    whether a library for its scheme is installed; nothing is fetched.
    """
    if is_uri(path):
        try:
            urlsplit(path)
        except ValueError as error:
            raise InputError(f"{name}: {path} is not a valid address ({error}); check its host") from error
        _require_library(name, path)
        suffix = suffix_of(path)
        require(suffix in SUFFIXES or not suffix, _other_format(name, path, suffix))
        return
    file = existing(name, path, _ADVICE)
    if file.is_dir():
        if not side_folders(file):
            shard_paths(name, file)
        return
    require(file.is_file(), f"{name}: {file} is neither a file nor a folder. {_ADVICE}")
    require(file.suffix.lower() in SUFFIXES, _other_format(name, path, file.suffix))
    require(file.stat().st_size > 0, f"{name}: {file} is empty (0 bytes). Copy, download or write it again")


def _require_library(name: str, uri: str) -> None:
    """Raise InputError unless the library for the scheme of a URI is installed. Does not connect."""
    scheme = uri.partition("://")[0].lower()
    fsspec = package(f"{name}: {uri} is a URI, which", "fsspec", "fsspec")
    known_implementations = package(name, "fsspec", "fsspec.registry").known_implementations
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        fail(
            f"{name}: {uri} has the scheme {scheme!r}, which fsspec does not know; expected one such as s3, gs, https "
            "or file"
        )
    except ImportError as error:
        library = str(known_implementations.get(scheme, {}).get("class", "fsspec")).partition(".")[0]
        how = f"pip install {library.replace('_', '-')}"
        how = f"Install it by pip ({error})" if library == "fsspec" else f"Install it: {how}"
        fail(f"{name}: the library for {scheme}:// is not installed, so {uri} cannot be opened. {how}")


def _other_format(name: str, path: str, suffix: str) -> str:
    return (
        f"{name}: {path} ends in {suffix!r}; vectors are read from {_FORMATS}. Save them as one of these, for "
        "example: np.save('vectors.npy', array)"
    )


def side_folders(folder: Path) -> list[str]:
    """The folders of vectors in a folder of clip-retrieval's layout, such as img_emb and text_emb; else an empty list.

    Files beside them do not count: clip-retrieval writes its statistics there.
    """
    return side_names(one.name for one in _entries(folder) if one.is_dir())


def side_names(folders: Iterable[str]) -> list[str]:
    """Those of the names of folders that are sides of clip-retrieval's layout, in order."""
    return sorted(one for one in folders if one.endswith(_SIDE) and not _hidden(one))


def chosen_side(label: str, found: list[str], inside: str | None) -> str:
    """The side `inside` of a folder `label` that has the sides `found`. Raises InputError if it is not among them."""
    example = f"{label}::{found[0]}"
    if inside is None:
        fail(f"{label} holds the vectors of {' and '.join(found)}; name one side after two colons, as in {example}")
    require(inside in found, f"{label} has no folder {inside!r}; there are {', '.join(found)}, as in {example}")
    return inside


def shard_paths(name: str, folder: Path) -> list[Path]:
    """The files of a folder of shards, in the natural order of their names: img_emb_2 before img_emb_10.

    Files whose names begin with a dot or an underscore are not read; links are followed. Raises InputError if there
    are none, or if the folder holds anything else than files of one kind.
    """
    entries = _entries(folder)
    folders = {one.name for one in entries if one.is_dir()}
    return [folder / one for one in shard_names(name, str(folder), {one.name for one in entries} - folders, folders)]


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be listed ({error.strerror}). Give a folder that you may read") from error


def shard_names(name: str, label: str, files: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The names of the shards among the `files` and `folders` of a folder `label`; see `shard_paths`."""
    files, folders = ([one for one in names if not _hidden(one)] for names in (files, folders))
    require(
        len(files) + len(folders) > 0, f"{name}: {label} is a folder without files; expected shards: .npy or .parquet"
    )
    kinds = {suffix: [one for one in files if Path(one).suffix.lower() == suffix] for suffix in SHARDS}
    other = sorted({*files, *folders} - {one for kind in kinds.values() for one in kind}, key=natural)
    require(
        not other,
        f"{name}: {label} is a folder that holds more than shards of vectors: {listed(other)}. Give one of its files "
        f"({_FORMATS}), or a folder with nothing but .npy or nothing but .parquet files",
    )
    require(
        not all(kinds.values()),
        f"{name}: {label} holds shards of two kinds, {len(kinds['.npy'])} .npy and {len(kinds['.parquet'])} .parquet; "
        "expected one kind. Give each kind a folder",
    )
    return sorted(files, key=natural)


def natural(name: str) -> Any:
    """A key that sorts names by the numbers in them: img_emb_2 before img_emb_10."""
    pieces = re.split("([0-9]+)", name)  # text and numbers in turn
    return [int(piece) if number % 2 else piece for number, piece in enumerate(pieces)], name


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def stamps(files: Iterable[Path]) -> Stamps:
    """Size, modification time and inode of each file, by which changes are noticed; None for an absent file."""
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
