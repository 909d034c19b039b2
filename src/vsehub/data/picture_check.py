"""Every picture of a split decoded once before training, and remembered, so that the next start is quick."""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from vsehub.data.picture_file import damage
from vsehub.files import write_text

log = logging.getLogger(__name__)

_VERSION = 1  # of what is remembered; another is forgotten
_AT_ONCE = 1024  # pictures given to the threads together, so that not every one of a split waits in memory


def damaged(folder: Path, names: Sequence[str], threads: int, cache: str | None = None) -> dict[str, str]:
    """The pictures folder/name that cannot be decoded, each with the reason.

    Those found whole before, with the size and time of change they have now, are not decoded again. cache: the folder
    that remembers them; None is $XDG_CACHE_HOME/vsehub, or ~/.cache/vsehub. Without leave to write there it is said,
    and nothing is remembered. threads: that decode at a time.
    """
    memory = _memory(folder, cache)
    whole = _remembered(memory)
    states = {name: _state(folder / name) for name in names}
    unknown = [name for name, state in states.items() if whole.get(name) != state]
    found: dict[str, str] = {}
    shown = tqdm(total=len(unknown), desc=f"checking pictures in {folder.name}", unit=" pictures", disable=None)
    try:
        with shown, ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(unknown), _AT_ONCE):
                some = unknown[first : first + _AT_ONCE]
                for name, reason in zip(some, pool.map(damage, [folder / name for name in some]), strict=True):
                    if reason is None:
                        whole[name] = states[name]
                    else:
                        found[name] = reason
                    shown.update()
    finally:  # what a killed check has found whole need not be decoded again
        if unknown:
            _remember(memory, whole)
    return found


def _memory(folder: Path, cache: str | None) -> Path:
    root = Path(cache or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "vsehub").expanduser()
    return root / f"pictures-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.json"


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _remembered(memory: Path) -> dict[str, list[int]]:
    try:
        found = json.loads(memory.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    ours = isinstance(found, dict) and found.get("version") == _VERSION and isinstance(found.get("whole"), dict)
    return found["whole"] if ours else {}


def _remember(memory: Path, whole: dict[str, list[int]]) -> None:
    try:
        write_text(memory, json.dumps({"version": _VERSION, "whole": whole}, indent=0))
    except (OSError, ValueError) as error:
        log.warning("%s cannot be written (%s): the pictures will be checked again at the next start", memory, error)
