"""The rule for files that a data file names: they lie inside the folder that the user gave."""

from pathlib import Path


def stays_inside(name: str) -> bool:
    """Whether a path taken from a data file stays inside the folder that it is joined to.

    Absolute paths, paths with a drive and paths with `..` do not. A symbolic link inside the folder may point
    elsewhere: whoever gave the folder has put it there.
    """
    if ".." not in name and not name.startswith("/") and "\\" not in name and ":" not in name:
        return True  # nearly all names: a million of them are looked at in a moment
    path = Path(name)
    return not (path.is_absolute() or path.drive or path.root or ".." in path.parts)
