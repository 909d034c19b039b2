"""The pages and the interface of `vsehub serve`. A request only reads: nothing is written, fetched or executed."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException

from vsehub import __version__
from vsehub.checks import InputError
from vsehub.io.text import csv_text
from vsehub.report.pages.templates import page_environment, thumbnail
from vsehub.report.plots import occurrence_curves
from vsehub.web.catalogue import MOST, PLAIN, Catalogue, matching

STEP = 20  # the same by default
LETTERS = 4000  # of a text
THUMBNAIL = 256
KEPT_PICTURES = 2000
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
    item: str | None = Field(default=None, description="the id of an item, whose vector is asked", max_length=LETTERS)
    query: int | None = Field(default=None, description="the number of a known query, from 0", ge=0)
    k: int = Field(default=10, description="items in each list", ge=1, le=MOST)
    criterion: str | None = Field(default=None, description="a criterion of /api/collection; the first if not given")

    @field_validator("*", mode="before")
    @classmethod
    def of_form(cls, value: Any) -> Any:
        """A field of a form; None if it is empty."""
        return None if value == "" else value

    def asks(self) -> list[str]:
        """The names of what is asked."""
        return [name for name in ("text", "item", "query") if getattr(self, name) is not None]


Asked = Annotated[Question, Query()]
Offset = Annotated[int, Query(description="entries to leave out", ge=0, le=10**9)]
Limit = Annotated[int, Query(description="entries at most", ge=1, le=MOST)]
Chosen = Annotated[str | None, Query(description="the correction to compare with; the first if not given")]
Kind = Annotated[
    Literal["hubs", "made", "antihubs", "items"],
    Query(description="the most found items, hubs that only the correction has, items that no query finds, or all"),
]
Find = Annotated[str, Query(description="text in the id or the caption, in any case", max_length=LETTERS)]


class Service:
    """The answers behind pages and interface, of one catalogue."""

    def __init__(self, catalogue: Catalogue):
        self.catalogue, self.asker = catalogue, catalogue.contents.asker
        self.reads = self.asker is not None and self.asker.vocabulary is not None
        self.criteria = [name for name in catalogue.rankings if name != PLAIN] or [PLAIN]
        self.picture = lru_cache(KEPT_PICTURES)(self._picture)
        fair = catalogue.k * len(catalogue.queries) / len(catalogue)
        self.curves = occurrence_curves(catalogue.histograms(), catalogue.k, fair)

    def row(self, name: str) -> int:
        """The row of an item's id."""
        if name not in self.catalogue.row_of:
            raise HTTPException(404, f"there is no item {name[:100]!r}")
        return self.catalogue.row_of[name]

    def criterion(self, name: str | None) -> str:
        """A criterion of the catalogue, the first by default."""
        if name and name not in self.catalogue.rankings:
            raise HTTPException(422, f"criterion is {name[:40]!r}; choose one of {', '.join(self.catalogue.rankings)}")
        return name or self.criteria[0]

    def search(self, question: Question) -> dict[str, Any]:
        """The lists of a question, and a description of it."""
        one, given = self.catalogue, question.asks()
        if len(given) != 1:
            raise HTTPException(422, f"give one of text, item and query; {len(given)} were given")
        notes: list[str] = []
        answers: list[int] = []
        if question.text is not None:
            if self.asker is None or not self.reads or not question.text.strip():
                raise HTTPException(422, "text is empty, or no model reads it; give checkpoint= or model=")
            (vector, notes), title = self.asker.ask(question.text), f"“{question.text}”"
        elif question.item is not None:
            row, title = self.row(question.item), f"Near {question.item}"
            vector = one.vectors[row : row + 1]
        else:
            query = question.query or 0
            if query >= len(one.queries):
                raise HTTPException(404, f"query is {query}; expected 0 to {len(one.queries) - 1}")
            vector, answers, title = one.queries.rows(query, query + 1), one.answers(query), one.query_name(query)
        return {"title": title, "notes": notes} | one.search(
            vector, question.k, self.criterion(question.criterion), answers
        )

    def _picture(self, row: int) -> bytes | None:
        """The JPEG of an item's picture, small."""
        picture = self.catalogue.contents.picture(row) if 0 <= row < len(self.catalogue) else None
        return None if picture is None else thumbnail(picture, THUMBNAIL)

    def rows(self, kind: str, criterion: str | None, find: str) -> list[int]:
        """The rows of a kind of items whose id or caption contains a text, the most found first."""
        one = self.catalogue
        made = one.made[self.criterion(criterion)]
        rows = {"hubs": one.hubs, "made": made, "antihubs": one.antihubs, "items": one.ordered}[kind]
        return [rows[position] for position in matching(one.contents.inputs.item_names, rows, find)] if find else rows

    def hubs(self, kind: str, offset: int, limit: int, criterion: str | None, find: str = "") -> dict[str, Any]:
        """Some items of a kind, with the queries that find each and the items that each displaces.

        find: a text in their ids or captions; "queries" has the first known queries with this text.
        """
        one, rows, name = self.catalogue, self.rows(kind, criterion, find), self.criterion(criterion)
        items = [one.item(row) | {"finders": one.finders(row, name)[:5]} for row in rows[offset : offset + limit]]
        asked = matching(one.contents.inputs.query_names, one.rows.tolist(), find) if find else []
        queries = [{"text": one.query_name(query), "page": f"/?query={query}"} for query in asked[:STEP]]
        found = {"kind": kind, "find": find, "total": len(rows), "offset": offset, "items": items}
        return found | {"queries": queries, "total_queries": len(asked)}

    def table(self, kind: str, criterion: str | None, find: str) -> str:
        """The items of a kind as .csv text: row, id, caption, and N_k under each ranking."""
        one = self.catalogue
        columns = ["item", "id", "caption", *(f"N_{one.k} {name}" for name in one.rankings)]
        items = ((row, one.item(row)) for row in self.rows(kind, criterion, find))
        return csv_text(columns, ([row, item["id"], item["label"], *item["found_by"].values()] for row, item in items))

    def item(self, name: str, offset: int, limit: int, criterion: str | None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        row = self.row(name)
        finders = self.catalogue.finders(row, self.criterion(criterion))
        found = {"finders": finders[offset : offset + limit], "total_finders": len(finders)}
        return self.catalogue.item(row) | found

    def collection(self) -> dict[str, Any]:
        """The collection: title, sizes, criteria, and hubness under each."""
        one = self.catalogue
        return {
            "title": one.contents.title,
            "items": len(one),
            "dimensions": one.vectors.shape[1],
            "queries": len(one.queries),
            "fitted_on": one.contents.fitted_on,
            "criteria": list(one.rankings),
            "reads": self.reads,
            "k": one.k,
            "hub_level": one.hub_level,
            "hubness": one.hubness(),
            "verdict": one.verdict,
        }


def application(catalogue: Catalogue, hosts: frozenset[str]) -> FastAPI:
    """The ASGI application. hosts: the host names that requests may use."""
    service = Service(catalogue)
    title, about = "vsehub serve", catalogue.contents.title
    app = FastAPI(title=title, version=__version__, description=about, docs_url=None, redoc_url=None)

    def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
        shared = {"service": service, "collection": service.collection(), "most": MOST, "letters": LETTERS}
        values |= shared | {"status": status}
        return HTMLResponse(page_environment("vsehub.web").get_template(template).render(values), status)

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse other host names, and what pages of other sites ask through a user's browser, links aside."""
        asked, site = request.headers, request.headers.get("sec-fetch-site", "none")
        link = asked.get("sec-fetch-dest") == "document" and not request.url.query
        if (request.url.hostname or "") not in hosts:
            said = "this host name is not served; use the address that `vsehub serve` printed, or give host="
            answer: Response = JSONResponse({"error": said}, 421)
        elif "origin" in asked or not (site in ("same-origin", "none") or link):
            said = "a page of another site sent this request; open the address that `vsehub serve` printed"
            answer = JSONResponse({"error": said}, 403)
        else:
            answer = await call(request)
        answer.headers.update(HEADERS)
        return answer

    @app.get("/api/collection")
    def collection() -> dict[str, Any]:
        """The served contents, their criteria, and the hubness under each."""
        return service.collection()

    @app.get("/api/search")
    def search(question: Asked) -> dict[str, Any]:
        """The plain and the corrected lists of a sentence, an item or a known query."""
        return service.search(question)

    @app.get("/api/items/{name:path}")
    def item(name: str, offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        return service.item(name, offset, limit, criterion)

    @app.get("/api/hubs")
    def hubs(
        kind: Kind = "hubs", offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None, find: Find = ""
    ) -> dict[str, Any]:
        """Hubs, or other items, and the known queries with the text `find`."""
        return service.hubs(kind, offset, limit, criterion, find)

    @app.get("/hubs.csv", response_class=Response)
    def hubs_csv(kind: Kind = "hubs", criterion: Chosen = None, find: Find = "") -> Response:
        """All items of a kind as .csv, with N_k under each ranking."""
        attached = {"content-disposition": f'attachment; filename="{kind}.csv"'}
        return Response(service.table(kind, criterion, find), media_type="text/csv", headers=attached)

    @app.get("/pictures/{row}", response_class=Response)
    def picture(row: int) -> Response:
        """The small picture of an item, by its row."""
        content = service.picture(row)
        if content is None:
            raise HTTPException(404, "there is no such picture")
        return Response(content, media_type="image/jpeg", headers={"cache-control": "max-age=600"})

    @app.get("/", include_in_schema=False)
    def start(request: Request, question: Asked) -> HTMLResponse:
        found = service.search(question) if question.asks() else None
        chosen = service.criterion(question.criterion)
        return page("search.html.j2", given=request.query_params, found=found, criterion=chosen)

    @app.get("/hubs", include_in_schema=False)
    def hubs_page(kind: Kind = "hubs", offset: Offset = 0, criterion: Chosen = None, find: Find = "") -> HTMLResponse:
        found = service.hubs(kind, offset, STEP, criterion, find)
        return page("hubs.html.j2", found=found, curves=service.curves, criterion=service.criterion(criterion))

    @app.get("/items/{name:path}", include_in_schema=False)
    def item_page(name: str, offset: Offset = 0, criterion: Chosen = None) -> HTMLResponse:
        found, chosen = service.item(name, offset, STEP, criterion), service.criterion(criterion)
        near = service.search(Question(item=name, k=12, criterion=chosen))
        return page("item.html.j2", item=found, near=near, criterion=chosen, offset=offset, step=STEP)

    async def problem(request: Request, error: Exception) -> Response:
        """One sentence, no trace and no path of the machine."""
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
        answer = page("problem.html.j2", status, message=message)
        answer.headers.update(HEADERS)
        return answer

    for kind in (HTTPException, RequestValidationError, InputError, Exception):
        app.add_exception_handler(kind, problem)
    return app
