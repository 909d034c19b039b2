"""Checks of input: each raises InputError saying what was given, what was expected and what to do."""

import math
import os
import stat
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn


class InputError(ValueError):
    """Bad input; the message is written for the user who gave it."""


def fail(message: str) -> NoReturn:
    """Raise InputError with `message`."""
    raise InputError(message)


def require(condition: bool, message: str) -> None:
    """Raise InputError with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise InputError unless `value` is among `choices`."""
    require(value in choices, f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")


def is_finite(value: Any) -> bool:
    """Return True if `value` is a finite number; booleans are rejected."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def positive(name: str, value: float) -> None:
    """Raise InputError unless `value` is a finite number above zero."""
    require(is_finite(value) and value > 0, f"{name} is {value!r}; expected a finite number above 0")


def finite_number(name: str, value: Any, least: float = -math.inf) -> None:
    """Raise InputError unless `value` is a finite number, of at least `least`."""
    wanted = "a finite number" if least == -math.inf else f"a finite number of at least {least:g}"
    require(is_finite(value) and value >= least, f"{name} is {value!r}; expected {wanted}")


def matrix(name: str, array: Any, rows: int | None = None, columns: int | None = None) -> None:
    """Raise InputError unless `array` is 2-d with the given sizes (None: any)."""
    shape = tuple(array.shape)
    wanted = f"({'any' if rows is None else rows}, {'any' if columns is None else columns})"
    require(
        len(shape) == 2 and rows in (None, shape[0]) and columns in (None, shape[1]),
        f"{name} has shape {shape}; expected a matrix {wanted}",
    )


def existing(name: str, path: str | Path, hint: str) -> Path:
    """The path of a regular file or a folder. Raises InputError for anything else, and if there is nothing.

    name: name of the setting. hint: advice that ends the message.
    """
    path = Path(path)
    require(path.exists(), f"{name}: no such file or folder: {path}. {hint}")
    require(path.is_file() or path.is_dir(), f"{name}: {path} is {_kind(path)}; expected a file or a folder. {hint}")
    return path


def regular(path: Path) -> Path:
    """The path, for opening it. Raises InputError if it is a folder, pipe, socket or device: reading one may not end.

    A link is followed. A missing path passes: opening it raises the error.
    """
    require(path.is_file() or not path.exists(), f"{path} is {_kind(path)}; expected a regular file")
    return path


def regular_members(folder: Path) -> None:
    """Raise InputError if a folder, whose files a library opens, holds a pipe, a socket or a device, at any depth."""
    for path in folder.rglob("*"):
        if not path.is_dir():
            regular(path)


def _kind(path: Path) -> str:
    mode = os.stat(path).st_mode
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def whole(name: str, value: Any) -> int:
    """`value` as an int. Raises InputError unless it is a whole number above zero; numpy integers are accepted."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(is_whole and value > 0, f"{name} is {value!r}; expected a whole number above 0")
    return int(value)


def whole_seed(name: str, value: Any) -> None:
    """Raise InputError unless `value` is a seed that every generator of random numbers takes."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    require(is_whole and 0 <= value < 2**32, f"{name} is {value!r}; expected a whole number from 0 to {2**32 - 1}")


def probability(name: str, value: Any) -> None:
    """Raise InputError unless `value` is a number from 0 up to, but not including, 1."""
    require(
        is_finite(value) and 0 <= value < 1,
        f"{name} is {value!r}; expected a number from 0 up to, but not including, 1",
    )


def boolean(name: str, value: Any, or_none: bool = False) -> None:
    """Raise InputError unless `value` is True or False, or None if that is allowed; words such as "no" are not."""
    require(
        isinstance(value, bool) or (or_none and value is None),
        f"{name} is {value!r}; expected {'true, false or null' if or_none else 'true or false'}",
    )


def suggest(name: str, names: Iterable[str]) -> str:
    """The end of a message, " (did you mean NAME?)", with the most similar name; "" if no name is similar."""
    folded = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return f" (did you mean {folded[near[0]]}?)" if near else ""


def one_line(text: object) -> str:
    """Text on one line without control characters, such as the escapes of a terminal."""
    return " ".join("".join(character if character.isprintable() else " " for character in str(text)).split())
