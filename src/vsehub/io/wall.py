"""A second wall around code that rebuilds objects from a stranger's file: no connections, programs or other files.

The first wall is the allow-lists of names in a file. This second one covers gaps in those lists: a hook that Python
calls before opening a file, connecting or starting a program (PEP 578). The hook sees Python's own calls, not those of
native code or of threads that start inside. Python cannot remove a hook: it is installed once, at
the first use, and does nothing outside of `walled`.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from vsehub.checks import InputError

# Events without a file, a connection or a program; all others are refused.
_HARMLESS = frozenset(
    {
        *("import", "compile", "exec", "marshal.loads", "code.__new__", "function.__new__", "array.__new__"),
        *("object.__getattr__", "object.__setattr__", "object.__delattr__", "builtins.id", "time.sleep"),
        *("sys._getframe", "sys._getframemodulename", "sys.unraisablehook", "sys.excepthook", "gc.get_objects"),
        *("os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.glob/2", "os.stat"),
        *("pathlib.Path.glob", "pathlib.Path.rglob", "tempfile.mkdtemp"),
    }
)
# Events about folders made inside the wall and their contents.
_CLEANING = frozenset({"os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"})
# Events of libraries that ask about the machine.
_MACHINE = ("/proc/mounts", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices", "/sys/fs/cgroup")
_CODE = (".py", ".pyc", ".so", ".pyd")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Refused(PermissionError):
    """Raised by the hook inside of `walled`."""


class _Wall:
    """The readable folders, the folders made inside, and the refusals so far."""

    def __init__(self, reads: Sequence[Path]):
        libraries = (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), str(Path(__file__).parents[1]))
        self._reads = tuple(os.path.realpath(one) for one in (*libraries, *_MACHINE, *map(str, reads)))
        self._imports = tuple(os.path.realpath(one or ".") for one in sys.path)
        self._own: list[str] = []
        self.refused: list[str] = []

    def check(self, event: str, args: tuple[Any, ...]) -> None:
        """Raise Refused for an event that reaches beyond the wall."""
        if event in _HARMLESS:
            if event == "tempfile.mkdtemp":
                self._own.append(os.path.realpath(os.fsdecode(args[0])))
            return
        if event == "open" and self._may_open(args[0], int(args[2] or 0)):
            return
        if event in _CLEANING and self._own and (args[-1] not in (-1, None) or self._is_below(args[0], self._own)):
            return
        if event == "open" and os.path.basename(os.path.dirname(str(args[0]))) == "__pycache__":
            raise Refused("no compiled modules are kept inside of the wall")  # Python catches this error and goes on
        what = f"{event} {args[0]!r}" if args and isinstance(args[0], str | bytes) else event
        self.refused.append(what[:200])
        raise Refused(f"refused: {what[:200]}")

    def _may_open(self, path: Any, flags: int) -> bool:
        if isinstance(path, int):  # the number of a file that is open already
            return True
        if self._is_below(path, self._own):
            return True
        if flags & _WRITING:
            return False
        name = os.path.realpath(os.fsdecode(path))
        return self._is_below(name, self._reads) or (name.endswith(_CODE) and self._is_below(name, self._imports))

    def _is_below(self, path: Any, folders: Sequence[str]) -> bool:
        name = os.path.realpath(os.fsdecode(path))
        return any(name == one or name.startswith(one.rstrip(os.sep) + os.sep) for one in folders)


_ACTIVE: ContextVar[_Wall | None] = ContextVar("wall", default=None)
_installed = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    wall = _ACTIVE.get()
    if wall is None:
        return
    _ACTIVE.set(None)  # the check itself resolves paths
    try:
        wall.check(event, args)
    finally:
        _ACTIVE.set(wall)


@contextmanager
def walled(reads: Sequence[Path] = ()) -> Iterator[None]:
    """Refuse connections, programs, and files other than those of `reads` and of Python's libraries.

    It holds for this thread's context and ends with the block. Folders that `tempfile` makes within the block may be
    written to. reads: further files and folders that may be read. Raises InputError at the end if anything was refused,
    even where a library caught the refusal.
    """
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    wall = _Wall(reads)
    token = _ACTIVE.set(wall)
    failed: BaseException | None = None
    try:
        yield
    except Exception as error:
        failed = error
        raise
    finally:
        _ACTIVE.reset(token)
        if wall.refused:
            raise InputError(
                f"building from it would reach for another file, a connection or a program ({wall.refused[0]}), which "
                "no file may choose; refused. Do not use it"
            ) from failed
