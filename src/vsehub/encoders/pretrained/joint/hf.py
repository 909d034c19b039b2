"""Models of transformers with an image and a text encoder for one space: CLIP, SigLIP, Chinese-CLIP and their kind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsehub.checks import regular_members, require
from vsehub.encoders.pretrained.configurations import JOINT, reduced
from vsehub.encoders.pretrained.networks import explained, load_weights
from vsehub.extras import package

_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow numbers them


def describe(model: str, side: str) -> dict[str, Any]:
    """The description of a model, by the name of a repository that is in the cache, or a folder.

    Returns the library's own configuration, `architecture`, and what the side `takes`, in plain values. Raises
    InputError for a model that is not there, for one that takes other pictures than squares, and if transformers is
    missing.
    """
    settings = read_auto(model, "AutoConfig").to_dict()
    architecture = reduced(model, settings, JOINT)
    if side == "image":
        return {"architecture": architecture, "takes": _image_input(model)}
    tokenizer = tokenizer_of(model)
    takes = {"most": _most_tokens(settings, tokenizer), "pad": tokenizer.pad_token_id or 0, "blank": None}
    # SigLIP was trained on texts that are padded to the longest, without a mask.
    return {"architecture": architecture, "takes": takes | {"fixed": settings["model_type"] == "siglip"}}


def subwords(model: str) -> dict[str, Any]:
    """The model's tokenizer in the plain values that a checkpoint keeps."""
    tokenizer = tokenizer_of(model)
    most = _most_tokens(read_auto(model, "AutoConfig").to_dict(), tokenizer)
    return {"subwords": tokenizer.backend_tokenizer.to_str(), "most": most}


def network(model: str, side: str, description: Mapping[str, Any], pretrained: bool, weights: str | None) -> nn.Module:
    """One side of the model, in float32; the other side is built too, then discarded.

    pretrained: whether to load the weights of that name. weights: a file of weights instead. Raises InputError if
    weights are missing, damaged or of another model.
    """
    architecture = reduced(model, description["architecture"], JOINT, strict=True)
    joint = build(model, architecture, pretrained and weights is None)
    if weights is not None:
        load_weights(joint, weights)
    left_out = ("text", "logit") if side == "image" else ("vision", "visual", "logit")
    for name in [*joint._modules, *joint._parameters]:
        if name.startswith(left_out):
            setattr(joint, name, None)
    return joint


def encode_image(model: Any, pixels: Tensor) -> Tensor:
    """Normalised pixels (N, 3, H, W) -> (N, D)."""
    return _vectors(model.get_image_features(pixel_values=pixels))


def encode_text(model: Any, ids: Tensor, inside: Tensor | None) -> Tensor:
    """Ids (N, L) and the mask (N, L) of the tokens that are not padding, or None -> (N, D)."""
    return _vectors(model.get_text_features(input_ids=ids, attention_mask=None if inside is None else inside.long()))


def _vectors(output: Any) -> Tensor:
    """The vectors (N, D) of a model's output; transformers before version 5 returns them directly."""
    return output if isinstance(output, Tensor) else output.pooler_output


def build(model: str, architecture: Mapping[str, Any], pretrained: bool) -> Any:
    """A model of a reduced configuration in float32, with the weights of its name or random ones."""
    library = package("the model", "transformers", "transformers")
    settings = library.AutoConfig.for_model(**architecture)
    with torch.random.fork_rng(devices=[]):
        if pretrained:
            return read_auto(model, "AutoModel", config=settings, use_safetensors=True).float()
        return library.AutoModel.from_config(settings).float()


def read_auto(model: str, kind: str, setting: str = "model", **settings: Any) -> Any:
    """An object of one of the library's Auto classes, from a folder or the cache. setting: its name in messages."""
    read: Callable[..., Any] = getattr(package("the model", "transformers", "transformers"), kind).from_pretrained
    regular_members(Path(model))
    with explained(
        f"{setting}: {model!r} cannot be read. Give a folder with config.json, model.safetensors, "
        f"preprocessor_config.json and tokenizer.json, or get the model once with: hf download {model}"
    ):
        return read(model, local_files_only=True, trust_remote_code=False, **settings)


def tokenizer_of(model: str, setting: str = "model") -> Any:
    """The fast tokenizer of a repository in the cache, or a folder. Raises InputError if it is missing."""
    tokenizer = read_auto(model, "AutoTokenizer", setting)
    require(hasattr(tokenizer, "backend_tokenizer"), f"{setting}: {model} has no fast tokenizer (tokenizer.json)")
    return tokenizer


def _most_tokens(settings: dict[str, Any], tokenizer: Any) -> int:
    """The largest number of tokens that the text encoder takes: its positions, or the tokenizer's limit if lower."""
    return min(settings["text_config"]["max_position_embeddings"], tokenizer.model_max_length)


def _image_input(model: str) -> dict[str, Any]:
    """The preprocessing of pictures. Raises InputError where they are not resized to squares and normalised."""
    processor = read_auto(model, "AutoImageProcessor").to_dict()
    size = {key: side for key, side in processor["size"].items() if side is not None}
    crop = (processor.get("crop_size") or {}) if processor.get("do_center_crop") else {}
    mode = "shortest" if "shortest_edge" in size else "squash"
    sides = {side for side in crop.values() if side is not None} or set(size.values())
    to_square = len(set(size.values())) == len(sides) == 1 and (mode == "squash" or bool(crop))
    is_prepared = processor.get("do_resize", True) and processor.get("do_normalize", True)
    by_255 = abs(processor.get("rescale_factor", 1 / 255) * 255 - 1) < 1e-6
    require(
        to_square and is_prepared and by_255,
        f"model: {model} takes pictures of {size}, cropped to {crop}, or scales them in another way; choose a model of "
        "one size",
    )
    return {
        "size": sides.pop(),
        "resize": next(iter(size.values())),
        "mode": mode,
        "interpolation": _FILTERS[int(processor.get("resample", 3))],
        "fill": 0,
        "mean": list(processor["image_mean"]),
        "std": list(processor["image_std"]),
    }
