"""Python that can import only what `pip install 'vsehub[cpu]'` brings: everything else seems not to be installed.

import light; light.hide()
"""

import sys
from importlib import metadata
from importlib.machinery import PathFinder

from packaging.utils import canonicalize_name

from release.sizes import distributions


class Light(PathFinder):
    """Finds modules on the path as usual, but for `names`."""

    names: frozenset[str] = frozenset()

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in cls.names:
            return None
        return super().find_spec(fullname, path, target)


def hide() -> None:
    """Hide everything else in this process."""
    kept = distributions("vsehub", "cpu")
    owners = metadata.packages_distributions()
    others = (module for module, of in owners.items() if not any(canonicalize_name(one) in kept for one in of))
    Light.names = frozenset(others)
    sys.meta_path = [Light if one is PathFinder else one for one in sys.meta_path]
