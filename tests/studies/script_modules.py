"""Scripts below experiments/ as modules, for the time of some tests."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType


@contextmanager
def script_modules(folder: Path, names: tuple[str, ...]) -> Iterator[dict[str, ModuleType]]:
    """The scripts of a folder by their names, which are not left behind: other folders have scripts of the same."""
    sys.path.insert(0, str(folder))
    try:
        yield {name: import_module(name) for name in names}
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
