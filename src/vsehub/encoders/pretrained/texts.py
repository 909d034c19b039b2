"""A pretrained text model of the transformers library, frozen or tuned, and a linear map to the joint space."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vsehub.checks import require
from vsehub.encoders.features import linear_map
from vsehub.encoders.pooling import gives, pooling_of
from vsehub.encoders.pretrained.configurations import TEXTS, reduced
from vsehub.encoders.pretrained.joint.hf import build, read_auto
from vsehub.encoders.pretrained.networks import DescribedEncoder
from vsehub.sets import Encoding

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TextPretrained(DescribedEncoder):
    """(N, L) subword ids to the model's last states, mapped to the joint space and pooled.

    model: a local folder, or a name that is in the library's cache; nothing is downloaded. vocabulary_size: from the
    data, whose captions are cut by the model's own tokenizer (`loader.tokenizer`). dim: D of the joint space.
    pretrained: False starts from random weights. tune: False freezes the model, without dropout; the linear map is
    always trained. learning_rate: learning rate of the tuned model (None: the optimizer's). pooling: "last", "mean",
    "max", "gpo" or "none", the subwords' states as `Sets`; special tokens count as subwords. config: the model's
    configuration with its model_type, as checkpoints hold it: the model is built from it with random weights, and
    `model` is not read. Raises InputError where transformers or the model is missing, for a model without a text
    encoder and, when it runs, for captions longer than the model's positions.
    """

    rebuilt: Mapping[str, Any] = {"pretrained": False}

    def __init__(
        self,
        model: str,
        vocabulary_size: int,
        dim: int = 1024,
        pretrained: bool = True,
        tune: bool = False,
        learning_rate: float | None = None,
        pooling: str = "mean",
        config: dict[str, Any] | None = None,
    ):
        super().__init__()
        stored = read_auto(model, "AutoConfig").to_dict() if config is None else config
        settings = reduced(model, stored, TEXTS, strict=config is not None)
        self.backbone = build(model, settings, pretrained and config is None)
        known_ids: Any = self.backbone.get_input_embeddings().num_embeddings
        require(
            vocabulary_size <= known_ids,
            f"the captions have {vocabulary_size} ids but {model} knows {known_ids}; set loader.tokenizer={model}",
        )
        self.tune, self.learning_rate = tune, learning_rate
        self.backbone.requires_grad_(tune)
        self.max_positions = _positions(self.backbone)
        self.linear = linear_map(self.backbone.config.hidden_size, dim)
        self.pool = pooling_of(pooling)
        self.gives = gives(pooling)
        complete = json.loads(self.backbone.config.to_json_string(use_diff=False))
        self.rebuilt = {"pretrained": False, "config": reduced(model, complete, TEXTS)}
        self.train()

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of subwords."""
        longest = texts.shape[1]
        if self.max_positions is not None:
            require(
                longest <= self.max_positions,
                f"a caption has {longest} subwords, special tokens counted; the model takes {self.max_positions}: "
                f"cut with loader.max_words={self.max_positions - 2}",
            )
        inside = torch.arange(longest, device=texts.device) < lengths[:, None]
        ids = texts.masked_fill(~inside, self.backbone.config.pad_token_id or 0)
        with self.gradient():
            states = self.backbone(input_ids=ids, attention_mask=inside.long()).last_hidden_state
        return self.pool(self.linear(states), lengths)


def _positions(backbone: "PreTrainedModel") -> int | None:
    """The longest caption that the model takes; None where its positions are relative."""
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "position_embedding", "wpe")):
            unused = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa's positions begin behind it
            return module.num_embeddings - unused
    return getattr(backbone.config, "max_position_embeddings", None)
