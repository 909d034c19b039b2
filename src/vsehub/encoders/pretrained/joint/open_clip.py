"""Models of open_clip: CLIP, SigLIP, CoCa and their kind, by name and weights, from a folder, or from the cache."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vsehub.checks import InputError, existing, fail, nearest, regular_members, require
from vsehub.encoders.pretrained.configurations import reduced_open_clip, require_known
from vsehub.encoders.pretrained.joint.hf import tokenizer_of
from vsehub.encoders.pretrained.networks import Network, padded, reason
from vsehub.extras import package
from vsehub.io.files import read_object
from vsehub.io.progress import quiet

_CONFIG = "open_clip_config.json"
_HUB, _FOLDER = "hf-hub:", "local-dir:"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")


def looked_up(model: str, side: str) -> dict[str, Any]:
    """The description of a model: the library's own configuration, `architecture`, and what the side `takes`.

    model: NAME/WEIGHTS as open_clip lists them, such as ViT-B-32/laion2b_s34b_b79k; hf-hub:OWNER/NAME, from the cache;
    or a folder with open_clip_config.json. NAME alone will do without published weights. Raises InputError for an
    unknown name, for a text encoder of transformers, and if open_clip or a file is missing.
    """
    found = _located(model)
    text = found.architecture["text_cfg"]
    require(
        not text.get("hf_model_name"),
        f"model: {model} reads texts by {text.get('hf_model_name')} of transformers; choose another model, or one of "
        "image_encoder=hf",
    )
    takes = _pictures(found) if side == "image" else _texts(found)
    return {"architecture": reduced_open_clip(model, found.architecture), "takes": takes}


def subwords(model: str) -> dict[str, Any]:
    """The tokenizer in plain values: equal tokens to open_clip's own, but from a fast implementation."""
    found = _located(model)
    text = found.architecture["text_cfg"]
    most, options = text.get("context_length", 77), text.get("tokenizer_kwargs") or {}
    if not text.get("hf_tokenizer_name"):
        return {"subwords": _clip_tokenizer(), "most": most, "clean": "clip"}
    own = _tokenizer(found).backend_tokenizer.to_str()
    return {"subwords": own, "most": most, "clean": options.get("clean", "whitespace")}


def network(
    model: str, side: str, description: Mapping[str, Any], pretrained: bool, weights: str | None, checkpointing: bool
) -> Network:
    """One side of the model, in float32; the other side is built too and let go.

    pretrained: with the weights of that name. weights: a file of them instead, .safetensors, or as torch.save writes
    state dicts. checkpointing: compute activations again in the backward pass. Raises InputError if weights are
    missing, damaged or of another model.
    """
    library, architecture = package("the model", "open_clip", "open_clip"), description["architecture"]
    require_known(model, architecture, reduced_open_clip(model, architecture))
    path: Path | None = None
    if weights is not None:
        path = existing("weights", weights, "Give a file with the state dict of the whole model")
    elif pretrained:
        path = _located(model).weights()
    with TemporaryDirectory() as folder, quiet(), torch.random.fork_rng(devices=[]):
        (Path(folder) / _CONFIG).write_text(json.dumps({"model_cfg": architecture}), encoding="utf-8")
        built: Any = library.create_model(f"{_FOLDER}{folder}", load_weights=False)
        try:
            if path is not None:
                library.load_checkpoint(built, str(path), strict=True, weights_only=True)
        except Exception as error:  # torch, pickle, zip and safetensors each have their own
            raise InputError(
                f"weights: {path} cannot be loaded into {model} ({reason(error)}); expected a state dict"
            ) from error
    if checkpointing:
        built.set_grad_checkpointing(True)
    if side == "image":
        return Network(built.visual, _image)
    for part in ("visual", "text_decoder", "logit_scale", "logit_bias"):
        if hasattr(built, part):
            setattr(built, part, None)
    return Network(built, partial(_text, description["takes"]))


def _image(model: Any, pixels: Tensor) -> Tensor:
    found = model(pixels)
    return found[0] if isinstance(found, tuple) else found  # CoCa gives the patches too


def _text(takes: Mapping[str, Any], model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    found = model.encode_text(padded(takes, ids, lengths)[0])
    return found[0] if isinstance(found, tuple) else found


class _Located(NamedTuple):
    """A model's configuration, its preprocessing, and where its files are.

    repository: in the cache, "" for a folder. files: the names that its weights may have. folder: of the files; None:
    in the cache.
    """

    architecture: dict[str, Any]
    preprocessing: Mapping[str, Any]
    repository: str
    files: tuple[str, ...]
    folder: Path | None

    def weights(self) -> Path:
        """The file of the weights. Raises InputError where there is none."""
        if self.folder is None and not self.repository:
            fail("model names no weights; give NAME/WEIGHTS as open_clip lists them, or weights=FILE")
        folder = self.folder or _snapshot(self.repository, self.files[0])
        path = next((folder / name for name in self.files if (folder / name).is_file()), None)
        if path is None:
            fail(f"model: {folder} has no weights; expected one of {', '.join(self.files)}, or give weights=FILE")
        return path


def _located(model: str) -> _Located:
    library = package("the model", "open_clip", "open_clip")
    require(isinstance(model, str), f"model is {model!r}; give open_clip's name and weights, or a folder")
    repository = model.removeprefix(_HUB) if model.startswith(_HUB) else ""
    if repository or model.startswith(_FOLDER) or Path(model).is_dir():
        folder = _snapshot(repository, _CONFIG) if repository else Path(model.removeprefix(_FOLDER))
        regular_members(folder)
        stored = read_object(existing("model", folder / _CONFIG, f"Give a folder with {_CONFIG}"))
        require("model_cfg" in stored, f"model: {folder / _CONFIG} is damaged or no configuration; expected model_cfg")
        return _Located(stored["model_cfg"], stored.get("preprocess_cfg") or {}, repository, _WEIGHTS, folder)
    name, tag = model.replace("/", "-"), ""
    if library.get_model_config(name) is None:
        name, _, tag = model.rpartition("/")
        name = name.replace("/", "-") or tag
    architecture, tags = library.get_model_config(name), library.list_pretrained_tags_by_model(name)
    if architecture is None:
        fail(
            f"model: open_clip has no model {name!r}{nearest(name, library.list_models())}, and there is no such folder"
        )
    require(not tag or tag in tags, f"model: open_clip has no weights {tag!r} of {name}; it has {', '.join(tags)}")
    published = library.get_pretrained_cfg(name, tag)
    if published.get("quick_gelu"):
        architecture["quick_gelu"] = True  # the weights were trained with it, whatever the name says
    repository, _, file = str(published.get("hf_hub") or "").rpartition("/")
    files = (str(Path(file).with_suffix(".safetensors")), file) if file else _WEIGHTS
    return _Located(architecture, published, repository, files, None)


def _snapshot(repository: str, file: str) -> Path:
    """The folder of a repository in the cache of Hugging Face."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except Exception as error:  # of many classes
        raise InputError(
            f"model: {repository} is not in the cache, and vsehub downloads no joint models ({reason(error)}). Get it "
            f"once with: hf download {repository} {file}; or give weights=FILE"
        ) from error


def _pictures(found: _Located) -> dict[str, Any]:
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict

    size = found.architecture["vision_cfg"].get("image_size", 224)
    size = size if isinstance(size, list | tuple) else [size, size]
    require(size[0] == size[1], f"the model takes pictures of {size} pixels, not squares; choose another")
    own = merge_preprocess_dict(PreprocessCfg(), dict(found.preprocessing))
    return {
        "size": size[0],
        "resize": size[0],
        "mode": own["resize_mode"],
        "interpolation": "bilinear" if own["interpolation"] == "bilinear" else "bicubic",  # "random" is bicubic too
        "fill": own["fill_color"],
        **{key: [own[key]] * 3 if isinstance(own[key], int | float) else list(own[key]) for key in ("mean", "std")},
    }


def _texts(found: _Located) -> dict[str, Any]:
    text = found.architecture["text_cfg"]
    takes = {"most": text.get("context_length", 77), "pad": 0, "fixed": True, "blank": None}
    if text.get("hf_tokenizer_name"):
        tokenizer = _tokenizer(found)
        takes["pad"] = tokenizer.pad_token_id or 0
        if (text.get("tokenizer_kwargs") or {}).get("strip_sep_token"):
            takes["blank"] = tokenizer.sep_token_id
    return takes


def _tokenizer(found: _Located) -> Any:
    """The tokenizer of transformers that a configuration names, beside it in its folder or from the cache."""
    text = found.architecture["text_cfg"]
    require(not text.get("tokenizer_mode"), "the model tokenises in a mode that vsehub does not know; choose another")
    return tokenizer_of(str(found.folder or text["hf_tokenizer_name"]))


def _clip_tokenizer() -> str:
    """CLIP's tokenizer, whose tables come with open_clip, for words that are separated by spaces."""
    from open_clip.tokenizer import SimpleTokenizer
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    own = SimpleTokenizer()
    ends = [(own.decoder[number], number) for number in (own.sot_token_id, own.eot_token_id)]
    found = Tokenizer(BPE(vocab=own.encoder, merges=list(own.bpe_ranks), end_of_word_suffix="</w>"))
    split: Any = [WhitespaceSplit(), ByteLevel(add_prefix_space=False, use_regex=False)]
    found.pre_tokenizer = Sequence(split)
    found.add_special_tokens([AddedToken(name, normalized=False) for name, _ in ends])
    found.post_processor = TemplateProcessing(single=f"{ends[0][0]} $A {ends[1][0]}", special_tokens=ends)
    return found.to_str()
