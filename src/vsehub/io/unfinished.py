"""Unfinished work: named parts in a folder, so that a killed command continues when it is run again."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import boolean, require
from vsehub.io.arrays import DAMAGE, load_archive
from vsehub.io.files import atomic, read_object, remove_abandoned, within, write_json

log = logging.getLogger(__name__)

SETTINGS = "settings.json"
VERSION = 1  # of the parts and their settings
ENDING = ".part.npz"  # a name that no other program uses
_SHOWN = 40  # settings named in a message, and characters of each


class UnfinishedWork:
    """Named parts of unfinished work, each a dictionary of arrays that is written atomically.

    Several processes may write to one folder. folder: created with the first part. settings: JSON of everything that
    the parts depend on; a command that continues them must have the same. overwrite: remove parts of other settings.
    Raises InputError if it is not a folder of parts, or if it holds parts of other settings or of another version and
    `overwrite` is false.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any], overwrite: bool = False):
        boolean("overwrite", overwrite)
        self.folder = within(Path(folder).parent, Path(folder).name)
        self._settings = json.loads(json.dumps(settings))
        self._begun = False
        self._take_over(overwrite)

    def begin(self) -> None:
        """Write the settings, so that another process finds them; `store` calls this if necessary.

        Raises InputError if another process has started other work in the folder in the meantime.
        """
        self._take_over(overwrite=False)
        if not (self.folder / SETTINGS).is_file():
            write_json(self.folder / SETTINGS, {"version": VERSION, "settings": self._settings})
        self._begun = True

    def path(self, name: str) -> Path:
        """The file of a part."""
        return self.folder / f"{name}{ENDING}"

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays of a part; None for an absent part, and for a damaged one, which is removed."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            return load_archive(path)
        except DAMAGE as error:
            log.warning("%s is damaged (%s); it is removed and computed again", path, error)
            path.unlink(missing_ok=True)
            return None

    def store(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Store a part. arrays: numpy arrays and numbers."""
        if not self._begun:
            self.begin()
        with atomic(self.path(name)) as file:
            np.savez(file, **arrays)

    def remove(self) -> None:
        """Remove all parts, and the folder if nothing else is in it, when the work is done."""
        self._begun = False
        if not self.folder.exists():
            return
        # The settings last: parts without settings would count as files of another program.
        for pattern in (f"*{ENDING}", ".*.part", ".*.lock", SETTINGS):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _take_over(self, overwrite: bool) -> None:
        """Raise InputError unless the folder holds parts of these settings or nothing."""
        if not self.folder.exists():
            return
        in_the_way = f"{self.folder} is in the way: unfinished work is kept there. Give another out=FOLDER"
        require(self.folder.is_dir(), in_the_way)
        remove_abandoned(self.folder / SETTINGS)
        # Listed before the settings are read, since another process writes settings before its first part.
        if not any(not path.name.startswith(".") for path in self.folder.iterdir()):
            return
        require((self.folder / SETTINGS).is_file(), in_the_way)
        found = read_object(self.folder / SETTINGS)
        # Unreadable settings count as other settings.
        version = found.get("version") if found else VERSION
        require(
            overwrite or version == VERSION,
            f"{self.folder} holds unfinished work of version {version!r}; this vsehub continues version {VERSION}. "
            "Finish it with the vsehub that began it, give another out=FOLDER, or overwrite=true to discard it",
        )
        other = differing(self._settings, found.get("settings"))
        require(
            overwrite or not other,
            f"{self.folder} holds the unfinished work of another command (other {', '.join(other)}). Give that "
            "command again to finish it, another out=FOLDER, or overwrite=true to discard it",
        )
        if other or version != VERSION:
            self.remove()


def differing(settings: Mapping[str, Any], found: object) -> list[str]:
    """The names of settings whose values differ in `found`, which was read from JSON; all if it is not an object."""
    if not isinstance(found, dict):
        return list(settings)
    names = {**settings, **found}
    missing = object()
    other = [name for name in names if settings.get(name, missing) != found.get(name, missing)]
    return [name[:_SHOWN] for name in other][:_SHOWN]
