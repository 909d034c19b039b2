"""Models of open_clip: CLIP, SigLIP, CoCa and their kind, by name and weights, from a folder, or from the cache."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, existing, fail, regular_members, require
from vsehub.encoders.pretrained.configurations import reduced_open_clip, require_known_open_clip
from vsehub.encoders.pretrained.joint.description import Description, PictureInput, Side, TextNetwork, Texts
from vsehub.extras import package
from vsehub.io.files import read_object
from vsehub.io.quiet import quiet

NAME = "open_clip"
_CONFIG = "open_clip_config.json"
_HUB, _FOLDER = "hf-hub:", "local-dir:"
_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
_PREPROCESSING = ("mean", "std", "interpolation", "resize_mode", "fill_color")
_NAMED = 8  # names of weights in a message


def looked_up(model: str, side: Side, weights: str | None, pretrained: bool) -> Description:
    """The description of a model.

    model: NAME/WEIGHTS as open_clip lists them, such as ViT-B-32/laion2b_s34b_b79k; hf-hub:OWNER/NAME, from the cache;
    or a folder with open_clip_config.json. NAME alone will do where `weights` names a file, or without `pretrained`.
    Raises InputError for an unknown name, with those most like it, and if open_clip or a file is missing.
    """
    found = _located(model, pretrained and weights is None)
    architecture, preprocessing = found.architecture, found.preprocessing
    require(
        isinstance(architecture, Mapping) and {"embed_dim", "vision_cfg", "text_cfg"} <= architecture.keys(),
        f"model: {model} has no configuration of a joint model (embed_dim, vision_cfg, text_cfg); choose another",
    )
    kept = reduced_open_clip(model, architecture, _text_configuration(model, architecture))
    if side == "image":
        return Description(kept, _pictures(model, architecture, preprocessing))
    return Description(kept, _texts(model, architecture))


def subwords(model: str) -> dict[str, Any]:
    """The tokenizer in plain values: equal tokens to open_clip's own, but from a fast implementation."""
    text = _located(model, False).architecture["text_cfg"]
    most, options = text.get("context_length", 77), text.get("tokenizer_kwargs") or {}
    if not text.get("hf_tokenizer_name"):
        return {"subwords": _clip_tokenizer(), "most": most, "clean": "clip"}
    tokenizer = _hub_tokenizer(model, text)
    return {
        "subwords": tokenizer.backend_tokenizer.to_str(),
        "most": most,
        "clean": options.get("clean", "whitespace"),
    }


def network(
    model: str, side: Side, description: Description, pretrained: bool, weights: str | Path | None
) -> nn.Module:
    """One side of the model, in float32; the other side is built too and let go.

    pretrained: with the weights of that name. weights: a file of them instead, .safetensors, or as torch.save writes
    state dicts. Raises InputError if weights are missing, damaged or of another model.
    """
    path: str | Path | None = None
    if weights is not None:
        path = existing("weights", weights, "Give a file with the state dict of the whole model")
    elif pretrained:
        path = _located(model, True).weights
    built: Any = _built(model, description.architecture)
    if path is not None:
        _load(built, path, model)
    if side == "image":
        return _OpenClipImage(built.visual)
    for part in ("visual", "text_decoder", "logit_scale", "logit_bias"):
        if hasattr(built, part):
            setattr(built, part, None)
    assert isinstance(description.takes, Texts)
    return _OpenClipText(built, description.takes)


def checkpoint_activations(network: nn.Module) -> None:
    """Compute activations again in the backward pass instead of keeping them."""
    model: Any = network.model
    if isinstance(network, _OpenClipImage):
        model.set_grad_checkpointing(True)
    elif hasattr(model, "text"):
        model.text.set_grad_checkpointing(True)
    else:
        model.transformer.grad_checkpointing = True


class _OpenClipImage(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        found = self.model(pixels)
        return found[0] if isinstance(found, tuple) else found  # CoCa gives the patches too


class _OpenClipText(TextNetwork):
    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        model: Any = self.model
        found = model.encode_text(self.padded(ids, lengths)[0])
        return found[0] if isinstance(found, tuple) else found


class _Located:
    """Where a model is: its configuration, its preprocessing, and the file of its weights if that was asked for."""

    def __init__(self, architecture: dict[str, Any], preprocessing: Mapping[str, Any], weights: Path | None = None):
        self.architecture, self.preprocessing, self.weights = architecture, preprocessing, weights


def _library() -> Any:
    return package("the model", "open_clip", "open_clip")


def _located(model: str, with_weights: bool) -> _Located:
    library = _library()
    require(
        isinstance(model, str) and model not in ("", "???"),
        f"model is {model!r}; give open_clip's name and weights, such as ViT-B-32/laion2b_s34b_b79k, or a folder",
    )
    if model.startswith(_HUB):
        return _in_cache(model.removeprefix(_HUB), with_weights)
    if model.startswith(_FOLDER) or Path(model).is_dir():
        return _in_folder(Path(model.removeprefix(_FOLDER)), with_weights)
    name, tag = model.replace("/", "-"), ""
    names = library.list_models()
    if name not in names:
        name, _, tag = model.rpartition("/")
        name = name.replace("/", "-") or tag
    if name not in names:
        near = get_close_matches(name, names, n=5) or names[:5]
        fail(
            f"model: open_clip has no model {name!r} of its {len(names)}, and there is no such folder; close to it: "
            f"{', '.join(near)}"
        )
    architecture = library.get_model_config(name)
    tags = library.list_pretrained_tags_by_model(name)
    if not tag or tag == name:
        require(
            not with_weights,
            f"model: {model} names no weights; give {name}/WEIGHTS with one of {', '.join(tags[:_NAMED]) or 'none'}"
            f"{' and more' if len(tags) > _NAMED else ''}, or weights=FILE",
        )
        return _Located(architecture, {})
    known = library.get_pretrained_cfg(name, tag)
    if not known:
        near = get_close_matches(tag, tags, n=5) or tags[:_NAMED]
        fail(f"model: open_clip has no weights {tag!r} of {name}; close to it: {', '.join(near) or 'none'}")
    if known.get("quick_gelu"):
        architecture["quick_gelu"] = True  # the weights were trained with it, whatever the name says
    return _Located(architecture, known, _cached_weights(model, known) if with_weights else None)


def _in_folder(folder: Path, with_weights: bool) -> _Located:
    regular_members(folder)
    path = existing("model", folder / _CONFIG, f"Give a folder with {_CONFIG}, as open_clip writes it")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        architecture, preprocessing = dict(held["model_cfg"]), dict(held.get("preprocess_cfg") or {})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {path} is damaged or no configuration ({error}); expected model_cfg") from error
    # The tokenizer lies in the folder too, as open_clip reads it.
    if isinstance(text := architecture.get("text_cfg"), dict) and text.get("hf_tokenizer_name"):
        architecture["text_cfg"] = text | {"hf_tokenizer_name": str(folder)}
    weights = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    require(
        not with_weights or weights is not None,
        f"model: {folder} has no weights; put {_FILES[0]} or {_FILES[-1]} there, or give weights=FILE",
    )
    return _Located(architecture, preprocessing, weights)


def _in_cache(repository: str, with_weights: bool) -> _Located:
    path = _cached(repository, _CONFIG)
    if path is None:
        fail(_missing(f"{_HUB}{repository}", repository, f"{_CONFIG} {_FILES[0]}"))
    try:
        return _in_folder(path.parent, with_weights)
    except InputError as error:
        raise InputError(_missing(f"{_HUB}{repository}", repository, f"{_CONFIG} {_FILES[0]}")) from error


def _cached_weights(model: str, known: Mapping[str, Any]) -> Path:
    """The file of published weights in the cache. Raises InputError saying how to get it."""
    repository, _, name = str(known.get("hf_hub") or "").rpartition("/")
    names = (str(Path(name).with_suffix(".safetensors")), name) if name else _FILES
    for one in names if repository else ():
        if (path := _cached(repository, one)) is not None:
            return path
    url = str(known.get("url") or "")
    local = Path("~/.cache/clip").expanduser() / Path(url).name
    if url and local.is_file():
        return local
    fail(_missing(model, repository, names[0]))


def _cached(repository: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, name)
    except HFValidationError as error:
        raise InputError(f"model: {repository!r} is no OWNER/NAME ({str(error).splitlines()[0]})") from error
    return Path(found) if isinstance(found, str) else None


def _missing(model: str, repository: str, files: str) -> str:
    from huggingface_hub.constants import HF_HUB_CACHE

    return (
        f"model: {model} is not in the cache ({HF_HUB_CACHE}), and vsehub downloads nothing. Get it once with: "
        f"hf download {repository} {files}, and on a machine without a network copy that folder there; or give "
        "weights=FILE with the state dict of the whole model"
    )


def _pictures(model: str, architecture: Mapping[str, Any], preprocessing: Mapping[str, Any]) -> PictureInput:
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict

    found = merge_preprocess_dict(PreprocessCfg(), {key: preprocessing.get(key) for key in _PREPROCESSING})
    size = architecture["vision_cfg"].get("image_size", 224)
    sides = set(size) if isinstance(size, list | tuple) else {size}
    require(len(sides) == 1, f"model: {model} takes pictures of {size} pixels, not squares; choose another")
    side = sides.pop()
    chosen = "bilinear" if found["interpolation"] == "bilinear" else "bicubic"  # as open_clip reads "random"
    both = found["mean"], found["std"]
    channels = [[value] * 3 if isinstance(value, int | float) else list(value) for value in both]
    return PictureInput(side, side, found["resize_mode"], chosen, found["fill_color"], *channels)


def _texts(model: str, architecture: Mapping[str, Any]) -> Texts:
    text = architecture["text_cfg"]
    most = text.get("context_length", 77)
    if not text.get("hf_tokenizer_name"):
        return Texts(most, 0, True)
    tokenizer = _hub_tokenizer(model, text)
    blank = tokenizer.sep_token_id if (text.get("tokenizer_kwargs") or {}).get("strip_sep_token") else None
    return Texts(most, tokenizer.pad_token_id or 0, True, blank)


def _clip_tokenizer() -> str:
    """CLIP's tokenizer, whose tables come with open_clip, for words that are separated by spaces."""
    from open_clip.tokenizer import SimpleTokenizer
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    own = SimpleTokenizer()
    ends = [(own.decoder[number], number) for number in (own.sot_token_id, own.eot_token_id)]
    (start, _), (end, _) = ends
    found = Tokenizer(BPE(vocab=own.encoder, merges=list(own.bpe_ranks), end_of_word_suffix="</w>"))
    split: Any = [WhitespaceSplit(), ByteLevel(add_prefix_space=False, use_regex=False)]
    found.pre_tokenizer = Sequence(split)
    found.add_special_tokens([AddedToken(name, normalized=False) for name, _ in ends])
    found.post_processor = TemplateProcessing(single=f"{start} $A {end}", special_tokens=ends)
    return found.to_str()


def _hub_tokenizer(model: str, text: Mapping[str, Any]) -> Any:
    """The tokenizer of transformers that a configuration names, from a folder or the cache."""
    from vsehub.encoders.pretrained.joint.hf import tokenizer_of

    require(
        not text.get("tokenizer_mode"),
        f"model: {model} tokenises in a mode of its own ({text.get('tokenizer_mode')}), which vsehub does not know; "
        "choose another model",
    )
    return tokenizer_of(str(text["hf_tokenizer_name"]))


def _text_configuration(model: str, architecture: Mapping[str, Any]) -> dict[str, Any] | None:
    """The configuration of a text encoder of transformers, from the cache; None for open_clip's own encoder."""
    name = architecture["text_cfg"].get("hf_model_name")
    if not name:
        return None
    path = _cached(str(name), "config.json")
    if path is None:
        fail(_missing(model, str(name), "config.json"))
    return read_object(path)


def _built(model: str, architecture: Mapping[str, Any]) -> nn.Module:
    """The model with random weights."""
    library = _library()
    whole = require_known_open_clip(model, architecture)
    text = dict(whole["text_cfg"])
    own = text.pop("hf_config", None)
    with TemporaryDirectory() as folder, quiet(), torch.random.fork_rng(devices=[]):
        if own is not None:  # open_clip reads it from a folder, or else from the network
            (Path(folder) / "config.json").write_text(json.dumps(own), encoding="utf-8")
            text |= {"hf_model_name": folder}
        stored = json.dumps({"model_cfg": whole | {"text_cfg": text}})
        (Path(folder) / _CONFIG).write_text(stored, encoding="utf-8")
        try:
            found: nn.Module = library.create_model(f"{_FOLDER}{folder}", load_weights=False, pretrained_text=False)
        except Exception as error:  # open_clip, timm and torch each have their own
            said = str(error).partition("\n")[0][:200]
            raise InputError(f"model: {model} cannot be built ({type(error).__name__}: {said})") from error
    return found


def _load(network: nn.Module, path: str | Path, model: str) -> None:
    from open_clip.factory import load_checkpoint

    try:
        with quiet():
            load_checkpoint(network, str(path), strict=True, weights_only=True)
    except Exception as error:  # torch, pickle, zip and safetensors each have their own
        said = str(error).strip().partition("\n")
        said_all = f"{said[0]} {said[2].strip().partition(chr(10))[0]}".strip()[:300]
        said_all = type(error).__name__ if "weights_only" in said_all else said_all  # torch's advice would run the file
        raise InputError(
            f"weights: {path} cannot be loaded into {model} ({said_all}). Expected its state dict, as .safetensors or "
            "written by torch.save(model.state_dict(), FILE)"
        ) from error
