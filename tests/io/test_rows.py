"""Names in messages: the first few, each cut where it is long."""

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.io.rows import LONGEST_NAME, UnusableRows, listed


def test_few_names_of_bounded_length():
    assert listed([]) == ""
    assert listed(["a", 3]) == "a, 3"
    assert listed(list("abcdefg")) == "a, b, c, d, e, ... (7 in all)"
    assert listed(["a", "b"], count=9) == "a, b, ... (9 in all)"
    assert listed(["x" * LONGEST_NAME]) == "x" * LONGEST_NAME
    assert listed(["x" * 10**6, "b"]) == "x" * LONGEST_NAME + " ..., b"


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        ([17], None, "x: row 17 holds NaN. Mend"),
        ([3, 17], None, "x: rows 3, 17 hold NaN. Mend"),
        ([1], lambda row: f"{row}.jpg", "x: 1.jpg holds NaN. Mend"),
        ([1, 2], lambda row: f"{row}.jpg", "x: 1.jpg, 2.jpg hold NaN. Mend"),
    ],
)
def test_a_number_of_a_row_does_not_read_as_a_count(rows, name, message):
    sizes = np.ones(20)
    sizes[rows] = np.nan
    found = UnusableRows(name)
    found.add(0, sizes)
    with pytest.raises(InputError, match=f"^{message}"):
        found.refuse("x:", "Mend it")
