"""Names of vectors, `FILE`, `FOLDER` or a URI, each with or without `::ARRAY`. Does not import torch."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from vsehub.checks import existing, require
from vsehub.io.address import is_uri

Stamps = dict[Path, tuple[int, ...] | None]

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv", ".jsonl", ".pt", ".pth")
_EXPECTED = f"expected one vector per row in a {', '.join(SUFFIXES)}, or a folder of .npy or of .parquet files"


def split_path(path: str) -> tuple[str, str | None]:
    """The file, folder or URI, and the array's name, of `FILE::ARRAY`; a file's own name may contain two colons.

    A URI of this machine, `file:///...`, becomes the path.
    """
    file, colons, array = path.rpartition("::")
    # The colons of an IPv6 address stand in brackets: http://[::1]/vectors.npy.
    named = file.count("[") == file.count("]") if is_uri(path) else not Path(path).exists()
    where, inside = (file, array) if colons and named else (path, None)
    return where.removeprefix("file://"), inside


def file_name(path: str) -> PurePosixPath:
    """The name of a file or folder, without the query that follows it in a web address."""
    plain = re.split("[?#]", path)[0] if path.startswith(("http://", "https://")) else path
    return PurePosixPath(PurePosixPath(plain).name)


def suffix_of(path: str) -> str:
    """The ending of a path or URI in lower case."""
    return file_name(path).suffix.lower()


def require_vectors(name: str, path: str) -> None:
    """Raise InputError if a path or URI cannot be one of vectors: absent, or of another format. Opens nothing."""
    folder = suffix_of(path) == "" if is_uri(path) else existing(name, path, _EXPECTED).is_dir()
    require(folder or suffix_of(path) in SUFFIXES, f"{name}: {path}: {_EXPECTED}")


def natural(name: str) -> tuple[list[int | str], str]:
    """A key that sorts names by the numbers in them: img_emb_2 before img_emb_10."""
    pieces = re.split("([0-9]+)", name)  # text and numbers in turn
    return [int(piece) if number % 2 else piece for number, piece in enumerate(pieces)], name


def stamps(files: Iterable[Path]) -> Stamps:
    """Size, modification time and inode of each file, to detect changes; None for an absent file."""
    found = {file: file.stat() if file.exists() else None for file in files}
    return {
        file: None if stat is None else (stat.st_size, stat.st_mtime_ns, stat.st_ino) for file, stat in found.items()
    }
