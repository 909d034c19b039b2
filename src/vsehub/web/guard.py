"""Checks of every request's host, origin and size, and the headers of every answer."""

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


class Guard:
    """Refuses large bodies, requests to other hosts, and what pages of other sites send through a user's browser.

    hosts: the host names that requests may use, without ports. most: bytes of a body that is not a picture.

    Every answer gets `HEADERS`.
    """

    def __init__(self, application: ASGIApp, hosts: frozenset[str], most: int):
        self._application, self._hosts, self._most = application, hosts, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI asks."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        application, refused = self._application, self._refusal(scope) if scope["type"] == "http" else None
        if refused is not None:
            status, message = refused
            application = JSONResponse({"error": message}, status, {"connection": "close"})
        await application(scope, receive, answer)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason if the request is refused."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if name.lower() not in self._hosts:
            return 421, "this host name is not served; use the address that `vsehub serve` printed, or give host="
        origin, site = headers.get("origin", f"//{host}"), headers.get("sec-fetch-site", "none")
        # A link on another site may lead to a page; nothing else may come from there, as each question costs a search.
        link = scope["method"] == "GET" and not scope["query_string"] and headers.get("sec-fetch-dest") == "document"
        if origin.partition("//")[2].lower() != host.lower() or not (site in ("same-origin", "none") or link):
            return 403, "a page of another site sent this request; open the address that `vsehub serve` printed"
        most = MOST_BYTES if scope["path"].endswith("/picture") else self._most
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            return 411, "the request does not say its length; send Content-Length"
        if not length.isdecimal() or int(length) > most:
            return 413, f"the request is larger than {most / 2**20:.2g} MB"
        return None
