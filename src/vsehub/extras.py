"""Optional packages, which the extras of the installation bring, and what to do where one cannot be used."""

import importlib
from importlib.util import find_spec
from types import ModuleType

from vsehub.checks import require


def require_packages(what: str, extra: str, *modules: str) -> None:
    """Raise InputError unless each module is installed. Imports nothing.

    what: name of what needs them, as "training". extra: the extra that brings them, as in pip install 'vsehub[train]'.
    """
    missing = [module for module in modules if find_spec(module) is None]
    require(not missing, f"{what} needs {' and '.join(missing)}, not installed here: pip install 'vsehub[{extra}]'")


def package(what: str, extra: str, module: str) -> ModuleType:
    """The imported module. Raises InputError as `require_packages` does."""
    require_packages(what, extra, module.partition(".")[0])
    return importlib.import_module(module)
