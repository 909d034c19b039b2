"""A FAISS index and the facts about it in one file.

FAISS reads its own part and stops, so that `faiss.read_index` opens the file too. Behind it stand the facts as JSON,
their length in 8 bytes, and 8 bytes that name the format.
"""

import json
import os
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from vsehub.checks import InputError, existing, require
from vsehub.files import atomic

MARK = b"vsehub-1"
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
    """The index and its facts; InputError where the file is cut short, damaged or of something else."""
    path = existing("index", path, "Give the file that `ServedIndex.save` or `vsehub rerank index=...` wrote")
    facts = _facts(path)
    require(
        _checksum(path, facts["bytes"]) == facts["crc32"],
        f"index: {path} is damaged: it is not what was written (checksum). Copy it again, or {_AGAIN}",
    )
    try:
        return faiss.read_index(str(path)), facts
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"index: FAISS {faiss.__version__} cannot read {path} ({error}); {_AGAIN}") from error


def _facts(path: Path) -> dict[str, Any]:
    """What stands behind the index."""
    ending = _LENGTH + len(MARK)
    size = os.path.getsize(path)
    with path.open("rb") as handle:
        handle.seek(max(0, size - ending))
        end = handle.read()
        length = int.from_bytes(end[:_LENGTH], "little")
        require(
            end[_LENGTH:] == MARK and length <= min(_MOST_FACTS, size - ending),
            f"index: {path} is no index of vsehub, or it is cut short (its last bytes do not say so); {_AGAIN}",
        )
        handle.seek(size - ending - length)
        try:
            facts = json.loads(handle.read(length))
        except ValueError:
            facts = None
    require(
        isinstance(facts, dict) and facts.get("bytes") == size - ending - length and "crc32" in facts,
        f"index: {path} is damaged: the facts at its end are not those of its size. Copy it again, or {_AGAIN}",
    )
    return facts


def _checksum(path: Path, size: int) -> int:
    checksum = 0
    with path.open("rb") as handle:
        while size > 0 and (part := handle.read(min(_CHUNK, size))):
            size, checksum = size - len(part), zlib.crc32(part, checksum)
    return checksum
