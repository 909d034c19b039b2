"""The pages and the interface of `vsehub serve`, asked in process: answers, refusals, and what they never say."""

import asyncio
import io
import json
import re
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from urllib.parse import quote

import pytest
import torch
from collections_served import ITEMS, NASTY, QUERIES, catalogue, contents
from PIL import Image

from vsehub.checks import InputError
from vsehub.criteria import InvertedSoftmax
from vsehub.rerank.inputs import Inputs
from vsehub.rerank.names import Names
from vsehub.rerank.sides import Sides

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'vsehub[serve]'")
from pydantic import ValidationError
from starlette.testclient import TestClient

from vsehub.web.application import LETTERS, Question, application
from vsehub.web.catalogue import Catalogue
from vsehub.web.contents import MOST_PIXELS, require_small
from vsehub.web.guard import MOST_BYTES
from vsehub.web.server import hosts_of

LOCAL = "http://127.0.0.1:8000"


class Asked:
    """An encoder whose vectors are items: text "7" is item 7, a picture is item 2."""

    reads = sees = True

    def __init__(self, items):
        self._items = items

    def notes(self, text):
        if not re.search(r"\d", text):
            raise InputError(f"the checkpoint knows no word of the text {text!r}")
        return ["Read to its word 1."] if " " in text else []

    def texts(self, texts):
        return torch.cat([self._items[(row := int(text.split()[0])) : row + 1] for text in texts])

    def picture(self, content):
        require_small(content)
        return self._items[2:3]


@pytest.fixture(scope="module")
def known():
    return catalogue()


@pytest.fixture(scope="module")
def client(known):
    served = catalogue(asker=Asked(known.vectors))
    with TestClient(application(served, hosts_of("127.0.0.1")), LOCAL, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def bare():
    with TestClient(application(catalogue(), hosts_of("127.0.0.1")), LOCAL, raise_server_exceptions=False) as client:
        yield client


def picture(size=(20, 10), kind="PNG"):
    content = io.BytesIO()
    Image.new("RGB", size, "red").save(content, kind)
    return content.getvalue()


def error(answer, status):
    assert answer.status_code == status, answer.text
    said = answer.json()["error"]
    assert "Traceback" not in said
    assert "/" not in said.replace("http://", "")
    return said


def test_a_known_query(client, known):
    found = client.get("/api/search", params={"query": 0, "k": 5, "criterion": "is"}).json()
    for side, name in (("plain", "nns"), ("corrected", "is")):
        assert [one["id"] for one in found[side]] == [known.id_of(row) for row in known.rankings[name].positions[0, :5]]
    before = known.rankings["nns"].positions[0].tolist()
    for one in found["corrected"]:
        assert one["plain_rank"] == before.index(known.row_of[one["id"]]) + 1
        assert one["moved"] == one["plain_rank"] - one["rank"]
    assert {one["id"] for one in found["answers"]} == {known.id_of(row) for row in (0, 11)}
    assert [one["right"] for one in found["plain"]] == [known.row_of[one["id"]] in (0, 11) for one in found["plain"]]
    corrected = {one["id"] for one in found["corrected"]}
    assert [one["stays"] for one in found["plain"]] == [one["id"] in corrected for one in found["plain"]]
    assert found["milliseconds"] > 0


def test_sentence_item_vector_and_picture(client, known):
    def first(**question):
        return client.post("/api/search", json=question).json()["plain"][0]["id"]

    assert first(text="7") == known.id_of(7)
    assert first(item=NASTY[3]) == NASTY[3]
    assert first(vector=known.vectors[9].tolist()) == known.id_of(9)
    lists = [client.post("/api/search", json={"vector": (by * known.vectors[9]).tolist()}).json() for by in (1, 3)]
    ids = [[one["id"] for one in found["corrected"]] for found in lists]
    assert ids[0] == ids[1], "the items have norm 1, so that a vector is divided by its own"
    by_address = client.get("/api/search", params={"vector": known.vectors[9].tolist()}).json()
    assert by_address["plain"][0]["id"] == known.id_of(9)
    seen = client.post("/api/search/picture", content=picture(), params={"k": 3}).json()
    assert seen["plain"][0]["id"] == known.id_of(2)
    assert client.post("/api/search", json={"text": "7 dogs"}).json()["notes"] == ["Read to its word 1."]


@pytest.mark.parametrize("name", NASTY)
def test_ids_that_are_hard_to_write(client, name):
    if name == "..":  # clients resolve dots in an address, so that it is asked by another way
        assert client.post("/api/search", json={"item": name}).json()["plain"][0]["id"] == name
        return
    address = quote(name, safe="")
    assert client.get(f"/api/items/{address}").json()["id"] == name
    page = client.get(f"/items/{address}")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<b>caption" not in page.text
    assert "&lt;b&gt;caption" in page.text


def test_hubs_items_and_health(client, known):
    hubs = client.get("/api/hubs", params={"limit": 3, "criterion": "csls"}).json()
    assert [one["id"] for one in hubs["items"]] == [known.id_of(row) for row in known.by_count[: len(hubs["items"])]]
    assert all(one["hub"] for one in hubs["items"])
    finder = hubs["items"][0]["finders"][0]
    assert finder["answer"]["plain_rank"] is None or finder["answer"]["plain_rank"] > finder["rank"]
    antihubs = client.get("/api/hubs", params={"kind": "antihubs"}).json()
    assert all(one["found_by"]["nns"] == 0 for one in antihubs["items"])
    assert antihubs["total"] == int((known.rankings["nns"].counts == 0).sum())
    items = client.get("/api/items", params={"offset": ITEMS - 2, "limit": 10}).json()
    assert [one["id"] for one in items["items"]] == [f"item {row}" for row in (ITEMS - 2, ITEMS - 1)]
    assert client.get("/api/items", params={"offset": 10**9}).json()["items"] == []
    assert client.get("/health").json() == {"status": "ok", "items": ITEMS, "changed": False}
    collection = client.get("/api/collection").json()
    assert collection["criteria"] == ["nns", "csls", "is"]
    assert [one["criterion"] for one in collection["hubness"]] == ["nns", "csls", "is"]
    assert collection["takes"] == {"text": True, "picture": True}


def test_pictures_by_row_alone(client):
    answer = client.get("/pictures/3")
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (8, 8)
    for row in ("5", "-1", str(ITEMS), "..%2F..%2Fetc%2Fpasswd", "x"):
        assert client.get(f"/pictures/{row}").status_code in (404, 422)


@pytest.mark.parametrize(
    ("question", "status", "message"),
    [
        ({}, 422, "give one of text, item, query and vector; 0 were given"),
        ({"text": "7", "query": 1}, 422, "2 were given"),
        ({"text": "  "}, 422, "text is empty"),
        ({"text": "dog"}, 422, "knows no word of the text 'dog'"),
        ({"text": "7" * 5000}, 422, "text: "),
        ({"item": "nobody"}, 404, "there is no item 'nobody'"),
        ({"query": QUERIES}, 404, f"query is {QUERIES}; expected 0 to {QUERIES - 1}"),
        ({"query": -1}, 422, "query: "),
        ({"query": 10**30}, 404, "expected 0 to"),
        ({"query": 1, "k": 10**9}, 422, "k: "),
        ({"query": 1, "k": 0}, 422, "k: "),
        ({"query": 1, "criterion": "os.system"}, 422, "criterion is 'os.system'; choose one of nns, csls, is"),
        ({"vector": [1.0]}, 422, "vector has 1 numbers; the items have 6 dimensions"),
        ({"vector": [1e300] * 6}, 422, "vector has entries that are NaN, infinite or too large"),
        ({"vector": ["a"] * 6}, 422, "vector"),
        ({"query": 1, "surprise": 1}, 422, "surprise"),
    ],
)
def test_questions_that_cannot_be_answered(client, question, status, message):
    assert message in error(client.post("/api/search", json=question), status)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-13, 1e20, 1e30])
def test_vectors_whose_norm_cannot_become_1_are_refused(client, known, scale):
    error(client.post("/api/search", json={"vector": (scale * known.vectors[9].double()).tolist()}), 422)


@pytest.mark.parametrize("numbers", [[1e20] * 6, [0.0] * 6])
def test_so_are_vectors_that_rerank_refuses_without_normalisation(numbers):
    app = application(catalogue(normalize=False), hosts_of("127.0.0.1"))
    with TestClient(app, LOCAL) as client:
        error(client.post("/api/search", json={"vector": numbers}), 422)


def test_a_vector_costs_no_more_than_its_dimension(client):
    kind = {"content-type": "application/json"}
    nested = b'{"vector": [' + b"[]," * 30_000 + b"[]]}"
    error(client.post("/api/search", content=nested, headers=kind), 413)
    with pytest.raises(ValidationError) as found:
        Question(vector=[[]] * 10_000)
    assert found.value.error_count() == 1
    assert client.post("/api/search", json={"text": "7 " + "\U0001f600" * (LETTERS - 2)}).status_code == 200


def test_bodies_that_are_no_question(client):
    kind = {"content-type": "application/json"}
    for content in (b"", b"{", b"[" * 100_000, b'{"vector": [NaN, NaN, NaN, NaN, NaN, NaN]}', b"\xff\xfe", b"[]"):
        assert 400 <= client.post("/api/search", content=content, headers=kind).status_code < 500


def test_what_needs_a_model_says_so(bare):
    assert "start serve with checkpoint= or model=" in error(bare.post("/api/search", json={"text": "7"}), 422)
    assert "no model that sees pictures" in error(bare.post("/api/search/picture", content=picture()), 422)
    page = bare.get("/", params={"text": "7"}).text
    assert "start serve with" in page
    assert 'id="text"' not in page
    assert 'id="picture"' not in page


def test_a_picture_that_takes_long_holds_no_search(known, monkeypatch):
    monkeypatch.setattr("vsehub.web.application.PICTURES", 2)
    began, held = threading.Event(), threading.Event()

    class Slow(Asked):
        def picture(self, content):
            began.set()
            assert held.wait(60)
            return super().picture(content)

    served = application(catalogue(asker=Slow(known.vectors)), hosts_of("127.0.0.1"))
    with TestClient(served, LOCAL, raise_server_exceptions=False) as client, ThreadPoolExecutor() as pool:
        three = [pool.submit(client.post, "/api/search/picture", content=picture()) for _ in range(3)]
        assert began.wait(60)
        assert client.get("/api/search", params={"text": "7"}).json()["plain"]
        refused, waiting = wait(three, 60, FIRST_COMPLETED)
        assert [one.result().status_code for one in refused] == [503]
        held.set()
        assert [one.result(60).status_code for one in waiting] == [200, 200]


def test_pictures_that_are_none_or_bombs(client):
    assert "the picture cannot be read" in error(client.post("/api/search/picture", content=b"GIF89a"), 422)
    assert "the picture cannot be read" in error(client.post("/api/search/picture", content=b""), 422)
    for kind in ("EPS", "JPEG2000", "ICO"):
        assert "picture" in error(client.post("/api/search/picture", content=picture((16, 16), kind)), 422)
    side = int(MOST_PIXELS**0.5) + 100
    bomb = io.BytesIO()
    Image.new("1", (side, side)).save(bomb, "PNG")
    assert len(bomb.getvalue()) < 100_000
    assert "expected at most 64 million" in error(client.post("/api/search/picture", content=bomb.getvalue()), 422)


def test_large_bodies_are_refused_before_they_are_read(client):
    said = error(client.post("/api/search/picture", content=b"x" * (MOST_BYTES + 1)), 413)
    assert said == "the request is larger than 16 MB"

    def parts():
        for _ in range(MOST_BYTES // 2**20 + 2):
            yield b"x" * 2**20

    assert error(client.post("/api/search/picture", content=parts()), 413) == said
    error(client.post("/api/search", content=parts(), headers={"content-type": "application/json"}), 413)


def test_only_its_own_names_are_answered(client):
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "", "[::2]:80"):
        assert "host" in error(client.get("/health", headers={"host": host}), 421)
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_pages_of_other_sites_ask_nothing(client, headers):
    error(client.get("/api/search", params={"query": 0}, headers=headers), 403)
    error(client.get("/", headers=headers), 403)
    for path in ("/picture", "/api/search/picture"):
        sent = headers | {"content-type": "text/plain"}
        error(client.post(path, content=picture(), headers=sent), 403)


def test_its_own_pages_and_links_to_them_are_answered(client):
    for headers in (
        {"origin": LOCAL, "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none", "sec-fetch-dest": "document"},
    ):
        assert client.get("/?query=0", headers=headers).status_code == 200
        assert client.post("/picture", content=picture(), headers=headers).status_code == 200
    assert client.post(
        "/picture", content=picture(), headers={"host": "LOCALHOST", "origin": "http://localhost"}
    ).is_success
    link = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    assert client.get("/items/item%2020", headers=link).status_code == 200
    error(client.get("/api/search", params={"query": 0}, headers=link), 403)
    error(client.post("/picture", content=picture(), headers=link), 403)


def test_every_answer_forbids_what_is_not_its_own(client):
    for path in ("/", "/hubs", "/health", "/nowhere", "/page.js", "/pictures/0", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages(client, known):
    pages = {
        "/": "made up",
        "/?query=0": "question 0 &amp; &lt;i&gt;",
        "/?text=7": "“7”",
        "/?item=a/b": "Near a/b",
        "/?vector=[1,2]": "vector has 2 numbers",
        "/?vector=zebra": "not a list of numbers",
        "/?query=0&k=many": "k: ",
        "/?query=0&criterion=nothing": "choose one of nns",
        "/hubs": "Hubs: ",
        "/hubs?kind=antihubs": "Never found: ",
        "/hubs?kind=elephants": "Hubs: ",
        "/hubs?offset=1000": "There are none",
        "/docs": "POST /api/search/picture",
    }
    for path, words in pages.items():
        page = client.get(path)
        assert page.status_code == 200, path
        assert words in page.text, path
        assert "question 0 & <i>" not in page.text
        assert not re.search(r"(src|href)=\"(https?:)?//", page.text), "nothing is fetched from elsewhere"
    assert "there is no such page" in client.get("/nowhere").text
    assert client.get("/items/nobody").status_code == 404
    assert "<h2>" in client.post("/picture", content=picture(), params={"k": 3}).text


def test_links_lead_to_pages(client):
    seen, waiting = set(), ["/", "/?query=0", "/hubs", "/hubs?kind=antihubs"]
    while waiting and len(seen) < 60:
        path = waiting.pop(0)
        if path in seen or path.startswith("#"):
            continue
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code == 200, path
        if "text/html" in answer.headers["content-type"]:
            found = re.findall(r'(?:href|src)="([^"#]+)"', answer.text)
            found = [one for one in found if one.startswith("/")]
            waiting += [one.replace("&amp;", "&").replace("&#39;", "'").replace("&#34;", '"') for one in found]
    assert len(seen) == 60


def test_the_description_names_every_route(client):
    described = client.get("/openapi.json").json()
    routes = {"/health", "/api/collection", "/api/search", "/api/search/picture", "/api/items", "/api/items/{name}"}
    assert set(described["paths"]) == routes | {"/api/hubs", "/pictures/{row}"}
    assert json.dumps(described).count("description") > 20


def test_what_fails_is_told_without_a_trace(known, caplog):
    class Broken(Asked):
        def texts(self, texts):
            raise RuntimeError("/home/somebody/secret.py")

    app = application(catalogue(asker=Broken(known.vectors)), hosts_of("127.0.0.1"))
    with TestClient(app, LOCAL, raise_server_exceptions=False) as client:
        assert error(client.post("/api/search", json={"text": "7"}), 500).startswith("the request failed")
        page = client.get("/?text=7")
        assert page.status_code == 500
        assert "secret" not in page.text
    assert "secret.py" in caplog.text


def test_a_change_of_what_is_served_is_told(known):
    state = {"changed": False}
    app = application(catalogue(changed=lambda: state["changed"]), hosts_of("127.0.0.1"))
    with TestClient(app, LOCAL) as client:
        assert client.get("/health").json()["changed"] is False
    state["changed"] = True
    app = application(catalogue(changed=lambda: state["changed"]), hosts_of("127.0.0.1"))
    with TestClient(app, LOCAL) as client:
        assert client.get("/health").json()["changed"] is True
        assert "has changed since it was opened" in client.get("/?query=1").text


def test_the_rates_at_which_a_query_finds_nothing(known):
    bias = torch.linspace(0, 1, len(known))
    scores = known.queries.rows(0, 2) @ known.vectors.T
    best, other = (2 * scores - bias).amax(dim=1).tolist()
    assert best != other
    thresholds = {0.1: min(best, other) - 1e-3, 0.05: (best + other) / 2, 0.01: max(best, other) + 1e-3}
    app = application(catalogue(stored={"csls": (2.0, bias)}, thresholds=thresholds), hosts_of("127.0.0.1"))
    with TestClient(app, LOCAL) as client:
        for query, score in ((0, best), (1, other)):
            wanted = [0.01, 0.05] if score == min(best, other) else [0.01]
            asked = {"query": query, "criterion": "csls"}
            assert client.get("/api/search", params=asked).json()["nothing_at"] == wanted
            assert f"Nothing here at accept={', '.join(map(str, wanted))}." in client.get("/", params=asked).text
        plain = client.get("/api/search", params={"query": 0, "criterion": "is"}).json()
        assert plain["nothing_at"] == []  # only the stored criterion is calibrated


def test_many_at_once_get_what_one_gets(known):
    from httpx import ASGITransport, AsyncClient

    app = application(catalogue(), hosts_of("127.0.0.1"))

    async def ask():
        async with AsyncClient(transport=ASGITransport(app), base_url=LOCAL) as client:
            answers = await asyncio.gather(
                *(client.get("/api/search", params={"query": n % QUERIES}) for n in range(300))
            )
            return [answer.json() for answer in answers]

    for number, answer in enumerate(asyncio.run(ask())):
        positions = known.rankings["csls"].positions[number % QUERIES, :10]
        assert [one["id"] for one in answer["corrected"]] == [known.id_of(row) for row in positions]


@pytest.mark.parametrize(("items", "queries"), [(1, 1), (1, 3), (2, 1), (12, 2)])
def test_few_items_and_few_queries(items, queries):
    random = torch.Generator().manual_seed(items)
    sides = Sides.of(torch.randn(queries, 4, generator=random), torch.randn(items, 4, generator=random))
    inputs = Inputs(sides, Names("queries", queries), Names("items", items), {}, None)
    few = Catalogue(contents(inputs=inputs), {"is": InvertedSoftmax()})
    with TestClient(application(few, hosts_of("127.0.0.1")), LOCAL) as client:
        for path in ("/", "/hubs", "/items/0", "/?item=0", "/api/collection", "/api/hubs", "/api/search?query=0&k=200"):
            assert client.get(path).status_code == 200, path
        assert len(client.get("/api/search?query=0&k=200").json()["plain"]) == items
