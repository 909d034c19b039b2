"""The configurations of pretrained models that vsehub builds, as an allow-list: known models, keys, numbers and words.

A configuration may come from a checkpoint or from a model's folder. What it may hold is decided here, and all else is
refused, since a library's model classes also know settings that open files, ask the network or load code.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from vsehub.checks import InputError, fail, nearest, require
from vsehub.extras import package

# Models of transformers with an image and a text encoder for one space.
JOINT = frozenset({"clip", "metaclip_2", "siglip", "siglip2", "chinese_clip", "altclip", "align"})
# Text encoders of transformers.
TEXTS = frozenset(
    {
        *("albert", "bert", "big_bird", "camembert", "clip_text_model", "convbert", "deberta", "deberta-v2"),
        *("distilbert", "electra", "ernie", "eurobert", "funnel", "gpt2", "layoutlm", "modernbert", "mpnet"),
        *("nomic_bert", "opt", "rembert", "roberta", "siglip_text_model", "xlm", "xlm-roberta", "xlm-roberta-xl"),
    }
)
# Text encoders of transformers within models of open_clip.
INSIDE_OPEN_CLIP = frozenset({"bert", "m2m_100", "mt5", "roberta", "xlm-roberta"})

_ACTIVATIONS = frozenset(
    {
        *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "laplace"),
        *("linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "selu", "sigmoid", "silu", "swish", "tanh"),
        *("gated-gelu", "gated-silu"),
    }
)
_WORDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("hidden_act", "hidden_activation", "activation", "activation_function"), _ACTIVATIONS),
    **dict.fromkeys(("pooler_hidden_act", "dense_act_fn", "feed_forward_proj"), _ACTIVATIONS),
    "attention_type": frozenset({"block_sparse", "original_full", "relative_shift", "factorized"}),
    "layer_types": frozenset({"full_attention", "sliding_attention"}),
    "norm_rel_ebd": frozenset({"layer_norm", "none"}),
    "pooling_type": frozenset({"mean", "max"}),
    "pos_att_type": frozenset({"c2p", "p2c", "p2p"}),
    "position_embedding_type": frozenset({"absolute", "relative_key", "relative_key_query"}),
    "rope_type": frozenset({"default", "linear", "dynamic", "yarn", "longrope", "llama3"}),
    # of open_clip
    "approximate": frozenset({"none", "tanh"}),
    "attentional_pool": frozenset({"parallel", "cascade"}),
    "block_type": frozenset({"default", "custom"}),
    "hf_pooler_type": frozenset({"mean_pooler", "max_pooler", "cls_pooler", "cls_last_hidden_state_pooler"}),
    "hf_proj_type": frozenset({"linear", "mlp"}),
    "pool_type": frozenset({"tok", "avg", "none", "argmax", "eos", "first", "last"}),
    "pos_embed_type": frozenset({"learnable", "sin_cos_2d"}),
    "proj_type": frozenset({"linear", "none"}),
    "timm_pool": frozenset({"", "abs_attn", "avg", "map", "rot_attn", "token"}),
    "timm_proj": frozenset({"", "linear", "mlp", "none"}),
}
# Keys of transformers' own bookkeeping, and of heads that no encoder has.
_LEFT_OUT = re.compile(
    r"_.*|architectures|chunk_size_feed_forward|classifier_.*|dtype|finetuning_task|id2label|is_decoder|label2id"
    r"|output_.*|problem_type|prefix|return_dict|summary_.*|task_specific_params|tokenizer_class|torch_dtype"
    r"|transformers_version|use_cache|use_return_dict"
)
# A name in a library's list, or of a repository in the cache: no path, and not open_clip's local-dir:.
_REPOSITORY = re.compile(r"(hf-hub:)?[\w-][\w.-]*(/[\w-][\w.-]*)?")
_SIDES = ("text_config", "vision_config")
_SMALL = {"eps": 1e-5, "approximate": "none"}  # of a normalisation or an activation


def reduced(name: str, config: Mapping[str, Any], models: frozenset[str]) -> dict[str, Any]:
    """What vsehub keeps of a configuration of transformers: the model's type and the known keys.

    name: of the model, in messages. models: the types that may be built. Keys that the installed library does not know
    are left out. Raises InputError for another type, and for a known key whose value is not allowed.
    """
    known = _template(name, config, models)
    found = _kept(name, {key: value for key, value in config.items() if key in known}, known, reducing=True)
    return {"model_type": config["model_type"], **found}


def require_known(name: str, config: Mapping[str, Any], models: frozenset[str]) -> dict[str, Any]:
    """A configuration as `reduced` gives it. Raises InputError if it holds anything else."""
    known = _template(name, config, models)
    _require_keys(name, config, {"model_type", *known})
    found = {key: value for key, value in config.items() if key != "model_type"}
    return {"model_type": config["model_type"], **_kept(name, found, known)}


def reduced_open_clip(name: str, config: Mapping[str, Any], text: Mapping[str, Any] | None) -> dict[str, Any]:
    """What vsehub keeps of a configuration of open_clip.

    text: the configuration of the text encoder if that is a model of transformers. Keys for tokenizers and downloads
    are left out. Raises InputError as `require_known_open_clip`.
    """
    parts = {
        key: {one: inner for one, inner in value.items() if one not in _OPEN_CLIP_LEFT_OUT}
        if isinstance(value, Mapping)
        else value
        for key, value in config.items()
    }
    if text is not None:
        parts["text_cfg"]["hf_config"] = reduced(name, text, INSIDE_OPEN_CLIP)
    return require_known_open_clip(name, parts)


# The tokenizer is kept apart; weights and the text encoder's configuration come with the checkpoint.
_OPEN_CLIP_LEFT_OUT = frozenset(
    {
        *("hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs", "hf_model_name", "hf_model_pretrained"),
        "timm_model_pretrained",
    }
)


def require_known_open_clip(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of a model of open_clip. Raises InputError if it holds anything that is not allowed."""
    from open_clip.coca_model import MultimodalCfg
    from open_clip.model import CLIPTextCfg, CLIPVisionCfg

    sides = {"vision_cfg": CLIPVisionCfg(), "text_cfg": CLIPTextCfg(), "multimodal_cfg": MultimodalCfg()}
    numbers = ("embed_dim", "init_logit_scale", "init_logit_bias")
    flags = ("quick_gelu", "custom_text", "nonscalar_logit_scale")
    _require_keys(name, config, {*sides, *numbers, *flags})
    found = _kept(name, {key: value for key, value in config.items() if key not in sides}, dict.fromkeys(config))
    for side, defaults in sides.items():
        if side not in config:
            continue
        own = config[side]
        require(isinstance(own, Mapping), f"model: {name}: {side} is {_shown(own)}; expected settings")
        known = {key: value for key, value in vars(defaults).items() if key not in _OPEN_CLIP_LEFT_OUT}
        known |= {"act_kwargs": _SMALL, "norm_kwargs": _SMALL}
        special = {"timm_model_name", "hf_config"}
        _require_keys(name, own, {*known, *special} if side != "multimodal_cfg" else set(known))
        found[side] = _kept(name, {key: value for key, value in own.items() if key not in special}, known)
        if own.get("timm_model_name") is not None:
            found[side]["timm_model_name"] = _of_timm(name, own["timm_model_name"])
        if own.get("hf_config") is not None:
            found[side]["hf_config"] = require_known(name, own["hf_config"], INSIDE_OPEN_CLIP)
    return found


def require_place(model: str, trust: Sequence[str]) -> None:
    """Raise InputError unless a checkpoint may open a model: by a name in a library's cache, or where the user says."""
    is_name = _REPOSITORY.fullmatch(model) is not None and not os.path.exists(model)
    require(
        is_name or model in trust,
        f"its base model would be read from {model!r}, and a file from elsewhere opens no other files; if that place "
        f"is yours, give trust={model}",
    )


def _of_timm(name: str, model: object) -> str:
    timm = package("the model", "timm", "timm")
    if not isinstance(model, str) or model not in timm.list_models():
        fail(f"model: {name} names an image encoder that timm does not have, {_shown(model)}; refused")
    return model


@cache
def _defaults(model_type: str) -> dict[str, Any]:
    """The installed library's keys of a type of model, with their defaults."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        found: dict[str, Any] = CONFIG_MAPPING[model_type]().to_dict()
    except KeyError as error:
        raise InputError(
            f"model: the installed transformers has no model of the type {model_type!r}; install a newer one"
        ) from error
    return found


def _template(name: str, config: Mapping[str, Any], models: frozenset[str]) -> dict[str, Any]:
    kind = config.get("model_type")
    require(
        isinstance(kind, str) and kind in models,
        f"model: {name} is of the type {_shown(kind)}{nearest(str(kind), sorted(models))}, which vsehub does not build "
        f"here; it builds {', '.join(sorted(models))}",
    )
    return _known(_defaults(str(kind)))


def _known(defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in defaults.items() if key != "model_type" and not _LEFT_OUT.fullmatch(str(key))}


def _require_keys(name: str, config: Mapping[str, Any], known: set[str]) -> None:
    unknown = [key for key in config if key not in known]
    require(
        not unknown,
        f"model: {name}: its configuration has {_shown((unknown or [''])[0])}, which vsehub does not know; refused",
    )


def _kept(name: str, config: Mapping[str, Any], known: Mapping[str, Any], reducing: bool = False) -> dict[str, Any]:
    """The values of known keys; the sides of a joint model have keys of their own.

    reducing: leave out unknown keys of the sides, and values that the library gives by itself. Raises InputError for
    other values that are not allowed.
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        default = known[key]
        if key in _SIDES and isinstance(value, Mapping) and isinstance(default, Mapping):
            inner = _known(default)
            if reducing:
                value = {one: own for one, own in value.items() if one in inner}
            _require_keys(name, value, set(inner))
            found[key] = _kept(name, value, inner, reducing)
        elif _is_allowed(key, value, default):
            found[key] = value
        elif not (reducing and value == default):
            fail(f"model: {name}: its configuration has {key} = {_shown(value)}, which vsehub does not know; refused")
    return found


def _is_allowed(key: str, value: Any, default: Any) -> bool:
    """Whether a value is a number or a word of the key's own, a list of these, or settings of the default's shape."""
    if isinstance(value, Mapping):
        inner = default if isinstance(default, Mapping) else {}
        return all(one in inner and _is_allowed(one, own, inner[one]) for one, own in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(key, one) for one in value)
    return _is_plain(key, value)


def _is_plain(key: str, value: Any) -> bool:
    if isinstance(value, str):
        return value in _WORDS.get(key, ())
    return value is None or isinstance(value, bool | int | float)


def _shown(value: object) -> str:
    return repr(value)[:80]
