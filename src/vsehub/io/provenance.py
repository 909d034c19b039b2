"""The origin of a result besides its settings: code and versions of libraries."""

import hashlib
import inspect
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import vsehub
from vsehub.io.address import typed_command

PACKAGES = (
    "torch",
    "torchvision",
    "pytorch-lightning",
    "hydra-core",
    "omegaconf",
    "numpy",
    "safetensors",
    "faiss-cpu",
    "faiss-gpu",
    "timm",
    "transformers",
)
# Packages whose code is known by their version.
RELEASED = {"torch", "torchvision", "pytorch_lightning", "timm", "transformers", *sys.stdlib_module_names}


def origin() -> dict[str, Any]:
    """The entries of a record that say what made it: "vsehub", "command", "versions" and "git"."""
    return {
        "vsehub": vsehub.__version__,
        "command": typed_command(),
        "versions": versions(),
        "git": code_version(),
    }


def code_version() -> dict[str, Any] | None:
    """ "sha" and "dirty" of the git checkout that this package runs from, None outside a checkout."""
    top = Path(vsehub.__file__).parents[2]
    return commit_of(top, "src", "conf") if (top / ".git").exists() else None


def commit_of(folder: Path, *paths: str) -> dict[str, Any] | None:
    """ "sha" of the git checkout that holds a folder, and "dirty" if `paths` in it have uncommitted changes."""
    git = partial(subprocess.check_output, cwd=folder, text=True, stderr=subprocess.DEVNULL)
    try:
        sha = git(["git", "rev-parse", "HEAD"])
        changes = git(["git", "status", "--porcelain", "--", *paths])
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"sha": sha.strip(), "dirty": bool(changes)}


def source_files(factory: Callable[..., Any]) -> dict[str, str]:
    """SHA-256 of the source files of a class or function, of its bases, and of what it uses from files beside its own.

    Returns module -> digest, without packages of `RELEASED`.
    """
    digests: dict[str, str] = {}
    folder = _file(factory.__module__).parent
    classes = inspect.getmro(factory) if inspect.isclass(factory) else (factory,)
    waiting = [part.__module__ for part in classes]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name in digests or name.partition(".")[0] in RELEASED or not file.is_file():
            continue
        digests[name] = hashlib.sha256(file.read_bytes()).hexdigest()
        used = {str(getattr(value, "__module__", "")) for value in vars(sys.modules[name]).values()}
        waiting += [other for other in used if _file(other).parent == folder]
    return digests


def _file(module: str) -> Path:
    """The file of an imported module; the working folder for other names."""
    return Path(getattr(sys.modules.get(module), "__file__", None) or "")


def versions(others: Iterable[str] = ()) -> dict[str, str]:
    """The versions of the packages that results may depend on and of `others`; the commit of one without a version."""
    version_of = {"python": platform.python_version()}
    for package in (*PACKAGES, *others):
        with suppress(metadata.PackageNotFoundError):
            version_of[package] = metadata.version(package)
    for package in set(others) - version_of.keys():
        state = commit_of(_file(package).parent, ".") or {"sha": "unknown", "dirty": False}
        version_of[package] = f"{state['sha'][:8]}{' with changes' if state['dirty'] else ''}"
    return version_of
