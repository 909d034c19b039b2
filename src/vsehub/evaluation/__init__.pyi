from .protocols import Protocol as Protocol
