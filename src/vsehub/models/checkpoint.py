"""The checkpoint of a trained model: one safetensors file with its weights and, as JSON, its full description.

The file holds only data, no pickles: reading it runs no code.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor, nn

from vsehub.checks import InputError, require, whole
from vsehub.components import MISSING, Components
from vsehub.data.sources import ArrayLike, CaptionedImages
from vsehub.data.text.vocabulary import Words, load_words
from vsehub.io.arrays import readable, shortened
from vsehub.io.files import atomic, read_object
from vsehub.io.records import require_version
from vsehub.models.hub import SUFFIX, checkpoint_file
from vsehub.types import Encoder, Similarity, require_part

FORMAT, VERSION = "vsehub checkpoint", "2"
PARTS = ("image_encoder", "text_encoder", "similarity")
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
    tensors = {name: tensor for name, tensor in weights.items() if name.split(".")[0] in PARTS}
    # Copies, since safetensors refuses tensors that share memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    metadata = {"format": FORMAT, "version": VERSION, "description": json.dumps(description)}
    with atomic(path) as handle:
        handle.write(with_sorted_metadata(save(tensors, metadata)))


def with_sorted_metadata(stored: bytes) -> bytes:
    """A safetensors file with its metadata in sorted order; the library's order varies, even for equal models."""
    size = int.from_bytes(stored[:8], "little")
    header = json.loads(stored[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)  # the tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + stored[8 + size :]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """A checkpoint, on the CPU.

    Raises InputError if the file is missing, cut short, not written by vsehub or of another version, and if the record
    of its run names another file as the best model.
    """
    path = checkpoint_file(path)
    with readable(path, Exception, kind="safetensors"):
        stored = path.read_bytes()
        weights = load(stored)
        metadata = json.loads(stored[8 : 8 + int.from_bytes(stored[:8], "little")]).get("__metadata__", {})
    require(
        metadata.get("format") == FORMAT,
        f"checkpoint: {path} was not written by `vsehub train`. Give a run's checkpoint",
    )
    require_version(f"checkpoint: {path}", metadata.get("version"), VERSION, "The run's run.json names it")
    sha256 = hashlib.sha256(stored).hexdigest()
    run_record = path.absolute().parent.parent / "run.json"
    is_best_of_run = path.name == f"best{SUFFIX}" and path.absolute().parent.name == "checkpoints"
    best = read_object(run_record).get("best") if is_best_of_run else None
    recorded = best.get("sha256") if isinstance(best, dict) else None
    require(
        recorded in (None, sha256),
        f"checkpoint: {path} is not the model that {run_record} records, or it was changed: its SHA-256 is "
        f"{sha256[:12]}..., recorded is {str(recorded)[:12]}.... {_AGAIN}",
    )
    try:
        description = json.loads(metadata["description"])
        config, words, text_shape = description["config"], description["vocabulary"], description["text_shape"]
        image_shape = _shape(description["image_shape"])
        text_shape = None if text_shape is None else _shape(text_shape)
        if config["loader"]["max_words"] is not None:
            whole("max_words", config["loader"]["max_words"])
        require(all(isinstance(config[part], dict) for part in (*PARTS, "data")), "a part has no settings")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"checkpoint: the description in {path} is damaged ({error!r:.80}). {_AGAIN}") from error
    return Checkpoint(path, sha256, weights, config, load_words(words), image_shape, text_shape)


def _shape(sizes: Any) -> tuple[int, ...]:
    return tuple(whole("a size", size) for size in sizes)


def restore(checkpoint: Checkpoint, components: Components) -> Model:
    """The model of a checkpoint, in eval mode; no loss, optimizer or schedule is built.

    components: the classes that the checkpoint may name. Raises InputError for other classes, or if the weights do not
    fit the described parts.
    """
    config, path = checkpoint.config, checkpoint.path
    shapes = checkpoint.image_shape, checkpoint.text_shape
    sizes = {f"{part}.{name}": value for part in PARTS for name, value in config[part].items()}
    dimensions = [*checkpoint.image_shape, *(checkpoint.text_shape or ()), config.get("embedding_dim")]
    sizes |= {f"the dimension {size}": size for size in dimensions}
    # No size in a description can exceed the number of weights, except that pictures can be larger than a small model.
    count = sum(tensor.numel() for tensor in checkpoint.weights.values())
    large = [name for name, size in sizes.items() if isinstance(size, int) and abs(size) > max(count, 1 << 16)]
    require(not large, f"checkpoint: {path}: {large} are larger than the {count} numbers that the file holds. {_AGAIN}")
    try:
        arguments = encoder_sizes(config, components, checkpoint.vocabulary, *shapes)
        parts = [components.build(part, config[part], restored=True, **arguments.get(part, {})) for part in PARTS]
        model = Model(*parts, *shapes)  # type: ignore[call-arg]
        model.load_state_dict(checkpoint.weights)
    except InputError as error:
        raise InputError(f"checkpoint: {path}: {error}") from error
    except RuntimeError as error:  # names or shapes do not fit
        raise InputError(
            f"checkpoint: the weights in {path} do not fit its model ({shortened(error)}). {_AGAIN}"
        ) from error
    return model.eval()


def encoder_sizes(
    settings: Mapping[str, Any],
    components: Components,
    vocabulary: Words | None,
    image_shape: tuple[int, ...],
    text_shape: tuple[int, ...] | None,
) -> dict[str, dict[str, Any]]:
    """The arguments of each encoder that come from the data or from `embedding_dim`: those that its class takes.

    settings: those of both encoders and embedding_dim; an argument that an encoder's own settings give is omitted.
    Raises InputError if the text encoder takes captions and the data are vectors, or the reverse.
    """
    takes = {side: signature(components.find(side, settings[side])).parameters for side in PARTS[:2]}
    vectors = vocabulary is None
    encoder = str(settings["text_encoder"]["_target_"]).split(".")[-1]
    require(
        ("text_shape" in takes["text_encoder"]) == vectors,
        f"the data's texts are {f'vectors {text_shape}' if vectors else 'captions'}, but {encoder} takes "
        f"{'captions' if vectors else 'vectors'}; give text_encoder={'text_features' if vectors else 'text_gru'}",
    )
    sizes = {
        "dim": settings.get("embedding_dim"),
        "image_shape": list(image_shape),
        "text_shape": list(text_shape or ()),
        "vocabulary_size": len(vocabulary or ()),
    }
    arguments = {}
    for side, parameters in takes.items():
        unset = [name for name in sizes if name in parameters and settings[side].get(name, MISSING) == MISSING]
        arguments[side] = {name: sizes[name] for name in unset}
    return arguments


def require_sizes(
    name: str, split: CaptionedImages, image_shape: tuple[int, ...] | None, text_shape: tuple[int, ...] | None
) -> None:
    """Raise InputError if the features of a split have other sizes than those that the model was trained on."""
    require_shape(f"images of the split {name!r}", split.images, image_shape)
    if not isinstance(split.captions, list):
        require_shape(f"texts of the split {name!r}", split.captions, text_shape)


def require_shape(side: str, rows: ArrayLike, shape: tuple[int, ...] | None) -> None:
    """Raise InputError if a row's shape is not the one the model was trained on; pictures may have any size."""
    trained_shape, row_shape = tuple(shape or ()), tuple(rows.shape[1:])
    are_pictures = len(trained_shape) > 2 and len(row_shape) > 2
    are_alike = len(trained_shape) == len(row_shape) and trained_shape[-1:] == row_shape[-1:]
    require(
        are_pictures or are_alike,
        f"the {side} have features of shape {row_shape}, but the model was made for {trained_shape}; give features of "
        "the same extraction",
    )
