"""Optional packages: what is said of one that is missing, or cannot be imported."""

import pytest

from vsehub.checks import InputError
from vsehub.extras import require_packages


def test_all_that_is_missing_is_named_with_the_line_that_installs_it():
    with pytest.raises(InputError, match=r"it needs absent_one and absent_two, .*pip install 'vsehub\[train\]'"):
        require_packages("it", "train", "absent_one", "torch", "absent_two")
