import threading

from vsehub.io.progress import ahead


def test_ahead_is_ahead_by_so_many_and_no_more():
    made, third = [], threading.Event()

    def items():
        for number in range(10):
            made.append(number)
            if len(made) == 3:
                third.set()
            yield number

    source = ahead(items(), 2)
    assert next(source) == 0
    assert third.wait(10)
    source.close()
    assert made == [0, 1, 2]
    assert [list(ahead(range(size), count)) for size in (0, 2) for count in (1, 3)] == [[], [], [0, 1], [0, 1]]
