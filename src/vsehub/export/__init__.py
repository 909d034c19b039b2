"""Models as files that other programs read."""
