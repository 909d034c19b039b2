"""The checkpoint of a trained model: one safetensors file with its weights and, as JSON, its full description.

The file holds only data, no pickles: reading it runs no code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from vsehub.checks import InputError, existing, require
from vsehub.components import Components, declared
from vsehub.data.sources import ArrayLike, CaptionedImages
from vsehub.data.text.vocabulary import Words, restored
from vsehub.io.files import atomic
from vsehub.io.wall import walled
from vsehub.types import Encoder, Similarity, require_part

SUFFIX = ".safetensors"
FORMAT, VERSION = "vsehub checkpoint", "1"
PARTS = ("image_encoder", "text_encoder", "similarity")
_KEYS = ("config", "vocabulary", "image_shape", "text_shape")
_AGAIN = "Copy it again, whole, or train again"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    weights: the model's state. config: the resolved configuration of model, data and loader, in plain values.
    vocabulary: None if texts are vectors. image_shape, text_shape: of one image, and of one text that is a vector.
    """

    path: Path
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
        handle.write(_ordered(save(own, metadata)))


def _ordered(stored: bytes) -> bytearray:
    """A safetensors file with sorted metadata, so that equal models give equal bytes: safetensors writes any order."""
    size = int.from_bytes(stored[:8], "little")
    header = json.loads(stored[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size)  # padded, as it was
    return bytearray(len(text).to_bytes(8, "little") + text) + memoryview(stored)[8 + size :]


def checkpoint_file(path: str | Path) -> Path:
    """The path of a checkpoint. Raises InputError if there is no file, or if its name is not that of a checkpoint."""
    require(isinstance(path, str | Path), f"checkpoint is {path}; expected one file")
    path = existing("checkpoint", path, f"Give the path of a checkpoint, e.g. RUN_FOLDER/checkpoints/best{SUFFIX}")
    best = path / "checkpoints" / f"best{SUFFIX}"
    require(path.is_file(), f"checkpoint: {path} is a folder; give a file" + (f": {best}" if best.is_file() else ""))
    require(
        path.suffix != ".ckpt",
        f"checkpoint: {path} is the state of a training under way, which only resume= reads; give the model: "
        f"{path.with_name(f'best{SUFFIX}')}",
    )
    return path


def read_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint, on the CPU.

    Raises InputError if the file is missing, cut short, not written by vsehub or of another version, or if its weights
    do not fit its vocabulary.
    """
    path = checkpoint_file(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            names = file.keys() if metadata.get("format") == FORMAT else []
            weights = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"checkpoint: {path} cannot be read as safetensors ({error}); it is cut short, damaged or of "
            f"something else. {_AGAIN}"
        ) from error
    require(
        metadata.get("format") == FORMAT,
        f"checkpoint: {path} was not written by `vsehub train`. Give a run's checkpoint",
    )
    require(
        metadata.get("version") == VERSION,
        f"checkpoint: {path} is of version {metadata.get('version')} of its format, this vsehub reads version "
        f"{VERSION}; use the vsehub that wrote it (its run's run.json names it), or train again",
    )
    return described(path, weights, metadata.get("description", ""))


def described(path: Path, weights: dict[str, Tensor], description: str | Mapping[str, Any]) -> Checkpoint:
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
    return Checkpoint(path, weights, config, vocabulary, *shapes)


def restore(checkpoint: Checkpoint, components: Components) -> Model:
    """The model of a checkpoint, in eval mode; no loss, optimizer or schedule is built.

    components: the classes that the checkpoint may name. Raises InputError for other classes, or if the weights do not
    fit the described parts.
    """
    config, path = checkpoint.config, checkpoint.path
    require(
        all(isinstance(config.get(part), dict) for part in PARTS), f"checkpoint: {path} describes no model. {_AGAIN}"
    )
    # No size in a description can exceed the number of weights.
    held = sum(tensor.numel() for tensor in checkpoint.weights.values())
    for part in PARTS:
        for name, value in config[part].items():
            require(
                not isinstance(value, int) or abs(value) <= max(held, 1 << 16),
                f"checkpoint: {path}: {part}.{name} is {value}, but the file holds {held} numbers. {_AGAIN}",
            )
    classes = [declared(components.find(part, config[part])) for part in PARTS]  # imported outside of the wall
    reads = [folder for made in classes for folder in made.reads()]
    reads += [Path(one) for one in components.trust if Path(one).exists()]
    try:
        with walled(reads):
            model = _built(checkpoint, components)
            model.load_state_dict(checkpoint.weights)
    except InputError as error:
        raise InputError(f"checkpoint: {path}: {error}") from error
    except RuntimeError as error:  # names and shapes that do not fit
        said = " ".join(str(error).split())
        raise InputError(f"checkpoint: the weights in {path} do not fit its model ({said[:300]}). {_AGAIN}") from error
    return model.eval()


def _built(checkpoint: Checkpoint, components: Components) -> Model:
    """The described model, with weights that are not the checkpoint's yet."""
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
    """The sizes that the data give to an image encoder: none to one whose model says what it takes."""
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
    split: CaptionedImages, image_shape: tuple[int, ...] | None, text_shape: tuple[int, ...] | None
) -> CaptionedImages:
    """The split, unchanged. Raises InputError if its features have other sizes than those the model was trained on."""
    require_shape("images", split.images, image_shape)
    if not isinstance(split.captions, list):
        require_shape("texts", split.captions, text_shape)
    return split


def require_shape(side: str, rows: ArrayLike, shape: tuple[int, ...] | None) -> None:
    """Raise InputError if a row's shape is not the one the model was trained on; pictures may have any size."""
    trained, given = list(shape or ()), list(rows.shape[1:])
    pictures = len(trained) > 2 and len(given) > 2
    require(
        pictures or (len(trained) == len(given) and trained[-1:] == given[-1:]),
        f"the {side} have {given[0] if len(given) == 1 else given} features but the model was made for "
        f"{trained[0] if len(trained) == 1 else trained}; give features of the same extraction",
    )


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int) and 0 < one < 1 << 31 for one in value)
