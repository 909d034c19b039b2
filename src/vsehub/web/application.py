"""The pages and the interface of `vsehub serve`. A request only reads: nothing is written, fetched or executed."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException

from vsehub import __version__
from vsehub.checks import InputError, fail, require
from vsehub.io.text import csv_text
from vsehub.metrics.occurrences import histogram
from vsehub.report.pages.curves import occurrence_curves
from vsehub.report.pages.templates import page_environment, thumbnail
from vsehub.web.catalogue import MOST, PLAIN, Catalogue, positions_with

STEP = 20  # items or queries on a page, unless a request has a limit
LETTERS = 4000  # of a text
THUMBNAIL = 256
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # under "no-referrer" some requests of the own pages have "null" as their origin
    "cross-origin-resource-policy": "same-origin",
}


class Question(BaseModel):
    """A search request: exactly one of text, item and query."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, description="a sentence", max_length=LETTERS)
    item: str | None = Field(
        default=None, description="the id of an item, whose vector is the query", max_length=LETTERS
    )
    query: int | None = Field(default=None, description="the number of a known query, from 0", ge=0)
    k: int = Field(default=10, description="items in each list", ge=1, le=MOST)
    criterion: str | None = Field(default=None, description="a criterion of /api/collection; the first if not given")

    @field_validator("*", mode="before")
    @classmethod
    def none_if_empty(cls, value: Any) -> Any:
        """The value of a field; None for an empty one, as a form sends it."""
        return None if value == "" else value

    def asks(self) -> list[str]:
        """The names of what is asked."""
        return [name for name in ("text", "item", "query") if getattr(self, name) is not None]


QuestionQuery = Annotated[Question, Query()]
Offset = Annotated[int, Query(description="entries to leave out", ge=0, le=10**9)]
Limit = Annotated[int, Query(description="entries at most", ge=1, le=MOST)]
Chosen = Annotated[str | None, Query(description="the correction to compare with; the first if not given")]
Kind = Annotated[
    Literal["hubs", "hubs_made", "antihubs", "items"],
    Query(description="the most found items, hubs that only the correction has, items that no query finds, or all"),
]
Find = Annotated[str, Query(description="text in the id or the caption, in any case", max_length=LETTERS)]


class Service:
    """The answers of the interface and the pages, of one catalogue.

    `application` lists the paths that its methods answer.
    """

    def __init__(self, catalogue: Catalogue):
        self.catalogue, self.encoder = catalogue, catalogue.contents.encoder
        self.reads_text = self.encoder is not None and self.encoder.vocabulary is not None
        self.criteria = [name for name in catalogue.rankings if name != PLAIN] or [PLAIN]
        histograms = {name: histogram(ranking.counts) for name, ranking in catalogue.rankings.items()}
        mean_count = catalogue.k * len(catalogue.queries) / len(catalogue)
        self.curves = occurrence_curves(histograms, catalogue.k, mean_count)

    def collection(self) -> dict[str, Any]:
        """The served contents, their criteria, and the hubness under each."""
        catalogue = self.catalogue
        return {
            "title": catalogue.contents.title,
            "items": len(catalogue),
            "dimensions": catalogue.vectors.shape[1],
            "queries": len(catalogue.queries),
            "fitted_on": catalogue.contents.fitted_on,
            "criteria": list(catalogue.rankings),
            "reads": self.reads_text,
            "k": catalogue.k,
            "hub_level": catalogue.hub_level,
            "hubness": catalogue.hubness(),
            "verdict": catalogue.verdict,
        }

    def search(self, question: QuestionQuery) -> dict[str, Any]:
        """The plain and the corrected lists of a sentence, an item or a known query."""
        catalogue, count = self.catalogue, len(question.asks())
        require(count == 1, f"give one of text, item and query; {count} were given")
        notes: list[str] = []
        answers: list[int] = []
        if question.text is not None:
            if self.encoder is None or not self.reads_text or not question.text.strip():
                fail("text is empty, or no model reads it; give checkpoint= or model=")
            title = f"“{question.text}”"
            vector, notes = self.encoder.encode(question.text)
        elif question.item is not None:
            title = f"Near {question.item}"
            row = self._row(question.item)
            vector = catalogue.vectors[row : row + 1]
        else:
            query = question.query or 0
            if query >= len(catalogue.queries):
                raise HTTPException(404, f"query is {query}; expected 0 to {len(catalogue.queries) - 1}")
            title = catalogue.query_name(query)
            vector, answers = catalogue.queries.rows(query, query + 1), catalogue.answers(query)
        result = catalogue.search(vector, question.k, self._criterion(question.criterion), answers)
        return {"title": title, "notes": notes, **result}

    def item(self, name: str, offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        row = self._row(name)
        finders = self.catalogue.finders(row, self._criterion(criterion))
        return {
            **self.catalogue.item(row),
            "finders": finders[offset : offset + limit],
            "total_finders": len(finders),
        }

    def hubs(
        self, kind: Kind = "hubs", offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None, find: Find = ""
    ) -> dict[str, Any]:
        """Hubs, or other items, with the queries that find each, and the known queries with the text `find`."""
        catalogue, name = self.catalogue, self._criterion(criterion)
        rows = self._rows(kind, criterion, find)
        items = [
            catalogue.item(row) | {"finders": catalogue.finders(row, name)[:5]} for row in rows[offset : offset + limit]
        ]
        matches = (
            positions_with(catalogue.contents.inputs.query_names, catalogue.query_rows.tolist(), find) if find else []
        )
        queries = [{"text": catalogue.query_name(query), "page": f"/?query={query}"} for query in matches[:STEP]]
        return {
            "kind": kind,
            "find": find,
            "total": len(rows),
            "offset": offset,
            "items": items,
            "queries": queries,
            "total_queries": len(matches),
        }

    def hubs_csv(self, kind: Kind = "hubs", criterion: Chosen = None, find: Find = "") -> Response:
        """All items of a kind as .csv: row, id, caption, and N_k under each ranking."""
        catalogue = self.catalogue
        columns = ["item", "id", "caption", *(f"N_{catalogue.k} {name}" for name in catalogue.rankings)]
        items = ((row, catalogue.item(row)) for row in self._rows(kind, criterion, find))
        lines = ([row, item["id"], item["label"], *item["found_by"].values()] for row, item in items)
        attached = {"content-disposition": f'attachment; filename="{kind}.csv"'}
        return Response(csv_text(columns, lines), media_type="text/csv", headers=attached)

    def picture(self, row: int) -> Response:
        """The small picture of an item, by its row."""
        picture = self.catalogue.contents.picture(row) if 0 <= row < len(self.catalogue) else None
        content = None if picture is None else thumbnail(picture, THUMBNAIL)
        if content is None:
            raise HTTPException(404, "there is no such picture")
        return Response(content, media_type="image/jpeg", headers={"cache-control": "max-age=600"})

    def search_page(self, request: Request, question: QuestionQuery) -> Response:
        """The form of a search and, if something is asked, its lists."""
        result = self.search(question) if question.asks() else None
        chosen = self._criterion(question.criterion)
        return self.page("search.html.j2", parameters=request.query_params, answer=result, criterion=chosen)

    def hubs_page(self, kind: Kind = "hubs", offset: Offset = 0, criterion: Chosen = None, find: Find = "") -> Response:
        """The hubs, with the distribution of N_k."""
        result, chosen = self.hubs(kind, offset, STEP, criterion, find), self._criterion(criterion)
        return self.page("hubs.html.j2", answer=result, curves=self.curves, criterion=chosen, step=STEP)

    def item_page(self, name: str, offset: Offset = 0, criterion: Chosen = None) -> Response:
        """An item, the queries that find it, and its neighbours."""
        entry, chosen = self.item(name, offset, STEP, criterion), self._criterion(criterion)
        near = self.search(Question(item=name, k=12, criterion=chosen))
        return self.page("item.html.j2", item=entry, near=near, criterion=chosen, offset=offset, step=STEP)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """The page of a template and its values."""
        shared = {"service": self, "collection": self.collection(), "most": MOST, "letters": LETTERS, "status": status}
        text = page_environment("vsehub.web").get_template(template).render(shared | values)
        return HTMLResponse(text, status, HEADERS)

    async def problem(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed: one sentence, without a traceback or a path of this machine."""
        status, message = 500, "the request failed; the log of the server says why"
        if isinstance(error, HTTPException):
            status, message = error.status_code, str(error.detail)
        elif isinstance(error, RequestValidationError):
            first = error.errors()[0]
            status, message = 422, f"{'.'.join(map(str, first['loc'][1:])) or 'the request'}: {first['msg']}"
        elif isinstance(error, InputError):
            status, message = 422, str(error)
        if request.url.path.startswith(("/api/", "/openapi.json", "/pictures")):
            return JSONResponse({"error": message}, status, HEADERS)
        return self.page("problem.html.j2", status, message=message)

    def _row(self, name: str) -> int:
        """The row of an item's id."""
        if name not in self.catalogue.row_of:
            raise HTTPException(404, f"there is no item {name[:100]!r}")
        return self.catalogue.row_of[name]

    def _criterion(self, name: str | None) -> str:
        """A criterion of the catalogue, the first by default."""
        known = self.catalogue.rankings
        require(not name or name in known, f"criterion is {str(name)[:40]!r}; choose one of {', '.join(known)}")
        return name or self.criteria[0]

    def _rows(self, kind: str, criterion: str | None, find: str) -> list[int]:
        """The rows of a kind of items whose id or caption contains a text, the most found first."""
        catalogue = self.catalogue
        kinds = {
            "hubs": catalogue.hubs,
            "hubs_made": catalogue.hubs_made[self._criterion(criterion)],
            "antihubs": catalogue.antihubs,
            "items": catalogue.by_count,
        }
        rows = kinds[kind]
        if not find:
            return rows
        return [rows[position] for position in positions_with(catalogue.contents.inputs.item_names, rows, find)]


def application(catalogue: Catalogue, host: str) -> FastAPI:
    """The ASGI application. host: the host name that requests may use besides those of this machine."""
    service, hosts = Service(catalogue), {"127.0.0.1", "localhost", "::1", host.lower()}
    app = FastAPI(
        title="vsehub serve", version=__version__, description=catalogue.contents.title, docs_url=None, redoc_url=None
    )

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse requests to other host names, and those of other sites' pages, except their links to a page."""
        headers, site = request.headers, request.headers.get("sec-fetch-site", "none")
        link = headers.get("sec-fetch-dest") == "document" and not request.url.query
        if (request.url.hostname or "") not in hosts:
            said = "this host name is not served; use the address that `vsehub serve` printed, or give host="
            return JSONResponse({"error": said}, 421, HEADERS)
        if "origin" in headers or not (site in ("same-origin", "none") or link):
            said = "a page of another site sent this request; open the address that `vsehub serve` printed"
            return JSONResponse({"error": said}, 403, HEADERS)
        response = await call(request)
        response.headers.update(HEADERS)
        return response

    interface: dict[str, Callable[..., Any]] = {
        "/api/collection": service.collection,
        "/api/search": service.search,
        "/api/items/{name:path}": service.item,
        "/api/hubs": service.hubs,
        "/hubs.csv": service.hubs_csv,
        "/pictures/{row}": service.picture,
    }
    pages: dict[str, Callable[..., Any]] = {
        "/": service.search_page,
        "/hubs": service.hubs_page,
        "/items/{name:path}": service.item_page,
    }
    for path, endpoint in (interface | pages).items():
        app.add_api_route(path, endpoint, include_in_schema=path in interface)
    for kind in (HTTPException, RequestValidationError, InputError, Exception):
        app.add_exception_handler(kind, service.problem)
    return app
