"""Zero-shot: a published joint model, measured without training on the data."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from vsehub.checks import require
from vsehub.data.sources import Source
from vsehub.data.text.vocabulary import load_words
from vsehub.encoders import ImageTower, TextTower
from vsehub.encoders.pretrained.joint.towers import LIBRARIES
from vsehub.encoders.pretrained.networks import weights_hash
from vsehub.models.checkpoint import Model
from vsehub.models.trained import DataModel
from vsehub.similarities import Cosine

CAPTION = "{}"  # in a prompt


class ZeroShot(DataModel):
    """A joint model of open_clip or transformers with the cosine similarity, and data to measure it on.

    model: LIBRARY:NAME, such as open_clip:ViT-B-32/laion2b_s34b_b79k or hf:FOLDER; nothing is downloaded. source: the
    data, whose picture files are prepared as the model requires; None: no data. weights: file of the whole model's
    weights. prompt: a text with {} instead of the caption. batch_size: images or texts encoded at a time. store: a
    folder for encoded splits, read again by the next measurement. device: default: the GPU if available. Raises
    InputError for an unknown library, and as `Tower`.
    """

    def __init__(
        self,
        model: str,
        source: Source | None,
        weights: str | None = None,
        prompt: str = CAPTION,
        batch_size: int = 256,
        store: str | Path | None = None,
        device: str | None = None,
    ):
        library, name = library_and_name(model)
        require(
            isinstance(prompt, str) and prompt.count(CAPTION) == 1,
            f"prompt is {prompt!r}; expected a text with {CAPTION} once, in the place of the caption",
        )
        settings: dict[str, Any] = {"library": library, "model": name, "weights": weights}
        images, texts = ImageTower(**settings), TextTower(**settings)
        words: Any = load_words(TextTower.subwords_of(settings))
        preprocessing = images.description["takes"]
        metadata = {
            "model": model,
            "weights": weights,
            "weights_hash": {"image": weights_hash(images.network), "text": weights_hash(texts.network)},
            "preprocessing": preprocessing,
            "prompt": prompt,
            "tokenizer": {"tokens": texts.description["takes"]["most"], "hash": words.fingerprint()},
        }
        joint = Model(images, texts, Cosine(), (3, preprocessing["size"], preprocessing["size"]), None)
        super().__init__(
            model=joint.eval().to(device or ("cuda" if torch.cuda.is_available() else "cpu")),
            vocabulary=words,
            max_words=None,
            batch_size=batch_size,
            sha256=hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest(),
            name=f"model: {model}",
            store=None if store is None else Path(store) / f"{slug(model)}.encoded",
        )
        self.prompt = prompt
        self.description = {"zero_shot": metadata}
        self.source = source  # type: ignore[assignment]  # None: without data


def library_and_name(model: Any) -> tuple[str, str]:
    """The two parts of LIBRARY:NAME. Raises InputError unless it is one."""
    library, colon, name = str(model).partition(":")
    require(
        bool(colon and name) and library in LIBRARIES,
        f"model is {model!r}; expected LIBRARY:NAME with a library of {', '.join(LIBRARIES)}, such as "
        "open_clip:ViT-B-32/laion2b_s34b_b79k, hf:openai/clip-vit-base-patch32 or hf:FOLDER",
    )
    return library, name


def slug(model: str) -> str:
    """The name of a model as part of a file's name."""
    library, name = library_and_name(model)
    parts = name.rstrip("/").split("/")
    # open_clip:ARCHITECTURE/WEIGHTS, but hf:USER/NAME or hf:FOLDER
    last = parts[-1:] if library == "hf" else parts[-2:]
    return "-".join(map(safe_name, last))


def safe_name(text: str) -> str:
    """The text with - for every character other than letters, digits, - and _."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)
