"""The page of embeddings: what it says is what the record holds, whatever the record lacks or is called."""

import copy
import re

import pytest
from embedding_records import embedding_record
from html_links import Links, assert_self_contained
from PIL import Image

from vsehub.report.comparison import evidence
from vsehub.report.pages.embeddings import embeddings_page, tiles

HOSTILE = "<script>alert(1)</script>|$\\frac{\"&'{{ 7 * 7 }}"
pytestmark = pytest.mark.usefixtures("undrawn")


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
    expected = {
        tuple(f"{ranking['truth']['r1']:.1f}" for ranking in (plain, csls)),
        tuple(f"{ranking['hubness']['largest_hub_10']:.0f}" for ranking in (plain, csls)),
        tuple(f"{ranking['hubness']['skew_10']:.2f}" for ranking in (plain, csls)),
        tuple(f"{100 * ranking['hubness']['antihub_rate_10']:.1f}" for ranking in (plain, csls)),
    }
    for rankings in ([plain, csls, inverted], [plain, inverted, csls]):
        assert {(before, after) for _, before, after in tiles(measured | {"rankings": rankings})} == expected
    assert {after for _, _, after in tiles(measured | {"rankings": [plain]})} == {None}


def test_every_number_of_the_table_and_its_distance_from_plain(measured):
    plain, csls = (ranking["hubness"] for ranking in measured["rankings"][:2])
    csls |= {"largest_hub_10": plain["largest_hub_10"] + 1234, "skew_10": -0.4, "gini_10": plain["gini_10"] + 1e-5}
    page = embeddings_page(measured)
    rows = re.findall(r"<tr>(<td>(?:nns|csls|is)\b.*?)</tr>", page[page.index("All rankings") :])
    for row, ranking in zip(rows, measured["rankings"], strict=True):
        cells = [re.sub(r" ?<small>.*?</small>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        truth, hubs, changed = ranking["truth"], ranking["hubness"], ranking["changed"]
        wanted = [f"{truth[key]:.1f}" for key in ("r1", "r5", "r10", "map_r", "r_precision")]
        wanted += [f"{hubs['largest_hub_10']:,.0f}", f"{hubs['skew_10']:.2f}".replace("-", "−")]
        wanted += [f"{100 * hubs[f'{key}_10']:.1f}" for key in ("antihub_rate", "robin_hood")]
        wanted += [f"{hubs['gini_10']:.3f}", f"{100 * hubs['bad_share_10']:.1f}"]
        itself = ranking["criterion"] == "nns"
        wanted += ["–" if itself else f"{100 * changed[key]:.1f}" for key in ("first", "overlap")]
        assert cells == [ranking["criterion"], ranking["reference"], *wanted]
    assert "<small>+1,234 worse</small>" in rows[1]
    assert f"<small>−{round(plain['skew_10'], 2) + 0.4:.2f}</small>" in rows[1]
    assert f"{csls['gini_10']:.3f}</td>" in rows[1], "a difference beyond the decimals is not shown"


def test_bars_are_as_long_as_their_counts(measured):
    page = embeddings_page(measured)
    counts, wrong = ([count for hub in measured["hubs"] for count in hub[key]] for key in ("occurrences", "wrong"))
    hubs = page[page.index("The worst hubs") : page.index("All rankings")]
    bars = re.findall(r'width:([\d.]+)%;background.*?"wrong" style="width:([\d.]+)%".*?<b>([\d,]+)</b>', hubs)
    assert [int(text.replace(",", "")) for _, _, text in bars] == counts
    for place, shown in ((0, counts), (1, wrong)):
        assert [row[place] for row in bars] == [f"{100 * count / max(counts):.2f}" for count in shown]


@pytest.mark.parametrize(
    "reference",
    [
        {"kind": "transductive", "set": "the queries themselves", "rows": 900},
        {"kind": "inductive", "set": "train.npy", "path": "train.npy", "rows": 2000, "left_out": 3}
        | {"dim": 24, "dtype": "float32", "fingerprint": "ab"},
        {"kind": "none", "set": "none"},
    ],
)
def test_the_reference_is_always_said(measured, reference):
    text = Links(embeddings_page(measured | {"reference": reference})).text
    assert f"reference {reference['kind']}" in text
    assert ("without 3 that equal a query" in text) == ("left_out" in reference)
    assert ("train.npy" in text.partition("Sources")[2]) == ("path" in reference)


def test_gains_and_losses_follow_the_verdict_on_hubs(measured):
    """No verdict stands for them; what a correction makes unfindable is said, with or without known answers."""
    measured["rankings"][1]["gain"] = {"queries": 900, "groups": 400, "r1": -2.0, "low": -3.5, "high": -0.5, "p": 0.01}
    measured["antihubs"]["count"] = [20, 60, 20]
    names = [name for name, _ in evidence(measured)]
    assert names[-4:] == [
        "verdict on hubs",
        "verdict on hubs under csls",
        "loss of csls in R@1",
        "unfindable under csls",
    ]
    assert evidence(measured)[-1][1].startswith("15.0%")
    assert "truth=FILE" in dict(evidence(measured | {"truth": None}))["gain"]


def test_what_the_record_lacks_is_left_out():
    bare = embedding_record(queries=40, items=7, truth=False, labels=False)
    for entry in bare["hubs"]:
        entry["id"] = None
    bare["antihubs"] = {"count": [0, 0], "examples": []}
    text = Links(embeddings_page(bare)).text
    assert "skew N_5" in text
    for word in ("None", "nan", "R@1", "wrong", "Hatched", "index"):
        assert not re.search(rf"\b{word}\b", text), word


def test_the_page_is_self_contained_escapes_what_it_is_given_and_is_the_same_again(measured):
    measured["hubs"][0] |= {"id": HOSTILE, "label": HOSTILE}
    measured["hubs"][0]["queries"][0]["label"] = HOSTILE
    measured["queries"]["path"] = measured["command"] = measured["versions"]["torch"] = HOSTILE
    measured["rankings"][1] |= {"criterion": HOSTILE, "parameters": {"steps": [{"k": 1}], "name": HOSTILE}}
    measured["rankings"][1]["hubs_made"] = [{"item": 5, "id": HOSTILE, "before": 3, "after": 77}]
    measured["index"] = {"kind": HOSTILE, "bytes": 2_500_000, "recall": {"nns": 0.987}}
    page = embeddings_page(measured)
    assert page == embeddings_page(measured)
    links = assert_self_contained(page)
    assert links.tags.count("img") == 1
    assert "<script" not in page
    for text in ("{{ 7 * 7 }}", "0.987", "(3 → 77)"):
        assert text in links.text


def test_pictures_and_what_is_missing(tmp_path):
    files = [str(tmp_path / f"{item}.png") for item in range(400)]
    record = embedding_record(images=files)
    shown = [entry["item"] for entry in record["hubs"]]
    for item in shown[2:]:
        Image.new("RGB", (9, 9), (item % 256, 0, 0)).save(files[item])
    (tmp_path / f"{shown[1]}.png").write_text("no picture")
    record["hubs"][2]["image"] = None
    links = assert_self_contained(embeddings_page(record))
    assert links.tags.count("img") == 1 + len(shown) - 3
    assert "absent or broken: 3" in links.text
