"""Photos on disk, decoded when asked for."""
