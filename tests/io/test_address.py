import shlex
import sys

import pytest

from vsehub.io import address
from vsehub.io.address import keep_typed, typed_command


@pytest.mark.parametrize(
    "arguments", [(), ("k=5",), ("out=my folder", "criteria=[csls,is]", "note=it's & more"), ("+new={a: 1}", "x=")]
)
def test_a_shell_reads_the_command_as_it_was_typed(monkeypatch, arguments):
    monkeypatch.setattr(address, "_typed", [])
    keep_typed(["vsehub rerank", *arguments])
    monkeypatch.setattr(sys, "argv", ["vsehub rerank", "for Hydra"])
    assert shlex.split(typed_command()) == ["vsehub", "rerank", *arguments]
