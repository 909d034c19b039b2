"""Lightning callbacks: the average of the weights, the bank, validation, warm-up, collapse."""

import lazy_loader

# The exports are the imports of __init__.pyi, each made when it is first asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
