"""The pages and the interface of `vsehub serve`, asked in process: answers, refusals, and what they never say."""

import asyncio
import csv
import html
import io
import re
from dataclasses import replace
from importlib.util import find_spec
from urllib.parse import quote

import pytest
import torch
from collections_served import ITEMS, NASTY, QUERIES, catalogue, contents
from PIL import Image

from vsehub.checks import InputError
from vsehub.criteria import InvertedSoftmax
from vsehub.ranking.inputs import Inputs, Names, Sides
from vsehub.web.catalogue import Catalogue

pytestmark = pytest.mark.skipif(find_spec("fastapi") is None, reason="pip install 'vsehub[serve]'")
LOCAL = "http://127.0.0.1:8000"


class Asked:
    """An encoder whose vectors are items: text "7" is item 7."""

    vocabulary = ()

    def __init__(self, items):
        self._items = items

    def encode(self, text):
        if not re.search(r"\d", text):
            raise InputError(f"the checkpoint knows no word of the text {text!r}")
        row = int(text.split()[0])
        return self._items[row : row + 1], ["Read to its word 1."] if " " in text else []


@pytest.fixture(scope="module")
def known():
    return catalogue()


def asking(served):
    """A client of a catalogue; FastAPI is imported only where it is used."""
    from starlette.testclient import TestClient

    from vsehub.web.application import application

    return TestClient(application(served, "127.0.0.1"), LOCAL, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(known):
    return asking(catalogue(encoder=Asked(known.vectors)))


def test_a_known_query(client, known):
    params = {"query": 0, "k": 5, "criterion": "is"}
    answer = client.get("/api/search", params=params).json()
    assert list(answer["lists"]) == ["nns", "is", "csls"]
    whole = {name: [known.id_of(row) for row in known.rankings[name].positions[0]] for name in answer["lists"]}
    answers = {known.id_of(row) for row in (0, 11)}
    assert {item["id"] for item in answer["answers"]} == answers
    for name, items in answer["lists"].items():
        assert [item["id"] for item in items] == whole[name][:5]
        for item in [*items, *answer["answers"]]:
            assert item["ranks"] == {ranked: ids.index(item["id"]) + 1 for ranked, ids in whole.items()}
            assert item["right"] == (item["id"] in answers)
    first = answer["answers"][0]["ranks"]
    assert f"{first['nns']} → {first['is']} (is), {first['csls']} (csls)" in client.get("/", params=params).text


def test_sentences_and_items(client, known):
    for question, row in (({"text": "7"}, 7), ({"item": NASTY[3]}, 3), ({"item": ".."}, 1)):
        assert client.get("/api/search", params=question).json()["lists"]["nns"][0]["id"] == known.id_of(row)
    assert client.get("/api/search", params={"text": "7 dogs"}).json()["notes"] == ["Read to its word 1."]


@pytest.mark.parametrize("name", [name for name in NASTY if name != ".."])  # clients resolve dots in an address
def test_ids_that_are_hard_to_write(client, name):
    address = quote(name, safe="")
    assert client.get(f"/api/items/{address}").json()["id"] == name
    page = client.get(f"/items/{address}").text
    assert "<script>alert" not in page
    assert "<b>caption" not in page
    assert "&lt;b&gt;caption" in page


def test_hubs_and_items(client, known):
    hubs = client.get("/api/hubs", params={"limit": 3, "criterion": "csls"}).json()
    assert [item["id"] for item in hubs["items"]] == [known.id_of(row) for row in known.hubs[:3]]
    antihubs = client.get("/api/hubs", params={"kind": "antihubs"}).json()
    assert all(item["found_by"]["nns"] == 0 for item in antihubs["items"])
    assert antihubs["total"] == int((known.rankings["nns"].counts == 0).sum())
    made = client.get("/api/hubs", params={"kind": "hubs_made", "criterion": "csls", "limit": 200}).json()
    counts = [known.rankings[name].counts >= known.hub_level for name in ("nns", "csls")]
    wanted = (counts[1] & ~counts[0]).nonzero().flatten().tolist()
    assert sorted(item["id"] for item in made["items"]) == sorted(map(known.id_of, wanted))
    collection = client.get("/api/collection").json()
    assert collection["criteria"] == [row["criterion"] for row in collection["hubness"]] == ["nns", "csls", "is"]


@pytest.mark.parametrize(
    ("find", "rows", "queries"),
    [
        ("CAPTION</b> 2", [2, *range(20, 30)], 0),
        ("item 3", range(30, 40), 0),
        ("ü ?&#=100%", [4], 0),
        ("ion 14", [], 11),
        ("<script>", [3], 0),
    ],
)
def test_the_filter_looks_into_ids_and_captions(client, known, find, rows, queries):
    answer = client.get("/api/hubs", params={"kind": "items", "find": find, "limit": 200}).json()
    assert {item["id"] for item in answer["items"]} == {known.id_of(row) for row in rows}
    counts = [item["found_by"]["nns"] for item in answer["items"]]
    assert counts == sorted(counts, reverse=True)
    assert answer["total_queries"] == queries
    page = client.get("/hubs", params={"kind": "items", "find": find}).text
    assert html.escape(find) in page
    assert "<script>" not in page
    links = [html.unescape(link) for link in re.findall(r'href="(/hubs\.csv[^"]*)"', page)]
    assert len(client.get(links[0]).text.splitlines()) == 1 + len(rows)


def test_the_csv_of_the_hubs(known):
    inputs = known.contents.inputs
    labels = ["=1+1", "+a", "@x", *inputs.item_names.labels[3:]]
    names = Names("items", ITEMS, inputs.item_names.ids, labels)
    answer = asking(catalogue(inputs=replace(inputs, item_names=names))).get("/hubs.csv?kind=items")
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row: (line["id"], line["caption"]) for line in table if (row := int(line["item"])) < 4} == {
        row: (NASTY[row], label) for row, label in enumerate(["'=1+1", "'+a", "'@x", labels[3]])
    }
    for name, ranking in known.rankings.items():
        assert [int(line[f"N_10 {name}"]) for line in table] == [
            int(ranking.counts[int(line["item"])]) for line in table
        ]


def test_pictures_by_row_only(client):
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
        ({"text": "dog"}, 422, "dog"),
        ({"text": "7" * 5000}, 422, "text"),
        ({"item": "nobody"}, 404, "nobody"),
        ({"query": QUERIES}, 404, f"0 to {QUERIES - 1}"),
        ({"query": -1}, 422, "query"),
        ({"query": 10**30}, 404, "query"),
        ({"query": 1, "k": 10**9}, 422, "k: "),
        ({"query": 1, "criterion": "<i>"}, 422, "nns, csls, is"),
        ({"query": 1, "surprise": 1}, 422, "surprise"),
    ],
)
def test_questions_that_cannot_be_answered(client, question, status, named):
    answer = client.get("/api/search", params=question)
    assert (answer.status_code, named in answer.json()["error"]) == (status, True)
    if question:
        page = client.get("/", params=question)
        assert (page.status_code, "<i>" in page.text) == (status, False)


SITE = "sec-fetch-site"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        *(("/", {"host": host}, 421) for host in ("evil.example", "127.0.0.1.evil.example:8000", "[::2]:80")),
        *(("/", {"host": host}, 200) for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST")),
        *(("/", {"origin": origin}, 403) for origin in ("http://evil.example", "http://127.0.0.1:9000", "null")),
        ("/", {SITE: "cross-site", "sec-fetch-dest": "image"}, 403),
        ("/", {SITE: "cross-site", "sec-fetch-dest": "iframe"}, 403),
        ("/", {SITE: "same-site"}, 403),
        ("/?query=0", {SITE: "same-origin"}, 200),
        ("/?query=0", {SITE: "none", "sec-fetch-dest": "document"}, 200),
        ("/?query=0", {SITE: "cross-site", "sec-fetch-dest": "document"}, 403),
        ("/items/item%2020", {SITE: "cross-site", "sec-fetch-dest": "document"}, 200),  # a link
        ("/items/nobody", {}, 404),
        ("/hubs?kind=elephants", {}, 422),
        ("/hubs?offset=1000", {}, 200),
        ("/pictures/0", {}, 200),
        ("/openapi.json", {}, 200),
    ],
    ids=str,
)
def test_who_may_ask_and_what_every_answer_forbids(client, path, headers, status):
    answer = client.get(path, headers=headers)
    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_link_of_the_pages_leads_somewhere(client):
    visited, waiting = set(), ["/?text=&query=0&item=&criterion=is&k=3", "/hubs", "/items/a%2Fb"]
    while waiting and len(visited) < 60:
        path = waiting.pop(0)
        assert path.startswith(("/", "data:")), "nothing is fetched from elsewhere"
        if path not in visited and path.startswith("/"):
            visited.add(path)
            answer = client.get(path)
            assert answer.status_code == 200 or path.startswith("/pictures/5"), path
            if "html" in answer.headers["content-type"]:
                waiting += map(html.unescape, re.findall(r'(?:href|src)="([^"#]+)"', answer.text))
    assert len(visited) == 60


def test_what_fails_is_told_without_a_trace(known):
    class Broken(Asked):
        def encode(self, text):
            raise RuntimeError("/home/somebody/secret.py")

    broken = asking(catalogue(encoder=Broken(known.vectors)))
    for path in ("/", "/api/search"):
        answer = broken.get(path, params={"text": "7"})
        assert (answer.status_code, "secret" in answer.text) == (500, False)
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_rates_at_which_a_query_finds_nothing(known):
    bias = torch.linspace(0, 1, len(known))
    best, other = (2 * known.queries.rows(0, 2) @ known.vectors.T - bias).amax(dim=1).tolist()
    thresholds = {0.1: min(best, other) - 1e-3, 0.05: (best + other) / 2, 0.01: max(best, other) + 1e-3}
    served = asking(catalogue(stored={"csls": (2.0, bias)}, thresholds=thresholds))
    for query, score in ((0, best), (1, other)):
        wanted = [0.01, 0.05] if score == min(best, other) else [0.01]
        params = {"query": query, "criterion": "csls"}
        assert served.get("/api/search", params=params).json()["nothing_at"] == wanted
        assert f"accept={', '.join(map(str, wanted))}." in served.get("/", params=params).text
    plain = served.get("/api/search", params={"query": 0, "criterion": "is"}).json()
    assert plain["nothing_at"] == []  # only the stored criterion is calibrated


def test_many_at_once_get_what_one_gets(known):
    from httpx import ASGITransport, AsyncClient

    app = asking(catalogue()).app

    async def ask():
        async with AsyncClient(transport=ASGITransport(app), base_url=LOCAL) as client:
            requests = [client.get("/api/search", params={"query": n % QUERIES}) for n in range(40)]
            return [answer.json() for answer in await asyncio.gather(*requests)]

    for number, answer in enumerate(asyncio.run(ask())):
        positions = known.rankings["csls"].positions[number % QUERIES, :10]
        assert [item["id"] for item in answer["lists"]["csls"]] == [known.id_of(row) for row in positions]


@pytest.mark.parametrize(("items", "queries"), [(1, 1), (1, 3), (2, 1), (12, 2)])
def test_few_items_and_few_queries(items, queries):
    random = torch.Generator().manual_seed(items)
    sides = Sides.from_arrays(torch.randn(queries, 4, generator=random), torch.randn(items, 4, generator=random))
    inputs = Inputs(sides, Names("queries", queries), Names("items", items))
    client = asking(Catalogue(contents(inputs=inputs), {"is": InvertedSoftmax()}))
    for path in ("/", "/hubs", "/items/0", "/?item=0", "/api/collection", "/api/hubs"):
        assert client.get(path).status_code == 200, path
    assert len(client.get("/api/search?query=0&k=200").json()["lists"]["nns"]) == items
