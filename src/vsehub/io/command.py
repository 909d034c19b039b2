"""The running command as records and pages show it."""

import shlex
import sys
from collections.abc import Sequence

_typed: list[str] = []


def keep_typed(arguments: Sequence[str]) -> None:
    """Keep the program and its arguments, without secrets, before they are made readable for Hydra."""
    _typed[:] = arguments


def typed_command() -> str:
    """The command, quoted so that a shell reads it as it was typed; addresses without their secrets."""
    program, *arguments = _typed or sys.argv
    return f"{program} {shlex.join(arguments)}".rstrip()
