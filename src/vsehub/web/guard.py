"""Checks of every request's host, origin and size, and the headers of every answer."""

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 16 << 20  # of a picture
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # under "no-referrer" some requests of the own pages have "null" as their origin
    "cross-origin-resource-policy": "same-origin",
}


log = logging.getLogger(__name__)


class _TooLarge(Exception):
    pass


class Guard:
    """Refuses large bodies, requests to other hosts, and what pages of other sites send through a user's browser.

    hosts: the host names that requests may use, without ports. most: bytes of a body that is not a picture.

    Every answer gets `HEADERS`.
    """

    def __init__(self, application: ASGIApp, hosts: frozenset[str], most: int):
        self._application, self._hosts, self._most = application, hosts, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI asks."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        began, refused, taken = False, False, 0
        most = MOST_BYTES if scope["path"].endswith("/picture") else self._most
        too_large = JSONResponse(
            {"error": f"the request is larger than {most / 2**20:.2g} MB"}, 413, {"connection": "close"}
        )

        async def answering(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        async def taking() -> Message:
            nonlocal refused, taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                refused = True
                raise _TooLarge
            return message

        async def answering_unless_refused(message: Message) -> None:
            if not refused:
                await answering(message)

        headers = Headers(scope=scope)
        host, length = headers.get("host", ""), headers.get("content-length", "0")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if name.lower() not in self._hosts:
            said = "this host name is not served; use the address that `vsehub serve` printed, or give host="
            await JSONResponse({"error": said}, 421)(scope, receive, answering)
            return
        origin, site = headers.get("origin", f"//{host}"), headers.get("sec-fetch-site", "none")
        # A link on another site may lead to a page; nothing else may come from there, as each question costs a search.
        link = scope["method"] == "GET" and not scope["query_string"] and headers.get("sec-fetch-dest") == "document"
        if origin.partition("//")[2].lower() != host.lower() or not (site in ("same-origin", "none") or link):
            said = "a page of another site sent this request; open the address that `vsehub serve` printed"
            await JSONResponse({"error": said}, 403)(scope, receive, answering)
            return
        if not length.isdecimal() or int(length) > most:
            await too_large(scope, receive, answering)
            return
        try:
            await self._application(scope, taking, answering_unless_refused)
        except Exception:  # the answer, if any, was sent already
            if not refused:
                log.exception("a request failed: %s", scope["path"])
        if refused and not began:
            await too_large(scope, receive, answering)
