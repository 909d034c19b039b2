"""The description beside exported encoders: preprocessing of pictures and texts, and scoring of vectors."""

import json
from typing import Any

from vsehub.data.text.vocabulary import Vocabulary, clip_pattern, word_pattern
from vsehub.models.trained import TrainedModel
from vsehub.similarities.cosine import Cosine
from vsehub.similarities.order import Order
from vsehub.types import Similarity

VOCABULARY, TOKENIZER = "vocabulary.json", "tokenizer.json"


def preprocessing(model: TrainedModel) -> dict[str, Any]:
    """The preprocessing of pictures; for vectors only their shape. The encoder normalises the pixels itself."""
    shape = model.model.image_shape
    if len(shape) < 3:
        return {"kind": "vectors", "shape": list(shape)}
    how, resize = model.model.image_encoder.preparation, model.resize
    size = shape[-1]
    return {
        "kind": "pictures",
        "shape": list(shape),
        "colours": "RGB, whole numbers from 0 to 255; a transparent background is white",
        "size": size if how is None else how.size,
        "resize": (resize or size) if how is None else how.resize,
        "mode": "shortest" if how is None else how.mode,
        "interpolation": "bilinear" if how is None else how.interpolation,
        "fill": 0 if how is None else how.fill,
        "crops": shape[0] if len(shape) == 4 else 1,
    }


def tokens(model: TrainedModel) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenisation of texts, and the files of the vocabulary, name -> content."""
    words = model.vocabulary
    if words is None:
        return {"kind": "vectors", "shape": list(model.model.text_shape or ())}, {}
    limits: dict[str, Any] = {"max_words": model.max_words}
    if isinstance(words, Vocabulary):
        content = {"words": words.words, "pattern": word_pattern().pattern}
        text = json.dumps(content, ensure_ascii=False)
        return {"kind": "words", "file": VOCABULARY, **limits}, {VOCABULARY: text + "\n"}
    limits |= {"max_tokens": words.most, "special_tokens": words.special, "clean": words.clean}
    return (
        {"kind": "subwords", "file": TOKENIZER, **limits, "split": clip_pattern() if words.clean == "clip" else None},
        {TOKENIZER: words.json + "\n"},
    )


def scoring(similarity: Similarity) -> dict[str, Any]:
    """The scoring of image and text vectors, which the exported encoders do not include."""
    entry: dict[str, Any] = {"name": type(similarity).__name__, "inner_product": similarity.inner_product}
    if type(similarity) is Cosine:
        return entry | {"how": "divide each vector by its norm; the score is the inner product"}
    if type(similarity) is Order:
        said = "divide each vector by its norm and take absolute values; the score is `shift` minus the norm of "
        return entry | {"shift": similarity.shift, "how": f"{said}max(0, text - image)"}
    return entry | {"how": "a class of its own; not exported"}
