"""Names of files of vectors, `FILE` or `FILE::ARRAY`, checked before anything is read, without importing torch."""

from pathlib import Path

from vsehub.checks import existing, require

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet")
_FORMATS = ", ".join(SUFFIXES)


def split_path(path: str) -> tuple[Path, str | None]:
    """The file and the array's name in `FILE::ARRAY`; the file's own name may contain two colons."""
    file, colons, array = path.rpartition("::")
    return (Path(file), array) if colons and not Path(path).exists() else (Path(path), None)


def require_vectors(name: str, file: Path) -> None:
    """Raise InputError if `file` is absent, a folder, empty, or of a format that holds no vectors."""
    existing(name, file, f"Give a file of vectors, one per row: {_FORMATS}")
    require(file.is_file(), f"{name}: {file} is a folder; give one of its files: {_FORMATS}")
    require(
        file.suffix.lower() in SUFFIXES,
        f"{name}: {file} ends in {file.suffix!r}; vectors are read from {_FORMATS}. Save them as one of these, for "
        "example: np.save('vectors.npy', array)",
    )
    require(file.stat().st_size > 0, f"{name}: {file} is empty (0 bytes). Copy, download or write it again")
