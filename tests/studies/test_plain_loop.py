"""experiments/plain_loop.py: of the library's parts only, and it learns."""

import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "experiments" / "plain_loop.py"
ASK = """
import sys
sys.path.insert(0, {folder!r})
import plain_loop
found = plain_loop.main(["--size", "tiny", "--epochs", "4"])
print(found["nns"], found["csls"], sorted({{"pytorch_lightning", "hydra", "omegaconf"}} & set(sys.modules)))
"""


@pytest.mark.long
def test_it_learns_without_lightning_and_hydra():
    code = ASK.format(folder=str(FILE.parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plain, corrected, heavy = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert heavy == "[]"
    # Chance is 2 x (1 + 5 + 10) / 32 in percent, about 100 for one of five captions and one picture: far above it.
    assert min(float(plain), float(corrected)) > 110
