"""Train, correct and measure text-image matching with hubness in view."""

import sys

import lazy_loader

if sys.version_info < (3, 11):  # noqa: UP036 (pip refuses it too, but a folder on the path is not asked)
    raise ImportError(f"vsehub needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}")

__version__ = "0.9.0.dev0"

# The exports are the imports of __init__.pyi, each made when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
