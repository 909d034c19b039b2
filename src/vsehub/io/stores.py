"""Folders behind an address, such as those of an object store, opened by fsspec. Only opening them uses the network."""

import hashlib
import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from vsehub.checks import InputError, fail, is_out_of_memory, require
from vsehub.extras import package
from vsehub.io.address import Address, masked
from vsehub.io.arrays import shortened
from vsehub.io.files import cache_folder, is_full_disk
from vsehub.io.text import stays_inside

log = logging.getLogger(__name__)

_PROBE = ".vsehub-writable"


def is_uri(path: str) -> bool:
    """Whether a text begins with a scheme, such as `s3://`. A single letter is a drive of Windows."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def require_library(name: str, uri: str) -> None:
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


class RemoteFolder:
    """A folder behind an address, and a local folder of the user's caches for copies of its files.

    setting: the name of the setting that gave the address, for messages. Raises InputError if the address cannot be
    opened. Names of files are relative to the folder, with slashes.
    """

    def __init__(self, setting: str, uri: str):
        require_library(setting, uri)
        from fsspec.core import url_to_fs

        self._setting, self.uri = setting, Address(uri)
        opened = self.uri.opened(setting)
        with connected(setting, self.uri, "opened"):
            self._files, root = url_to_fs(opened)
        self._root = root.rstrip("/")
        self.local = cache_folder(None) / "outputs" / hidden_name(opened, "outputs")

    def require_writable(self) -> None:
        """Raise InputError unless a file can be written to the folder."""
        with connected(self._setting, self.uri, "written to"):
            self._files.makedirs(self._root, exist_ok=True)  # nothing in an object store
            self._files.pipe_file(self._path(_PROBE), b"-")
            self._files.rm_file(self._path(_PROBE))

    def names(self) -> list[str]:
        """The names of all files."""
        with connected(self._setting, self.uri, "listed"):
            self._files.invalidate_cache()
            found = self._files.find(self._root) if self._files.exists(self._root) else []
        names = [path.rstrip("/").removeprefix(self._root).lstrip("/") for path in found]
        return sorted(name for name in names if name and stays_inside(name))

    def fetch(self, names: Iterable[str]) -> None:
        """Copy files to the local folder."""
        for name in names:
            path = self.local / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with connected(self._setting, self.uri, "fetched"):
                self._files.get_file(self._path(name), str(path))

    def send(self, names: Iterable[str]) -> None:
        """Copy files of the local folder to the remote one."""
        for name in names:
            with connected(self._setting, self.uri, "written to"):
                self._files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(self.local / name), self._path(name))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the remote folder; missing ones are ignored."""
        there = set(self.names())
        for name in there.intersection(names):
            with connected(self._setting, self.uri, "written to"):
                self._files.rm_file(self._path(name))

    def forget(self) -> None:
        """Remove the local copies."""
        for path in self.local.iterdir() if self.local.is_dir() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix != ".lock" and path.name != ".lock":
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> str:
        require(stays_inside(name), f"{self._setting}: {self.uri} names the file {name!r}, which leads elsewhere")
        return f"{self._root}/{name}"


def hidden_name(opened: str, purpose: str) -> str:
    """A name for the copies of an address that does not allow to guess a short password in the address quickly."""
    return hashlib.pbkdf2_hmac("sha256", opened.encode(), f"vsehub {purpose}".encode(), 100_000).hex()[:32]


@contextmanager
def connected(setting: str, uri: str, done: str = "fetched") -> Iterator[None]:
    """Turn an error of any file system's library into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if is_full_disk(error) or is_out_of_memory(error):
            raise
        advice = "fetch the files yourself and give their path" if done == "fetched" else "give a local path"
        raise InputError(
            f"{setting}: {uri} cannot be {done} ({type(error).__name__}: {shortened(masked(str(error)))}). Check the "
            f"address, the connection and the rights, or {advice}"
        ) from error
