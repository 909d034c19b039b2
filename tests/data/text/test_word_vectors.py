import tracemalloc

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data.text.vocabulary import SPECIALS
from vsehub.data.text.word_vectors import read_word_vectors

WORDS = [*SPECIALS, "the", "at", "café", "2007", "absent"]
LINES = [
    b"the 0.5 -1e-3 2",
    b"at name@domain.com 9 9 9",  # as GloVe's 840B has them
    b"unkn\xffown 1 2 3",
    b". . . 4 5 6",
    "café 1 2 3".encode(),
    b"broken line of a word nobody asked for",
    b"at 7 8 9 ",  # fastText ends its lines so
    b"the 9 9 9",
    b"2007 10 11 12",
]


def write(folder, lines, end=b"\n"):
    path = folder / "vectors.txt"
    path.write_bytes(end.join(lines) + end)
    return path


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("header", [[], [b"9 3"]])
def test_reads_the_wanted_words_alone(tmp_path, header, end):
    vectors, rows = read_word_vectors(write(tmp_path, header + LINES, end), WORDS)
    assert rows.tolist() == [4, 5, 6, 7]
    assert (rows.dtype, vectors.dtype) == (np.int64, np.float32)
    expected = [[0.5, -1e-3, 2], [7, 8, 9], [1, 2, 3], [10, 11, 12]]
    assert np.array_equal(vectors, np.array(expected, dtype=np.float32))


def test_a_last_line_without_its_end_counts(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"the 1 2 3\nat 4 5 6")
    assert read_word_vectors(path, WORDS)[0].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [b"x 1 2 3", b"the 1 2"],
            r"vectors.txt:2: expected a word and 3 finite numbers, .* 'the 1 2' and has 2 entries",
        ),
        ([b"2 3", b"x 1 2 3", b"the 1 two 3"], "vectors.txt:3: expected a word and 3 finite numbers"),
        ([b"x 1 2 3", b"the 1 nan 3"], "vectors.txt:2: expected"),
        ([b"3 3", b"x 1 2 3", b"the 1 2 3"], "says that it holds 3 words but 2 lines follow"),
        ([b"x 1 2 3"], "holds none of the 9 words"),
        ([b"PK\x03\x04 \x00\x01 zip"], "vectors.txt:1 is neither"),
        ([b""], "vectors.txt:1 is neither"),
        ([b"the " + b"9" * 5000], "vectors.txt:1 is neither"),
        (
            [b"9" * 5000 + b" 3", b"the 1 2 3"],
            "vectors.txt:1 promises 9{40} words of 3 numbers, which the file cannot hold",
        ),
        ([b"2 1000000000000", b"the 1 2 3"], "promises 2 words of 1000000000000 numbers"),
        ([b"2 0", b"the"], "promises 2 words of 0 numbers"),
        ([b"x " + b"1 " * 100_000 + b"0" * 100_000], "vectors.txt:1 is neither"),
    ],
)
def test_damage_is_named_by_its_line(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        read_word_vectors(write(tmp_path, lines), WORDS)


def test_what_is_no_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_word_vectors(tmp_path / "absent.txt", WORDS)
    with pytest.raises(InputError, match="is a folder"):
        read_word_vectors(tmp_path, WORDS)


def test_memory_is_that_of_the_wanted_words(tmp_path):
    line = b"other%d" + b" 0.123456" * 300
    path = write(tmp_path, [b"the" + b" 0.5" * 300, *(line % n for n in range(5000))])
    tracemalloc.start()
    read_word_vectors(path, WORDS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 13e6
    assert peak < 3e6
