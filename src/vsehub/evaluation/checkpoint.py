"""The checkpoint of a trained model: one safetensors file with its weights and, as JSON, its full description.

The file holds only data, no pickles: reading it runs no code.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from vsehub.checks import InputError, require
from vsehub.components import Components
from vsehub.data.sources import ArrayLike, CaptionedImages
from vsehub.data.text.vocabulary import Words, restored
from vsehub.evaluation.checkpoint_file import SUFFIX, checkpoint_file
from vsehub.io.files import atomic, read_object
from vsehub.io.versions import require_version
from vsehub.types import Encoder, Similarity, require_part

FORMAT, VERSION = "vsehub checkpoint", "2"
PARTS = ("image_encoder", "text_encoder", "similarity")
_KEYS = ("config", "vocabulary", "image_shape", "text_shape")
DIGEST = "content_sha256"  # the key of a file's digest in its own metadata
_AGAIN = "Copy it again, whole, or train again"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    path, sha256: the file and its digest. weights: the model's state. config: the resolved configuration of model, data
    and loader, in plain values. vocabulary: None if texts are vectors. image_shape, text_shape: of one image, and of
    one text if texts are vectors.
    """

    path: Path
    sha256: str
    weights: dict[str, Tensor]
    config: dict[str, Any]
    vocabulary: Words | None
    image_shape: tuple[int, ...]
    text_shape: tuple[int, ...] | None


class Model(nn.Module):
    """Trained encoders, and the similarity that compares their outputs.

    image_shape, text_shape: the shapes that they were trained on, as in `Checkpoint`.
    """

    def __init__(
        self,
        image_encoder: Encoder,
        text_encoder: Encoder,
        similarity: Similarity,
        image_shape: tuple[int, ...],
        text_shape: tuple[int, ...] | None,
    ):
        super().__init__()
        require_part("similarity", similarity, Similarity)
        self.image_encoder, self.text_encoder, self.similarity = image_encoder, text_encoder, similarity
        self.image_shape, self.text_shape = image_shape, text_shape


def write_checkpoint(path: str | Path, weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write the weights of a model's parts and its description, plain values, atomically.

    weights: those whose names begin with one of `PARTS` are written; others, such as a loss's, are omitted.
    """
    own = {name: tensor for name, tensor in weights.items() if name.split(".")[0] in PARTS}
    # Copies, since safetensors refuses tensors that share memory.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in own.items()}
    metadata = {"format": FORMAT, "version": VERSION, "description": json.dumps(description)}
    with atomic(path) as handle:
        handle.write(sealed(save(own, metadata)))


def sealed(stored: bytes) -> bytearray:
    """A safetensors file with a digest of its other bytes in the metadata, checked by `read_checkpoint`.

    The metadata are sorted, so that equal models give equal bytes: safetensors writes them in any order.
    """
    size = int.from_bytes(stored[:8], "little")
    header, tensors = json.loads(stored[8 : 8 + size]), memoryview(stored)[8 + size :]
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    content = hashlib.sha256(_without_digest(header))
    content.update(tensors)
    header["__metadata__"] |= {DIGEST: content.hexdigest()}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # the tensors begin at a multiple of 8 bytes
    return bytearray(len(text).to_bytes(8, "little") + text) + tensors


def _without_digest(header: dict[str, Any]) -> bytes:
    metadata = {name: text for name, text in header["__metadata__"].items() if name != DIGEST}
    return json.dumps(header | {"__metadata__": metadata}, sort_keys=True).encode()


def _digests(path: Path) -> tuple[str, str, str | None]:
    """The SHA-256 of a safetensors file, that of its content as `sealed` computes it, and the one noted in the file."""
    with path.open("rb") as file:
        start = file.read(8)
        header = file.read(min(int.from_bytes(start, "little"), path.stat().st_size))
        parsed = json.loads(header)
        metadata = parsed.setdefault("__metadata__", {})
        whole, content = hashlib.sha256(start + header), hashlib.sha256(_without_digest(parsed))
        while block := file.read(1 << 22):
            whole.update(block)
            content.update(block)
    return whole.hexdigest(), content.hexdigest(), metadata.get(DIGEST)


def _require_recorded(path: Path, sha256: str) -> None:
    """Raise InputError if the file is the best model of a run whose record names another digest."""
    run = path.absolute().parent.parent / "run.json"
    if path.name != f"best{SUFFIX}" or path.absolute().parent.name != "checkpoints" or not run.is_file():
        return
    best = read_object(run).get("best")
    recorded = best.get("sha256") if isinstance(best, dict) else None
    require(
        recorded in (None, sha256),
        f"checkpoint: {path} has the SHA-256 {sha256[:12]}..., but run.json records {str(recorded)[:12]}...: it is "
        f"not the model of this run, or it was changed. {_AGAIN}",
    )


def read_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint, on the CPU.

    Raises InputError if the file is missing, cut short, changed, not written by vsehub or of another version, if it is
    not the one that its run recorded, or if its weights do not fit its vocabulary.
    """
    path = checkpoint_file(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            names = file.keys() if metadata.get("format") == FORMAT else []
            weights = {name: file.get_tensor(name) for name in names}
        sha256, content, noted = _digests(path)
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"checkpoint: {path} cannot be read as safetensors ({error}); it is cut short, damaged or of "
            f"something else. {_AGAIN}"
        ) from error
    require(
        metadata.get("format") == FORMAT,
        f"checkpoint: {path} was not written by `vsehub train`. Give a run's checkpoint",
    )
    hint = "The run's run.json names it; or train again"
    require_version(f"checkpoint: {path}", metadata.get("version"), VERSION, hint)
    _require_recorded(path, sha256)
    require(
        content == noted,
        f"checkpoint: {path} was changed since it was written, or damaged: its content has the SHA-256 "
        f"{content[:12]}..., its header says {str(noted)[:12]}.... {_AGAIN}",
    )
    return described(path, sha256, weights, metadata.get("description", ""))


def described(path: Path, sha256: str, weights: dict[str, Tensor], description: str | Mapping[str, Any]) -> Checkpoint:
    """The checkpoint made of weights and a description, JSON or plain values. Raises InputError if they do not fit."""
    try:
        values = json.loads(description) if isinstance(description, str) else description
        config, words, image_shape, text_shape = (values[key] for key in _KEYS)
        max_words = config["loader"]["max_words"]
        sound = max_words is None or (type(max_words) is int and max_words > 0)
        sound = (
            sound
            and isinstance(config["data"], dict)
            and _is_shape(image_shape)
            and (text_shape is None or _is_shape(text_shape))
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    require(sound, f"checkpoint: the description in {path} is damaged. {_AGAIN}")
    vocabulary = restored(words)
    table = weights.get("text_encoder.words.weight")
    known = 0 if vocabulary is None else len(vocabulary)
    require(
        table is None or len(table) == known,
        f"checkpoint: {path} is of another vocabulary: it has {0 if table is None else len(table)} word vectors but "
        f"{known} words. {_AGAIN}",
    )
    shapes = tuple(image_shape), None if text_shape is None else tuple(text_shape)
    return Checkpoint(path, sha256, weights, config, vocabulary, *shapes)


def restore(checkpoint: Checkpoint, components: Components) -> Model:
    """The model of a checkpoint, in eval mode; no loss, optimizer or schedule is built.

    components: the classes that the checkpoint may name. Raises InputError for other classes, or if the weights do not
    fit the described parts.
    """
    config, path = checkpoint.config, checkpoint.path
    require(
        all(isinstance(config.get(part), dict) for part in PARTS), f"checkpoint: {path} describes no model. {_AGAIN}"
    )
    # No size in a description can exceed the number of weights, except that pictures can be larger than a small model.
    held = sum(tensor.numel() for tensor in checkpoint.weights.values())
    for name, shape in (("image_shape", checkpoint.image_shape), ("text_shape", checkpoint.text_shape)):
        require(
            max(shape or (0,)) <= max(held, 1 << 16),
            f"checkpoint: {path}: {name} is {list(shape or ())}, but the file holds {held} numbers. {_AGAIN}",
        )
    for part in PARTS:
        for name, value in config[part].items():
            require(
                not isinstance(value, int) or abs(value) <= max(held, 1 << 16),
                f"checkpoint: {path}: {part}.{name} is {value}, but the file holds {held} numbers. {_AGAIN}",
            )
    try:
        model = _built(checkpoint, components)
        model.load_state_dict(checkpoint.weights)
    except InputError as error:
        raise InputError(f"checkpoint: {path}: {error}") from error
    except RuntimeError as error:  # names or shapes do not fit
        said = " ".join(str(error).split())
        raise InputError(f"checkpoint: the weights in {path} do not fit its model ({said[:300]}). {_AGAIN}") from error
    return model.eval()


def _built(checkpoint: Checkpoint, components: Components) -> Model:
    """The described model, before the checkpoint's weights are loaded."""
    config = checkpoint.config
    image_shape = image_sizes(config["image_encoder"], checkpoint.image_shape)
    text_shape = text_sizes(config["text_encoder"], checkpoint.vocabulary, checkpoint.text_shape)
    return Model(
        components.build("image_encoder", config["image_encoder"], restored=True, **image_shape),
        components.build("text_encoder", config["text_encoder"], restored=True, **text_shape),
        components.build("similarity", config["similarity"], restored=True),
        checkpoint.image_shape,
        checkpoint.text_shape,
    )


def image_sizes(node: Mapping[str, Any], image_shape: tuple[int, ...]) -> dict[str, Any]:
    """The constructor arguments of an image encoder that come from the data; none if its model fixes the size."""
    return {"image_shape": list(image_shape)} if "image_shape" in node else {}


def text_sizes(node: Mapping[str, Any], vocabulary: Words | None, text_shape: tuple[int, ...] | None) -> dict[str, Any]:
    """The sizes that the data give to a text encoder.

    Raises InputError if the encoder takes captions and the data are vectors, or the reverse.
    """
    encoder = str(node.get("_target_")).split(".")[-1]
    if vocabulary is None:
        require(
            "text_shape" in node and text_shape is not None,
            f"the data's texts are vectors {text_shape}, but {encoder} takes captions; give text_encoder=text_features",
        )
        return {"text_shape": list(text_shape or ())}
    require(
        "text_shape" not in node,
        f"{encoder} takes texts that are vectors, but the data's are captions; give text_encoder=text_gru, for example",
    )
    return {"vocabulary_size": len(vocabulary)} if "vocabulary_size" in node else {}


def fitting(
    name: str, split: CaptionedImages, image_shape: tuple[int, ...] | None, text_shape: tuple[int, ...] | None
) -> CaptionedImages:
    """A split, unchanged. Raises InputError if its features have other sizes than those the model was trained on."""
    require_shape(f"images of the split {name!r}", split.images, image_shape)
    if not isinstance(split.captions, list):
        require_shape(f"texts of the split {name!r}", split.captions, text_shape)
    return split


def require_shape(side: str, rows: ArrayLike, shape: tuple[int, ...] | None) -> None:
    """Raise InputError if a row's shape is not the one the model was trained on; pictures may have any size."""
    trained, given = list(shape or ()), list(rows.shape[1:])
    pictures = len(trained) > 2 and len(given) > 2
    require(
        pictures or (len(trained) == len(given) and trained[-1:] == given[-1:]),
        f"the {side} {_of_shape(given)} but the model was made for {trained[0] if len(trained) == 1 else trained}; "
        "give features of the same extraction",
    )


def _of_shape(shape: list[int]) -> str:
    return f"have {shape[0]} features" if len(shape) == 1 else f"are of shape {shape}"


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and 0 < one < 1 << 31 for one in value)
