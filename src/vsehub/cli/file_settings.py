"""The settings of commands that name files and folders."""

# By the last part of their key. Their values are always texts.
FILES = frozenset(
    [
        "queries",
        "items",
        "truth",
        "image",
        "query_ids",
        "item_ids",
        "query_labels",
        "item_labels",
        "item_columns",
        "item_images",
        "out",
        "checkpoint",
        "images",
        "json",
        "table",
        "folder",
        "shards",
        "root",
        "texts",
        "cache",
        "weights",
        "word_vectors",
        "resume",
        "teacher",
        "run_folder",
        "calibration",
        "dir",
    ]
)
