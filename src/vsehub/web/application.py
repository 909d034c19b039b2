"""The pages and the interface of `vsehub serve`. A request only reads: nothing is written, fetched or executed."""

import logging
import time
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any, Literal

import torch
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError
from vsehub.data.vectors.embeddings import few_checked
from vsehub.report.pages.templates import page_environment, thumbnail
from vsehub.report.plots import occurrence_curves
from vsehub.web.catalogue import PLAIN, Catalogue
from vsehub.web.guard import Guard

log = logging.getLogger(__name__)

MOST = 200  # items in a list or on a page
STEP = 20  # the same by default
LETTERS = 4000  # of a text
THUMBNAIL = 256
KEPT_PICTURES = 2000


class Question(BaseModel):
    """A search request: exactly one of text, item, query and vector."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, description="a sentence", max_length=LETTERS)
    item: str | None = Field(default=None, description="the id of an item, whose vector is asked", max_length=LETTERS)
    query: int | None = Field(default=None, description="the number of a known query, from 0", ge=0)
    vector: list[float] | None = Field(default=None, description="a vector of the items' dimension", fail_fast=True)
    k: int = Field(default=10, description="items in each list", ge=1, le=MOST)
    criterion: str | None = Field(default=None, description="a criterion of /api/collection; the first if not given")

    @field_validator("*", mode="before")
    @classmethod
    def of_form(cls, value: Any) -> Any:
        """A field of a form, in which "" is not given, and a vector is written as in JSON."""
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            return from_json(value[0]) if value[0] else None
        return None if value == "" else value

    def asks(self) -> list[str]:
        """The names of what is asked."""
        return [name for name in ("text", "item", "query", "vector") if getattr(self, name) is not None]


Offset = Annotated[int, Query(description="entries to leave out", ge=0, le=10**9)]
Limit = Annotated[int, Query(description="entries at most", ge=1, le=MOST)]
Chosen = Annotated[str | None, Query(description="the correction to compare with; the first if not given")]
Kind = Annotated[Literal["hubs", "antihubs"], Query(description="the most found items, or those that no query finds")]


async def _body(request: Request) -> bytes:
    return await request.body()


class Service:
    """The answers behind pages and interface, of one catalogue."""

    def __init__(self, catalogue: Catalogue):
        self.catalogue, self.asker = catalogue, catalogue.contents.asker
        self.criteria = [name for name in catalogue.rankings if name != PLAIN] or [PLAIN]
        self.picture = lru_cache(KEPT_PICTURES)(self._picture)
        fair = catalogue.k * len(catalogue.queries) / len(catalogue)
        self.curves = occurrence_curves(catalogue.histograms(), catalogue.k, fair)
        self._changed, self._looked = False, 0.0

    def changed(self) -> bool:
        """True if the opened files or collection have changed since; checked every few seconds at most."""
        if not self._changed and time.monotonic() - self._looked > 5:
            self._looked = time.monotonic()
            try:
                self._changed = self.catalogue.contents.changed()
            except Exception as error:  # a database that does not answer at the moment
                log.warning("whether the collection has changed is not known: %s", error)
        return self._changed

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
        """Both lists of a question, and a description of it."""
        one, given = self.catalogue, question.asks()
        if len(given) != 1:
            raise HTTPException(422, f"give one of text, item, query and vector; {len(given)} were given")
        notes: list[str] = []
        answers: list[int] = []
        if question.text is not None:
            if self.asker is None or not self.asker.reads:
                raise HTTPException(422, "no model that reads sentences is served; give checkpoint= or model=")
            if not question.text.strip():
                raise HTTPException(422, "text is empty; give a sentence")
            notes, title = self.asker.notes(question.text), f"“{question.text}”"
            vector = self.asker.texts([question.text])
        elif question.item is not None:
            row, title = self.row(question.item), f"Near {question.item}"
            vector = one.vectors[row : row + 1]
        elif question.query is not None:
            query = question.query
            if query >= len(one.queries):
                raise HTTPException(404, f"query is {query}; expected 0 to {len(one.queries) - 1}")
            vector, answers, title = one.queries.rows(query, query + 1), one.answers(query), one.query_name(query)
        else:
            vector, title = self._vector(question.vector or []), f"A vector of {one.vectors.shape[1]} numbers"
        return self.lists(vector, title, question.k, question.criterion, notes, answers)

    def search_picture(self, content: bytes, k: int, criterion: str | None) -> dict[str, Any]:
        """Both lists of a picture's bytes."""
        if self.asker is None or not self.asker.sees:
            raise HTTPException(422, "no model that sees pictures is served; give checkpoint= or model=")
        return self.lists(self.asker.picture(content), "A picture", k, criterion, [], [])

    def lists(
        self, vector: Tensor, title: str, k: int, criterion: str | None, notes: list[str], answers: list[int]
    ) -> dict[str, Any]:
        """Both lists of a vector (1, D) with a title, notes and the items that answer it."""
        right = [self.catalogue.item(row) for row in answers[:MOST]]
        found = self.catalogue.search(vector, k, self.criterion(criterion), answers)
        return {"title": title, "notes": notes, "answers": right, "changed": self.changed()} | found

    def _vector(self, numbers: list[float]) -> Tensor:
        """The query vector (1, D) of numbers."""
        dim, normalizes = self.catalogue.vectors.shape[1], self.catalogue.normalizes
        if len(numbers) != dim:
            raise HTTPException(422, f"vector has {len(numbers)} numbers; the items have {dim} dimensions")
        vector = torch.tensor([numbers], dtype=torch.float32)
        if normalizes:  # a norm too small or too large for float32 does not become 1
            vector = torch.nn.functional.normalize(vector, dim=1)
        checked = few_checked(vector, None if normalizes else False)
        if checked is None:
            raise HTTPException(
                422, "vector has entries that are NaN, infinite or too large, or it is zero or too small"
            )
        return checked

    def _picture(self, row: int) -> bytes | None:
        """The JPEG of an item's picture, small."""
        picture = self.catalogue.contents.picture(row) if 0 <= row < len(self.catalogue) else None
        return None if picture is None else thumbnail(picture, THUMBNAIL)

    def hubs(self, kind: str, offset: int, limit: int, criterion: str | None) -> dict[str, Any]:
        """Some hubs or antihubs, with the queries that find each and the items that each displaces."""
        rows, name = self.catalogue.hubs if kind == "hubs" else self.catalogue.antihubs, self.criterion(criterion)
        items = [
            self.catalogue.item(row) | {"finders": self.catalogue.finders(row, name)[:5]}
            for row in rows[offset : offset + limit]
        ]
        return {"kind": kind, "total": len(rows), "offset": offset, "items": items}

    def item(self, name: str, offset: int, limit: int, criterion: str | None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        row = self.row(name)
        finders = self.catalogue.finders(row, self.criterion(criterion))
        found = {"finders": finders[offset : offset + limit], "total_finders": len(finders)}
        return self.catalogue.item(row) | found

    def collection(self) -> dict[str, Any]:
        """The collection: title, sizes, criteria, and hubness under each."""
        one, asker = self.catalogue, self.asker
        return {
            "title": one.contents.title,
            "items": len(one),
            "dimensions": one.vectors.shape[1],
            "queries": len(one.queries),
            "asked_by_items": one.contents.asked_by_items,
            "facts": dict(one.contents.facts),
            "criteria": list(one.rankings),
            "takes": {"text": asker is not None and asker.reads, "picture": asker is not None and asker.sees},
            "k": one.k,
            "hub_level": one.hub_level,
            "hubness": one.hubness(),
            "verdict": one.verdict,
        }


def application(catalogue: Catalogue, hosts: frozenset[str]) -> Guard:
    """The ASGI application. hosts: the host names that requests may use."""
    service = Service(catalogue)
    title, about = "vsehub serve", catalogue.contents.title
    app = FastAPI(title=title, version=__version__, description=about, docs_url=None, redoc_url=None)
    script = resources.files("vsehub.web").joinpath("static/page.js").read_text("utf-8")
    kept = {"cache-control": "max-age=600"}

    def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
        shared = {
            "service": service,
            "collection": service.collection(),
            "most": MOST,
            "letters": LETTERS,
            "status": status,
        }
        return HTMLResponse(page_environment("vsehub.web").get_template(template).render(shared | values), status)

    @app.get("/health")
    def health() -> dict[str, Any]:
        """The status of the service, and whether the opened files or collection have changed since."""
        return {"status": "ok", "items": len(catalogue), "changed": service.changed()}

    @app.get("/api/collection")
    def collection() -> dict[str, Any]:
        """The served contents, their criteria, and the hubness under each."""
        return service.collection()

    @app.get("/api/search")
    def search_by_address(question: Annotated[Question, Query()]) -> dict[str, Any]:
        """The plain and the corrected list of a sentence, an item, a known query or a vector (JSON)."""
        return service.search(question)

    @app.post("/api/search")
    def search(question: Question) -> dict[str, Any]:
        """The same, from a JSON object."""
        return service.search(question)

    @app.post("/api/search/picture")
    def search_picture(
        content: Annotated[bytes, Depends(_body)], k: Limit = 10, criterion: Chosen = None
    ) -> dict[str, Any]:
        """The lists of a picture: the body holds the bytes of a JPEG, PNG or WebP file."""
        return service.search_picture(content, k, criterion)

    @app.get("/api/items/{name:path}")
    def item(name: str, offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        return service.item(name, offset, limit, criterion)

    @app.get("/api/hubs")
    def hubs(kind: Kind = "hubs", offset: Offset = 0, limit: Limit = STEP, criterion: Chosen = None) -> dict[str, Any]:
        """Hubs (the most found items), or antihubs (found by no query)."""
        return service.hubs(kind, offset, limit, criterion)

    @app.get("/pictures/{row}", response_class=Response)
    def picture(row: int) -> Response:
        """The small picture of an item, by its row."""
        content = service.picture(row)
        if content is None:
            raise HTTPException(404, "there is no such picture")
        return Response(content, media_type="image/jpeg", headers=kept)

    @app.get("/", include_in_schema=False)
    def start(request: Request, question: Annotated[Question, Query()]) -> HTMLResponse:
        found = service.search(question) if question.asks() else None
        chosen = service.criterion(question.criterion)
        return page("search.html.j2", given=request.query_params, found=found, criterion=chosen)

    @app.post("/picture", include_in_schema=False)
    def by_picture(content: Annotated[bytes, Depends(_body)], k: Limit = 10, criterion: Chosen = None) -> HTMLResponse:
        return page("results.html.j2", found=service.search_picture(content, k, criterion))

    @app.get("/hubs", include_in_schema=False)
    def hubs_page(kind: Kind = "hubs", offset: Offset = 0, criterion: Chosen = None) -> HTMLResponse:
        found = service.hubs(kind, offset, STEP, criterion)
        return page("hubs.html.j2", found=found, curves=service.curves, criterion=service.criterion(criterion))

    @app.get("/items/{name:path}", include_in_schema=False)
    def item_page(name: str, offset: Offset = 0, criterion: Chosen = None) -> HTMLResponse:
        found, chosen = service.item(name, offset, STEP, criterion), service.criterion(criterion)
        near = service.search(Question(item=name, k=12, criterion=chosen))
        return page("item.html.j2", item=found, near=near, criterion=chosen, offset=offset, step=STEP)

    @app.get("/page.js", include_in_schema=False)
    def javascript() -> Response:
        return Response(script, media_type="text/javascript; charset=utf-8", headers=kept)

    async def problem(request: Request, error: Exception) -> Response:
        """One sentence, no trace and no path of the machine."""
        status, message = _told(error)
        if request.url.path.startswith(("/api/", "/health", "/openapi.json", "/picture")):
            return JSONResponse({"error": message}, status)
        return page("problem.html.j2", status, message=message)

    for kind in (HTTPException, RequestValidationError, InputError, Exception):
        app.add_exception_handler(kind, problem)
    # JSON takes at most 12 bytes a letter and, with spaces, 32 a number.
    return Guard(app, hosts, 16 * LETTERS + 32 * catalogue.vectors.shape[1])


def _told(error: Exception) -> tuple[int, str]:
    """The status of an error and what may be said of it."""
    match error:
        case HTTPException():
            return error.status_code, str(error.detail)
        case RequestValidationError():
            first = error.errors()[0]
            return 422, f"{'.'.join(map(str, first['loc'][1:])) or 'the request'}: {first['msg']}"
        case InputError():
            return 422, str(error)
        case _:
            return 500, "the request failed; the log of the server says why"
