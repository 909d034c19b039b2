"""A FAISS index and the facts about it in one file.

FAISS reads its own part and stops, so that `faiss.read_index` opens the file too. Behind it stand the facts as JSON,
their length in 8 bytes, and 8 bytes that name the format.
"""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from vsehub.checks import InputError, existing, require
from vsehub.files import atomic
from vsehub.neighbors.index_kinds import KINDS
from vsehub.neighbors.index_layout import require_layout

_NAME, _VERSION = b"vsehub-", b"1"
MARK = _NAME + _VERSION
_LENGTH = 8
_CHUNK = 16 << 20
_MOST_FACTS = 1 << 20
_AGAIN = "write it again with `ServedIndex.save`, or `vsehub rerank index=...`"


def write_index(faiss: ModuleType, index: Any, facts: dict[str, Any], path: str | Path) -> None:
    """Write an index and its facts atomically."""
    size = checksum = 0
    with atomic(path) as handle:

        def write(part: bytes) -> None:
            nonlocal size, checksum
            size, checksum = size + len(part), zlib.crc32(part, checksum)
            handle.write(part)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write))
        told = json.dumps(facts | {"bytes": size, "crc32": checksum}).encode()
        handle.write(told + len(told).to_bytes(_LENGTH, "little") + MARK)


def read_index(faiss: ModuleType, path: str | Path) -> tuple[Any, dict[str, Any]]:
    """The index and its facts; InputError where the file is cut short, damaged or of something else.

    The checksum tells damage. Against malice stands `index_layout`: FAISS is given no file but one whose sizes, kinds
    and positions are those of its facts, and reserves no more than the file's size for any part of it.
    """
    path = existing("index", path, "Give the file that `ServedIndex.save` or `vsehub rerank index=...` wrote")
    facts = _facts(path)
    require(
        _checksum(path, facts["bytes"]) == facts["crc32"],
        f"index: {path} is damaged: it is not what was written (checksum). Copy it again, or {_AGAIN}",
    )
    require_layout(path, facts["bytes"], facts["kind"], facts["items"], facts["dim"] + 1)
    try:
        with _bounded(faiss, facts["bytes"]):
            return faiss.read_index(str(path)), facts
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"index: FAISS {faiss.__version__} cannot read {path} ({error}); {_AGAIN}") from error


@contextmanager
def _bounded(faiss: ModuleType, size: int) -> Iterator[None]:
    """Within the block FAISS, where it knows such a limit, reserves no more than `size` bytes for a vector."""
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        yield
        return
    before = faiss.get_deserialization_vector_byte_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    try:
        yield
    finally:
        faiss.set_deserialization_vector_byte_limit(before)


def _facts(path: Path) -> dict[str, Any]:
    """What stands behind the index."""
    ending = _LENGTH + len(MARK)
    size = os.path.getsize(path)
    with path.open("rb") as handle:
        handle.seek(max(0, size - ending))
        end = handle.read()
        length = int.from_bytes(end[:_LENGTH], "little")
        mark = end[_LENGTH:]
        require(
            mark == MARK or not mark.startswith(_NAME),
            f"index: {path} is of version {mark.removeprefix(_NAME).decode(errors='replace')!r}; this vsehub reads "
            f"version {_VERSION.decode()}. Use the vsehub that wrote it, or {_AGAIN}",
        )
        require(
            mark == MARK and length <= min(_MOST_FACTS, size - ending),
            f"index: {path} is no index of vsehub, or it is cut short (its last bytes do not say so); {_AGAIN}",
        )
        handle.seek(size - ending - length)
        try:
            facts = json.loads(handle.read(length))
        except (ValueError, RecursionError):
            facts = None
    require(
        isinstance(facts, dict) and facts.get("bytes") == size - ending - length and "crc32" in facts,
        f"index: {path} is damaged: the facts at its end are not those of its size. Copy it again, or {_AGAIN}",
    )
    numbers = [facts.get(name) for name in ("bytes", "items", "dim")]
    require(
        facts.get("kind") in KINDS and all(isinstance(one, int) and 0 < one <= size for one in numbers),
        f"index: the facts at the end of {path} are those of no index; build it again",
    )
    return facts


def _checksum(path: Path, size: int) -> int:
    checksum = 0
    with path.open("rb") as handle:
        while size > 0 and (part := handle.read(min(_CHUNK, size))):
            size, checksum = size - len(part), zlib.crc32(part, checksum)
    return checksum
