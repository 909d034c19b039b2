"""Writing that never leaves half a file: a temporary name beside the target, then a rename."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from vsehub.checks import InputError


@contextmanager
def atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that takes the name `path` only when the block ends without an error.

    A full disk raises InputError naming the folder; whatever `path` held before stays.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 (it outlives its block to be renamed)
        dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
    )
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(handle.name, 0o644)
        os.replace(handle.name, path)
    except BaseException as error:
        Path(handle.name).unlink(missing_ok=True)
        if is_full_disk(error):
            raise InputError(
                f"the disk is full: {path} was not written and what it held before is untouched. "
                f"Free room on the disk of {path.parent}, then run the command again"
            ) from error
        raise


def is_full_disk(error: BaseException | None) -> bool:
    """Whether a full disk is behind the error; torch.save raises a RuntimeError of its own on top of it."""
    seen = set()  # an error that was unwrapped and raised from its wrapper leads back to itself
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as handle:
        handle.write(text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
