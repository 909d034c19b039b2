"""Photos of a Hugging Face dataset on disk: a folder of `save_to_disk`, or an imagefolder with metadata."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vsehub.checks import InputError, existing, regular_members, require
from vsehub.data.photos.listings import PhotoColumns, flat
from vsehub.data.photos.pictures import PictureFile, PictureSettings, StoredPicture
from vsehub.data.photos.source import Listed, ListedPhotos
from vsehub.data.sources import SPLITS, SplitDraw, split_named
from vsehub.extras import package
from vsehub.io.arrays import shortened
from vsehub.io.files import cache_folder, stamp_of


class HuggingFace(ListedPhotos):
    """A Hugging Face dataset on disk: what `save_to_disk` wrote, or an imagefolder with metadata.

    folder: the dataset's. columns: the names of its columns: image; caption, one or a list of them, of texts or lists
    of texts; split. Without a column of splits the parts of the dataset are its splits: train, val (valid, validation,
    dev) and test, others are not used. If there is one part, or columns.split=None, splits are drawn by seed from all
    pictures, picture by picture. name: name in reports, by default the folder's. draw, pictures: as in `ListedPhotos`.

    The package `datasets` reads both, and runs no code of them.
    """

    def __init__(
        self,
        folder: str | Path,
        columns: PhotoColumns | None = None,
        name: str | None = None,
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        path = existing("folder", folder, "Give a folder that datasets' save_to_disk wrote, or an imagefolder")
        self._columns = columns or PhotoColumns()
        super().__init__(path.resolve().name if name is None else name, path, pictures, draw)

    def read_listing(self) -> Iterator[Listed]:
        """Yield the rows of the dataset on disk."""
        datasets = package("data=huggingface", "datasets", "datasets")
        datasets.disable_progress_bars()
        regular_members(self.listing)
        try:
            if any((self.listing / name).is_file() for name in ("dataset_dict.json", "state.json")):
                saved = datasets.load_from_disk(str(self.listing), keep_in_memory=False)
                parts = saved if isinstance(saved, dict) else {"all": saved}
                files = [Path(file["filename"]) for rows in parts.values() for file in rows.cache_files]
                inside = all(file.resolve().is_relative_to(self.listing.resolve()) for file in files)
                require(inside, f"folder: {self.listing} names files elsewhere")
            else:
                parts = datasets.load_dataset(
                    "imagefolder", data_dir=str(self.listing), cache_dir=str(cache_folder() / "datasets")
                )
            parts_are_splits = len(parts) > 1 and self._columns.split is not None
            for part, rows in parts.items():
                if not parts_are_splits or split_named(str(part)) in SPLITS:
                    yield from self._rows_of(part if parts_are_splits else None, rows)
        except Exception as error:  # of a damaged folder it can be almost anything
            said = shortened(str(error.__cause__ or error))
            raise InputError(f"folder: {self.listing}: damaged, or without data.columns: {said}") from error

    def _rows_of(self, part: str | None, dataset: Any) -> Iterator[Listed]:
        """The pictures and captions of a part. part: the split of rows without a column of splits; None: unknown."""
        import pyarrow.compute as pc
        from datasets import Image

        image, split = self._columns.image, self._columns.split
        dataset = dataset.with_format(None).cast_column(image, Image(decode=False))
        table = dataset.data.table
        table.validate(full=True)  # Arrow trusts the file: damage could end the process
        empty = pc.is_null(pc.struct_field(table.column(image), "bytes")).to_pylist()
        paths = pc.struct_field(table.column(image), "path").to_pylist()
        texts = zip(*(table.column(name).to_pylist() for name in self._columns.captions), strict=True)
        splits = table.column(split).to_pylist() if split in dataset.column_names else [part] * len(dataset)
        root, pictures = self.listing.resolve(), dataset.select_columns([image])
        stamp = str([(file["filename"], stamp_of(file["filename"])) for file in dataset.cache_files])
        for row, (path, captions) in enumerate(zip(paths, texts, strict=True)):
            file: PictureFile = StoredPicture(pictures, image, row, stamp)
            name = os.path.basename(path or f"row-{row:06d}")
            if empty[row]:
                inside = path is not None and Path(path).resolve().is_relative_to(root)
                require(inside, f"folder: {self.listing}: row {row} of {image} holds no picture, or a path elsewhere")
                file, name = path, os.path.relpath(path, self.listing)
            yield Listed(file, name, flat(captions), splits[row])
