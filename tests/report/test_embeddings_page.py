"""The page of embeddings: what it says is what the record holds, whatever the record lacks or is called."""

import copy
import io
import random
import re

import numpy as np
import pytest
from embedding_records import embedding_record
from html_links import Links, assert_self_contained
from PIL import Image

from vsehub.checks import InputError
from vsehub.report.pages.embeddings import changes_table, embeddings_page, tiles, write_embeddings_report
from vsehub.report.plots import Picture, at_least, occurrence_curves, ranking_colours

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


def said(record, **options):
    return Links(embeddings_page(record, **options)).text


@pytest.fixture(scope="module")
def measured():
    """The record of CSLS and IS over 900 queries and 400 items; to be copied before it is changed."""
    return embedding_record(criteria=("csls", "is"))


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
        assert [tuple(tile) for tile in tiles(measured | {"rankings": rankings})] == expected
    text = said(measured)
    assert "900 queries, 400 items" in text
    assert "Fair share: 22 queries an item." in text


# Of plain similarity and of CSLS and IS: the largest hub, whichever item it is, skewness of N_10, and R@1.
@pytest.mark.parametrize(
    ("values", "csls", "inverted"),
    [
        pytest.param(
            [(65, 2.31, 40.0), (123, 1.502, 41.26), (140, 1.2, 44.0)],
            [("123", "worse"), ("1.50", "better"), ("41.3\xa0%", "better")],
            [("140", "worse"), ("1.20", "better"), ("44.0\xa0%", "better")],
            id="the largest hub rises and skewness falls",
        ),
        pytest.param(
            [(1065, 2.31, 40.0), (1023, 1.5, 41.0), (980, -0.4, 38.0)],
            [("1,023", "better"), ("1.50", "better"), ("41.0\xa0%", "better")],
            [("980", "better"), ("−0.40", "better"), ("38.0\xa0%", "worse")],
            id="both fall, and R@1 with them",
        ),
        pytest.param(
            [(65, 2.3101, 40.0), (65, 2.3149, 40.04), (66, 2.2, 40.0)],
            [("65", "unchanged"), ("2.31", "unchanged"), ("40.0\xa0%", "unchanged")],
            [("66", "worse"), ("2.20", "better"), ("40.0\xa0%", "unchanged")],
            id="differences that are not shown are none",
        ),
    ],
)
def test_better_and_worse_are_marked(measured, values, csls, inverted):
    record = copy.deepcopy(measured)
    for ranking, (hub, skew, r1) in zip(record["rankings"], values, strict=True):
        ranking["hubness"] |= {"largest_hub_10": float(hub), "skew_10": skew}
        ranking["truth"]["r1"] = r1
    table = changes_table(record)
    assert table.head == ["ranking", "largest hub", "skewness of N_10", "R@1"]
    assert table.rows[1:] == [["csls", *csls], ["is", *inverted]]
    text = said(record)
    assert f"{csls[0][0]} {csls[0][1]}" in text
    for ranking in record["rankings"]:
        ranking["truth"] = None
    assert "R@1" not in said(record | {"truth": None})


def test_one_correction_and_none(measured):
    one = copy.deepcopy(measured)
    one["rankings"], one["hubs"][0]["occurrences"] = one["rankings"][:2], [564, 249]
    one["rankings"][1]["hubness"]["largest_hub_10"] = 249.0
    for entry in [*one["hubs"][1:], *one["antihubs"]["examples"]]:
        entry["occurrences"], entry["wrong"] = entry["occurrences"][:2], entry["wrong"][:2]
    one["hubs"][0]["wrong"], one["antihubs"]["count"] = [500, 200], [12, 0]
    text = said(one)
    assert "249 better" in text
    alone = embedding_record(criteria=())
    text = said(alone)
    assert "Better or worse" not in text
    assert "→" not in text
    assert "first item" not in text, "nothing changed against itself"


def test_every_figure_of_the_table_and_its_distance_from_plain(measured):
    page = embeddings_page(measured)
    rows = re.findall(r"<tr>(<td>(?:nns|csls|is)\b.*?)</tr>", page[page.index("All rankings") :])
    assert len(rows) == 3
    for row, ranking in zip(rows, measured["rankings"], strict=True):
        cells = [re.sub(r" ?<small>.*?</small>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        found, hubs, changed = ranking["truth"], ranking["hubness"], ranking["changed"]
        wanted = [f"{found[key]:.1f}" for key in ("r1", "r5", "r10", "map_r", "r_precision")]
        wanted += [f"{hubs['skew_10']:.2f}", f"{100 * hubs['robin_hood_10']:.1f}", f"{hubs['gini_10']:.3f}"]
        wanted += [f"{100 * hubs['antihub_rate_10']:.1f}", f"{hubs['largest_hub_10']:.0f}"]
        wanted += [f"{100 * hubs['bad_share_10']:.1f}"]
        wanted += [
            f"{100 * changed[key]:.1f}" if ranking["criterion"] != "nns" else "–" for key in ("first", "overlap")
        ]
        assert cells == [ranking["criterion"], ranking["reference"], *wanted]
    plain, csls = (ranking["hubness"]["largest_hub_10"] for ranking in measured["rankings"][:2])
    assert f"<small>−{plain - csls:.0f}</small>" in rows[1]
    assert "<small>k 10</small>" in rows[1]
    assert "±" not in page


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
    assert max(map(float, re.findall(r"width:([\d.]+)%", page))) <= 100


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"kind": "transductive", "set": "the queries themselves", "rows": 900}, "saw the very queries that they rank"),
        (
            {"kind": "inductive", "set": "train.npy", "path": "train.npy", "rows": 2000, "queries_in_it": 3},
            "inductive, train.npy (2,000 rows): the corrections saw none of the queries that they rank in the "
            "reference 3 of the queries are also in it",
        ),
        ({"kind": "none", "set": "none"}, "none: no ranking here looks at other queries"),
    ],
)
def test_the_reference_is_always_said(measured, reference, told):
    text = said(measured | {"reference": reference})
    assert told in text
    assert ("train.npy" in text.partition("Sources")[2]) == ("path" in reference)


def test_what_the_record_lacks_is_left_out():
    bare = embedding_record(queries=40, items=7, truth=False, labels=False)
    for key in ("git", "hardware", "versions", "started", "seconds", "command", "index", "vsehub"):
        bare[key] = None
    for side in ("queries", "items"):
        bare[side] |= {"path": None, "fingerprint": None, "norms": None}
    bare["rankings"][1]["histograms"]["5"] = {"occurrences": [28], "items": [7]}
    for entry in bare["hubs"]:
        entry["id"] = None
    bare["antihubs"] = {"count": [0, 0], "examples": []}
    text = said(bare)
    assert "skewness of N_5" in text
    assert "in memory" in text
    for word in ("None", "nan", "R@1", "wrong", "Hatched", "index"):
        assert not re.search(rf"\b{word}\b", text), word
    said(bare | {"hubs": [], "antihubs": None})


def test_truth_without_deep_lists_and_queries_without_a_pair(measured):
    record = copy.deepcopy(measured)
    for ranking in record["rankings"]:
        ranking["truth"] |= {"map_r": None, "r_precision": None}
    record["truth"]["queries_without"] = 17
    text = said(record)
    assert "17 queries without a pair are left out of the recalls" in text
    assert "mAP@R" not in text
    record["rankings"][1]["truth"] |= {"map_r": 1.0}
    assert "mAP@R" in said(record)


def test_the_page_is_self_contained_and_escapes_what_it_is_given(tmp_path, measured, drawn):
    record = copy.deepcopy(measured)
    record["hubs"][0] |= {"id": HOSTILE, "label": HOSTILE}
    record["queries"]["path"] = record["command"] = record["versions"]["torch"] = HOSTILE
    record["rankings"][1]["criterion"] = HOSTILE
    record["rankings"][1]["parameters"] = {"steps": [{"k": 1}], "name": HOSTILE}
    record["index"] = {"kind": HOSTILE, "bytes": 2_500_000, "recall": {"nns": 0.987}}
    page = write_embeddings_report(record, tmp_path / "out").read_text()
    links = assert_self_contained(page)
    assert links.tags.count("img") == 1
    assert "&lt;script&gt;alert(1)" in page
    assert "{{ 7 * 7 }}" in links.text
    assert "2.5 MB" in links.text
    assert "0.987" in links.text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]


def test_pictures_from_files_and_pixels_and_what_is_missing(tmp_path):
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
    pixels = {file: np.zeros((3, 8, 8), np.uint8) for file in files[:-1]}
    links = assert_self_contained(embeddings_page(record, pixels))
    assert links.tags.count("img") == 1 + len(shown) - 1 - (399 in shown)


def test_the_page_made_again_is_the_same(measured, drawn):
    assert embeddings_page(copy.deepcopy(measured)) == embeddings_page(measured)


def test_another_schema_is_refused(measured):
    with pytest.raises(InputError, match="version 2"):
        embeddings_page(measured | {"schema": 2})


def test_shares_of_items_found_so_often_at_least():
    counts = random.Random(0).choices([0, 0, 1, 2, 3, 8, 40], k=300)
    distinct = sorted(set(counts))
    histogram = {"occurrences": distinct, "items": [counts.count(value) for value in distinct]}
    occurrences, shares, never = at_least(histogram)
    assert occurrences.tolist() == distinct[1:]
    assert shares.tolist() == [sum(count >= value for count in counts) / 300 for value in distinct[1:]]
    assert never == counts.count(0) / 300


def test_the_figure_has_a_line_a_ranking_in_the_colour_of_its_bars(measured):
    histograms = {one["criterion"]: one["histograms"]["10"] for one in measured["rankings"]}
    picture = occurrence_curves(histograms, 10, 22.5)
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)
    colours = ranking_colours(list(histograms))
    assert len(set(colours.values())) == 3
    for name, colour in colours.items():
        wanted = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
        places = (np.abs(pixels - wanted).max(axis=2) < 20).nonzero()
        assert len(places[0]) > 300, name
        assert embeddings_page(measured).count(f"background-color:{colour}") > 20
    assert "fair share 22" in picture.caption


def test_many_rankings_are_told_apart_by_colour_or_line():
    names = [f"criterion{number}" for number in range(13)]
    colours = ranking_colours(names)
    assert len(set(colours.values())) == 7
    assert list(colours.values()).count(colours["criterion0"]) == 1, "the plain ranking's grey is its own"
    histograms = {name: {"occurrences": [0, n + 1], "items": [3, 5]} for n, name in enumerate(names)}
    assert occurrence_curves(histograms, 10, 0.3).svg.count(b"stroke-dasharray") >= 6
