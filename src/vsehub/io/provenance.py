"""The origin of a result besides its settings: code, versions of libraries, hardware."""

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import vsehub

PACKAGES = (
    *("torch", "torchvision", "pytorch-lightning", "hydra-core", "omegaconf", "numpy", "safetensors"),
    *("faiss-cpu", "faiss-gpu", "timm", "transformers"),
)


def code_version() -> dict[str, Any] | None:
    """ "sha" and "dirty" of the git checkout that this package runs from, None outside a checkout."""
    folder = Path(vsehub.__file__).parent
    git = partial(subprocess.check_output, cwd=folder, text=True, stderr=subprocess.DEVNULL)
    try:
        root = Path(git(["git", "rev-parse", "--show-toplevel"]).strip())
        sha, changes = git(["git", "rev-parse", "HEAD"]), git(["git", "status", "--porcelain", "--", "src", "conf"])
    except (OSError, subprocess.CalledProcessError):
        return None
    # Elsewhere it is installed within the checkout of another project.
    return {"sha": sha.strip(), "dirty": bool(changes)} if folder == root / "src" / "vsehub" else None


def versions() -> dict[str, str]:
    """The installed versions of the packages that results may depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def hardware() -> dict[str, Any]:
    """ "cpu", "cores", "memory_gb" and "gpu", which is None without one."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    cpu = re.search(r"^model name\s*: (.*)", information, re.MULTILINE)
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "cpu": cpu[1].strip() if cpu else platform.processor() or platform.machine(),
        "cores": cores,
        "memory_gb": round(memory / 2**30),
        "gpu": gpu,
    }
