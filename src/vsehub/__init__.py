"""Train, correct and measure text-image matching with hubness in view."""

import lazy_loader

__version__ = "0.9.0.dev0"

# The exports are the imports of __init__.pyi, each made when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
