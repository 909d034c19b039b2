"""Published lines with what was measured for each, and shares of N_1."""

import re

import pandas as pd
from looped import looped
from scipy import stats

from experiments.published import METRICS, order_notes, published_table
from experiments.reproduced import occurrence_table, reproduced

TABLES = ("aaai2020/1", "aaai2020/2", "acl-srw2019/1", "acl-srw2019/2", "acl-srw2019/4", "emnlp2019-submission/1")
TABLES += ("emnlp2019-submission/2", "emnlp2019-submission/4")


def evaluation(seed, criterion="nns", parameters=None, tuned=None, **metrics):
    shares = {"share_0": 0.6, "share_1": 0.1, "share_2": 0.3, "share_5": 0.2, "share_10": 0.05, "largest_hub_1": 40}
    hubs = {f"hubness/{side}/{key}": value for side in ("i2t", "t2i") for key, value in shares.items()}
    return {
        "dataset": "scenes", "architecture": "gru", "protocol": "single", "label": "hal", "seed": seed,
        "criterion": criterion, "parameters": parameters or {}, "tuned": tuned, "metrics": hubs | metrics,
    }  # fmt: skip


@looped("name", TABLES)
def test_published_figures_are_the_tables_own(name):
    paper, _, table = name.partition("/")
    source = published_table(paper, table)
    frame = reproduced(paper, table, {line: [] for line in source["line"]})
    assert set(frame["value"]) == {"published"}
    expected = source[["line", *METRICS]].reset_index(drop=True)
    pd.testing.assert_frame_equal(frame[["line", *METRICS]], expected, check_dtype=False)


def test_shares_are_also_those_of_items_that_are_there_five_times():
    """With copies: 0.6 of the items are never nearest, and four of the five copies of the other 0.4."""
    measured = {"2.4": [evaluation(0), evaluation(1)], "2.5": []}
    frame = occurrence_table(measured).set_index(["direction", "shares of"])
    assert len(frame) == 3
    for place in (("Image → text", "items"), ("Text → image", "items")):
        assert frame.loc[place, "N_1 = 0, %":].tolist()[:2] == ["60.00 ± 0.00", "10.00 ± 0.00"]
    copies = frame.loc[("Text → image", "of 5 copies"), "N_1 = 0, %":].tolist()
    assert [text.partition(" ")[0] for text in copies] == ["92.00", "2.00", "6.00", "4.00", "1.00", "40.0"]


def own_data(rsums, dataset="scenes"):
    """A frame of as many rows of AAAI's table 2 as there are values, measured on `dataset`."""
    lines = ["2.1", "2.2", "2.3", "2.4", "2.5"][: len(rsums)]
    measured = {
        line: [evaluation(0) | {"metrics": {"rsum": rsum}, "label": line, "dataset": dataset}]
        for line, rsum in zip(lines, rsums, strict=True)
    }
    return reproduced("aaai2020", "2", measured)


def test_on_other_data_the_order_is_compared_and_no_points():
    published = published_table("aaai2020", "2").set_index("line")["rsum"][["2.1", "2.2", "2.3", "2.4", "2.5"]]
    assert "Kendall's τ 1.00" in order_notes(own_data((published / 2).tolist()))[0]
    assert "Kendall's τ -1.00" in order_notes(own_data((600 - published).tolist()))[0]
    values = [100.0, 250.0, 240.0, 260.0, 90.0]
    tau = stats.kendalltau(published, values).statistic
    found = order_notes(own_data(values))[0]
    assert f"τ {tau:.2f} (95 % interval" in found
    low, high = map(float, re.search(r"interval (\S+) to (\S+);", found).groups())
    assert -1 <= low < tau <= high <= 1
    assert order_notes(own_data(values[:3])) == []  # three rows say nothing about an order
    assert "difference" not in set(own_data(values)["value"])
    assert "difference" in set(own_data(values, "coco")["value"])
