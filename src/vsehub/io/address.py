"""Addresses of files and databases, whose secrets are masked wherever an address is shown.

The command line sets the secrets of every address aside before anything else reads the arguments. Settings, records,
pages, logs and messages therefore only contain masked addresses; the functions that connect ask for the whole ones.
"""

import base64
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import quote, unquote, unquote_plus

from vsehub.checks import fail

MASK = "***"
SHARED = "VSEHUB_ADDRESSES"  # environment variable: masked -> whole address, for the processes that a command starts

# The parameters of a URI, or of a connection string of Postgres, whose values are shown.
_SHOWN = frozenset(
    [
        *("application_name", "channel_binding", "connect_timeout", "dbname", "download", "format", "host", "hostaddr"),
        *("keepalives", "page", "port", "raw", "ref", "region", "revision", "sslmode", "target_session_attrs", "user"),
        *("version", "versionid"),
    ]
)
# The schemes whose addresses begin with the name of a user or container; elsewhere a token may stand in that place.
_NAMED = frozenset(["abfs", "abfss", "hdfs", "postgres", "postgresql", "sftp", "smb", "ssh", "webhdfs"])
_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)(?P<slashes>:/+)(?P<place>[^/?#]*)(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
_ARRAY = re.compile(r"(.*?)(::[^]@?&=#:]*)?", re.DOTALL)  # the name of an array after two colons is not part of a URI
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|arn:[\w:-]*|[^:@\[\]]*)(?::\d*)?")
_MASKED = re.compile(r"\*{3}\d*")
_PLAIN_NAME = re.compile(r"[\w.-]{1,40}")
_VALUE = r"'(?:[^'\\]|\\.)*'|[^\s']\S*"
_KEYWORD = re.compile(rf"(?P<name>[\w-]+)(?P<sign>\s*=\s*)(?P<value>{_VALUE})")
_KEYWORDS = re.compile(rf"\s*(?:[\w-]+\s*=\s*(?:{_VALUE})\s*)+")
_OF_POSTGRES = re.compile(r"(?:^|\s)(?:host|hostaddr|dbname|user|password|passfile|service)\s*=", re.IGNORECASE)
_START = r"[A-Za-z][A-Za-z0-9+.-]{1,40}:/+"  # bounded: a text of letters alone is searched from each of them
_IN_TEXT = re.compile(rf"{_START}[^\s'\"<>]*[^\s'\"<>).,;:!]")
IN_WORD = re.compile(
    rf"(?P<quote>['\"])(?P<quoted>{_START}(?:\\.|(?!(?P=quote)).)*)(?P=quote)|{_START}[^\s,\]}}'\"]*", re.DOTALL
)
_ESCAPED = re.compile(r"\\(?=[\\()\[\]{}:=, '\"])")  # a backslash before characters that Hydra's grammar would misread
_SHORTEST = 4  # letters of a secret; shorter ones are not masked in other texts
_LONG = 8  # letters from which on a secret is also masked within words


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

    _kept: ClassVar[dict[str, str]] = {}  # masked -> whole address, without the name of an array
    _secrets: ClassVar[set[str]] = set()

    def __new__(cls, text: str) -> "Address":
        """Set the secrets of `text` aside; a masked text is taken unchanged."""
        base, array = _divided(text)
        secrets: list[str] = []
        shown = _masked_address(base, secrets)
        if shown != base:
            number, free = 1, shown
            while cls._kept.setdefault(free, base) != base:
                number += 1
                free = shown.replace(MASK, f"{MASK}{number}", 1)
            shown = free
            cls._secrets.update(_forms(secrets))
        return super().__new__(cls, shown + array)

    @classmethod
    def forget(cls) -> None:
        """Forget all secrets, as in a new process."""
        cls._kept.clear()
        cls._secrets.clear()
        os.environ.pop(SHARED, None)

    def __reduce__(self) -> tuple[Callable[[str], "Address"], tuple[str]]:
        return Address, (self._whole() or str(self),)

    def opened(self, setting: str) -> str:
        """The whole address. setting: its name, for the message.

        Raises InputError for the masked address of a record, since records do not contain secrets.
        """
        found = self._whole()
        if found is None:
            fail(
                f"{setting}: {self} is masked: records keep no secrets, which stood in the place of {MASK}. Give the "
                f"setting that ends in {setting} again with the whole address; with resume= and checkpoint= too, as in "
                "data.images=ADDRESS"
            )
        return found

    @property
    def is_masked(self) -> bool:
        """Whether the text does not show the whole address."""
        return _MASKED.search(self) is not None

    def _whole(self) -> str | None:
        if not self.is_masked:
            return str(self)
        base, array = _divided(self)
        kept = json.loads(os.environ.get(SHARED, "{}")) | self._kept
        for shown in sorted(kept, key=len, reverse=True):
            if base == shown:
                return f"{kept[shown]}{array}"
            folder = f"{shown.rstrip('/')}/"
            if base.startswith(folder):  # a file of a folder
                return f"{kept[shown].rstrip('/')}/{base.removeprefix(folder)}{array}"
        return None


def is_uri(path: str) -> bool:
    """Whether a text begins with a scheme, such as `s3://`. A single letter is a drive of Windows."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def require_given(settings: Mapping[str, Any]) -> None:
    """Raise InputError if settings that a file brings name an address: only addresses from the user are opened.

    settings: full names of settings and their values, without those that the user has given.
    """
    for name, value in settings.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, str) and re.match(_START, one) and not one.startswith("file:"):
                fail(
                    f"{name} is {Address(one)}, an address that a file brings; vsehub connects only where you say. If "
                    f"you trust it, give it yourself: {name}=ADDRESS"
                )


def masked(text: str) -> str:
    """The text with every address masked, and with `***` for the secrets of all addresses given so far."""
    kept = json.loads(os.environ.get(SHARED, "{}")) | Address._kept
    for shown, whole in sorted(kept.items(), key=lambda one: -len(one[1])):
        text = text.replace(whole, shown)
    for secret in sorted(Address._secrets, key=len, reverse=True):
        within = re.escape(secret)
        text = re.sub(within if len(secret) >= _LONG else rf"(?<![A-Za-z0-9]){within}(?![A-Za-z0-9])", MASK, text)
    return _IN_TEXT.sub(lambda found: _masked_address(found[0], []), text)


def set_aside(argument: str, several: bool = False) -> str:
    """An argument of the command line with masked addresses; this process and its children know their secrets.

    several: whether commas separate values, as they do in a sweep.
    """
    key, sign, value = argument.partition("=")
    if value[:1] in ("'", '"') and _is_keywords(value[1:-1]):
        value = _ESCAPED.sub("", value[1:-1])
    if re.match(_START, value):
        value = _ESCAPED.sub("", value)  # Hydra would read these
    return f"{key}={without_secrets(value, several)}" if sign else masked(argument)


def is_address(text: str) -> bool:
    """Whether a text as a whole is a URI or a connection string of Postgres."""
    return re.match(_START, text) is not None or _is_keywords(text)


def without_secrets(value: str, several: bool = False) -> str:
    """The value of a setting with masked addresses; see `set_aside`."""
    shown = str(Address(value)) if not several and is_address(value) else IN_WORD.sub(_set_aside, value)
    if shown != value:
        os.environ[SHARED] = json.dumps(json.loads(os.environ.get(SHARED, "{}")) | Address._kept)
    return shown


def _set_aside(found: re.Match[str]) -> str:
    return f"{found['quote'] or ''}{Address(_ESCAPED.sub('', found['quoted'] or found[0]))}{found['quote'] or ''}"


def mask_output() -> None:
    """Mask logs, warnings and tracebacks of this process, also those of other libraries."""
    for whole in json.loads(os.environ.get(SHARED, "{}")).values():
        Address(whole)
    if getattr(logging.getLogRecordFactory(), "masks", False):
        return
    made, warned = logging.getLogRecordFactory(), warnings.formatwarning

    def masked_record(*arguments: Any, **settings: Any) -> logging.LogRecord:
        record = made(*arguments, **settings)
        try:
            text = record.getMessage()
        except Exception:  # the handler reports it
            return record
        if masked(text) != text:
            record.msg, record.args = masked(text), None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = masked("".join(traceback.format_exception(record.exc_info[1]))).rstrip("\n")
        return record

    def masked_crash(
        kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:  # VSEHUB_TRACEBACK=1
        sys.stderr.write(masked("".join(traceback.format_exception(kind, error, where))))

    masked_record.masks = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(masked_record)
    warnings.formatwarning = lambda *arguments, **settings: masked(warned(*arguments, **settings))
    sys.excepthook = masked_crash


def _divided(text: str) -> tuple[str, str]:
    """The address, and the name of an array with its two colons, or nothing."""
    found = _ARRAY.fullmatch(text)
    return (text, "") if found is None else (found[1], found[2] or "")


def _is_keywords(text: str) -> bool:
    return _OF_POSTGRES.search(text) is not None and _KEYWORDS.fullmatch(text) is not None


def _masked_address(text: str, secrets: list[str]) -> str:
    """The masked text of an address, which is the text itself if it is masked already; adds to `secrets`."""

    def hidden(secret: str) -> str:
        if not secret or _MASKED.fullmatch(secret):
            return secret
        secrets.append(secret)
        return MASK

    def keyword(found: re.Match[str]) -> str:
        own = found["value"] if found["name"].lower() in _SHOWN else hidden(found["value"])
        return f"{found['name']}{found['sign']}{own}"

    chained = re.split(rf"::(?={_START})", text)  # nested addresses of fsspec
    if len(chained) > 1:
        return "::".join(_masked_address(one, secrets) for one in chained)
    found = _URI.fullmatch(text)
    if found is None:
        return _KEYWORD.sub(keyword, text) if _is_keywords(text) else text
    scheme, place, rest = found["scheme"].lower(), found["place"], text[found.end("place") :]
    start = f"{found['scheme']}{found['slashes']}"
    if scheme == "file" and found["slashes"] != "://":  # a path of this machine
        return text
    if "@" not in place and "@" in rest and not _HOST.fullmatch(place):  # a password with / or ? or #
        user, _, host = f"{place}{rest}".rpartition("@")
        return f"{start}{hidden(user)}@{_masked_address(start + host, secrets).removeprefix(start)}"
    user, at, hosts = place.rpartition("@")
    if at and scheme.partition("+")[0] in _NAMED:
        name, colon, password = user.partition(":")
        user = f"{name}:{hidden(password)}" if colon else name
    elif at:
        if ":" in user:
            secrets.append(user.partition(":")[2])
        user = hidden(user)
    shown = start + user + at + ",".join(_host(host, hidden) for host in hosts.split(","))
    shown += re.sub(";([^/;]*)", lambda one: f";{hidden(one[1])}", found["path"])
    if found["query"] is not None:
        parts = re.split("([&;])", found["query"])
        shown += "?" + "".join(one if place % 2 else _parameter(one, hidden) for place, one in enumerate(parts))
    if found["fragment"] is not None:
        shown += f"#{hidden(found['fragment'])}"
    return shown


def _host(text: str, hidden: Callable[[str], str]) -> str:
    if _HOST.fullmatch(text):
        return text
    name, colon, rest = text.partition(":")
    return f"{name}{colon}{hidden(rest)}"


def _parameter(text: str, hidden: Callable[[str], str]) -> str:
    name, sign, value = text.partition("=")
    if not text or (sign and name.lower() in _SHOWN):
        return text
    return f"{name}={hidden(value)}" if value and _PLAIN_NAME.fullmatch(name) else hidden(text)


def _forms(secrets: list[str]) -> set[str]:
    """All forms of secrets in other texts: as given, with and without percent-encoding, and in a header."""
    found = set()
    for one in secrets:
        for form in (one, one.strip("'"), unquote(one), unquote_plus(one)):
            found |= {form, quote(form, safe=""), base64.b64encode(form.encode()).decode()}
    return {one for one in found if len(one) >= _SHORTEST and not _MASKED.fullmatch(one)}
