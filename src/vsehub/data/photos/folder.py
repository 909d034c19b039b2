"""Pictures of your own: all files of a folder and the folders below it."""

import os
from pathlib import Path

import numpy as np

from vsehub.checks import existing, require
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.sources import CaptionedImages

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


def folder_pictures(folder: str | Path, size: int, resize: int, crops: int = 1) -> CaptionedImages:
    """The pictures of a folder as a split without captions, by name; each is decoded once as a check.

    size, resize, crops: of `Pictures`. Files that cannot be decoded are left out with a warning. Hidden files and
    folders, and linked folders, are passed over. Raises InputError if the folder is absent or holds no picture.
    """
    path = existing("folder", folder, "Give a folder of pictures")
    require(path.is_dir(), f"folder: {folder} is a file; give the folder of the pictures")
    names = sorted(_names(path))
    require(bool(names), f"folder: {folder} holds no pictures ({', '.join(SUFFIXES)}), nor do the folders below it")
    files = FolderFiles(path, names)
    settings = PictureSettings(size, resize, crops, unreadable="leave_out")
    intact, contents = settings.check("folder", files)
    files = files.take(intact)
    nothing = np.empty(0, np.int64)
    return CaptionedImages(settings.opened("folder", files, contents), [], nothing, list(files.names))


def _names(folder: Path) -> list[str]:
    found = []
    for inside, inner, files in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        below = os.path.relpath(inside, folder)
        found += [
            os.path.normpath(os.path.join(below, name))
            for name in files
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return found
