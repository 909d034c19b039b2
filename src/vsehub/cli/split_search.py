"""What a search found, as lines for the terminal and as galleries for the page."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__
from vsehub.checks import InputError, existing, require
from vsehub.criteria.base import Criterion
from vsehub.data.sources import CaptionedImages
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Words
from vsehub.evaluation.checkpoint import Model
from vsehub.evaluation.encode import encode_images, encode_texts
from vsehub.io.files import atomic
from vsehub.report.pages.gallery import Found, Gallery
from vsehub.report.pages.templates import Thumbnails
from vsehub.report.tables import criterion_text
from vsehub.rerank.inputs import Names

log = logging.getLogger(__name__)


class EncodedCache:
    """A folder of one file a split and side, each with the key of what it was made from; a stale one is replaced.

    checkpoint: the file; the folder is called after it.
    """

    def __init__(self, checkpoint: str | Path):
        checkpoint = Path(checkpoint)
        self.folder = checkpoint.with_name(f"{checkpoint.stem}.encoded")
        with checkpoint.open("rb") as handle:
            self._checkpoint = hashlib.file_digest(handle, "sha256").hexdigest()

    def get(self, name: str, split: CaptionedImages, encode: Callable[[], Tensor]) -> Tensor:
        """The vectors (N, D) of `name` ("test-images") on the CPU: as they were kept, or as `encode` gives them."""
        path = self.folder / f"{name}.safetensors"
        key = {"checkpoint": self._checkpoint, "data": split.fingerprint(), "vsehub": __version__}
        kept = _read(path, key)
        if kept is not None:
            return kept
        vectors = encode().cpu().contiguous()
        try:
            with atomic(path) as handle:
                handle.write(save({"vectors": vectors}, key))
        except (OSError, SafetensorError, InputError) as error:
            log.warning("%s was not kept, the next search encodes it again: %s", path, error)
        return vectors


def _read(path: Path, key: dict[str, str]) -> Tensor | None:
    """The kept vectors; None where there are none, they are of something else, or the file is damaged."""
    try:
        with safe_open(path, "pt") as kept:
            return kept.get_tensor("vectors") if kept.metadata() == key else None
    except (OSError, SafetensorError):
        return None


class Hit(NamedTuple):
    """A found row: its score under the criterion, and its plain similarity to the query."""

    row: int
    score: float
    similarity: float


@dataclass(frozen=True, eq=False)
class SplitSearch:
    """Searches the split `split` with the criterion `criterion`, which reports call `criterion_name`.

    load: gives a split by its name. reference: the split whose captions (an image as query: images) a criterion takes
    as reference queries. kept: where encoded splits are kept. max_words: as in training, longer texts are cut.
    """

    model: Model
    vocabulary: Words
    load: Callable[[str], CaptionedImages]
    split: str
    criterion: Criterion
    criterion_name: str
    reference: str
    kept: EncodedCache
    max_words: int | None = None
    batch_size: int = 256

    def images_for(self, texts: list[str], k: int) -> list[list[Hit]]:
        """The k best images of each text, best first."""
        table = TokenTable.build(self.vocabulary, texts, self.max_words)
        queries = encode_texts(self.model.text_encoder, table, np.arange(len(table)), self.batch_size)
        return self._search(queries, "images", "captions", k)

    def captions_for(self, row: int, k: int) -> list[Hit]:
        """The k best captions of the image `row` of the split, best first."""
        queries = encode_images(
            self.model.image_encoder, self.load(self.split).images, np.array([row]), self.batch_size
        )
        return self._search(queries, "captions", "images", k)[0]

    def told(self, asking: str) -> str:
        """The criterion and, where it takes one, its reference; asking: "captions" or "images", as the queries are."""
        name = criterion_text(
            self.criterion_name, ", ".join(f"{n} {v}" for n, v in self.criterion.parameters().items())
        )
        if not self.criterion.needs_reference:
            return f"Criterion {name}."
        loaded = self.load(self.reference)
        count = len(loaded.captions if asking == "captions" else loaded.images)
        return f"Criterion {name}, inductive: its reference is the {count:,} {asking} of the {self.reference} split."

    @torch.no_grad()
    def _search(self, queries: Tensor, items: str, asking: str, k: int) -> list[list[Hit]]:
        vectors = self.model.similarity.vectors
        queries, found = vectors(queries), vectors(self._encoded(self.split, items))
        reference = vectors(self._encoded(self.reference, asking)) if self.criterion.needs_reference else None
        scores, rows = self.criterion.search(queries, found, reference, k)
        similarities = torch.einsum("qd,qkd->qk", queries, found[rows])
        columns = zip(rows.tolist(), scores.tolist(), similarities.tolist(), strict=True)
        return [[Hit(*hit) for hit in zip(*one, strict=True)] for one in columns]

    def _encoded(self, split: str, side: str) -> Tensor:
        """A split's images or captions as the encoders give them, on their device."""
        loaded = self.load(split)
        encode = self._images if side == "images" else self._captions
        vectors = self.kept.get(f"{split}-{side}", loaded, lambda: encode(loaded))
        return vectors.to(next(self.model.parameters()).device)

    def _images(self, split: CaptionedImages) -> Tensor:
        rows = np.arange(len(split.images))
        return encode_images(self.model.image_encoder, split.images, rows, self.batch_size, progress=True)

    def _captions(self, split: CaptionedImages) -> Tensor:
        table = TokenTable.build(self.vocabulary, split.captions, self.max_words)
        return encode_texts(self.model.text_encoder, table, np.arange(len(table)), self.batch_size, progress=True)


class Shown:
    """A split's images by name, caption and thumbnail.

    folder: where the image files lie, or None: the pixels of the split itself, where it has any. plain: scores are
    plain similarities; else these stand beside the scores. Raises InputError where there are no names to find files by.
    """

    def __init__(self, split: CaptionedImages, folder: str | None, plain: bool):
        self.split, self._plain = split, plain
        self.thumbnails = Thumbnails()
        self._pixels = split.images.ndim == 4 and split.images.shape[1] == 3
        self._files = None
        if folder is not None:
            path = existing("images", folder, "Give the folder of the image files, or leave images out")
            require(path.is_dir(), f"images: {folder} is a file; give the folder of the image files")
            require(
                split.names is not None,
                "images: the data names no image files; put them into a file ..._ids.txt beside the captions, one a "
                "line, or leave images out",
            )
            self._files = Names("images", len(split.images), ids=split.names, images=path)

    @property
    def pictured(self) -> bool:
        """Whether there are pictures to show."""
        return self._files is not None or self._pixels

    def name(self, row: int) -> str:
        """The image's file name, or its row."""
        return f"row {row}" if self.split.names is None else self.split.names[row]

    def captions(self, row: int) -> list[str]:
        """What the data says of an image."""
        return [self.split.captions[t] for t in (self.split.image_index == row).nonzero()[0]]

    def thumbnail(self, row: int) -> str | None:
        """The image as a data URL; None where it cannot be shown."""
        if self._files is not None:
            name = self.name(row)
            return self.thumbnails(self._files.image(row) or Path(name), name)
        return self.thumbnails(np.asarray(self.split.images[row]), self.name(row)) if self._pixels else None

    def of_text(self, text: str, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The images that a text found."""
        found = [
            Found(rank, *self._scores(hit), self.name(hit.row), self._first(hit.row), self.thumbnail(hit.row))
            for rank, hit in enumerate(hits, 1)
        ]
        return Gallery(f"“{text}”", notes, found, self.pictured)

    def of_image(self, row: int, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The captions that an image found, its own marked."""
        found = [
            Found(
                rank, *self._scores(hit), None, self.split.captions[hit.row], own=self.split.image_index[hit.row] == row
            )
            for rank, hit in enumerate(hits, 1)
        ]
        own = self.captions(row)
        told = f"{sum(one.own for one in found)} of its {len(own)} own captions are among the {len(found)} nearest."
        return Gallery(
            f"Captions of {self.name(row)}", [told, *notes], found, False, self.name(row), self.thumbnail(row)
        )

    def _first(self, row: int) -> str:
        return next(iter(self.captions(row)), "")

    def _scores(self, hit: Hit) -> tuple[str, str | None]:
        return f"{hit.score:.4f}", None if self._plain else f"{hit.similarity:.4f}"


def listed(gallery: Gallery) -> str:
    """A gallery for the terminal: a line for each thing that was found; an image's own captions have a star."""
    width = shutil.get_terminal_size((160, 24)).columns
    rows = [("rank", "score", "similarity", "image", "caption" if gallery.found[0].name is None else "first caption")]
    rows += [
        (str(one.rank), one.score, one.similarity or "", one.name or "", ("* " if one.own else "") + one.caption)
        for one in gallery.found
    ]
    used = [n for n, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ["  ".join(f"{row[n]:{'<' if n > 2 else '>'}{widths[n]}}" for n in used)[:width].rstrip() for row in rows]
    return "\n".join([gallery.heading, *gallery.notes, "", *lines])
