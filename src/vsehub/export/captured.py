"""What all formats of models share: capturing a network."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from vsehub.checks import InputError, is_out_of_memory
from vsehub.io.quiet import quiet

# Input -> the axes whose sizes vary, with their names.
Axes = Mapping[str, Mapping[int, str]]
_SHOWN = 400  # characters of what torch says


def capture(side: str, name: str, export: Callable[[], None]) -> None:
    """Call `export`, which captures and writes an encoder, with torch's plain operators and without torch's notes.

    side, name: of the encoder and the format. Raises InputError, with what torch says of the operator, if the format
    cannot express the encoder.
    """
    try:
        with torch.no_grad(), _plain_attention(), quiet():
            export()
    except Exception as error:  # torch's own classes are not public
        if isinstance(error, OSError) or is_out_of_memory(error):  # a full disk, say
            raise
        raise InputError(
            f"the {side} encoder cannot be exported as {name}, nothing was written: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """What the first cause of an error says."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = " ".join(str(error).split())[:_SHOWN].rstrip(".")
    return f"{type(error).__name__}: {said}"


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Attention by operators that formats know, not by torch's fused one for inference."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
