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
    path.write_bytes(end.join(lines))  # without a last end
    return path


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("header", [[], [b"9 3"]])
def test_reads_the_wanted_words_alone(tmp_path, header, end):
    vectors, rows = read_word_vectors(write(tmp_path, header + LINES, end), WORDS)
    assert rows.tolist() == [4, 5, 6, 7]
    assert (rows.dtype, vectors.dtype) == (np.int64, np.float32)
    expected = [[0.5, -1e-3, 2], [7, 8, 9], [1, 2, 3], [10, 11, 12]]
    assert np.array_equal(vectors, np.array(expected, dtype=np.float32))


@pytest.mark.parametrize(
    "content",
    [
        b"x 1 2 3\nthe 1 2\n",
        b"2 3\nx 1 2 3\nthe 1 two 3\n",
        b"x 1 2 3\nthe 1 nan 3\n",
        b"x 1 2 3\n",
        b"PK\x03\x04 \x00\x01 zip\n",
        b"",
        b"the " + b"9" * 5000,
        b"2 1000000000000\nthe 1 2 3",
        b"2 0\nthe",
        b"the " + b"1 " * 100_000 + b"0" * 100_000 + b"x",
    ],
)
def test_damage(tmp_path, content):
    (tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"vectors\.txt"):
        read_word_vectors(tmp_path / "vectors.txt", WORDS)


@pytest.mark.parametrize("name", ["absent.txt", "."])
def test_what_is_no_file(tmp_path, name):
    with pytest.raises(InputError, match=str(tmp_path)):
        read_word_vectors(tmp_path / name, WORDS)
