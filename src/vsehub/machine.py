"""The machine: its processor, memory and devices."""

import ctypes
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import torch

from vsehub.checks import InputError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h


def cpu_has(*capabilities: str) -> bool:
    """Return True if the processor has one of these, by torch's names; False where torch cannot tell."""
    present = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(present.get(capability) for capability in capabilities)


def reuse_freed_memory() -> None:
    """Let glibc, where it allocates memory, keep what is freed for the next allocation.

    A training step frees hundreds of megabytes and allocates them again. By default glibc returns them to the system,
    which clears each page before it hands it out anew: a tenth of a step's processor time on a CPU. The process may
    keep up to 1 GiB that it does not use; tensors above 128 MiB are returned as before.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:  # glibc, not musl
        mallopt(M_MMAP_THRESHOLD, 2**27)
        mallopt(M_TRIM_THRESHOLD, 2**30)


def usable_device(device: Any, choices: str = "None, 'cpu' or 'cuda'") -> torch.device:
    """The device; raises InputError, which names the choices, if it is not available on this machine."""
    try:
        tried = torch.zeros(1, device=device)
        tried.cpu()  # fails for "meta", which holds no values
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device is {device!r}, which is not available on this machine; give {choices}") from error
    return tried.device


def hardware() -> dict[str, Any]:
    """ "cpu", "cores", "memory_gb" and "gpu", which is None without one."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    names = [
        *re.findall(r"^model name\s*: (.*\S)", information, re.MULTILINE),
        platform.processor(),
        platform.machine(),
    ]
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "cpu": next(filter(None, names)),
        "cores": cores,
        "memory_gb": round(memory / 2**30),
        "gpu": gpu,
    }
