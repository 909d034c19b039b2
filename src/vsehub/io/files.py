"""Atomic writing of files, locks on folders, and the folder for caches."""

import errno
import glob
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs
from filelock import FileLock, Timeout

from vsehub.checks import fail, regular, require

LOCK = ".lock"


def cache_folder(chosen: str | None) -> Path:
    """The folder for files that can be made again: `chosen`; None: vsehub's folder in the user's caches.

    By default it is $XDG_CACHE_HOME/vsehub or ~/.cache/vsehub on Linux, and the platform's own place on macOS and
    Windows. Raises InputError if `chosen` is, or lies below, something other than a folder; it need not exist.
    """
    if not chosen:
        return platformdirs.user_cache_path("vsehub", appauthor=False)
    folder = Path(chosen).expanduser()
    near = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    require(near.is_dir(), f"cache: {near} is not a folder; give a folder, or null for the one in the user's caches")
    return folder


@contextmanager
def atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary binary file that is renamed to `path` when the block ends without an error.

    If the disk is full, raises OSError naming the file and keeps the old `path`. Temporary files that killed processes
    left behind for the same `path` are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:  # before the files are created: a signal may arrive between any two steps
        with _in_use(temporary):
            with _created(temporary) as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)  # the file is closed by now: Windows cannot rename an open one
            _remove(_lock_of(temporary))
    except BaseException as error:
        _remove(temporary, _lock_of(temporary))
        if is_full_disk(error):
            raise OSError(
                errno.ENOSPC, "the disk is full; the file was not written and what it held before is kept", str(path)
            ) from error
        raise


def _created(path: Path) -> BinaryIO:
    return path.open("x+b")


@contextmanager
def _in_use(temporary: Path) -> Iterator[None]:
    """Hold a lock beside the temporary file, which marks the file as one of a running process.

    The lock is not on the temporary file itself: on Windows a locked file cannot be written through another handle.
    """
    lock = FileLock(_lock_of(temporary))
    with suppress(OSError):  # a file system without locks, or where no file can be created; another holds it never
        lock.acquire(timeout=0)
    try:
        yield
    finally:
        lock.release()


def _lock_of(temporary: Path) -> Path:
    return temporary.with_suffix(".lock")


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):  # absent, or a held lock on Windows, which filelock removes when it is released
            path.unlink()


def remove_abandoned(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote `path`."""
    name = glob.escape(path.name)
    for left in {*path.parent.glob(f".{name}.*.part"), *path.parent.glob(f".{name}.*.lock")}:
        temporary = left.with_suffix(".part")
        with suppress(OSError), FileLock(_lock_of(temporary), timeout=0):  # fails while the writer is alive
            _remove(temporary, _lock_of(temporary))


def claimed(folder: Path, doing: str) -> FileLock:
    """The lock of a folder, held until it is released or the process ends. Creates the folder if necessary.

    doing: what the other process does in the folder, for the message. Raises InputError if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with suppress(OSError):  # filelock does not remove a lock of another process
            lock.release()
        fail(f"{folder}: another process is {doing} in this folder; wait for it, or give another folder")
    return lock


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold the lock of a folder within the block, as `claimed` does; then remove the lock and empty folders."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    lock = claimed(folder, doing)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)  # removed while held: other processes notice that the file is gone
        lock.release()
        with suppress(OSError):  # not empty
            for one in made:
                one.rmdir()


def causes(error: BaseException | None) -> list[BaseException]:
    """The error and what caused it, each once: an unwrapped error that was raised from its wrapper leads to itself."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def is_full_disk(error: BaseException | None) -> bool:
    """Whether a full disk caused the error; torch.save wraps it in a RuntimeError."""
    return any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in causes(error))


def within(folder: Path, name: str) -> Path:
    """The path of a file or folder below `folder`. Raises InputError if `..` or a link leads out of `folder`."""
    path = folder / name
    place = path.resolve()
    require(
        place.is_relative_to(folder.resolve()),
        f"{path} leads out of {folder}, to {place}; a folder that vsehub wrote has no such link: remove it",
    )
    return path


def require_no_way_out(folder: Path) -> None:
    """Raise InputError if a link below a folder leads out of the folder.

    wandb links its own logs from each run's folder to its cache; nothing reads or writes through these links.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not path.match("wandb/*/logs/debug*.log"):
                within(folder, str(path.relative_to(folder)))


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as handle:
        handle.write(text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one if the file holds none or cannot be read."""
    try:
        found = json.loads(regular(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
