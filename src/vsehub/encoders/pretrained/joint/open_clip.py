"""Models of open_clip: CLIP, SigLIP, CoCa and their kind, by name and weights, from a folder, or from the cache."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vsehub.checks import existing, fail, regular_members, require, suggest
from vsehub.encoders.pretrained.configurations import reduced_open_clip
from vsehub.encoders.pretrained.joint.hf import tokenizer_of
from vsehub.encoders.pretrained.networks import explained
from vsehub.extras import package
from vsehub.io.files import read_object
from vsehub.io.progress import quiet

_CONFIG, _HUB = "open_clip_config.json", "hf-hub:"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")


def describe(model: str, side: str) -> dict[str, Any]:
    """The description of a model: the library's own configuration, `architecture`, and what the side `takes`.

    model: NAME/WEIGHTS as open_clip lists them, such as ViT-B-32/laion2b_s34b_b79k; hf-hub:OWNER/NAME, from the cache;
    or a folder with open_clip_config.json. NAME is enough where no published weights are loaded. Raises
    InputError for an unknown name, for a text encoder of transformers, and if open_clip or a file is missing.
    """
    located = _locate(model)
    architecture = located["architecture"]
    name = architecture["text_cfg"].get("hf_model_name")
    require(
        not name,
        f"model: {model} reads texts by {name} of transformers; choose another model, or one of image_encoder=hf",
    )
    takes = (
        _image_input(architecture, located["preprocessing"])
        if side == "image"
        else _text_input(model, architecture["text_cfg"])
    )
    return {"architecture": reduced_open_clip(model, architecture), "takes": takes}


def subwords(model: str) -> dict[str, Any]:
    """The tokenizer in plain values: equal tokens to open_clip's own, but from a fast implementation."""
    text = _locate(model)["architecture"]["text_cfg"]
    most = text.get("context_length", 77)
    if not text.get("hf_tokenizer_name"):
        return {"subwords": _clip_tokenizer(), "most": most, "clean": "clip"}
    clean = (text.get("tokenizer_kwargs") or {}).get("clean", "whitespace")
    return {"subwords": _tokenizer(model, text).backend_tokenizer.to_str(), "most": most, "clean": clean}


def network(model: str, side: str, description: Mapping[str, Any], pretrained: bool, weights: str | None) -> nn.Module:
    """One side of the model, in float32; the other side is built too, then discarded.

    pretrained: whether to load the weights of that name. weights: a file of weights instead, .safetensors, or as
    torch.save writes state dicts. Raises InputError if weights are missing, damaged or of another model.
    """
    library = package("the model", "open-clip", "open_clip")
    architecture = reduced_open_clip(model, description["architecture"], strict=True)
    path: Path | None = None
    if weights is not None:
        path = existing("weights", weights, "Give a file with the state dict of the whole model")
    elif pretrained:
        located = _locate(model)
        repository, names = located["repository"], located["weights"]
        require(bool(repository), "model names no weights; give NAME/WEIGHTS as open_clip lists them, or weights=FILE")
        folder = _folder(repository, names[0])
        path = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    with TemporaryDirectory() as temporary, quiet(), torch.random.fork_rng(devices=[]):
        (Path(temporary) / _CONFIG).write_text(json.dumps({"model_cfg": architecture}), encoding="utf-8")
        joint: Any = library.create_model(f"local-dir:{temporary}", load_weights=False)
        if path is not None:
            with explained(f"weights: {path} cannot be loaded into {model}; expected a state dict"):
                library.load_checkpoint(joint, str(path), strict=True, weights_only=True)
    if side == "image":
        return joint.visual
    for part in ("visual", "text_decoder", "logit_scale", "logit_bias"):
        if hasattr(joint, part):
            setattr(joint, part, None)
    return joint


def encode_image(model: Any, pixels: Tensor) -> Tensor:
    """Normalised pixels (N, 3, H, W) -> (N, D)."""
    output = model(pixels)
    return output[0] if isinstance(output, tuple) else output  # CoCa gives the patches too


def encode_text(model: Any, ids: Tensor, inside: Tensor | None) -> Tensor:
    """Padded ids (N, most) -> (N, D)."""
    output = model.encode_text(ids)
    return output[0] if isinstance(output, tuple) else output


def _locate(model: str) -> dict[str, Any]:
    """A model's "architecture" and "preprocessing", its folder or "repository", and names of its "weights" there."""
    library = package("the model", "open-clip", "open_clip")
    if model.startswith(_HUB) or Path(model).is_dir():
        path = existing("model", _folder(model.removeprefix(_HUB), _CONFIG) / _CONFIG, f"Give a folder with {_CONFIG}")
        stored = read_object(path)
        require("model_cfg" in stored, f"model: {path} is damaged or no configuration; expected model_cfg")
        return {
            "architecture": stored["model_cfg"],
            "preprocessing": stored.get("preprocess_cfg") or {},
            "repository": model.removeprefix(_HUB),
            "weights": _WEIGHTS,
        }
    name, _, tag = model.partition("/")
    architecture, tags = library.get_model_config(name), library.list_pretrained_tags_by_model(name)
    if architecture is None:
        fail(f"model: open_clip has no model {name!r}{suggest(name, library.list_models())}, nor is there a folder")
    require(not tag or tag in tags, f"model: open_clip has no weights {tag!r} of {name}; it has {', '.join(tags)}")
    published = library.get_pretrained_cfg(name, tag)
    if published.get("quick_gelu"):
        architecture["quick_gelu"] = True  # the weights were trained with it, whatever the name says
    repository, _, file = str(published.get("hf_hub") or "").rpartition("/")
    files = (str(Path(file).with_suffix(".safetensors")), file) if file else _WEIGHTS
    return {"architecture": architecture, "preprocessing": published, "repository": repository, "weights": files}


def _folder(model: str, file: str) -> Path:
    """A folder, or that of a repository in the cache of Hugging Face."""
    if Path(model).is_dir():
        regular_members(Path(model))
        return Path(model)
    from huggingface_hub import snapshot_download

    with explained(
        f"model: {model} is not in the cache, and vsehub downloads no joint models. Get it once with: hf download "
        f"{model} {file}; or give weights=FILE"
    ):
        return Path(snapshot_download(model, local_files_only=True))


def _image_input(architecture: Mapping[str, Any], preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict

    size = architecture["vision_cfg"].get("image_size", 224)
    size = size if isinstance(size, list | tuple) else [size, size]
    require(size[0] == size[1], f"the model takes pictures of {size} pixels, not squares; choose another")
    transform = merge_preprocess_dict(PreprocessCfg(), dict(preprocessing))
    bilinear = transform["interpolation"] == "bilinear"
    return {
        "size": size[0],
        "resize": size[0],
        "mode": transform["resize_mode"],
        "interpolation": "bilinear" if bilinear else "bicubic",  # open_clip's "random" is bicubic too
        "fill": transform["fill_color"],
        "mean": np.broadcast_to(transform["mean"], 3).tolist(),  # one number or three
        "std": np.broadcast_to(transform["std"], 3).tolist(),
    }


def _text_input(model: str, text: Mapping[str, Any]) -> dict[str, Any]:
    takes = {"most": text.get("context_length", 77), "pad": 0, "fixed": True, "blank": None}
    if text.get("hf_tokenizer_name"):
        tokenizer = _tokenizer(model, text)
        takes["pad"] = tokenizer.pad_token_id or 0
        if (text.get("tokenizer_kwargs") or {}).get("strip_sep_token"):
            takes["blank"] = tokenizer.sep_token_id
    return takes


def _tokenizer(model: str, text: Mapping[str, Any]) -> Any:
    """The tokenizer of transformers that a configuration names, beside it in its folder or from the cache."""
    require(not text.get("tokenizer_mode"), "the model tokenises in a mode that vsehub does not know; choose another")
    is_folder = model.startswith(_HUB) or Path(model).is_dir()
    return tokenizer_of(str(_folder(model.removeprefix(_HUB), _CONFIG)) if is_folder else text["hf_tokenizer_name"])


def _clip_tokenizer() -> str:
    """CLIP's tokenizer, whose tables come with open_clip, for words that are separated by spaces."""
    from open_clip.tokenizer import SimpleTokenizer
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    original = SimpleTokenizer()
    ends = [(original.decoder[number], number) for number in (original.sot_token_id, original.eot_token_id)]
    tokenizer = Tokenizer(BPE(vocab=original.encoder, merges=list(original.bpe_ranks), end_of_word_suffix="</w>"))
    split: Any = [WhitespaceSplit(), ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = Sequence(split)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name, _ in ends])
    tokenizer.post_processor = TemplateProcessing(single=f"{ends[0][0]} $A {ends[1][0]}", special_tokens=ends)
    return tokenizer.to_str()
