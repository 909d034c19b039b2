"""Train, correct and measure text-image matching with hubness in view."""

__version__ = "0.1.0"
