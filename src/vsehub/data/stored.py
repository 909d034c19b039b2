"""What the readers of files of vectors share: what they answer with, and what they say of files that will not do."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vsehub.checks import InputError, require

FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
# What readers say of damage: RecursionError and NotImplementedError are RuntimeErrors, UnicodeError is a ValueError.
DAMAGE = (ValueError, EOFError, OSError, RuntimeError, OverflowError, zipfile.BadZipFile, zlib.error)
_LONGEST = 300  # characters of a library's message


@dataclass(frozen=True)
class Stored:
    """A matrix as its file holds it.

    array: (n, D), memory-mapped, read-only; bfloat16, which numpy lacks, as int16 bits. dtype: what the numbers are.
    ids: n strings, or None.
    """

    array: np.ndarray
    dtype: torch.dtype
    ids: list[str] | None = None


def shortened(error: Exception) -> str:
    """What an error says, cut where it repeats the file's bytes at length."""
    said = str(error)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


@contextmanager
def readable(path: Path, *damage: type[Exception]) -> Iterator[None]:
    """Turn what a reader says of a damaged file into an InputError; damage: exceptions of the reader's own."""
    try:
        yield
    except InputError:
        raise
    except (*DAMAGE, *damage) as error:
        raise InputError(
            f"{path} cannot be read as {path.suffix} ({shortened(error)}). The file is cut short, damaged or of "
            "another format: copy, download or write it again"
        ) from error


def checked_kind(label: str, shape: tuple[int, ...], dtype: str) -> torch.dtype:
    """The torch dtype of a matrix of floats; InputError naming `label` where it is something else."""
    require(
        dtype in FLOATS,
        f"{label} holds {dtype}; expected one of {', '.join(FLOATS)}. Convert it, for example: array.astype('float32')",
    )
    require(
        len(shape) == 2 and min(shape) > 0,
        f"{label} has shape {shape}; expected (rows, dim), a vector a row, with at least one of each",
    )
    return FLOATS[dtype]


def chosen(path: Path, key: str | None, found: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """The name of the array that is meant, among names with their shapes and dtypes: `key`, or the only matrix."""
    names = ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in found.items()) or "none"
    if key is not None:
        require(key in found, f"{path} has no array {key!r}; arrays there: {names}")
        return key
    matrices = [name for name, (shape, dtype) in found.items() if len(shape) == 2 and dtype in FLOATS]
    require(
        len(matrices) == 1,
        f"{path} has {len(matrices)} matrices of floats; expected one, or its name after two colons, as in "
        f"{path.name}::{(matrices or ['NAME'])[0]}. Arrays there: {names}",
    )
    return matrices[0]
