"""Names in messages: the first few, each cut where it is long."""

from vsehub.io.rows import LONGEST_NAME, listed


def test_few_names_of_bounded_length():
    assert listed(list("abcdefg")) == "a, b, c, d, e, ... (7 in all)"
    assert listed(["a", "b"], count=9) == "a, b, ... (9 in all)"
    assert listed(["x" * 10**6, "b"]) == "x" * LONGEST_NAME + " ..., b"
