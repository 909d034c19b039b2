"""Image and text encoders: inputs (N, ...) to vectors (N, D), not normalised, or to N `Sets`."""

import lazy_loader

# The exports are the imports of __init__.pyi, each made when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
