"""A sample of the numbers of tools/torture is as it should be."""

import numeric  # in tools/torture


def test_random_criteria_and_metrics_are_as_their_oracles_say():
    assert numeric.run(None, 20, cases=250) == {"cases": 250, "wrong": []}
    assert numeric.without_formula() == ["auto"]  # which is CSLS where nothing is chosen
