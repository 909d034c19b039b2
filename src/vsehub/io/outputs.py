"""Output folders of commands: files of others are never touched, earlier results only replaced on request."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from vsehub.checks import fail, require
from vsehub.io.files import is_full_disk, read_object, remove_abandoned, write_json
from vsehub.io.text import stays_inside
from vsehub.io.unfinished import is_unfinished

MARK = ".vsehub.json"  # lists the files of a folder that are vsehub's
VERSION = 1


def require_writable(folder: str | Path) -> None:
    """Raise InputError if the folder `out` cannot be written to; it need not exist yet."""
    require(str(folder).strip() != "", "out is empty; give out=FOLDER")
    place = Path(folder)
    require(place.is_dir() or not os.path.lexists(place), f"out: {folder} is a file; give out=FOLDER")
    near = next(path for path in (place, *place.absolute().parents) if path.exists())
    require(
        near.is_dir() and os.access(near, os.W_OK | os.X_OK) and _takes_files(near),
        f"out: nothing can be written to {near}; give another place",
    )


def _takes_files(folder: Path) -> bool:
    """Whether a file can be created in a folder. Permissions do not tell for all folders, for example /proc."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        return is_full_disk(error)  # which is reported when something is written


class Output:
    """A folder for the files of a command.

    kind: what it writes, for example "a report". names: the files that it always writes. overwrite: whether to replace
    an earlier output of that kind, and to write among other files; an unfinished output is always replaced. Raises
    InputError, before any work, if the folder cannot be written to, if it holds files of those names that vsehub did
    not write, if it holds a finished output that must not be replaced, or only files of others. `begun`: whether it
    holds an unfinished output of that kind.
    """

    def __init__(self, folder: str | Path, kind: str, names: Iterable[str], overwrite: bool = False):
        self.folder, self.kind, self.overwrite, self._names = Path(folder), kind, overwrite, tuple(names)
        require_writable(folder)
        self.recheck()

    def recheck(self) -> None:
        """Look at the folder again: another process may have written to it. Raises InputError as the constructor."""
        folder, kind, overwrite = self.folder, self.kind, self.overwrite
        require_writable(folder)
        self.earlier, finished = self._mark()
        self.begun = bool(self.earlier) and not finished
        self._refuse_foreign(self._names)
        others = [] if overwrite or self.earlier or not self.folder.is_dir() else self._others()
        more = " and more" if len(others) > 3 else ""
        require(
            not others,
            f"out: {folder} holds {', '.join(others[:3])}{more}, which vsehub did not write. Give a new folder, or "
            "overwrite=true to write among them",
        )
        require(
            overwrite or not finished,
            f"out: {folder} already holds {kind}. Give another out=FOLDER, or overwrite=true to replace it",
        )

    def begin(self, names: Iterable[str]) -> None:
        """Remove the files of an earlier command of this kind, and note in the folder what will be written."""
        names = list(names)
        self._refuse_foreign(names)
        place = self.folder.resolve()
        for path in (self.folder / name for name in self.earlier):
            if not path.parent.resolve().is_relative_to(place):
                continue  # a folder of vsehub's that has been replaced by a link to another place
            path.unlink(missing_ok=True)
            remove_abandoned(path)
        self.earlier = names
        self._note(finished=False)

    def finish(self) -> None:
        """Note in the folder that the output is complete."""
        self._note(finished=True)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def _others(self) -> list[str]:
        """The names in a folder without a mark, apart from hidden ones and folders of unfinished work."""
        found = (path for path in self.folder.iterdir() if not path.name.startswith("."))
        return sorted(path.name for path in found if not is_unfinished(path))

    def _note(self, finished: bool) -> None:
        mark = {"version": VERSION, "kind": self.kind, "finished": finished, "files": sorted(self.earlier)}
        write_json(self.folder / MARK, mark)

    def _mark(self) -> tuple[list[str], bool]:
        """The files of an earlier output of this kind, and whether it is complete."""
        path = self.folder / MARK
        if not path.is_file():
            return [], False
        mark = read_object(path)
        files = mark.get("files")
        if (mark.get("version"), mark.get("kind")) != (VERSION, self.kind) or not isinstance(files, list):
            fail(
                f"out: {self.folder} holds {mark.get('kind', 'something else')}, not {self.kind} of this version. Give "
                "another out=FOLDER"
            )
        return [name for name in map(str, files) if stays_inside(name)], bool(mark.get("finished", True))

    def _refuse_foreign(self, names: Iterable[str]) -> None:
        there = [name for name in names if name not in self.earlier and os.path.lexists(self.folder / name)]
        require(
            not there,
            f"out: {self.folder} holds {', '.join(there[:3])}{' and more' if len(there) > 3 else ''}, which vsehub did "
            "not write. Give another out=FOLDER",
        )
