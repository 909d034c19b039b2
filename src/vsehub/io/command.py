"""The running command as records and pages show it."""

import shlex
import sys


def typed_command() -> str:
    """The command, quoted so that a shell reads it as it was typed; addresses without their secrets."""
    return f"{sys.argv[0]} {shlex.join(sys.argv[1:])}".rstrip()
