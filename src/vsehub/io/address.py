"""Addresses of files and databases, whose secrets are masked wherever an address is shown.

The command line sets the secrets of every address aside before anything else reads the arguments. Settings, records,
pages, logs and messages therefore only contain masked addresses; the functions that connect ask for the whole ones.
"""

import base64
import json
import logging
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

from vsehub.checks import fail

MASK = "***"
SHARED = "VSEHUB_ADDRESSES"  # environment variable: masked -> whole address, for the processes that a command starts

# The parameters of a URI, or of a connection string of Postgres, whose values are shown.
_SHOWN = re.compile(
    "application_name|channel_binding|connect_timeout|dbname|download|format|host|hostaddr|keepalives|page|port|raw|ref|"
    "region|revision|sslmode|target_session_attrs|user|version|versionid",
    re.IGNORECASE,
)
_START = r"[A-Za-z][A-Za-z0-9+.-]{1,40}:/+"  # bounded: a text of letters only is searched from each of them
_VALUE = r"'(?:[^'\\]|\\.)*'|[^\s']\S*"
_URI = re.compile(
    rf"(?P<start>{_START})"
    r"(?P<user>[^/?#]*@|(?!arn:)[^/?#:@\[]*:(?!\d*(?:[/?#]|$)).*@)?"  # a password may contain / or ? or #
    r"(?P<host>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)",
    re.DOTALL,
)
# The schemes whose addresses begin with the name of a user or container; elsewhere a token may stand in that place.
_NAMED = re.compile(r"(?:abfss?|hdfs|postgres(?:ql)?|sftp|smb|ssh|webhdfs)[+:]", re.IGNORECASE)
_PARAMETER = re.compile(r"(?P<name>#|[?&;](?:[\w.-]{1,40}=)?)(?P<secret>(?<=#).*|[^&;#]*)", re.DOTALL)
_KEYWORD = re.compile(rf"(?P<name>[\w-]+\s*=\s*)(?P<secret>{_VALUE})")
_KEYWORDS = re.compile(
    r"(?=(?:.*\s)?(?:host|hostaddr|dbname|user|password|passfile|service)\s*=)"
    rf"\s*(?:[\w-]+\s*=\s*(?:{_VALUE})\s*)+",
    re.IGNORECASE | re.DOTALL,
)
_IN_TEXT = re.compile(rf"{_START}[^\s'\"<>]*[^\s'\"<>).,;:!]")
IN_WORD = re.compile(
    rf"(?P<quote>['\"])(?P<quoted>{_START}(?:\\.|(?!(?P=quote)).)*)(?P=quote)|{_START}[^\s,\]}}'\"]*", re.DOTALL
)
_ESCAPED = re.compile(r"\\(?=[\\()\[\]{}:=, '\"])")  # a backslash before characters that Hydra's grammar would misread
_SHORTEST = 4  # letters of a secret; shorter ones are not masked in other texts
_LONG = 8  # letters from which on a secret is also masked within words
_typed: list[str] = []


class Address(str):
    """A URI of a file or database, or a connection string of Postgres. Its text is masked; `opened` gives it whole.

    Before an @ only the name of a user is shown, if the scheme has no tokens there; of the query only parameters known
    to be harmless. Everything else is `***`, or `***2` and so on where two addresses would look alike. A pickled
    address, for another process of the same command, contains its secrets.

    >>> str(Address("postgresql://me:secret@host/base?sslmode=require&sslpassword=other"))
    'postgresql://me:***@host/base?sslmode=require&sslpassword=***'
    >>> Address("https://host/vectors.npy?sig=secret").opened("items")
    'https://host/vectors.npy?sig=secret'
    """

    def __new__(cls, text: str) -> "Address":
        """Set the secrets of `text` aside; a masked text is taken unchanged."""
        array = text[re.search(r"(::[^]@?&=#:]*)?\Z", text).start() :]  # type: ignore[union-attr]  # FILE::ARRAY
        base = text.removesuffix(array)
        shown, number = _masked_address(base), 1
        if shown != base:
            kept, free = _kept(), shown
            while kept.setdefault(free, base) != base:
                number += 1
                free = shown.replace(MASK, f"{MASK}{number}", 1)
            os.environ[SHARED], shown = json.dumps(kept), free
        return super().__new__(cls, shown + array)

    def __reduce__(self) -> tuple[Callable[[str], "Address"], tuple[str]]:
        return Address, (self._whole() or str(self),)

    def opened(self, setting: str) -> str:
        """The whole address. setting: its name, for the message.

        Raises InputError for the masked address of a record, since records do not contain secrets.
        """
        whole = self._whole()
        if whole is None:
            fail(
                f"{setting}: {self} is masked, since records keep no secrets. Give the setting that ends in {setting} "
                "again with the whole address; with resume= and checkpoint= too, as in data.images=ADDRESS"
            )
        return whole

    def _whole(self) -> str | None:
        for shown, whole in sorted(_kept().items(), reverse=True):  # "***2" before "***"
            shown, whole = shown.rstrip("/"), whole.rstrip("/")
            inner = self.removeprefix(shown)  # a file of a folder, or the name of an array
            if len(inner) < len(self) and (not inner or inner.startswith(("/", "::"))):
                return whole + inner
        return None if MASK in self else str(self)


def is_uri(path: str) -> bool:
    """Return True if a text begins with a scheme, such as `s3://`. A single letter is a drive of Windows."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def is_address(text: str) -> bool:
    """Return True if the whole text is a URI or a connection string of Postgres."""
    return re.match(_START, text) is not None or _KEYWORDS.fullmatch(text) is not None


def require_given(settings: Mapping[str, Any]) -> None:
    """Raise InputError if settings that a file brings name an address: only addresses from the user are opened.

    settings: full names of settings and their values, without those that the user has given.
    """
    for name, value in settings.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and re.match(_START, text) and not text.startswith("file:"):
                fail(
                    f"{name} is {Address(text)}, an address that a file brings; vsehub connects only where you say. If "
                    f"you trust it, give it yourself: {name}=ADDRESS"
                )


def masked(text: str) -> str:
    """The text with every address masked, and with `***` for the secrets of all addresses given so far."""
    for shown, whole in sorted(_kept().items(), key=lambda pair: -len(pair[1])):
        text = text.replace(whole, shown)
    for secret in _secrets(os.environ.get(SHARED, "{}")):
        text = secret.sub(MASK, text)
    return _IN_TEXT.sub(lambda found: _masked_address(found[0]), text)


def set_aside(argument: str, several: bool = False) -> str:
    """An argument of the command line with masked addresses; this process and its children know their secrets.

    several: whether commas separate values, as they do in a sweep.
    """
    key, sign, value = argument.partition("=")
    inner = _ESCAPED.sub("", value[1:-1])
    if value[:1] in ("'", '"') and _KEYWORDS.fullmatch(inner):
        value = inner
    if re.match(_START, value):
        value = _ESCAPED.sub("", value)  # Hydra would read these
    return f"{key}={without_secrets(value, several)}" if sign else masked(argument)


def without_secrets(value: str, several: bool = False) -> str:
    """The value of a setting with masked addresses; see `set_aside`."""
    if _KEYWORDS.fullmatch(value) or (is_address(value) and not several):
        return str(Address(value))
    return IN_WORD.sub(_set_aside, value)


def _set_aside(found: re.Match[str]) -> str:
    quotes = found["quote"] or ""
    return f"{quotes}{Address(_ESCAPED.sub('', found['quoted'] or found[0]))}{quotes}"


def keep_typed(arguments: Sequence[str]) -> None:
    """Keep the program and its arguments, without secrets, before they are made readable for Hydra."""
    _typed[:] = arguments


def typed_command() -> str:
    """The command, quoted so that a shell reads it as it was typed; addresses without their secrets."""
    program, *arguments = _typed or sys.argv
    return f"{program} {shlex.join(arguments)}".rstrip()


@cache
def mask_output() -> None:
    """Mask logs, warnings and tracebacks of this process, also those of other libraries."""
    made, warned = logging.getLogRecordFactory(), warnings.formatwarning

    def masked_record(*arguments: Any, **settings: Any) -> logging.LogRecord:
        record = made(*arguments, **settings)
        with suppress(Exception):  # of a message that does not fit its arguments: the handler reports it
            text = record.getMessage()
            if masked(text) != text:
                record.msg, record.args = masked(text), None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = masked("".join(traceback.format_exception(record.exc_info[1]))).rstrip("\n")
        return record

    logging.setLogRecordFactory(masked_record)
    warnings.formatwarning = lambda *arguments, **settings: masked(warned(*arguments, **settings))
    sys.excepthook = lambda *error: sys.stderr.write(masked("".join(traceback.format_exception(*error))))


def _kept() -> dict[str, str]:
    """Masked -> whole address, without the name of an array."""
    kept: dict[str, str] = json.loads(os.environ.get(SHARED, "{}"))
    return kept


@cache
def _secrets(kept: str) -> list[re.Pattern[str]]:
    """Patterns of the secrets as they may stand in other texts: as given, percent-encoded or not, and in a header."""
    secrets: list[str] = []
    for whole in json.loads(kept).values():
        _masked_address(whole, secrets)
    forms = set()
    for part in [*secrets, *(secret.partition(":")[2] for secret in secrets)]:
        for form in (part, part.strip("'"), unquote(part), unquote_plus(part)):
            forms |= {form, quote(form, safe=""), base64.b64encode(form.encode()).decode()}
    usable = sorted((form for form in forms if len(form) >= _SHORTEST), key=len, reverse=True)
    apart = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
    return [re.compile(("{}" if len(form) >= _LONG else apart).format(re.escape(form))) for form in usable]


def _masked_address(text: str, secrets: list[str] | None = None) -> str:
    """The masked text of an address, which is the text itself if it is masked already; appends to `secrets`."""

    def hide(found: re.Match[str]) -> str:
        name, secret = found["name"], found["secret"]
        if not secret or re.fullmatch(r"\*{3}\d*", secret) or _SHOWN.fullmatch(name.strip("?&;= \t\n")):
            return found[0]
        if secrets is not None:
            secrets.append(secret)
        return f"{name}{MASK}"

    if _KEYWORDS.fullmatch(text):
        return _KEYWORD.sub(hide, text)
    chained = re.split(rf"::(?={_START})", text)  # nested addresses of fsspec
    if len(chained) > 1:
        return "::".join(_masked_address(part, secrets) for part in chained)
    found = _URI.fullmatch(text)
    if found is None or re.match(r"file:/(?!/[^/])", text):  # a path of this machine
        return text
    start, user, host, path, rest = found.groups("")
    name = "[^:]*:?" if _NAMED.match(start) else ""
    user = re.sub(rf"(?P<name>{name})(?P<secret>.*)(?=@)", hide, user, count=1, flags=re.DOTALL)
    if not host.startswith(("[", "arn:")):
        host = re.sub(r"(?P<name>:)(?P<secret>(?!\d*(?:,|$))[^,]*)", hide, host)
    return start + user + host + re.sub("(?P<name>;)(?P<secret>[^/;]*)", hide, path) + _PARAMETER.sub(hide, rest)
