"""Vectors behind URIs, fetched by fsspec into a folder of the user's caches. Only opening them uses the network."""

import bisect
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from vsehub.checks import InputError, is_out_of_memory, require
from vsehub.data.vectors.formats import checked_kind
from vsehub.data.vectors.paths import METADATA, SUFFIXES, chosen_side, shard_names, side_names, suffix_of
from vsehub.io.address import Address, masked
from vsehub.io.arrays import NpyHeader, shortened
from vsehub.io.files import LOCK, atomic, cache_folder, is_full_disk, read_object, write_json
from vsehub.io.progress import byte_bar
from vsehub.io.text import stays_inside

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_FETCHED = ".fetched.json"  # what the files of a folder were fetched from: name -> the version there
_CHUNK_BYTES = 8 << 20
_HEADER_BYTES = 1 << 16
# What file systems call that by which two contents under one name differ; the size alone does not tell.
_VERSION = ("etag", "mtime", "lastmodified", "modified", "updated", "created", "generation", "md5hash", "contentmd5")


def fetch(name: str, uri: str, inside: str | None) -> Path:
    """The local copy of a file of vectors, or of a folder of shards, behind a URI.

    inside: the side of a folder in clip-retrieval's layout. Copies lie in `vectors` in vsehub's folder of the user's
    caches and are used again as long as size and version at the source are the same. Raises InputError if something
    cannot be fetched.
    """
    from fsspec.core import url_to_fs

    opened = Address(uri).opened(name)
    with _connected(name, uri):
        files, path = url_to_fs(opened)
    folder = cache_folder(None) / "vectors" / _hidden_name(opened)
    if suffix_of(uri) in SUFFIXES:
        with _connected(name, uri):
            entry = files.info(path)
        if entry.get("type") != "directory":
            local = f"vectors{suffix_of(uri)}"
            _Copies(name, uri, folder, files).fetch({local: entry | {"name": path}})
            return folder / local
    with _connected(name, uri):
        entries = _listing(files, path)
    sides = side_names(_folders(entries))
    if not sides:
        _fetch_shards(name, uri, folder, files, entries)
        return folder
    side = chosen_side(uri, sides, inside)
    for part in (side, METADATA) if METADATA in _folders(entries) else (side,):
        with _connected(name, uri):
            own = _listing(files, entries[part]["name"])
        _fetch_shards(name, f"{uri}/{part}", folder / part, files, own)
    return folder


class RemoteRows:
    """Matrices (n_i, D) of one type in .npy files behind a URI, as one (n, D), of which only what is asked for is read.

    shards: (name, rows) of each file. Raises InputError if a file cannot be read as .npy, or if they are not alike.
    """

    def __init__(self, name: str, uri: str, files: "AbstractFileSystem", paths: Sequence[str]):
        self._name, self._uri, self._files = name, uri, files
        self._numbers_at: list[tuple[str, int]] = []  # path, first byte of the numbers
        self._ends: list[int] = []
        self.shards: list[tuple[str, int]] = []
        self.dtype, self._columns = np.dtype(np.float32), 0
        for path in paths:
            with _connected(name, uri), files.open(path, "rb", block_size=_HEADER_BYTES) as file:
                header, begin = NpyHeader.read(file), file.tell()
            checked_kind(masked(path), header.shape, header.dtype.name)
            alike = header.dtype, header.shape[1]
            if not self._numbers_at:
                self.dtype, self._columns = alike
            require(
                alike == (self.dtype, self._columns) and not header.fortran,
                f"{name}: {masked(path)} holds rows of {alike[1]} {alike[0]} numbers"
                f"{' column by column' * header.fortran}, but the first file of {uri} rows of "
                f"{self._columns} {self.dtype}. Files that are read in place must be alike and in C order: "
                "write one of them again",
            )
            self._numbers_at.append((path, begin))
            self._ends.append(len(self) + header.shape[0])
            self.shards.append((masked(path).rpartition("/")[2], header.shape[0]))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self), self._columns

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice without a step, or of row numbers (b,) from 0 up: (b, D)."""
        if not isinstance(rows, slice):
            return np.concatenate([self[row : row + 1] for row in rows.tolist()] or [self[0:0]])
        start, stop, _ = rows.indices(len(self))
        found = [np.empty((0, self._columns), self.dtype)]
        number = bisect.bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[number - 1] if number else 0
            last = min(stop, self._ends[number])
            found.append(self._read(number, start - first, last - first))
            start, number = last, number + 1
        return np.concatenate(found)

    def _read(self, number: int, start: int, stop: int) -> np.ndarray:
        (path, begin), size = self._numbers_at[number], self._columns * self.dtype.itemsize
        with _connected(self._name, self._uri):
            got = self._files.cat_file(path, start=begin + start * size, end=begin + stop * size)
        require(
            len(got) == (stop - start) * size,
            f"{self._name}: {masked(path)} is cut short: {len(got)} of {(stop - start) * size} bytes of its rows "
            f"{start} to {stop - 1} came. Write it again",
        )
        return np.frombuffer(got, self.dtype).reshape(stop - start, self._columns)


def in_place(name: str, uri: str) -> RemoteRows | None:
    """The vectors of a .npy file, or of a folder of nothing but such files, behind a URI; None for anything else.

    Only headers are read. Raises InputError if something cannot be read.
    """
    from fsspec.core import url_to_fs

    opened = Address(uri).opened(name)
    with _connected(name, uri):
        files, path = url_to_fs(opened)
        single = suffix_of(uri) == ".npy" and files.info(path).get("type") != "directory"
        entries = {} if single else _listing(files, path)
    if single:
        return RemoteRows(name, uri, files, [path])
    if side_names(_folders(entries)):
        return None
    plain = [one for one, entry in entries.items() if entry["type"] != "directory"]
    wanted = shard_names(name, uri, plain, _folders(entries))
    if suffix_of(wanted[0]) != ".npy":
        return None
    return RemoteRows(name, uri, files, [entries[one]["name"] for one in wanted])


def _fetch_shards(
    name: str, uri: str, folder: Path, files: "AbstractFileSystem", entries: dict[str, dict[str, Any]]
) -> None:
    plain = [one for one, entry in entries.items() if entry["type"] != "directory"]
    wanted = shard_names(name, uri, plain, _folders(entries))
    _Copies(name, uri, folder, files).fetch({one: entries[one] for one in wanted})


def _folders(entries: dict[str, dict[str, Any]]) -> list[str]:
    return [one for one, entry in entries.items() if entry["type"] == "directory"]


def _listing(files: "AbstractFileSystem", path: str) -> dict[str, dict[str, Any]]:
    """What a folder holds, by name."""
    files.invalidate_cache()
    own = path.rstrip("/")
    found = {}
    for entry in files.ls(path, detail=True):
        name = entry["name"].rstrip("/").rpartition("/")[2]
        if entry["name"].rstrip("/") != own:  # the marker of the folder itself in object stores
            found[name] = entry
    return found


class _Copies:
    """Local copies of files of one remote folder, in `folder`."""

    def __init__(self, name: str, uri: str, folder: Path, files: "AbstractFileSystem"):
        self._name, self._uri, self._folder, self._files = name, uri, folder, files

    def fetch(self, wanted: dict[str, dict[str, Any]]) -> None:
        """Fetch the files that are not there yet, or are another version, and remove the copies of all others.

        wanted: local name -> what the file system says of the file.
        """
        for local in wanted:
            require(stays_inside(local), f"{self._name}: {self._uri} names the file {local!r}, which leads elsewhere")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self._folder / LOCK):  # another command may be fetching the same: it is waited for
            self._fetch(wanted)

    def _fetch(self, wanted: dict[str, dict[str, Any]]) -> None:
        before = read_object(self._folder / _FETCHED)
        versions: dict[str, Any] = {}
        for local in before.keys() - wanted.keys():
            if stays_inside(local):
                (self._folder / local).unlink(missing_ok=True)
        missing = {}
        for local, entry in wanted.items():
            copy, version = self._folder / local, _version(entry)
            if (
                version
                and before.get(local) == version
                and copy.is_file()
                and str(copy.stat().st_size) == version["size"]
            ):
                versions[local] = version
            else:
                missing[local] = entry
        total = sum(entry.get("size") or 0 for entry in missing.values())
        with byte_bar(f"fetching {self._uri}", total) as bar:
            for local, entry in missing.items():
                self._copy(local, entry, bar.update)
                versions[local] = _version(entry)
                write_json(self._folder / _FETCHED, versions)
        if versions != before:
            write_json(self._folder / _FETCHED, versions)

    def _copy(self, local: str, entry: dict[str, Any], progress: Any) -> None:
        length = 0
        with (
            _connected(self._name, self._uri),
            atomic(self._folder / local) as out,
            self._files.open(entry["name"], "rb", block_size=_CHUNK_BYTES) as source,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                out.write(chunk)
                progress(len(chunk))
                length += len(chunk)
            size = entry.get("size")
            require(
                size is None or length == size,
                f"{self._name}: {length} bytes of {masked(entry['name'])} came, {size} were announced. "
                "Run the command again",
            )


def _hidden_name(opened: str) -> str:
    """A name for the copies of an address that does not allow to guess a short password in the address quickly."""
    return hashlib.pbkdf2_hmac("sha256", opened.encode(), b"vsehub vectors", 100_000).hex()[:32]


@contextmanager
def _connected(setting: str, uri: str) -> Iterator[None]:
    """Turn an error of any file system's library into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if is_full_disk(error) or is_out_of_memory(error):
            raise
        raise InputError(
            f"{setting}: {uri} cannot be fetched ({type(error).__name__}: {shortened(masked(str(error)))}). Check the "
            "address, the connection and the rights, or fetch the files yourself and give their path"
        ) from error


def _version(entry: dict[str, Any]) -> dict[str, str] | None:
    """What tells this content of a file from a later one; None if the file system says nothing of that kind."""
    plain = {re.sub("[^a-z0-9]", "", key.lower()): str(value) for key, value in entry.items() if value is not None}
    found = {key: plain[key] for key in _VERSION if key in plain}
    return found | {"size": plain["size"]} if found and "size" in plain else None
