"""Arguments in Hydra's grammar: quoting, and texts without a key."""

import re
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Quote, QuotedString

from vsehub.checks import require

_KEYS = {"search": "query", "report": "runs", "index": "result", "calibrate": "result", "serve": "result"}
_LISTS = ("query", "runs")
_OF_CHECKPOINT = ("evaluate", "search", "serve")
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
    """The arguments of a command as Hydra takes them: its options first, and a key for each text.

    Texts without a key get the one that the command reads them by. data.KEY=VALUE may change the data of a checkpoint
    or of a run that continues, whose settings no yaml lists: it gets pluses.
    """
    known, unknown = get_args_parser().parse_known_intermixed_args(arguments)
    require(not unknown, f"{' '.join(unknown)}: no such option; settings are given as key=value")
    given = known.overrides
    key = _KEYS.get(command)
    alone = [text for text in given if text.startswith("hydra.run.dir=") and text != "hydra.run.dir=."]
    require(
        not (known.multirun and alone),
        f"{' '.join(alone)} is the folder of a single run; with -m give hydra.sweep.dir=FOLDER",
    )
    options = [one for one in arguments if one not in given]
    texts = [one for one in given if key and not _SETTING.match(one)]
    if key in _LISTS:
        texts += [one for one in given if one.startswith(f"{key}=") and not one.startswith(f"{key}=[")]
        listed = ",".join(quoted(one.removeprefix(f"{key}=")) for one in given if one in texts)
        options += [f"{key}=[{listed}]"] if texts else []
        given = [one for one in given if one not in texts]
    given = [override(str(key), one) if one in texts else one for one in given]
    resumes = command == "train" and any(one.startswith("resume=") for one in given)
    if resumes or (command in _OF_CHECKPOINT and not any(one.startswith("data=") for one in given)):
        given = [f"++{one}" if one.startswith("data.") else one for one in given]
    return [*options, *given, *(["hydra.run.dir=."] if resumes else [])]
