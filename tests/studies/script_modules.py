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
    before, paths = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(folder))
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        yield {name: import_module(name) for name in names}
    finally:
        sys.path[:] = paths
        for name in set(sys.modules) - before:  # and those that they import
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)
