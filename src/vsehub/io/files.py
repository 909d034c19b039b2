"""Writing that never leaves half a file: a temporary name beside the target, then a rename. Folders for one process."""

import errno
import glob
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from vsehub.checks import fail

try:
    import fcntl
except ImportError:  # Windows: what a kill leaves stays there
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that takes the name `path` only when the block ends without an error.

    A full disk raises OSError naming the file; whatever `path` held before stays. What killed processes left of writing
    the same file is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:  # before the file is made: a signal may come between any two steps
        with _owned(temporary) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            if fcntl is None:
                handle.close()  # Windows renames no open file
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if is_full_disk(error):
            raise OSError(
                errno.ENOSPC, "the disk is full; the file was not written and what it held before is kept", str(path)
            ) from error
        raise


def _owned(path: Path) -> BinaryIO:
    """A new file, locked while it is open, which tells it from one that a killed process left."""
    while True:
        handle = open(str(path), "x+b")  # noqa: SIM115
        if fcntl is None:
            return handle
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle.fileno()).st_nlink:
            return handle
        handle.close()  # another process has taken it for an abandoned one before it was locked


def remove_abandoned(path: Path) -> None:
    """Remove the temporary files that processes left which were killed while they wrote `path`."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part") if fcntl is not None else ():
        with suppress(OSError), left.open("r+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while its writer lives
            left.unlink(missing_ok=True)


def claimed(folder: Path, doing: str) -> FileLock:
    """The folder's lock, held until it is released or the process ends; InputError where another process holds it.

    doing: what that process is then said to be doing in the folder. The folder is made where there is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with suppress(OSError):  # filelock leaves what others hold
            lock.release()
        fail(f"{folder}: another process is {doing} in this folder; wait for it, or give another folder")
    return lock


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold the folder as `claimed` does; afterwards neither the lock's file nor a folder made for it alone is left."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    lock = claimed(folder, doing)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)  # while it is held: who opened it before sees that it is gone
        lock.release()
        with suppress(OSError):  # not empty
            for one in made:
                one.rmdir()


def is_full_disk(error: BaseException | None) -> bool:
    """Whether a full disk is behind the error; torch.save raises a RuntimeError of its own on top of it."""
    seen = set()  # an error that was unwrapped and raised from its wrapper leads back to itself
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as handle:
        handle.write(text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
