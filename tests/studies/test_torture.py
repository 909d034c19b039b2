"""A sample of the numbers of tools/torture is as it should be, and what is not is noticed."""

import numeric  # in tools/torture
import pytest

from vsehub.criteria import CSLS
from vsehub.metrics import ranks


def test_random_criteria_and_metrics_are_as_their_oracles_say():
    assert numeric.run(None, 20, cases=500) == {"cases": 500, "wrong": []}
    assert numeric.without_formula() == ["auto"]  # which is CSLS where nothing is chosen


BIAS, AT_LEAST = CSLS.bias, ranks.at_least


@pytest.mark.parametrize(
    ("where", "name", "fault", "said"),
    [
        (CSLS, "bias", lambda self, scores: 1.001 * BIAS(self, scores), "csls"),
        (ranks, "at_least", lambda scores, least: AT_LEAST(scores, least * (1 + 1e-6)), "rank_blocks"),
        (CSLS, "bias", None, "Error: "),
    ],
)
def test_wrong_numbers_and_other_errors_are_noticed(monkeypatch, where, name, fault, said):
    monkeypatch.setattr(where, name, fault)
    found = numeric.run(None, 0, cases=600)["wrong"]
    assert any(said in text for text in found), found
