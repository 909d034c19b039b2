"""The folder that a command fills: never one that holds something already, unless that is said."""

import os
from pathlib import Path

from vsehub.checks import require
from vsehub.data.flags import flag

RESULT = "result.json"  # written last: where it lies, the folder is whole
PAGE, RANKING, INDEX, USAGE = "index.html", "ranking.parquet", "index.faiss", "USAGE.md"
FILES = (RESULT, PAGE, RANKING, INDEX, USAGE)
PARTS = "parts"


class Output:
    """A folder for a result; overwrite allows one that holds a result.

    Raises InputError at once where it holds one and must not, or files of those names without the parts that a killed
    run leaves.
    """

    def __init__(self, folder: str | Path, overwrite: bool = False):
        flag("overwrite", overwrite)
        self.folder = Path(folder)
        self.parts = self.folder / PARTS
        require(self.folder.is_dir() or not self.folder.exists(), f"out: {folder} is a file; give out=FOLDER")
        nearest = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        require(
            nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK),
            f"out: nothing can be written to {nearest}; give another out=FOLDER",
        )
        there = [name for name in FILES if (self.folder / name).exists()]
        require(
            overwrite or not there or (RESULT not in there and self.parts.exists()),
            f"out: {folder} holds {', '.join(there)} already. Give another out=FOLDER, or overwrite=true to replace it",
        )

    def clear(self) -> None:
        """Remove what an earlier command left: its results, and what it had half written when it was killed."""
        for name in FILES:
            for path in (self.folder / name, *self.folder.glob(f".{name}.*")):
                path.unlink(missing_ok=True)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name
