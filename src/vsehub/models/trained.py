"""A model with its data: encodes images and texts, and searches the splits of its data."""

import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vsehub import __version__, encoders
from vsehub.checks import InputError, regular, require, suggest, whole
from vsehub.components import Components, component_class, conf_folder, with_changes
from vsehub.criteria import Criterion, NearestNeighbor
from vsehub.data.photos.pictures import prepared, resize_length
from vsehub.data.photos.source import folder_pictures
from vsehub.data.sources import SPLITS, ArrayLike, CaptionedImages, Source, content_digest
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, Words, tokenize
from vsehub.io.address import require_no_address
from vsehub.io.arrays import listed
from vsehub.io.files import atomic, path_inside
from vsehub.models.checkpoint import Model, read_checkpoint, require_shape, require_sizes, restore
from vsehub.models.encode import EncodedSplit, encode_images, encode_texts, text_table
from vsehub.recipes import flatten
from vsehub.sets import Encoding
from vsehub.types import Similarity

log = logging.getLogger(__name__)

FOLDER = "folder"  # the split of the pictures of `use_folder`
_LETTERS = 40  # of a word in a note


class Hits(NamedTuple):
    """The k best rows for n queries, best first. Each field has the shape (n, k).

    rows: row numbers in the split. scores: scores under the criterion. similarities: plain similarities to the query.
    """

    rows: Tensor
    scores: Tensor
    similarities: Tensor


def load(
    path: str | Path,
    data: Mapping[str, Any] | None = None,
    trust: Sequence[str] = (),
    config_dir: str | Path | None = None,
    batch_size: int = 256,
    device: str | None = None,
) -> "TrainedModel":
    """The model of a checkpoint that `vsehub train` wrote, in eval mode.

    data: settings of its data that have changed since training, e.g. {"root": FOLDER}. trust, config_dir: further
    classes that the checkpoint may name, by their full names or by yaml files in a folder with the groups of conf/.
    batch_size: images or texts encoded at a time. device: default: the GPU if available. Raises InputError if the
    checkpoint cannot be read or names an unknown class.
    """
    folders = [conf_folder()] + ([] if config_dir is None else [Path(config_dir)])
    return TrainedModel(path, Components(folders, trust), data, batch_size, device)


class DataModel:
    """A model with data to measure it on; each split is loaded and encoded once.

    model: the model, on its device, in eval mode. vocabulary: vocabulary of its texts, None if they are vectors.
    max_words: number of words of a text that are read; None: all. sha256: digest of the model's weights and settings.
    name: name of the model in messages. store: the folder of files with encoded splits, which the next command reads;
    None: they are not stored.

    source: the data. splits: the splits loaded so far. digests: the digests of all models, here one, for a record.
    description: further entries of the model in a record.
    """

    source: Source = None  # type: ignore[assignment]  # of a published model without data
    description: Mapping[str, Any] = {}
    resize: int | None = None  # length of a picture's shorter side before the crop; None: the size of the crop
    prompt = "{}"  # what is encoded for a text, which replaces {}

    def __init__(
        self,
        model: Model,
        vocabulary: Words | None,
        max_words: int | None,
        batch_size: int,
        sha256: str,
        name: str,
        store: Path | None = None,
    ):
        self.model, self.vocabulary, self.max_words, self.batch_size = model, vocabulary, max_words, batch_size
        self.sha256, self.name, self.store, self.digests = sha256, name, store, [sha256]
        self.splits: dict[str, CaptionedImages] = {}
        self._encoded: dict[tuple[str, str], Encoding] = {}

    @property
    def similarity(self) -> Similarity:
        """The similarity: encoded images (I), encoded texts (T) -> scores (I, T)."""
        return self.model.similarity

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def use_folder(self, folder: str | Path) -> CaptionedImages:
        """The pictures of a folder as the split `FOLDER`, which has no captions.

        Raises InputError for a model that was trained on vectors, and if the folder holds no picture.
        """
        shape = self.model.image_shape
        require(
            len(shape) > 2 and shape[-3] == 3,
            f"folder: {self.name} was trained on vectors, not on pictures. Give a model of pictures, such as "
            "model=open_clip:ViT-B-32/laion2b_s34b_b79k",
        )
        size = shape[-1]
        crops = shape[0] if len(shape) == 4 else 1
        pictures = folder_pictures(folder, size, self.resize or size, crops)
        self.splits[FOLDER] = prepared(pictures, self.model.image_encoder.preparation)
        return self.splits[FOLDER]

    def use_reference(self, name: str, texts: Sequence[str]) -> None:
        """Add these texts as the reference `name`, for a search that finds images."""
        self._encoded[name, "texts"] = self.encode_texts(texts).to(self.device)

    def split(self, name: str) -> CaptionedImages:
        """A split of the source. Raises InputError if it is missing, or if its features have another size."""
        if name not in self.splits:
            require(
                self.source is not None,
                f"{self.name} has no data of its own, and so no split {name!r}; for a criterion that needs reference "
                "queries give reference=FILE.txt, one text on each line",
            )
            self.splits[name] = prepared(self.source.load(name), self.model.image_encoder.preparation)
        require_sizes(name, self.splits[name], self.model.image_shape, self.model.text_shape)
        return self.splits[name]

    def encode_images(self, images: ArrayLike | Tensor) -> Encoding:
        """Encode images (N, *image_shape), as the source stores them: (N, D), not normalised, or N sets."""
        rows = images.cpu().numpy() if isinstance(images, Tensor) else images
        require_shape("images", rows, self.model.image_shape)
        return encode_images(self.model.image_encoder, rows, np.arange(len(rows)), self.batch_size)

    def encode_texts(self, texts: Sequence[str] | ArrayLike | Tensor) -> Encoding:
        """Encode T texts, or vectors (T, F) if the model was trained on them: (T, D), not normalised, or T sets.

        Raises InputError for texts of the other kind, and for vectors of another size.
        """
        rows: Any = texts.cpu().numpy() if isinstance(texts, Tensor) else texts
        if self.vocabulary is None:
            require_shape("texts", np.asarray(rows) if isinstance(rows, Sequence) else rows, self.model.text_shape)
        else:
            captions = isinstance(rows, list | tuple) and rows and all(isinstance(text, str) for text in rows)
            require(bool(captions), f"texts is {texts!r}; expected a list of texts")
            rows = [self.prompt.replace("{}", text) for text in rows]
        table = text_table(rows, self.vocabulary, self.max_words)
        return encode_texts(self.model.text_encoder, table, np.arange(len(table)), self.batch_size)

    def notes(self, text: str) -> list[str]:
        """Notes on words that the model does not know or does not read. Raises InputError if all words are unknown."""
        if not isinstance(self.vocabulary, Vocabulary):  # subwords spell every word
            return []
        words, numbers = tokenize(text), self.vocabulary.numbers(text)[: self.max_words]
        unknown = [word[:_LETTERS] for word, number in zip(words, numbers, strict=False) if number == UNKNOWN]
        named = [f"{word}{suggest(word, self.vocabulary.words[4:])}" for word in dict.fromkeys(unknown)]
        require(
            len(unknown) < len(numbers),
            f"the checkpoint knows no word of the text {text[:_LETTERS]!r}: {listed(named)}. Give words of its "
            "captions",
        )
        notes = [f"Not known to the checkpoint: {listed(named)}."] if unknown else []
        cut = [f"Read to its word {self.max_words}, as in training."] if len(numbers) < len(words) else []
        return notes + cut

    def encode(self, split: str) -> EncodedSplit:
        """A split of the source, encoded once, on the model's device."""
        return EncodedSplit.from_encodings(self.split(split), self._side(split, "images"), self._side(split, "texts"))

    @torch.no_grad()
    def search(
        self,
        texts: Sequence[str] | np.ndarray | Tensor | None = None,
        k: int = 10,
        criterion: Criterion | None = None,
        split: str = "test",
        reference: str = "train",
        images: np.ndarray | Tensor | None = None,
    ) -> Hits:
        """The k best images of a split for each text, or, with `images` instead, the k best texts for each image.

        criterion: one of `vsehub.criteria`; None for plain similarity. The reference queries are all texts (or all
        images) of the split `reference`. If the criterion takes reference items, they are all images (or all texts) of
        that split. This is inductive: a query's ranking does not depend on the other queries. Raises InputError for a
        criterion that matches queries with items, a k above the number of items, and a similarity that is not an inner
        product of vectors.
        """
        require((texts is None) != (images is None), "give either texts or images to search for")
        criterion = NearestNeighbor() if criterion is None else criterion
        require(
            criterion.matching is None and criterion.inductive,
            f"criterion: {type(criterion).__name__} matches many queries with items at once, a single query cannot be "
            "matched; use another, e.g. csls",
        )
        query_side, item_side = ("texts", "images") if images is None else ("images", "texts")
        loaded, vectors = self.split(split), self.similarity.vectors
        size = len(loaded.images if item_side == "images" else loaded.captions)
        require(
            whole("k", k) <= size, f"k is {k}; expected at most {size}, the number of {item_side} in the {split} split"
        )
        queries = vectors(self.encode_images(images) if images is not None else self.encode_texts(texts or []))
        items = vectors(self._side(split, item_side))
        reference_queries = vectors(self._side(reference, query_side)) if criterion.needs_reference else None
        # A reference of `use_reference` has texts only; the criterion then takes the items themselves.
        has_reference_items = criterion.takes_reference_items and reference in (*self.splits, *SPLITS)
        reference_items = vectors(self._side(reference, item_side)) if has_reference_items else None
        scores, rows = criterion.search(queries, items, reference_queries, k, reference_items=reference_items)
        return Hits(rows, scores, torch.einsum("qd,qkd->qk", queries, items[rows]))

    def _side(self, split: str, side: str) -> Encoding:
        """The images or texts of a split, encoded once, on the model's device."""
        if (split, side) not in self._encoded:
            loaded = self.split(split)
            rows: Any = loaded.images if side == "images" else loaded.captions
            encode = partial(self.encode_images if side == "images" else self.encode_texts, rows)
            if self.store is None or self.similarity.takes != "vectors":
                encoded = encode()
            else:
                origin = [self.sha256, content_digest(rows), self._way_of_encoding]
                encoded = load_or_encode(self.store / f"{split}-{side}.safetensors", origin, encode)
            self._encoded[split, side] = encoded.to(self.device)
        return self._encoded[split, side]

    @cached_property
    def _way_of_encoding(self) -> str:
        """Precision, kind of device, and a hash of the code of the model's parts and of all encoders."""
        parts = {inspect.getfile(type(part)) for part in self.model.modules()}
        files = sorted(parts | {str(path) for path in Path(encoders.__file__).parent.rglob("*.py")})
        code = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()
        weights = next(self.model.parameters())
        return f"{weights.dtype}, {torch.get_float32_matmul_precision()}, {weights.device.type}, {code}"


def load_or_encode(path: Path, origin: list[str], encode: Callable[[], Any]) -> Tensor:
    """The vectors (N, D) in the file `path`, on the CPU; if they are absent, those of `encode()`, which are stored.

    origin: digests of what is encoded and how. Vectors are only read if they were stored for the same origin and in the
    same folder, which its path and inode identify: a copied or downloaded folder is encoded again. Raises InputError if
    the folder is a link to another one.
    """
    folder = path_inside(path.parent.parent, path.parent.name)
    with suppress(OSError):  # nothing can be stored there
        folder.mkdir(parents=True, exist_ok=True)
    key = json.dumps([__version__, *origin, str(folder.resolve()), folder.exists() and folder.stat().st_ino])
    with suppress(OSError, InputError, SafetensorError), safe_open(regular(path), "pt") as file:
        if (file.metadata() or {}).get("key") == key:
            return file.get_tensor("vectors")
    vectors: Tensor = encode().cpu().contiguous()
    try:
        with atomic(path) as handle:
            handle.write(save({"vectors": vectors}, {"key": key}))
    except OSError as error:
        log.warning("%s could not be stored; the next command encodes it again: %s", path, error)
    return vectors


class TrainedModel(DataModel):
    """The model of a checkpoint and the data that it was trained on.

    components: the classes that the checkpoint may name. keep: store encoded splits in files beside the checkpoint and
    read them from there. Other arguments: see `load`.

    config: the resolved configuration of model, data and loader, in plain values. sha256: the checkpoint's.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        components: Components,
        data: Mapping[str, Any] | None = None,
        batch_size: int = 256,
        device: str | None = None,
        keep: bool = False,
    ):
        whole("batch_size", batch_size)
        loaded = read_checkpoint(checkpoint)
        self.path, self.config = loaded.path, loaded.config
        super().__init__(
            model=restore(loaded, components).to(device or ("cuda" if torch.cuda.is_available() else "cpu")),
            vocabulary=loaded.vocabulary,
            max_words=loaded.config["loader"]["max_words"],
            batch_size=batch_size,
            sha256=loaded.sha256,
            name=f"checkpoint: {self.path}",
            store=self.path.with_suffix(".encoded") if keep else None,
        )
        self.resize = resize_length(loaded.image_shape[-1]) if loaded.config["data"].get("pictures") else None
        self._components, self._changes = components, data or {}

    @cached_property
    def source(self) -> Source:  # type: ignore[override]  # of a checkpoint it is built when first needed
        """The data that the model was trained on, without noise, with the settings that have changed since.

        Raises InputError if one of these is not a setting of the data, or if the data cannot be found.
        """
        node = {key: value for key, value in self.config["data"].items() if key != "noise"}
        changes = flatten(self._changes, "data")
        require_no_address({name: value for name, value in flatten(node, "data").items() if name not in changes})
        # Replaces the settings that a checkpoint must not decide, such as the folders of caches.
        node = component_class(self._components.find("data", node)).restored(node)
        return self._components.build("data", with_changes(node, self._changes))
