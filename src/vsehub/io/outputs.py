"""Output folders of commands: other programs' files are never touched, earlier results only replaced on request."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vsehub.checks import require
from vsehub.io.address import is_uri
from vsehub.io.files import alone, is_full_disk, read_object, remove_abandoned, within, write_json

MARK = ".vsehub.json"  # the list of vsehub's files in a folder
VERSION = 1


def require_writable(folder: str | Path) -> None:
    """Raise InputError if the folder `out` cannot be written to; it need not exist yet."""
    require(str(folder).strip() != "", "out is empty; give out=FOLDER")
    require(not is_uri(str(folder)), f"out is {folder}; results are written to folders of this machine, give one")
    near = next(path for path in (Path(folder), *Path(folder).absolute().parents) if os.path.lexists(path))
    try:  # permissions are no proof, for example in /proc
        tempfile.TemporaryFile(dir=near).close()
    except OSError as error:
        require(is_full_disk(error), f"out: nothing can be written to {near} ({error.strerror}); give another folder")


class Output:
    """A folder for the files of a command.

    kind: of the output, for example "a report". names: of the files that are always written. overwrite: whether to
    replace an earlier output of that kind, and to write among other files; an unfinished output is always replaced.
    Raises InputError, before any work, if the folder cannot be written to, if it contains files of those names that
    vsehub did not write, a finished output that must not be replaced, or only files of other programs.

    earlier: the names of the files of an earlier output.
    """

    def __init__(self, folder: str | Path, kind: str, names: Iterable[str], overwrite: bool = False):
        self.shown, self.kind, self.overwrite, self._names = str(folder), kind, overwrite, tuple(names)
        self.folder = Path(folder)
        self.recheck()

    def recheck(self) -> None:
        """Check the folder again, since others may have written to it. Raises InputError as the constructor."""
        require_writable(self.shown)
        mark = read_object(self.folder / MARK)
        require(
            not mark or (mark.get("version"), mark.get("kind")) == (VERSION, self.kind),
            f"out: {self.shown} holds {mark.get('kind')}, not {self.kind} of this version. Give another out=FOLDER",
        )
        self.earlier = [str(name) for name in mark.get("files", ())]
        self.refuse_foreign(self._names)
        names = os.listdir(self.folder) if self.folder.is_dir() and not mark and not self.overwrite else []
        others = sorted(name for name in names if not name.startswith("."))
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
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes of this machine within the block."""
        with alone(self.folder, "writing"):
            self.recheck()  # another process may have finished in the meantime
            yield

    def begin(self, names: Iterable[str]) -> None:
        """Remove the files of an earlier command of this kind, and mark the folder as an unfinished output.

        Raises InputError if a link leads out of the folder.
        """
        names = list(names)
        self.refuse_foreign(names)
        for path in [within(self.folder, name) for name in self.earlier]:
            path.unlink(missing_ok=True)
            remove_abandoned(path)
        self.earlier = names
        self._note(finished=False)

    def finish(self) -> None:
        """Mark the output as complete."""
        self._note(finished=True)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def _note(self, finished: bool) -> None:
        mark = {"version": VERSION, "kind": self.kind, "finished": finished, "files": sorted(self.earlier)}
        write_json(self.folder / MARK, mark)

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Raise InputError if the folder holds files of these names that vsehub did not write."""
        there = [name for name in names if name not in self.earlier and os.path.lexists(self.folder / name)]
        require(
            not there,
            f"out: {self.shown} holds {', '.join(there[:3])}, which vsehub did not write. Give another out=FOLDER",
        )
