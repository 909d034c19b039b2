"""Device handling without a GPU, in a process of its own: a device is registered for a whole process."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

HERE = Path(__file__).parent
CASES = HERE / "pretended_device_cases.py"


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch cannot pretend a device",
)
@pytest.mark.long
def test_nothing_mixes_devices():
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout
