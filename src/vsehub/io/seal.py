"""Seals of files: a digest (HMAC-SHA256) whose key lies in the user's own state folder.

A plain digest only shows damage, since anyone can compute it. A seal also proves that this user wrote the file.
"""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

import platformdirs

from vsehub.checks import InputError, regular, require

SIZE = 32  # bytes of a key and of a seal


def key_path() -> Path:
    """The file of this user's key: $XDG_STATE_HOME/vsehub/key or ~/.local/state/vsehub/key on Linux."""
    return platformdirs.user_state_path("vsehub", appauthor=False) / "key"


def user_key() -> bytes:
    """This user's key of 32 random bytes, made at the first call. Raises InputError if it cannot be read or made."""
    path = key_path()
    try:
        if not path.exists():
            _make(path)
        key = regular(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"the key {path} can neither be read nor made ({error.strerror}); make it readable and its folder "
            "writable, or set XDG_STATE_HOME=FOLDER"
        ) from error
    require(
        len(key) == SIZE,
        f"the key {path} holds {len(key)} bytes; expected {SIZE}. Remove it, and vsehub makes another",
    )
    return key


def new_seal(key: bytes) -> hmac.HMAC:
    """A seal to be updated with the bytes of a file."""
    return hmac.new(key, digestmod="sha256")


def _make(path: Path) -> None:
    """Make the key, unless another process is first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".key.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as handle:
            handle.write(secrets.token_bytes(SIZE))
            handle.flush()
            os.fsync(handle.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)  # unlike renaming, linking never replaces a file
    finally:
        temporary.unlink(missing_ok=True)
