import ctypes
import subprocess
import sys

import pytest

GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
ROUNDS, PIECES, SIZE = 20, 6, 2**24
# Prints how many pages the system clears for tensors that are freed and allocated again.
PROGRAM = f"""
import resource, torch, vsehub.machine
vsehub.machine.reuse_freed_memory()
counts = []
for _ in range({ROUNDS}):
    pieces = [torch.ones({SIZE // 4}) for _ in range({PIECES})]
    del pieces
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(counts[-1] - counts[4])  # the first may still find no room
"""


@pytest.mark.skipif(not GLIBC, reason="only glibc has the setting")
def test_freed_memory_is_not_cleared_anew():
    cleared = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout
    assert int(cleared) < 0.05 * ROUNDS * PIECES * SIZE / 4096
