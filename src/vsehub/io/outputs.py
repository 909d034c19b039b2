"""Output folders of commands: other programs' files are never touched, earlier results only replaced on request."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vsehub.checks import boolean, fail, require
from vsehub.io.address import is_uri
from vsehub.io.files import alone, is_full_disk, read_object, remove_abandoned, write_json
from vsehub.io.text import stays_inside

MARK = ".vsehub.json"  # the list of vsehub's files in a folder
VERSION = 1


def require_writable(folder: str | Path) -> None:
    """Raise InputError if the folder `out` cannot be written to; it need not exist yet."""
    require(str(folder).strip() != "", "out is empty; give out=FOLDER")
    require(not is_uri(str(folder)), f"out is {folder}; results are written to folders of this machine, give one")
    place = Path(folder)
    require(place.is_dir() or not os.path.lexists(place), f"out: {folder} is a file; give out=FOLDER")
    near = next(path for path in (place, *place.absolute().parents) if path.exists())
    require(
        near.is_dir() and os.access(near, os.W_OK | os.X_OK) and _takes_files(near),
        f"out: nothing can be written to {near}; give another place",
    )


def _takes_files(folder: Path) -> bool:
    """Whether a file can be created in a folder. Permissions are no proof, for example in /proc."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        return is_full_disk(error)  # a full disk is reported when something is written


def require_new_file(path: str | Path, written: str, suffixes: Sequence[str], overwrite: bool) -> Path:
    """The path of a file to write. Raises InputError if its suffix names something else, or if something is there.

    written: what the file will hold, for example "a FAISS index". suffixes: those it may have, beside none, the usual
    first. overwrite: whether a file that is there may be replaced, whoever wrote it.
    """
    require(isinstance(path, str | Path), f"the path is {path!r}; expected the name of a file for {written}")
    path = Path(path)
    boolean("overwrite", overwrite)
    require(
        path.suffix.lower() in ("", *suffixes),
        f"{path} ends in {path.suffix}, and {written} would be written; give a name that ends in {suffixes[0]}",
    )
    require(not path.is_dir(), f"{path} is a folder; give the name of a file, such as {path / f'name{suffixes[0]}'}")
    require(
        overwrite or not os.path.lexists(path),
        f"{path} is there already; give another name, or overwrite=True to replace it",
    )
    return path


class Output:
    """A folder for the files of a command.

    kind: of the output, for example "a report". names: of the files that are always written. overwrite: whether to
    replace an earlier output of that kind, and to write among other files; an unfinished output is always replaced.
    Raises InputError, before any work, if the folder cannot be written to, if it contains files of those names that
    vsehub did not write, a finished output that must not be replaced, or only files of other programs.

    begun: whether the folder contains an unfinished output of that kind.
    """

    def __init__(self, folder: str | Path, kind: str, names: Iterable[str], overwrite: bool = False):
        self.shown, self.kind, self.overwrite, self._names = str(folder), kind, overwrite, tuple(names)
        self.folder = Path(folder)
        self.recheck()

    def recheck(self) -> None:
        """Check the folder again, since others may have written to it. Raises InputError as the constructor."""
        require_writable(self.shown)
        self.earlier, finished = self._mark()
        self.begun = bool(self.earlier) and not finished
        self.refuse_foreign(self._names)
        others = [] if self.overwrite or self.earlier else self._others()
        more = " and more" if len(others) > 3 else ""
        require(
            not others,
            f"out: {self.shown} holds {', '.join(others[:3])}{more}, which vsehub did not write. Give a new folder, or "
            "overwrite=true to write among them",
        )
        require(
            self.overwrite or not finished,
            f"out: {self.shown} already holds {self.kind}. Give another out=FOLDER, or overwrite=true to replace it",
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes of this machine within the block."""
        with alone(self.folder, "writing"):
            self.recheck()  # another process may have finished in the meantime
            yield

    def begin(self, names: Iterable[str]) -> None:
        """Remove the files of an earlier command of this kind, and mark the folder as an unfinished output."""
        names = list(names)
        self.refuse_foreign(names)
        place = self.folder.resolve()
        for path in (self.folder / name for name in self.earlier):
            if not path.parent.resolve().is_relative_to(place):
                continue  # a link that has replaced a folder of vsehub's
            path.unlink(missing_ok=True)
            remove_abandoned(path)
        self.earlier = names
        self._note(finished=False)

    def finish(self) -> None:
        """Mark the output as complete."""
        self._note(finished=True)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def _others(self) -> list[str]:
        """The names in a folder without a mark, apart from hidden ones."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(name for name in names if not name.startswith("."))

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
                f"out: {self.shown} holds {mark.get('kind', 'something else')}, not {self.kind} of this version. Give "
                "another out=FOLDER"
            )
        return [name for name in map(str, files) if stays_inside(name)], bool(mark.get("finished", True))

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Raise InputError if the folder holds files of these names that vsehub did not write."""
        there = [name for name in names if name not in self.earlier and os.path.lexists(self.folder / name)]
        require(
            not there,
            f"out: {self.shown} holds {', '.join(there[:3])}{' and more' if len(there) > 3 else ''}, which vsehub did "
            "not write. Give another out=FOLDER",
        )
