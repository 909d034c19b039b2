"""Atomic writing of files, locks on folders, the folder for caches, and output folders of commands.

In an output folder other programs' files are never touched, and earlier results only replaced on request.
"""

import glob
import hashlib
import json
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs
from filelock import FileLock, Timeout

from vsehub.checks import InputError, fail, regular, require
from vsehub.io.address import is_uri

log = logging.getLogger(__name__)

LOCK = ".lock"
MARK = ".vsehub.json"  # the list of vsehub's files in a folder
VERSION = 1
WAIT = 60.0  # seconds that a process waits for another one that writes the same file


def cache_folder() -> Path:
    """The folder for files that can be made again, in the user's caches: $XDG_CACHE_HOME/vsehub or ~/.cache/vsehub."""
    return platformdirs.user_cache_path("vsehub", appauthor=False)


@contextmanager
def atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary binary file that is renamed to `path` when the block ends without an error.

    Processes that write the same `path` wait for each other. Temporary files that killed processes left behind for it
    are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:  # before the file is created: a signal may arrive between any two steps
        with suppress(OSError):  # a file system without locks, or a process that writes for long
            lock.acquire(timeout=WAIT)
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                left.unlink(missing_ok=True)
        with temporary.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)  # the file is closed by now: Windows cannot rename an open one
    finally:
        temporary.unlink(missing_ok=True)
        _end(lock)


def _end(lock: FileLock) -> None:
    """Remove a lock file before releasing the lock, so that waiting processes notice."""
    if lock.is_locked:
        with suppress(OSError):  # Windows keeps an open file; filelock removes it there
            os.unlink(lock.lock_file)
    lock.release()


@contextmanager
def lock_folder(folder: Path, doing: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder within the block, then remove it. Creates the folder if necessary.

    doing: what another process that holds the lock does, for the message. wait: wait for it instead of raising
    InputError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        fail(f"{folder}: another process is {doing} in this folder; wait for it, or give another folder")
    try:
        yield
    finally:
        _end(lock)


def path_inside(folder: Path, name: str) -> Path:
    """The path of a file or folder below `folder`. Raises InputError if `..` or a link leads out of `folder`."""
    path = folder / name
    require(
        path.resolve().is_relative_to(folder.resolve()),
        f"{path} leads out of {folder}, to {path.resolve()}; a folder that vsehub wrote has no such link: remove it",
    )
    return path


def require_links_inside(folder: Path) -> None:
    """Raise InputError if a link below a folder leads out of the folder.

    wandb links its own logs from each run's folder to its cache; nothing reads or writes through these links.
    """
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink() and not path.match("wandb/*/logs/debug*.log"):
                path_inside(folder, str(path.relative_to(folder)))


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically; bytes of file names that are not UTF-8 are escaped."""
    with atomic(path) as handle:
        handle.write(text.encode(errors="backslashreplace"))


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def stamp_of(path: str | Path) -> tuple[int, int, int, int]:
    """Size, modification time, inode and change time of a file; at least one differs after its content changed."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns


def stored_digest(name: str, stamp: object, digest: Callable[[], str]) -> str:
    """The digest of `name`, stored in the user's cache until its stamp changes.

    stamp: stamps of the files that `digest` reads, taken before it runs. digest: function that computes the digest.
    """
    path = cache_folder() / "digests" / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
    stored: dict[str, Any] = {}
    with suppress(InputError, OSError):  # a damaged entry is written again
        stored = read_object(path)
    if stored.get("stamp") != repr(stamp):
        stored = {"stamp": repr(stamp), "digest": digest()}
        with suppress(OSError):
            write_text(path, json.dumps(stored))
    return str(stored["digest"])


def read_object(path: Path, hint: str = "Remove the file, or write it again") -> dict[str, Any]:
    """The JSON object in a file; an empty one without a file.

    Raises InputError, which names the file and ends in `hint`, if it is damaged or holds anything else.
    """
    if not path.exists():
        return {}
    try:
        record = json.loads(regular(path).read_bytes())
        # Surrogate escapes stand for file names that are not UTF-8; other surrogates cannot be printed or written.
        json.dumps(record, ensure_ascii=False).encode(errors="surrogateescape")
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not complete JSON ({error}): it was cut short or changed by hand. {hint}"
        ) from error
    require(isinstance(record, dict), f"{path} holds a {type(record).__name__}; expected a JSON object. {hint}")
    return dict(record)


def require_writable(folder: str | Path) -> None:
    """Raise InputError if the folder `out` cannot be written to; it need not exist yet."""
    require(
        str(folder).strip() != "" and not is_uri(str(folder)),
        f"out is {str(folder)!r}; results are written to a folder of this machine, give one: out=FOLDER",
    )
    parent = next(path for path in (Path(folder), *Path(folder).absolute().parents) if os.path.lexists(path))
    try:  # permissions prove nothing, for example in /proc
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise InputError(f"out: nothing can be written to {parent} ({error.strerror}); give another folder") from error


class Output:
    """A folder for the files of a command.

    kind: kind of the output, for example "a report". names: names of files that may be written. overwrite: whether to
    replace an earlier output of that kind, and to write among other files; an unfinished output is always replaced.
    Raises InputError, before any work, if the folder cannot be written to, if it contains files of those names that
    vsehub did not write, a finished output that must not be replaced, or only files of other programs.

    earlier: the names of the files of an earlier output.
    """

    def __init__(self, folder: str | Path, kind: str, names: Iterable[str], overwrite: bool = False):
        self.shown = str(folder)
        self.kind = kind
        self.overwrite = overwrite
        self.names = tuple(names)
        self.folder = Path(folder)
        self.new = self.folder / ".new"
        self.recheck()

    def recheck(self) -> None:
        """Check the folder again, since others may have written to it. Raises InputError as the constructor."""
        require_writable(self.shown)
        mark = read_object(self.folder / MARK)
        require(
            not mark or (mark.get("version"), mark.get("kind")) == (VERSION, self.kind),
            f"out: {self.shown} holds {mark.get('kind')}, not {self.kind} of this version. Give another out=FOLDER",
        )
        files = mark.get("files", [])
        require(
            isinstance(files, list), f"{self.folder / MARK} is damaged: files is {files!r}. Give another out=FOLDER"
        )
        self.earlier = list(map(str, files))
        self.refuse_foreign(self.names)
        if self.folder.is_dir() and not mark and not self.overwrite:
            others = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
            require(
                not others,
                f"out: {self.shown} holds {', '.join(others[:3])}, which vsehub did not write. Give a new folder, or "
                "overwrite=true to write among them",
            )
        require(
            self.overwrite or not mark.get("finished"),
            f"out: {self.shown} already holds {self.kind}. Give another out=FOLDER, or overwrite=true to replace it",
        )

    @contextmanager
    def transaction(self, keep_earlier: bool = False) -> Iterator[None]:
        """Lock the folder within the block; the files written there replace the earlier ones when the block ends.

        Within the block `output / name` is a path in a hidden folder. If the block fails or the process is killed, the
        earlier files stay as they are. keep_earlier: also keep the earlier files that the block does not write. Raises
        InputError if a file of that name is not vsehub's, or if a link leads out of the folder.
        """
        try:
            with lock_folder(self.folder, "writing"):
                self.recheck()  # another process may have finished in the meantime
                shutil.rmtree(self.new, ignore_errors=True)  # left by a process that was killed
                try:
                    self.new.mkdir()
                    yield
                    self._exchange(keep_earlier)
                finally:
                    shutil.rmtree(self.new, ignore_errors=True)
        finally:
            with suppress(OSError):
                self.folder.rmdir()  # only where it is empty, after a refusal

    def _exchange(self, keep_earlier: bool) -> None:
        """Move the new files into the folder and remove the others; until then the output is marked as unfinished."""
        new = [str(path.relative_to(self.new)) for path in self.new.rglob("*") if not path.is_dir()]
        self.refuse_foreign(new)
        paths = {name: path_inside(self.folder, name) for name in {*self.earlier, *new}}
        remaining = list(paths) if keep_earlier else new
        self._mark(list(paths), finished=False)
        for name in new:
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            (self.new / name).replace(paths[name])
        for name in sorted(paths.keys() - {*remaining}):
            log.info("removed with the earlier output: %s", paths[name])
            paths[name].unlink(missing_ok=True)
        self._mark(remaining, finished=True)

    def _mark(self, names: list[str], finished: bool) -> None:
        write_json(
            self.folder / MARK, {"version": VERSION, "kind": self.kind, "finished": finished, "files": sorted(names)}
        )

    def __truediv__(self, name: str) -> Path:
        return self.new / name

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Raise InputError if the folder holds files of these names that vsehub did not write."""
        foreign = [name for name in names if name not in self.earlier and os.path.lexists(self.folder / name)]
        require(
            not foreign,
            f"out: {self.shown} holds {', '.join(foreign[:3])}, which vsehub did not write. Give another out=FOLDER",
        )
