"""Photos on disk, decoded on demand."""
