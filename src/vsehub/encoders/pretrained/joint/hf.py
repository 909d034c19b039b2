"""Models of transformers with an image and a text encoder for one space: CLIP, SigLIP, Chinese-CLIP and their kind."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, existing, fail, regular_members, require
from vsehub.encoders.pretrained.configurations import JOINT, reduced, require_known
from vsehub.encoders.pretrained.joint.description import Description, PictureInput, Side, TextNetwork, Texts
from vsehub.encoders.pretrained.networks import load_weights
from vsehub.extras import package

NAME = "transformers"
_PLACE = {"local_files_only": True, "trust_remote_code": False}
_FIXED = ("siglip", "siglip2")  # trained on texts that are padded to the longest, without a mask
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow numbers them
_FAILURES = (OSError, KeyError, TypeError, ValueError, AttributeError)


def looked_up(model: str, side: Side, weights: str | None, pretrained: bool) -> Description:
    """The description of a model, by the name of a repository that is in the cache, or a folder.

    Raises InputError for a model that is not there, with the names of cached ones most like it, for one without an
    image and a text encoder for one space, and if transformers is missing.
    """
    library = _library()
    require(
        isinstance(model, str) and model not in ("", "???"),
        f"model is {model!r}; give a folder, or a repository that is in the cache, e.g. openai/clip-vit-base-patch32",
    )
    settings = _read(model, lambda: library.AutoConfig.from_pretrained(model, **_PLACE))
    require(
        hasattr(settings, "text_config") and hasattr(settings, "vision_config"),
        f"model: {model} is a {settings.model_type} model, without an image and a text encoder for one space; choose "
        "CLIP, SigLIP or Chinese-CLIP, say",
    )
    architecture = reduced(model, settings.to_dict(), JOINT)
    if side == "image":
        return Description(architecture, _pictures(model, library))
    tokenizer = tokenizer_of(model)
    fixed = settings.model_type in _FIXED
    return Description(architecture, Texts(_most(settings, tokenizer), tokenizer.pad_token_id or 0, fixed))


def subwords(model: str) -> dict[str, Any]:
    """The tokenizer in plain values."""
    library, tokenizer = _library(), tokenizer_of(model)
    settings = _read(model, lambda: library.AutoConfig.from_pretrained(model, **_PLACE))
    return {"subwords": tokenizer.backend_tokenizer.to_str(), "most": _most(settings, tokenizer)}


def network(
    model: str, side: Side, description: Description, pretrained: bool, weights: str | Path | None
) -> nn.Module:
    """One side of the model, in float32; the other side is built too and let go.

    pretrained: with the weights of that name. weights: a file of them instead. Raises InputError if weights are
    missing, damaged or of another model, and for models that do not give a vector a picture or a text.
    """
    library = _library()
    architecture = require_known(model, description.architecture, JOINT)
    with torch.random.fork_rng(devices=[]):
        settings = _read(model, lambda: library.AutoConfig.for_model(**architecture))
        if pretrained and weights is None:
            built: Any = _read(
                model, lambda: library.AutoModel.from_pretrained(model, config=settings, use_safetensors=True, **_PLACE)
            )
        else:
            built = _read(model, lambda: library.AutoModel.from_config(settings, trust_remote_code=False))
    built = built.float()
    require(
        hasattr(built, "get_image_features") and hasattr(built, "get_text_features"),
        f"model: {model} is a {settings.model_type} model, which gives no vectors of one space; choose CLIP or SigLIP",
    )
    require(
        settings.model_type != "siglip2",
        f"model: {model} takes pictures of any shape in patches (NaFlex); choose the model of one size, such as "
        "google/siglip2-base-patch16-224",
    )
    if weights is not None:
        load_weights(built, existing("weights", weights, "Give the state dict of the whole model"), model)
    other = ("text",) if side == "image" else ("vision", "visual")
    for name in [name for name, _ in built.named_children() if name.startswith(other)]:
        setattr(built, name, None)
    for name in [name for name, _ in built.named_parameters(recurse=False) if name.startswith("logit")]:
        setattr(built, name, None)
    if side == "image":
        return _HfImage(built)
    assert isinstance(description.takes, Texts)
    return _HfText(built, description.takes)


def checkpoint_activations(network: nn.Module) -> None:
    """Compute activations again in the backward pass instead of keeping them."""
    model: Any = network.model
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


class _HfImage(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        model: Any = self.model
        return _vectors(model.get_image_features(pixel_values=pixels))


class _HfText(TextNetwork):
    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        model: Any = self.model
        found, inside = self.padded(ids, lengths)
        mask = {} if self.takes.fixed else {"attention_mask": inside.long()}
        return _vectors(model.get_text_features(input_ids=found, **mask))


def _vectors(found: Any) -> Tensor:
    """The vectors (N, D) of a model's output; transformers before version 5 returns them directly."""
    return found if isinstance(found, Tensor) else found.pooler_output


def _library() -> Any:
    return package("the model", "transformers", "transformers")


def _read(model: str, read: Any) -> Any:
    regular_members(Path(model))
    try:
        return read()
    except _FAILURES as error:
        if isinstance(error, InputError):
            raise
        raise InputError(_missing(model, error)) from error


def _missing(model: str, error: Exception) -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    if Path(model).is_dir():
        said = str(error).strip().partition("\n")[0][:200]
        return (
            f"model: the folder {model} cannot be read ({said}). Expected config.json, model.safetensors, "
            "preprocessor_config.json and tokenizer.json, as `hf download NAME --local-dir FOLDER` writes them"
        )
    found = Path(HF_HUB_CACHE).glob("models--*")
    cached = sorted(path.name.removeprefix("models--").replace("--", "/") for path in found)
    near = get_close_matches(model, cached, n=5, cutoff=0.3)
    held = f"close to it there: {', '.join(near)}" if near else "nothing like it is there"
    return (
        f"model: {model!r} is neither a folder nor in the cache ({HF_HUB_CACHE}; {held}), and vsehub downloads "
        f"nothing. Get it once with: hf download {model}, and on a machine without a network copy that folder there"
    )


def tokenizer_of(model: str) -> Any:
    """The fast tokenizer of a repository in the cache, or a folder. Raises InputError if there is none."""
    library = _library()
    found = _read(model, lambda: library.AutoTokenizer.from_pretrained(model, **_PLACE))
    require(
        getattr(found, "backend_tokenizer", None) is not None,
        f"model: {model} has no fast tokenizer (tokenizer.json); choose a model that has one, or the same model by "
        "open_clip",
    )
    return found


def _most(settings: Any, tokenizer: Any) -> int:
    """The largest number of tokens that the text encoder takes: its positions, or the tokenizer's limit if lower."""
    own: int = settings.text_config.max_position_embeddings
    said = getattr(tokenizer, "model_max_length", own)
    return min(own, said) if isinstance(said, int) and said > 2 else own


def _pictures(model: str, library: Any) -> PictureInput:
    found = _read(model, lambda: library.AutoImageProcessor.from_pretrained(model, **_PLACE)).to_dict()
    size, crop = (_side(model, found.get(key)) for key in ("size", "crop_size"))
    cropped = found.get("do_center_crop") and crop is not None
    if size is None or not found.get("do_resize", True):
        fail(f"model: {model} does not resize pictures to one size; choose another model")
    mode = "shortest" if "shortest_edge" in (found["size"] or {}) else "squash"
    require(
        mode == "squash" or cropped,
        f"model: {model} takes pictures of any shape (size {found['size']}, no crop); choose another model",
    )
    side = crop if cropped and crop is not None else size
    scale = found.get("rescale_factor", 1 / 255)
    require(
        abs(scale * 255 - 1) < 1e-6 and found.get("do_normalize", True),
        f"model: {model} scales pixels by {scale} or does not normalise them, which vsehub does not know",
    )
    mean, std = (list(found[key]) for key in ("image_mean", "image_std"))
    return PictureInput(side, size, mode, _FILTERS[int(found.get("resample", 3))], 0, mean, std)


def _side(model: str, size: Mapping[str, int] | int | None) -> int | None:
    """The side of a square, in any of the ways in which configurations write it."""
    if size is None or isinstance(size, int):
        return size
    sides = {value for value in (size.get(key) for key in ("shortest_edge", "height", "width")) if value is not None}
    require(len(sides) == 1, f"model: {model} takes pictures of {dict(size)} pixels, not squares; choose another")
    return sides.pop()
