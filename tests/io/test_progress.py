import pytest

from vsehub.io.progress import ahead


def test_ahead_keeps_the_order_and_raises_what_the_items_raise():
    assert [list(ahead(range(size))) for size in (0, 1, 3)] == [[], [0], [0, 1, 2]]
    with pytest.raises(ZeroDivisionError):
        list(ahead(1 / number for number in (1, 0)))
