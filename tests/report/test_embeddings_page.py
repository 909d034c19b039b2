"""The page of embeddings: what it says is what the record holds, whatever the record lacks or is called."""

import copy
import re

import pytest
from embedding_records import embedding_record
from html_links import Links, assert_self_contained
from PIL import Image

from vsehub.report.pages.embeddings import embeddings_page, tiles, write_embeddings_report
from vsehub.report.plots import Picture

HOSTILE = "<script>alert(1)</script>|$\\frac{\"&'{{ 7 * 7 }}"


@pytest.fixture(autouse=True)
def figure(request, monkeypatch):
    """The figure has tests of its own, and those that take `drawn`; drawing it in all would take most of the time."""
    if "drawn" not in request.fixturenames:
        picture = Picture("none", "a figure", None, b"", b"<svg></svg>")
        monkeypatch.setattr("vsehub.report.pages.embeddings.occurrence_curves", lambda *_: picture)


@pytest.fixture
def drawn():
    """For tests of the page with its figure."""


def said(record):
    return Links(embeddings_page(record)).text


@pytest.fixture(scope="module")
def first():
    return embedding_record(criteria=("csls", "is"))


@pytest.fixture
def measured(first):
    """The record of CSLS and IS over 900 queries and 400 items."""
    return copy.deepcopy(first)


def test_the_first_values_are_plain_searchs_and_those_of_csls(measured):
    """IS has the smaller largest hub, which does not make it the better one."""
    plain, csls, inverted = measured["rankings"]
    assert inverted["hubness"]["largest_hub_10"] < csls["hubness"]["largest_hub_10"]
    expected = [
        ("Largest hub", *(f"{one['hubness']['largest_hub_10']:.0f}" for one in (plain, csls))),
        ("Items never found", *(f"{100 * one['hubness']['antihub_rate_10']:.1f}\xa0%" for one in (plain, csls))),
        ("Skewness of N_10", *(f"{one['hubness']['skew_10']:.2f}" for one in (plain, csls))),
        ("R@1", *(f"{one['truth']['r1']:.1f}\xa0%" for one in (plain, csls))),
    ]
    for rankings in ([plain, csls, inverted], [plain, inverted, csls]):
        assert tiles(measured | {"rankings": rankings}) == expected
    alone = embedding_record(criteria=())
    assert {after for _, _, after in tiles(alone)} == {None}
    assert "1st moved" not in said(alone), "nothing changed against itself"


def test_every_figure_of_the_table_and_its_distance_from_plain(measured):
    plain, csls = (ranking["hubness"] for ranking in measured["rankings"][:2])
    csls |= {"largest_hub_10": plain["largest_hub_10"] + 1234, "skew_10": -0.4, "gini_10": plain["gini_10"] + 1e-5}
    page = embeddings_page(measured)
    rows = re.findall(r"<tr>(<td>(?:nns|csls|is)\b.*?)</tr>", page[page.index("All rankings") :])
    assert len(rows) == 3
    for row, ranking in zip(rows, measured["rankings"], strict=True):
        cells = [re.sub(r" ?<small>.*?</small>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        found, hubs, changed = ranking["truth"], ranking["hubness"], ranking["changed"]
        wanted = [f"{found[key]:.1f}" for key in ("r1", "r5", "r10", "map_r", "r_precision")]
        wanted += [f"{hubs['largest_hub_10']:,.0f}", f"{hubs['skew_10']:.2f}".replace("-", "−")]
        wanted += [f"{100 * hubs[f'{key}_10']:.1f}" for key in ("antihub_rate", "robin_hood")]
        wanted += [f"{hubs['gini_10']:.3f}", f"{100 * hubs['bad_share_10']:.1f}"]
        plainly = ranking["criterion"] == "nns"
        wanted += ["–" if plainly else f"{100 * changed[key]:.1f}" for key in ("first", "overlap")]
        assert cells == [ranking["criterion"], ranking["reference"], *wanted]
    assert "<small>+1,234 worse</small>" in rows[1]
    assert f"<small>−{round(plain['skew_10'], 2) + 0.4:.2f}</small>" in rows[1]
    assert f"{hubs['gini_10']:.3f}</td>" not in rows[1], "differences that are not shown are none"
    assert "<small>k 10</small>" in rows[1]


def test_a_correction_that_makes_hubs_is_called_so(measured):
    check = {"name": "skewness", "meaning": "skewness of N_10", "value": 2.4, "chance": 0.3, "warn": 1.4, "fail": 5.0}
    measured["verdict_corrected"] = {"level": "warn", "checks": [check | {"level": "warn"}]}
    measured["rankings"][1]["hubs_made"] = [{"item": 5, "id": HOSTILE, "before": 3, "after": 77}]
    page = embeddings_page(measured)
    assert "warn: skewness of N_10 2.4" in page
    assert "(csls: 3 → 77)" in page
    assert "<script" not in page


def test_bars_are_as_long_as_their_counts(measured):
    page = embeddings_page(measured)
    shown = [*measured["hubs"], *measured["antihubs"]["examples"]]
    longest = max(max(entry["occurrences"]) for entry in shown)
    counts = [count for entry in measured["hubs"] for count in entry["occurrences"]]
    wrong = [count for entry in measured["hubs"] for count in entry["wrong"]]
    hubs = page[page.index("The worst hubs") : page.index("Items that are never found")]
    found = re.findall(r'width:([\d.]+)%;background.*?"wrong" style="width:([\d.]+)%".*?<b>([\d,]+)</b>', hubs)
    assert [int(text.replace(",", "")) for _, _, text in found] == counts
    assert [width for width, _, _ in found] == [f"{100 * count / longest:.2f}" for count in counts]
    assert [width for _, width, _ in found] == [f"{100 * count / longest:.2f}" for count in wrong]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (
            {"kind": "transductive", "set": "the queries themselves", "rows": 900},
            "transductive, the queries themselves",
        ),
        (
            {"kind": "inductive", "set": "train.npy", "path": "train.npy", "rows": 2000, "queries_in_it": 3}
            | {"dim": 24, "dtype": "float32", "fingerprint": "ab"},
            "3 of the queries are also in it",
        ),
        ({"kind": "none", "set": "none"}, "none: no ranking here looks at other queries"),
    ],
)
def test_the_reference_is_always_said(measured, reference, told):
    text = said(measured | {"reference": reference})
    assert f"reference {reference['kind']}" in text
    assert told in text
    assert ("train.npy" in text.partition("Sources")[2]) == ("path" in reference)


def test_what_the_record_lacks_is_left_out():
    bare = embedding_record(queries=40, items=7, truth=False, labels=False)
    bare["rankings"][1]["histograms"]["5"] = {"occurrences": [28], "items": [7]}
    for entry in bare["hubs"]:
        entry["id"] = None
    bare["antihubs"] = {"count": [0, 0], "examples": []}
    text = said(bare)
    assert "Skewness of N_5" in text
    for word in ("None", "nan", "R@1", "wrong", "Hatched", "index"):
        assert not re.search(rf"\b{word}\b", text), word


def test_the_page_is_self_contained_and_escapes_what_it_is_given(tmp_path, measured, drawn):
    measured["hubs"][0] |= {"id": HOSTILE, "label": HOSTILE}
    measured["queries"]["path"] = measured["command"] = measured["versions"]["torch"] = HOSTILE
    measured["rankings"][1]["criterion"] = HOSTILE
    measured["rankings"][1]["parameters"] = {"steps": [{"k": 1}], "name": HOSTILE}
    measured["index"] = {"kind": HOSTILE, "bytes": 2_500_000, "recall": {"nns": 0.987}}
    pages = [write_embeddings_report(measured, tmp_path / name).read_text() for name in ("out", "again")]
    assert pages[0] == pages[1]
    links = assert_self_contained(pages[0])
    assert links.tags.count("img") == 1
    assert "&lt;script&gt;alert(1)" in pages[0]
    for text in ("{{ 7 * 7 }}", "0.987"):
        assert text in links.text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]


def test_pictures_and_what_is_missing(tmp_path):
    files = [str(tmp_path / f"{item}.png") for item in range(400)]
    record = embedding_record(images=files)
    shown = [entry["item"] for entry in [*record["hubs"], *record["antihubs"]["examples"]]]
    for item in shown[2:]:
        Image.new("RGB", (9, 9), (item % 256, 0, 0)).save(files[item])
    (tmp_path / f"{shown[1]}.png").write_text("no picture")
    record["hubs"][2]["image"] = None
    links = assert_self_contained(embeddings_page(record))
    assert links.tags.count("img") == 1 + len(shown) - 3
    assert "3 pictures could not be shown" in links.text
