"""Overrides in Hydra's grammar: quoting, bare texts, and errors on one line."""

import re
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import OmegaConf

from vsehub.io.address import IN_WORD, is_address

_TEXTS = {"search": "query", "report": "runs"}  # commands whose bare arguments are a list
_OF_RESULT = ("index", "calibrate", "serve")  # commands whose bare argument is the folder of a result
_OF_CHECKPOINT = ("evaluate", "search", "serve")
MULTIRUN = {"-m", "--multirun"}
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


def with_quoted_addresses(argument: str, several: bool) -> str:
    """The argument with its addresses in quotes, since they contain signs that Hydra's grammar refuses.

    several: whether commas separate values, as they do in a sweep.
    """
    key, sign, value = argument.partition("=")
    if not sign or key.startswith("-") or "${" in value:
        return argument
    if is_address(value) and not several:
        return f"{key}={quoted(value)}"
    listed = several or value.startswith("[")
    return f"{key}={IN_WORD.sub(lambda one: one[0] if one['quote'] else quoted(one[0]), value) if listed else value}"


def text_of(argument: str) -> str | None:
    """The value of an override as text, None for null."""
    value = OverridesParser.create().parse_override(argument).value()
    return None if value is None else str(OmegaConf.create({"value": value}).value)  # without the escapes of `quoted`


def ordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with Hydra's options first: it refuses overrides on both sides of an option."""
    overrides = get_args_parser().parse_known_intermixed_args(arguments)[0].overrides
    return [*(one for one in arguments if one not in overrides), *overrides]


def bare_texts(arguments: Sequence[str]) -> list[str]:
    """The arguments that are neither options nor overrides."""
    given = get_args_parser().parse_known_intermixed_args(arguments)[0].overrides
    return [one for one in given if not _SETTING.match(one)]


def with_texts(arguments: Sequence[str], key: str) -> list[str]:
    """The arguments, with all texts collected in one list `key=[...]`: bare texts, and TEXT of `key=TEXT`."""
    bare, own = bare_texts(arguments), re.compile(rf"{key}=(?!\[)")
    taken = [one for one in arguments if one in bare or own.match(one)]
    texts = ",".join(quoted(one.removeprefix(f"{key}=")) for one in taken)
    return [*(one for one in arguments if one not in taken), *([f"{key}=[{texts}]"] if taken else [])]


def with_keys(command: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command in Hydra's grammar: bare texts get the key that the command reads them by.

    data.KEY=VALUE changes the data of a checkpoint, whose settings no yaml of these commands lists: it gets a plus.
    """
    if command in _TEXTS:
        arguments = with_texts(arguments, _TEXTS[command])
    elif command in _OF_RESULT:
        bare = bare_texts(arguments)
        arguments = [override("result", one) if one in bare else one for one in arguments]
    if command in _OF_CHECKPOINT and not any(one.startswith("data=") for one in arguments):
        arguments = [f"+{one}" if one.startswith("data.") else one for one in arguments]
    return list(arguments)


def explained(error: BaseException) -> str:
    """The message of an error from Hydra or OmegaConf on one line, without its advice."""
    lines = [line.strip() for line in (str(error) or str(error.__cause__ or "")).splitlines() if line.strip()]
    advice = ("full_key", "object_type", "reference_type", "To append", "Set the environment", "Config search path")
    text = " ".join(line for line in lines if not line.startswith((*advice, "provider=")))
    keys = [line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")]
    named = next(iter(keys), getattr(error, "override", None) or "")
    return text if not named or named in text else f"{named}: {text}"
