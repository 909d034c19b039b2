import threading

from looped import looped

from vsehub.io.progress import ahead


@looped("count", [1, 3])
@looped("size", [0, 1, 2, 7])
def test_ahead_gives_the_same_items(count, size):
    assert list(ahead((number * number for number in range(size)), count)) == [n * n for n in range(size)]


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
