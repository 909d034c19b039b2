"""The configurations of pretrained models that vsehub builds, as an allow-list: known models, keys, numbers and words.

A configuration may come from a checkpoint or from a model's folder. The model classes of the libraries also know
settings that open files, ask the network or load code; these are left out here.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from vsehub.checks import fail, require

# Models of transformers with an image and a text encoder for one space.
JOINT = frozenset({"clip", "metaclip_2", "siglip", "chinese_clip", "altclip", "align"})
# Text encoders of transformers.
TEXTS = frozenset(
    {
        "albert",
        "bert",
        "big_bird",
        "camembert",
        "clip_text_model",
        "convbert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "ernie",
        "eurobert",
        "funnel",
        "gpt2",
        "layoutlm",
        "modernbert",
        "mpnet",
        "nomic_bert",
        "opt",
        "rembert",
        "roberta",
        "siglip_text_model",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
    }
)

# Keys of the libraries' own bookkeeping, of heads that no encoder has, and of downloads.
_LEFT_OUT = re.compile(
    r"_.*|architectures|chunk_size_feed_forward|classifier_.*|dtype|finetuning_task|hf_.*|id2label|is_decoder|label2id"
    r"|model_type|output_.*|problem_type|prefix|return_dict|summary_.*|task_specific_params|timm_model_pretrained"
    r"|tokenizer_.*|torch_dtype|transformers_version|use_cache|use_return_dict"
)
_SIDES = ("text_config", "vision_config", "text_cfg", "vision_cfg", "multimodal_cfg")
# JSON whose texts are words such as gelu_new: no path, no module, no repository.
_PLAIN = re.compile(r'(?:"[\w-]*"|true|false|null|NaN|-?Infinity|-?[0-9][0-9.eE+-]*|[][{}:, ])*')


def reduced(model: str, config: Mapping[str, Any], types: frozenset[str], strict: bool = False) -> dict[str, Any]:
    """The part of a transformers configuration that vsehub keeps: the type and the known keys.

    model: its name in messages. types: the types that may be built. strict: the configuration is a checkpoint's. Raises
    InputError for another type, for a known key whose value is neither a number nor a word, and if `strict` for unknown
    keys.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in types:
        fail(f"model: {model} is of the type {kind!r}, which vsehub does not build here: {', '.join(sorted(types))}")
    return {"model_type": kind, **_known(model, config, CONFIG_MAPPING[kind]().to_dict(), strict)}


def reduced_open_clip(model: str, config: Mapping[str, Any], strict: bool = False) -> dict[str, Any]:
    """The part of an open_clip configuration that vsehub keeps; as `reduced`."""
    from open_clip.coca_model import MultimodalCfg
    from open_clip.model import CLIPTextCfg, CLIPVisionCfg

    sides = {"vision_cfg": CLIPVisionCfg(), "text_cfg": CLIPTextCfg(), "multimodal_cfg": MultimodalCfg()}
    names = ("embed_dim", "init_logit_scale", "init_logit_bias", "quick_gelu", "custom_text", "nonscalar_logit_scale")
    defaults = dict.fromkeys(names) | {side: vars(part) for side, part in sides.items()}
    return _known(model, config, defaults, strict)


def _known(model: str, config: Mapping[str, Any], defaults: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    settings = {}
    for key, value in config.items():
        if key not in defaults or _LEFT_OUT.fullmatch(key):
            require(
                not strict or key == "model_type",
                f"model: {model}: its configuration has the unknown setting {key}; refused",
            )
        elif key in _SIDES:
            settings[key] = _known(model, value, defaults[key], strict)
        elif _PLAIN.fullmatch(json.dumps(value)):
            settings[key] = value
        else:
            require(
                value == defaults[key],
                f"model: {model}: its configuration has {key} = {str(value)[:80]!r}, which vsehub does not know",
            )
    return settings
