"""Arguments in Hydra's grammar: quoting, and texts without a key."""

import re
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Quote, QuotedString

from vsehub.checks import require

# command -> the setting that a text without a key gives; those of `_LIST_KEYS` take several
_KEY_OF_TEXT = {"search": "query", "report": "runs", "index": "result", "calibrate": "result", "serve": "result"}
_LIST_KEYS = ("query", "runs")
_WITH_DATA_OF_CHECKPOINT = ("evaluate", "search", "serve")  # unless data= chooses others
_SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=|~[\w./@:-]+$")
_PLAIN = re.compile(r"[A-Za-z./][\w./:-]*", re.ASCII)  # Hydra reads it as the text that it is


def quoted(text: str) -> str:
    """The text, quoted so that Hydra's grammar reads it literally."""
    # OmegaConf would replace "${...}": it is escaped by a backslash, and backslashes before it are doubled.
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return QuotedString(text=text, quote=Quote.single).with_quotes()


def override(key: str, text: str) -> str:
    """The override that sets `key` to `text`, in quotes where Hydra's grammar needs them."""
    return f"{key}={text if _PLAIN.fullmatch(text) else quoted(text)}"


def for_hydra(command: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command in Hydra's grammar: options first, then overrides KEY=VALUE.

    A text without a key becomes KEY=TEXT with the command's key in `_KEY_OF_TEXT`. data.KEY=VALUE becomes
    ++data.KEY=VALUE where it changes the data of a checkpoint or of a resumed run, since the command's yaml does not
    list these keys.
    """
    known, unknown = get_args_parser().parse_known_intermixed_args(arguments)
    require(not unknown, f"{' '.join(unknown)}: no such option; settings are given as key=value")
    overrides = known.overrides
    key = _KEY_OF_TEXT.get(command)
    run_folders = [text for text in overrides if text.startswith("hydra.run.dir=") and text != "hydra.run.dir=."]
    require(
        not (known.multirun and run_folders),
        f"{' '.join(run_folders)} is the folder of a single run; with -m give hydra.sweep.dir=FOLDER",
    )
    options = [argument for argument in arguments if argument not in overrides]
    if key in _LIST_KEYS:  # every text, and every key=TEXT, is an element of the list
        texts = [text for text in overrides if not _SETTING.match(text) or re.match(rf"{key}=(?!\[)", text)]
        overrides = [text for text in overrides if text not in texts]
        elements = ",".join(quoted(text.removeprefix(f"{key}=")) for text in texts)
        options += [f"{key}=[{elements}]"] if texts else []
    elif key is not None:
        overrides = [text if _SETTING.match(text) else override(key, text) for text in overrides]
    resumes = command == "train" and any(text.startswith("resume=") for text in overrides)
    if resumes or (command in _WITH_DATA_OF_CHECKPOINT and not any(text.startswith("data=") for text in overrides)):
        overrides = [f"++{text}" if text.startswith("data.") else text for text in overrides]
    return [*options, *overrides, *(["hydra.run.dir=."] if resumes else [])]
