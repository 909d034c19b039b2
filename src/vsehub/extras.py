"""Optional packages, which the extras of the installation bring, and what to do where one cannot be used."""

import importlib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vsehub.checks import InputError, fail

# Modules that are called otherwise than what is installed.
_DISTRIBUTIONS = {"open_clip": "open-clip-torch"}


def require_packages(what: str, extra: str, *modules: str) -> None:
    """Raise InputError unless each module is installed in a version that vsehub works with. Imports nothing.

    what: what needs them, as "training". extra: the extra that brings them, as in pip install 'vsehub[train]'.
    """
    missing = [one for one in modules if find_spec(one) is None]
    if missing:
        half = any(_version(one) is not None for one in missing)  # its files are gone, and its installation is recorded
        fail(
            f"{what} needs {' and '.join(missing)}, not{' wholly' if half else ''} installed here: "
            f"pip install {'--force-reinstall ' if half else ''}'vsehub[{extra}]'"
        )
    for one in modules:
        version, wanted = _version(one), _wanted(extra).get(_distribution(one))
        if version is not None and wanted is not None and not wanted.specifier.contains(version, prereleases=True):
            fail(
                f"{what} needs {one}{wanted.specifier}, and {version} is installed: "
                f"pip install --upgrade 'vsehub[{extra}]'"
            )


def package(what: str, extra: str, module: str) -> ModuleType:
    """The imported module. Raises InputError as `require_packages` does, and where importing it fails."""
    require_packages(what, extra, module.partition(".")[0])
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{what} needs {module}, which is installed but cannot be imported ({error}): "
            f"pip install --force-reinstall 'vsehub[{extra}]'"
        ) from error


def _distribution(module: str) -> str:
    return canonicalize_name(_DISTRIBUTIONS.get(module, module))


def _version(module: str) -> str | None:
    """The version that is recorded as installed; None where none is, as for a package that conda built."""
    try:
        return metadata.version(_distribution(module))
    except metadata.PackageNotFoundError:
        return None


@cache
def _wanted(extra: str) -> dict[str, Requirement]:
    """What vsehub itself declares for an extra; nothing where it runs without being installed."""
    return dict(_declared(extra))


def _declared(extra: str) -> Iterator[tuple[str, Requirement]]:
    try:
        lines = metadata.requires("vsehub") or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        one = Requirement(line)
        if one.marker is not None and one.marker.evaluate({"extra": extra}):
            yield canonicalize_name(one.name), one
