"""The pages and the interface of `vsehub serve`. A request only reads: nothing is written, fetched or executed."""

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib import resources
from typing import Annotated, Any

import torch
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError
from vsehub.data.vectors.embeddings import few_checked
from vsehub.report.pages.templates import Thumbnails, page_environment
from vsehub.report.plots import occurrence_curves
from vsehub.web.catalogue import PLAIN, Catalogue
from vsehub.web.contents import Asker
from vsehub.web.guard import Guard
from vsehub.web.searching import Busy, Searcher
from vsehub.web.views import FINDERS, Views

log = logging.getLogger(__name__)

MOST = 200  # items in a list or on a page
LETTERS = 4000  # of a text
THUMBNAIL = 256
KEPT_PICTURES = 2000
PICTURES = 16  # pictures that may wait to be encoded
SECONDS = 30.0  # seconds that an answer may take


class Question(BaseModel):
    """A search request: exactly one of text, item, query and vector."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, description="a sentence", max_length=LETTERS)
    item: str | None = Field(default=None, description="the id of an item, whose vector is asked", max_length=LETTERS)
    query: int | None = Field(default=None, description="the number of a known query, from 0", ge=0)
    vector: list[float] | None = Field(default=None, description="a vector of the items' dimension", fail_fast=True)
    k: int = Field(default=10, description="items in each list", ge=1, le=MOST)
    criterion: str | None = Field(default=None, description="a criterion of /api/collection; the first if not given")


class Declined(Exception):
    """A request that cannot be answered. status: of HTTP."""

    def __init__(self, message: str, status: int = 422):
        super().__init__(message)
        self.status = status


class Service:
    """The service behind pages and interface: a catalogue, its searcher, and descriptions of both."""

    def __init__(self, catalogue: Catalogue):
        contents = catalogue.contents
        self.catalogue, self.asker = catalogue, contents.asker
        self.criteria = [name for name in catalogue.rankings if name != PLAIN] or [PLAIN]
        looked = range(min(len(catalogue), 20))
        self.views = Views(catalogue, any(contents.picture(row) is not None for row in looked))
        self.searcher = Searcher(catalogue, self._texts if self.reads else None)
        self.picture = lru_cache(KEPT_PICTURES)(self._picture)
        self._changed, self._looked = False, 0.0
        self._encoding, self._pictures = asyncio.Lock(), 0

    @property
    def reads(self) -> bool:
        """Whether sentences can be asked."""
        return self.asker is not None and self.asker.reads

    @property
    def sees(self) -> bool:
        """Whether pictures can be asked."""
        return self.asker is not None and self.asker.sees

    async def changed(self) -> bool:
        """Whether what was opened has changed since; looked at every few seconds at most."""
        now = asyncio.get_running_loop().time()
        if not self._changed and now - self._looked > 5:
            self._looked = now
            try:
                self._changed = await asyncio.to_thread(self.catalogue.contents.changed)
            except Exception as error:  # a database that does not answer at the moment
                log.warning("whether the collection has changed is not known: %s", error)
        return self._changed

    def row(self, name: str) -> int:
        """The row of an item's id. Raises Declined for an unknown one."""
        row = self.catalogue.row_of.get(name)
        if row is None:
            raise Declined(f"there is no item {name[:100]!r}", 404)
        return row

    def criterion(self, name: str | None) -> str:
        """A criterion of the catalogue, the first if None. Raises Declined for an unknown one."""
        if name in (None, ""):
            return self.criteria[0]
        if name not in self.catalogue.rankings:
            raise Declined(f"criterion is {str(name)[:40]!r}; choose one of {', '.join(self.catalogue.rankings)}")
        return str(name)

    async def search(self, question: Question) -> dict[str, Any]:
        """Both lists of a question, and a description of the question."""
        given = [name for name in ("text", "item", "query", "vector") if getattr(question, name) is not None]
        if len(given) != 1:
            raise Declined(f"give one of text, item, query and vector; {len(given)} were given")
        k, criterion = min(question.k, len(self.catalogue)), self.criterion(question.criterion)
        asked: dict[str, Any] = {"kind": given[0]}
        notes: list[str] = []
        answers: Sequence[int] = ()
        if question.text is not None:
            notes = await self._notes(question.text)
            asked["text"] = question.text
            title = f"“{question.text}”"
            future = self.searcher.ask(k, criterion, text=question.text)
        else:
            vector, answers, title = self._vector(question)
            asked |= {"item": question.item} if question.item is not None else {}
            asked |= {"query": question.query} if question.query is not None else {}
            future = self.searcher.ask(k, criterion, vector=vector)
        lists = await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)
        found = self.views.lists(lists, criterion, answers)
        right = [self.views.item(row) for row in answers[:MOST]]
        said = {"asked": asked, "title": title, "notes": notes, "answers": right}
        return {**said, "changed": await self.changed(), **found}

    async def search_picture(self, content: bytes, k: int, criterion: str | None) -> dict[str, Any]:
        """Both lists of a picture's bytes."""
        asker = self.asker
        if asker is None or not asker.sees:
            raise Declined("no model that sees pictures was given; start serve with checkpoint= or model=")
        name = self.criterion(criterion)
        vector = await self._encoded(asker, content)
        future = self.searcher.ask(min(k, len(self.catalogue)), name, vector=vector)
        lists = await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)
        found = self.views.lists(lists, name)
        said = {"asked": {"kind": "picture"}, "title": "A picture", "notes": [], "answers": []}
        return {**said, "changed": await self.changed(), **found}

    def _texts(self, texts: Sequence[str]) -> Tensor:
        """The vectors of texts (n, D), as the items are searched."""
        assert self.asker is not None
        return self.asker.texts(texts)

    async def _encoded(self, asker: Asker, content: bytes) -> Tensor:
        """The vector of a picture (1, D). Pictures are encoded one at a time. Raises Busy if many wait."""
        if self._pictures >= PICTURES:
            raise Busy
        self._pictures += 1
        try:
            async with asyncio.timeout(SECONDS), self._encoding:
                return await asyncio.to_thread(asker.picture, content)
        finally:
            self._pictures -= 1

    async def _notes(self, text: str) -> list[str]:
        if self.asker is None or not self.asker.reads:
            raise Declined("no model that reads sentences was given; start serve with checkpoint= or model=")
        if not text.strip():
            raise Declined("text is empty; give a sentence")
        try:
            return await asyncio.to_thread(self.asker.notes, text)
        except InputError as error:
            raise Declined(str(error)) from error

    def _vector(self, question: Question) -> tuple[Tensor, Sequence[int], str]:
        """The query vector (1, D), the items that answer it if these are known, and a title."""
        one = self.catalogue
        if question.item is not None:
            row = self.row(question.item)
            return one.vectors[row : row + 1], (), f"Near {question.item}"
        if question.query is not None:
            if question.query >= len(one.queries):
                raise Declined(f"query is {question.query}; expected 0 to {len(one.queries) - 1}", 404)
            query = question.query
            return one.queries.rows(query, query + 1), one.answers(query), one.query_name(query)
        numbers, dim = question.vector or [], one.vectors.shape[1]
        if len(numbers) != dim:
            raise Declined(f"vector has {len(numbers)} numbers; the items have {dim} dimensions")
        vector = torch.tensor([numbers], dtype=torch.float32)
        if one.normalizes:  # a norm too small or too large for float32 does not become 1
            vector = torch.nn.functional.normalize(vector, dim=1)
        checked = few_checked(vector, None if one.normalizes else False)
        if checked is None:
            raise Declined("vector has entries that are NaN, infinite or too large, or it is zero or too small")
        return checked, (), f"A vector of {dim} numbers"

    def _picture(self, row: int) -> bytes | None:
        """The JPEG of an item's picture, small."""
        picture = self.catalogue.contents.picture(row)
        return None if picture is None else Thumbnails(THUMBNAIL).jpeg(picture, self.catalogue.id_of(row))

    def hubs(self, kind: str, offset: int, limit: int, criterion: str | None) -> dict[str, Any]:
        """Some hubs or antihubs, with the queries that find each and the items that each displaces."""
        one, name = self.catalogue, self.criterion(criterion)
        if kind == "antihubs":
            rows = [int(row) for row in one.antihubs]
        else:
            rows = one.by_count[: int((one.rankings[PLAIN].counts >= one.hub_level).sum())].tolist()
        shown = []
        for row in rows[offset : offset + limit]:
            wrong = one.rankings[PLAIN].wrong
            finders = self.views.displaced(row, name, count=5) if kind != "antihubs" else []
            shown.append(
                self.views.item(row) | {"wrong": None if wrong is None else int(wrong[row]), "finders": finders}
            )
        return {"kind": kind, "total": len(rows), "offset": offset, "items": shown}

    def item(self, name: str, offset: int, limit: int, criterion: str | None) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        row, chosen = self.row(name), self.criterion(criterion)
        finders = self.catalogue.finders(row)
        wrong = self.catalogue.rankings[PLAIN].wrong
        return self.views.item(row) | {
            "wrong": None if wrong is None else int(wrong[row]),
            "finders": self.views.displaced(row, chosen, offset, limit),
            "total_finders": len(finders),
        }

    def collection(self) -> dict[str, Any]:
        """The collection: title, sizes, criteria, and hubness under each."""
        one = self.catalogue
        return {
            "title": one.contents.title,
            "items": len(one),
            "dimensions": one.vectors.shape[1],
            "queries": len(one.queries),
            "asked_by_items": one.contents.asked_by_items,
            "facts": dict(one.contents.facts),
            "criteria": list(one.rankings),
            "takes": {"text": self.reads, "picture": self.sees},
            "k": one.k,
            "hub_level": one.hub_level,
            "hubness": self.views.hubness(),
            "verdict": one.verdict,
        }

    @cached_property
    def curves(self) -> Any:
        """The plot of N_k under each ranking."""
        one = self.catalogue
        return occurrence_curves(one.histograms(), one.k, one.k * len(one.queries) / len(one))


K = Annotated[int, Query(description="items in each list", ge=1, le=MOST)]
OFFSET = Annotated[int, Query(description="entries to leave out", ge=0, le=10**9)]
LIMIT = Annotated[int, Query(description="entries at most", ge=1, le=MOST)]
CRITERION = Annotated[str | None, Query(description="the correction to compare with; the first if not given")]


def application(catalogue: Catalogue, hosts: frozenset[str]) -> Guard:
    """The ASGI application. hosts: the host names that requests may use."""
    service = Service(catalogue)
    app = FastAPI(
        title="vsehub serve",
        version=__version__,
        description=catalogue.contents.title,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    _interface(app, service)
    _pages(app, service)
    _errors(app, service)
    # JSON takes at most 12 bytes a letter and, with spaces, 32 a number.
    return Guard(app, hosts, 16 * LETTERS + 32 * catalogue.vectors.shape[1])


def _interface(app: FastAPI, service: Service) -> None:
    """The routes that answer in JSON."""

    @app.get("/health", tags=["service"])
    async def health() -> dict[str, Any]:
        """Whether the service answers, and whether the opened files or collection have changed since."""
        return {"status": "ok", "items": len(service.catalogue), "changed": await service.changed()}

    @app.get("/api/collection", tags=["collection"])
    async def collection() -> dict[str, Any]:
        """What is served, its criteria, and the hubness under each."""
        return service.collection()

    @app.get("/api/search", tags=["search"])
    async def search_by_address(question: Annotated[Question, Query()]) -> dict[str, Any]:
        """The plain and the corrected list of a sentence, an item, a known query or a vector (JSON)."""
        return await service.search(question)

    @app.post("/api/search", tags=["search"])
    async def search(question: Question) -> dict[str, Any]:
        """The same, from a JSON object."""
        return await service.search(question)

    @app.post("/api/search/picture", tags=["search"])
    async def search_picture(request: Request, k: K = 10, criterion: CRITERION = None) -> dict[str, Any]:
        """The lists of a picture: the body holds the bytes of a JPEG, PNG or WebP file."""
        return await service.search_picture(await request.body(), k, criterion)

    @app.get("/api/items", tags=["collection"])
    async def items(offset: OFFSET = 0, limit: LIMIT = 20) -> dict[str, Any]:
        """Items in the order of their rows."""
        rows = range(offset, min(offset + limit, len(service.catalogue)))
        shown = [service.views.item(row) for row in rows]
        return {"total": len(service.catalogue), "offset": offset, "items": shown}

    @app.get("/api/items/{name:path}", tags=["collection"])
    async def item(
        name: str, offset: OFFSET = 0, limit: LIMIT = FINDERS, criterion: CRITERION = None
    ) -> dict[str, Any]:
        """An item, and the known queries that find it."""
        return service.item(name, offset, limit, criterion)

    @app.get("/api/hubs", tags=["collection"])
    async def hubs(
        kind: Annotated[str, Query(description="hubs or antihubs", pattern="^(hubs|antihubs)$")] = "hubs",
        offset: OFFSET = 0,
        limit: LIMIT = 20,
        criterion: CRITERION = None,
    ) -> dict[str, Any]:
        """Hubs (the most found items), or antihubs (found by no query)."""
        return service.hubs(kind, offset, limit, criterion)

    @app.get("/pictures/{row}", tags=["collection"], response_class=Response)
    async def picture(row: int) -> Response:
        """The small picture of an item, by its row."""
        known = 0 <= row < len(service.catalogue)
        content = await asyncio.to_thread(service.picture, row) if known else None
        if content is None:
            raise Declined("there is no such picture", 404)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "max-age=600"})


def _pages(app: FastAPI, service: Service) -> None:
    """The routes that answer in HTML."""
    script = resources.files("vsehub.web").joinpath("static/page.js").read_text("utf-8")

    def page(template: str, **values: Any) -> HTMLResponse:
        shared = {"service": service, "collection": service.collection(), "most": MOST, "letters": LETTERS}
        return HTMLResponse(_rendered(template, **shared, **values))

    async def results(question: Question | None, problem: str | None) -> tuple[dict[str, Any] | None, str | None]:
        if question is None or problem is not None:
            return None, problem
        try:
            return await service.search(question), None
        except Declined as error:
            return None, str(error)

    @app.get("/", include_in_schema=False)
    async def start(request: Request) -> HTMLResponse:
        given = {name: value for name, value in request.query_params.items() if value != ""}
        question, problem = _question(given)
        found, problem = await results(question, problem)
        criterion = given.get("criterion") or service.criteria[0]
        return page("search.html.j2", given=given, found=found, problem=problem, criterion=criterion)

    @app.post("/picture", include_in_schema=False)
    async def by_picture(request: Request, k: K = 10, criterion: CRITERION = None) -> HTMLResponse:
        """The results of a picture as a part of the page, inserted by the script."""
        found = await service.search_picture(await request.body(), k, criterion)
        return page("results.html.j2", found=found)

    @app.get("/hubs", include_in_schema=False)
    async def hubs(kind: str = "hubs", offset: OFFSET = 0, criterion: CRITERION = None) -> HTMLResponse:
        chosen = kind if kind in ("hubs", "antihubs") else "hubs"
        found = service.hubs(chosen, offset, 20, criterion)
        curves = await asyncio.to_thread(lambda: service.curves)
        return page("hubs.html.j2", found=found, curves=curves, criterion=service.criterion(criterion))

    @app.get("/items/{name:path}", include_in_schema=False)
    async def item(name: str, offset: OFFSET = 0, criterion: CRITERION = None) -> HTMLResponse:
        found = service.item(name, offset, FINDERS, criterion)
        near = await service.search(Question(item=name, k=min(12, MOST), criterion=criterion))
        chosen = service.criterion(criterion)
        return page("item.html.j2", item=found, near=near, criterion=chosen, offset=offset, step=FINDERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return page("interface.html.j2", schema=app.openapi())

    @app.get("/page.js", include_in_schema=False)
    async def javascript() -> Response:
        return Response(script, media_type="text/javascript; charset=utf-8", headers={"cache-control": "max-age=600"})


def _rendered(template: str, **values: Any) -> str:
    return page_environment("vsehub.web").get_template(template).render(values)


def _question(given: dict[str, str]) -> tuple[Question | None, str | None]:
    """The question in a page's address, and the error in it, if any."""
    asked = {name: given[name] for name in ("text", "item", "query", "vector", "k", "criterion") if name in given}
    if not asked.keys() & {"text", "item", "query", "vector"}:
        return None, None
    values: dict[str, Any] = {str(name): value for name, value in asked.items()}
    if "vector" in asked:
        try:
            values["vector"] = json.loads(asked["vector"])
        except (ValueError, RecursionError):
            return None, "the vector is not a list of numbers as in JSON: [0.1, -0.2]"
    try:
        return Question.model_validate(values), None
    except ValueError as error:
        return None, _said(error)


def _said(error: Any) -> str:
    """The first error of a validation, in words."""
    first = error.errors()[0]
    place = first["loc"][1:] if len(first["loc"]) > 1 and first["loc"][0] in ("body", "query", "path") else first["loc"]
    place = ".".join(map(str, place))
    return f"{place or 'the request'}: {first['msg']}"


def _errors(app: FastAPI, service: Service) -> None:
    """Answers to requests that cannot be answered: one sentence, no trace and no path of the machine."""

    def answer(request: Request, message: str, status: int) -> Response:
        if request.url.path.startswith("/api/") or request.url.path in ("/health", "/openapi.json", "/picture"):
            return JSONResponse({"error": message}, status)
        values = {"service": service, "collection": service.collection(), "message": message, "status": status}
        return HTMLResponse(_rendered("problem.html.j2", **values), status)

    @app.exception_handler(Declined)
    async def declined(request: Request, error: Declined) -> Response:
        return answer(request, str(error), error.status)

    @app.exception_handler(InputError)
    async def unusable(request: Request, error: InputError) -> Response:
        return answer(request, str(error), 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, _said(error), 422)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return answer(
            request, "there is no such page" if error.status_code == 404 else str(error.detail), error.status_code
        )

    @app.exception_handler(Busy)
    async def busy(request: Request, error: Busy) -> Response:
        return answer(request, "too many requests wait; try again in a moment", 503)

    @app.exception_handler(TimeoutError)
    async def late(request: Request, error: TimeoutError) -> Response:
        return answer(request, "the answer took too long; try again", 503)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return answer(request, "the request failed; the log of the server says why", 500)
