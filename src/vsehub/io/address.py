"""Secrets in addresses of files and databases, which are masked wherever vsehub writes or prints a setting."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from vsehub.checks import require

MASK = "***"
SHORTEST = 6  # characters: a shorter secret is masked only within its address, since it may be a common word

_SHOWN = (  # parameters of a URI whose values are not secret
    "application_name|channel_binding|connect_timeout|dbname|download|format|host|hostaddr|keepalives|nw|page|port|raw|"
    "ref|region|revision|sslmode|target_session_attrs|user|version|versionid"
)
_START = r"(?<![A-Za-z])(?!file:/)[A-Za-z][A-Za-z0-9+.-]{1,40}:/+"  # bounded, since it is tried at each word
_NO_START = rf"(?!::{_START})"  # fsspec chains addresses by ::, so one ends where the next begins
_CHARACTER = r"(?:\\.|[^\s\"])"  # a character of a string in JSON, whose quotes are escaped
_URI = re.compile(
    # A user without a password is shown in these schemes only; in others it may be a token.
    rf"(?P<start>(?:abfss?|postgres(?:ql)?):/+[^\s\"/?#:@\\]*:?@|{_START})"
    # A password may contain / or ? or # or a space; digits after a colon are a port.
    rf"(?P<user>[^\s\"/?#@\\]*@|[^\s\"/?#:@\[\\]*:(?!\d*(?:[\s/?#]|$))(?:{_CHARACTER}*@|[^\n\"]{{0,200}}?@))?"
    rf"(?P<path>(?:{_NO_START}[^\s'\"<>?#])*)(?P<query>[?#](?:{_NO_START}(?:\\.|[^\s'\"<>]))*)?"
)
_PARAMETER = re.compile(rf"(?P<name>#|[?&;](?!(?:{_SHOWN})=)(?:[\w.-]{{1,40}}=)?)(?P<secret>[^&;#]+)", re.IGNORECASE)
_PASSWORD = re.compile(  # of a connection string of Postgres
    r"(?P<name>(?:ssl)?password\s*=\s*)(?P<secret>\\*'[^\n\"]*'|(?:\\.|[^\s'\"])+)", re.IGNORECASE
)
_CONNECTION = re.compile(r"\b(?:host|hostaddr|port|dbname|user|service)\s*=")  # in the same string
_secrets: set[str] = set()
_addresses: set[str] = set()


def is_uri(path: str) -> bool:
    """Return True if a text begins with a scheme, such as `s3://`. A single letter is a drive of Windows."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def masked(text: str, secrets: set[str] | None = None) -> str:
    """The text with `***` for the secrets of each URI, and for passwords in connection strings of Postgres.

    What stands before an @ is hidden, and all parameters that are not known to be harmless. The text may be JSON.
    secrets: a set that the secrets are added to.

    >>> masked("cannot read postgresql://me:secret@host/base?sslmode=require&sslpassword=other")
    'cannot read postgresql://***@host/base?sslmode=require&sslpassword=***'
    """

    def hide(match: re.Match[str]) -> str:
        if secrets is not None:
            secrets.add(match["secret"])
        return f"{match['name']}{MASK}"

    def hide_in(match: re.Match[str]) -> str:
        start, user, path, query = match.groups("")
        user = re.sub("(?P<name>)(?P<secret>.+)(?=@$)", hide, user)  # all before the @; `hide` needs both groups
        return f"{start}{user}{path}{_PARAMETER.sub(hide, query)}"

    text = _URI.sub(hide_in, text)
    return _PASSWORD.sub(hide, text) if _CONNECTION.search(text) else text


def masked_settings(settings: Any) -> Any:
    """Plain settings, each address in them `masked`."""
    return json.loads(masked(json.dumps(settings)))


def remember(text: str) -> None:
    """Keep the addresses in a setting and their secrets, for `masked_output`."""
    _addresses.update(address[0] for address in _URI.finditer(text))
    masked(text, _secrets)


def masked_output(text: str) -> str:
    """The text without the secrets of remembered addresses, which a library's message may repeat by themselves."""
    for address in sorted(_addresses, key=len, reverse=True):
        text = text.replace(address, masked(address))
    secrets = _secrets | {secret.partition(":")[2] for secret in _secrets}  # of USER:PASSWORD also PASSWORD
    for secret in sorted(secrets | set(map(unquote, secrets)), key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, MASK)
    return text


def require_no_address(settings: Mapping[str, Any]) -> None:
    """Raise InputError if settings that a file brings name an address: only addresses from the user are opened.

    settings: full names of settings and their values, without those that the user has given.
    """
    for name, value in settings.items():
        for text in strings_in(value):
            require(
                re.search(_START, text) is None,
                f"{name} is {masked(text)}, an address that a file brings; vsehub connects only where you say. If you "
                f"trust it, give it yourself: {name}=ADDRESS",
            )


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a plain value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from strings_in(inner)


def typed_command(arguments: Sequence[str] | None = None) -> str:
    """The command of this process, quoted for a shell; addresses without their secrets.

    arguments: those to write in place of the typed ones.
    """
    return f"{sys.argv[0]} {shlex.join(map(masked, sys.argv[1:] if arguments is None else arguments))}".rstrip()
