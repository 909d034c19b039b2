"""Arguments that are texts, not settings, made ready for Hydra, which would read their commas and quotes."""

import re
from collections.abc import Sequence

from hydra.core.override_parser.types import Quote, QuotedString

from vsehub.checks import require

# What Hydra reads as a setting: a key, with its signs and package, directly before the sign.
_SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=|~[\w./@:-]+$")
# Options of Hydra that take the next argument as their value.
_WITH_VALUE = re.compile(r"(-c|--cfg|-p|--package|-cp|--config-path|-cn|--config-name|-cd|--config-dir|-i|--info)$")


def with_texts(arguments: Sequence[str], key: str) -> list[str]:
    """The arguments, with all that are texts gathered in one list `key=[...]`.

    A text is what is no option and no setting, or comes as `key=TEXT`; a list `key=[...]` in Hydra's own grammar stays.
    Raises InputError where texts and such a list both come.
    """
    texts, rest, listed = [], [], False
    for number, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if sign and name == key and not value.startswith("["):
            texts += [] if value == "null" else [value]
        elif argument.startswith("-") or _SETTING.match(argument) or _is_value(arguments, number):
            rest.append(argument)
            listed |= bool(sign) and name == key
        else:
            texts.append(argument)
    require(not (texts and listed), f"texts and {key}=[...] both came; give all texts one way")
    return [*rest, f"{key}=[{','.join(map(quoted, texts))}]"] if texts else rest


def with_quotes(arguments: Sequence[str], key: str) -> list[str]:
    """The arguments, with the value of `key=VALUE` quoted, so that it reads as a text whatever is in it."""
    names = [argument.partition("=") for argument in arguments]
    return [
        f"{name}={quoted(value)}"
        if name == key and sign and value not in ("null", "") and value[0] not in "'\""
        else argument
        for argument, (name, sign, value) in zip(arguments, names, strict=True)
    ]


def quoted(text: str) -> str:
    """The text as a value in Hydra's grammar that reads as the text itself."""
    # OmegaConf would replace "${...}"; a backslash before it, and twice as many where there are some, keep it.
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return QuotedString(text=text, quote=Quote.single).with_quotes()


def _is_value(arguments: Sequence[str], number: int) -> bool:
    return number > 0 and _WITH_VALUE.match(arguments[number - 1]) is not None
