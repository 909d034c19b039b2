"""The examples in docstrings do what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py") if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0
