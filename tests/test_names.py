"""Values, functions and parameters are called by what they are: words that fit any value are kept out."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = {"one", "found", "own", "seen", "asked", "given", "told", "kept"}
LATER = {"commands"}  # folders of tests


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_no_name_fits_any_value(folder):
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())) if path.parent.name not in LATER else ():
            stored = getattr(node, "id", None) or getattr(node, "attr", None)
            stored = stored if isinstance(getattr(node, "ctx", None), ast.Store) else None
            names = {stored, getattr(node, "arg", None), getattr(node, "name", None)}
            assert isinstance(node, ast.alias) or not VAGUE & names, f"{path}:{node.lineno}"
