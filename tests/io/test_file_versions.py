"""Files of other versions are refused with what to do."""

import pytest

from vsehub import __version__
from vsehub.checks import InputError
from vsehub.io.versions import require_version


def said(version, reads, wrote=None):
    with pytest.raises(InputError) as caught:
        require_version("index: a.faiss", version, reads, "Write it again", wrote)
    return str(caught.value)


def test_the_version_that_is_read_is_taken():
    require_version("a", 2, 2, "")
    require_version("a", "2", "2", "")


@pytest.mark.parametrize("version", ["1", None, "", True, 1.5, "one", [2], {"a": 1}, -1])
def test_an_earlier_version_or_none_says_what_to_do_instead(version):
    assert said(version, "2").endswith("reads version 2. Use the vsehub that wrote it. Write it again")


@pytest.mark.parametrize(
    ("wrote", "named"),
    [(one, f"Use vsehub {one}, which wrote it, or a later one") for one in ("1.4.0", "0.9.0.dev0")]
    + [(one, "Use the vsehub that wrote it, or") for one in (None, 7, "1.4; rm -rf /", "$(x)", "1" * 300, "1." * 99)],
)
def test_a_later_version_says_which_vsehub_reads_it(wrote, named):
    found = said(3, 2, wrote)
    assert named in found
    assert "pip install --upgrade vsehub" in found
    assert f"vsehub {__version__} reads version 2" in found


def test_what_a_file_says_of_its_version_stays_short():
    assert len(said("9" * 10_000, 2)) < 300
    assert len(said(["a"] * 10_000, 2)) < 300
