"""The pages and the interface of `vsehub serve`, asked in process: answers, refusals, and what they never say."""

import asyncio
import io
import re
from urllib.parse import quote

import pytest
import torch
from collections_served import ITEMS, NASTY, QUERIES, catalogue, contents
from PIL import Image

from vsehub.checks import InputError
from vsehub.criteria import InvertedSoftmax
from vsehub.ranking.inputs import Inputs, Names, Sides

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'vsehub[serve]'")
from starlette.testclient import TestClient

from vsehub.web.application import application
from vsehub.web.catalogue import Catalogue
from vsehub.web.server import hosts_of

LOCAL = "http://127.0.0.1:8000"


class Asked:
    """An encoder whose vectors are items: text "7" is item 7."""

    vocabulary = ()

    def __init__(self, items):
        self._items = items

    def ask(self, text):
        if not re.search(r"\d", text):
            raise InputError(f"the checkpoint knows no word of the text {text!r}")
        row = int(text.split()[0])
        return self._items[row : row + 1], ["Read to its word 1."] if " " in text else []


@pytest.fixture(scope="module")
def known():
    return catalogue()


def asking(served):
    """A client of a catalogue."""
    return TestClient(application(served, hosts_of("127.0.0.1")), LOCAL, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(known):
    return asking(catalogue(asker=Asked(known.vectors)))


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
    corrected = {one["id"] for one in found["corrected"]}
    for one in found["plain"]:
        assert one["right"] == (known.row_of[one["id"]] in (0, 11))
        assert one["stays"] == (one["id"] in corrected)


def test_sentences_and_items(client, known):
    for question, row in (({"text": "7"}, 7), ({"item": NASTY[3]}, 3), ({"item": ".."}, 1)):
        assert client.get("/api/search", params=question).json()["plain"][0]["id"] == known.id_of(row)
    assert client.get("/api/search", params={"text": "7 dogs"}).json()["notes"] == ["Read to its word 1."]


@pytest.mark.parametrize("name", [name for name in NASTY if name != ".."])  # clients resolve dots in an address
def test_ids_that_are_hard_to_write(client, name):
    address = quote(name, safe="")
    assert client.get(f"/api/items/{address}").json()["id"] == name
    page = client.get(f"/items/{address}")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<b>caption" not in page.text
    assert "&lt;b&gt;caption" in page.text


def test_hubs_and_items(client, known):
    hubs = client.get("/api/hubs", params={"limit": 3, "criterion": "csls"}).json()
    assert [one["id"] for one in hubs["items"]] == [known.id_of(row) for row in known.hubs[:3]]
    finder = hubs["items"][0]["finders"][0]
    assert finder["answer"]["plain_rank"] is None or finder["answer"]["plain_rank"] > finder["rank"]
    antihubs = client.get("/api/hubs", params={"kind": "antihubs"}).json()
    assert all(one["found_by"]["nns"] == 0 for one in antihubs["items"])
    assert antihubs["total"] == int((known.rankings["nns"].counts == 0).sum())
    collection = client.get("/api/collection").json()
    assert collection["criteria"] == [one["criterion"] for one in collection["hubness"]] == ["nns", "csls", "is"]


def test_pictures_by_row_alone(client):
    answer = client.get("/pictures/3")
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (8, 8)
    for row in ("5", "-1", str(ITEMS), "..%2F..%2Fetc%2Fpasswd", "x"):
        assert client.get(f"/pictures/{row}").status_code in (404, 422)


@pytest.mark.parametrize(
    ("question", "status", "named"),
    [
        ({}, 422, "text, item and query"),
        ({"text": "7", "query": 1}, 422, "text, item and query"),
        ({"text": "  "}, 422, "text"),
        ({"text": "dog"}, 422, "'dog'"),
        ({"text": "7" * 5000}, 422, "text: "),
        ({"item": "nobody"}, 404, "nobody"),
        ({"query": QUERIES}, 404, f"0 to {QUERIES - 1}"),
        ({"query": -1}, 422, "query: "),
        ({"query": 10**30}, 404, "query"),
        ({"query": 1, "k": 10**9}, 422, "k: "),
        ({"query": 1, "k": 0}, 422, "k: "),
        ({"query": 1, "criterion": "os.system"}, 422, "nns, csls, is"),
        ({"query": 1, "surprise": 1}, 422, "surprise"),
    ],
)
def test_questions_that_cannot_be_answered(client, question, status, named):
    assert named in error(client.get("/api/search", params=question), status)


def test_only_its_own_names_are_answered(client):
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "[::2]:80"):
        assert "host" in error(client.get("/api/collection", headers={"host": host}), 421)
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        assert client.get("/api/collection", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_pages_of_other_sites_ask_nothing(client, headers):
    error(client.get("/api/search", params={"query": 0}, headers=headers), 403)
    error(client.get("/", headers=headers), 403)


def test_its_own_pages_and_links_to_them_are_answered(client):
    for headers in (
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none", "sec-fetch-dest": "document"},
    ):
        assert client.get("/?query=0", headers=headers).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    assert client.get("/items/item%2020", headers=link).status_code == 200
    error(client.get("/api/search", params={"query": 0}, headers=link), 403)


def test_every_answer_forbids_what_is_not_its_own(client):
    for path in ("/", "/hubs", "/api/collection", "/nowhere", "/pictures/0", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/", 200, "made up"),
        ("/?query=0", 200, "question 0 &amp; &lt;i&gt;"),
        ("/?text=&query=0&item=&criterion=is&k=3", 200, "Corrected: is"),
        ("/?text=7", 200, "“7”"),
        ("/?item=a/b", 200, "Near a/b"),
        ("/?query=0&k=many", 422, "k: "),
        ("/?query=0&criterion=<i>", 422, "choose one of nns"),
        ("/hubs", 200, "Hubs: "),
        ("/hubs?kind=antihubs", 200, "Never found: "),
        ("/hubs?kind=elephants", 422, "kind: "),
        ("/hubs?offset=1000", 200, "There are none"),
        ("/nowhere", 404, "Not Found"),
        ("/items/nobody", 404, "nobody"),
    ],
)
def test_pages(client, path, status, words):
    page = client.get(path)
    assert page.status_code == status
    assert words in page.text
    assert "<i>" not in page.text
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text), "nothing is fetched from elsewhere"


def test_every_link_of_the_pages_leads_somewhere(client):
    seen, waiting = set(), ["/", "/hubs", "/items/a%2Fb"]
    while waiting and len(seen) < 60:
        path = waiting.pop(0)
        if path not in seen and path.startswith("/"):
            seen.add(path)
            answer = client.get(path)
            assert answer.status_code == 200 or path.startswith("/pictures/5"), path
            found = (
                re.findall(r'(?:href|src)="([^"#]+)"', answer.text) if "html" in answer.headers["content-type"] else []
            )
            waiting += [one.replace("&amp;", "&").replace("&#39;", "'").replace("&#34;", '"') for one in found]
    assert len(seen) == 60


def test_what_fails_is_told_without_a_trace(known):
    class Broken(Asked):
        def ask(self, text):
            raise RuntimeError("/home/somebody/secret.py")

    broken = asking(catalogue(asker=Broken(known.vectors)))
    assert error(broken.get("/api/search", params={"text": "7"}), 500)
    page = broken.get("/?text=7")
    assert page.status_code == 500
    assert "secret" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_rates_at_which_a_query_finds_nothing(known):
    bias = torch.linspace(0, 1, len(known))
    scores = known.queries.rows(0, 2) @ known.vectors.T
    best, other = (2 * scores - bias).amax(dim=1).tolist()
    thresholds = {0.1: min(best, other) - 1e-3, 0.05: (best + other) / 2, 0.01: max(best, other) + 1e-3}
    served = asking(catalogue(stored={"csls": (2.0, bias)}, thresholds=thresholds))
    for query, score in ((0, best), (1, other)):
        wanted = [0.01, 0.05] if score == min(best, other) else [0.01]
        asked = {"query": query, "criterion": "csls"}
        assert served.get("/api/search", params=asked).json()["nothing_at"] == wanted
        assert f"accept={', '.join(map(str, wanted))}." in served.get("/", params=asked).text
    plain = served.get("/api/search", params={"query": 0, "criterion": "is"}).json()
    assert plain["nothing_at"] == []  # only the stored criterion is calibrated


def test_many_at_once_get_what_one_gets(known):
    from httpx import ASGITransport, AsyncClient

    app = application(catalogue(), hosts_of("127.0.0.1"))

    async def ask():
        async with AsyncClient(transport=ASGITransport(app), base_url=LOCAL) as client:
            asked = [client.get("/api/search", params={"query": n % QUERIES}) for n in range(200)]
            return [answer.json() for answer in await asyncio.gather(*asked)]

    for number, answer in enumerate(asyncio.run(ask())):
        positions = known.rankings["csls"].positions[number % QUERIES, :10]
        assert [one["id"] for one in answer["corrected"]] == [known.id_of(row) for row in positions]


@pytest.mark.parametrize(("items", "queries"), [(1, 1), (1, 3), (2, 1), (12, 2)])
def test_few_items_and_few_queries(items, queries):
    random = torch.Generator().manual_seed(items)
    sides = Sides.of(torch.randn(queries, 4, generator=random), torch.randn(items, 4, generator=random))
    inputs = Inputs(sides, Names("queries", queries), Names("items", items))
    client = asking(Catalogue(contents(inputs=inputs), {"is": InvertedSoftmax()}))
    for path in ("/", "/hubs", "/items/0", "/?item=0", "/api/collection", "/api/hubs"):
        assert client.get(path).status_code == 200, path
    assert len(client.get("/api/search?query=0&k=200").json()["plain"]) == items
