"""A pretrained text model of the transformers library, frozen or tuned, and a linear map to the joint space."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, positive, regular_members, require, whole
from vsehub.encoders.pooling import pooling_of
from vsehub.encoders.pretrained.configurations import TEXTS, reduced, require_known, require_place
from vsehub.extras import package
from vsehub.sets import Encoding
from vsehub.types import Encoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TextPretrained(Encoder):
    """(N, L) subword ids to the model's last states, mapped to the joint space and pooled.

    model: a local folder, or a name that is in the library's cache; nothing is downloaded. vocabulary_size: from the
    data, whose captions are cut by the model's own tokenizer (`loader.tokenizer`). dim: D of the joint space.
    pretrained: False starts from random weights. tune: False freezes the model, without dropout; the linear map is
    always trained. learning_rate: of the tuned model (None: the optimizer's). pooling: "last", "mean", "max",
    "gpo" or "none", the subwords' states as `Sets`; special tokens count as subwords. config: the model's configuration
    with its model_type, as checkpoints hold it: the model is built from it, and `model` is not read. Raises InputError
    where transformers or the model is missing, for one that is no text encoder, for settings that contradict each
    other and, when it runs, for captions longer than the model's positions.
    """

    rebuilt: Mapping[str, Any] = {"pretrained": False}  # each encoder adds its model's configuration, below

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
        whole("dim", dim)
        if learning_rate is not None:
            positive("text_encoder.learning_rate", learning_rate)
            require(tune, "text_encoder.learning_rate is that of the tuned model; set text_encoder.tune=true too")
        require(
            config is None or not pretrained,
            "text_encoder.config builds an untrained model; set text_encoder.pretrained=false, or leave config out",
        )
        self.backbone = _built(model, pretrained, config)
        known: Any = self.backbone.get_input_embeddings().num_embeddings
        require(
            vocabulary_size <= known,
            f"the captions have {vocabulary_size} ids but {model} knows {known}; set loader.tokenizer={model}",
        )
        self.tune, self.learning_rate = tune, learning_rate
        self.backbone.requires_grad_(tune)
        self.max_positions = _positions(self.backbone)
        self.linear = nn.Linear(self.backbone.config.hidden_size, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.pool = pooling_of(pooling)
        self.gives = self.pool.gives
        # With these arguments a checkpoint rebuilds the encoder without the model's folder.
        settings = json.loads(self.backbone.config.to_json_string(use_diff=False))
        self.rebuilt = {"pretrained": False, "config": reduced(model, settings, TEXTS)}
        self.train()

    @classmethod
    def admit(cls, settings: Mapping[str, Any], trust: Sequence[str]) -> None:
        """See `Component`: a checkpoint brings its model's configuration; without it `model` is opened."""
        if not isinstance(settings.get("config"), Mapping):
            require_place(str(settings.get("model")), trust)

    def own_rates(self) -> list[tuple[list[nn.Parameter], float]]:
        """The backbone's parameters, where it is tuned at its own learning rate."""
        return [] if self.learning_rate is None else [(list(self.backbone.parameters()), self.learning_rate)]

    def train(self, mode: bool = True) -> "TextPretrained":
        """Training mode, in which a frozen model stays in eval mode."""
        super().train(mode)
        self.backbone.train(mode and self.tune)
        return self

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of subwords."""
        return self.pool(self.states(texts, lengths), lengths)

    def states(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """The subwords' states (N, L, D) before they are pooled."""
        longest, most = texts.shape[1], self.max_positions
        require(
            most is None or longest <= most,
            f"a caption of {longest} subwords, special tokens counted, came; the model takes {most}: cut with "
            f"loader.max_words={(most or 0) - 2}",
        )
        inside = torch.arange(longest, device=texts.device) < lengths[:, None]
        ids = texts.masked_fill(~inside, self.backbone.config.pad_token_id or 0)
        with torch.set_grad_enabled(self.tune and torch.is_grad_enabled()):
            states = self.backbone(input_ids=ids, attention_mask=inside.long()).last_hidden_state
        return self.linear(states)


def _built(model: str, pretrained: bool, config: Mapping[str, Any] | None) -> "PreTrainedModel":
    """The model in float32, from its folder, or of a configuration with random weights."""
    library = package("text_encoder=text_pretrained", "transformers", "transformers")
    regular_members(Path(model))
    place = {"local_files_only": True, "trust_remote_code": False}
    try:
        if config is None:
            settings = library.AutoConfig.from_pretrained(model, **place)
        else:
            settings = library.AutoConfig.for_model(**require_known(model, config, TEXTS))
        _require_text_encoder(model, settings)
        if pretrained:
            found = library.AutoModel.from_pretrained(model, config=settings, use_safetensors=True, **place)
        else:
            found = library.AutoModel.from_config(settings, trust_remote_code=False)
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"text_encoder.model: {model!r} cannot be built ({str(error).strip().splitlines()[0]}). Give a folder with "
            f"config.json and model.safetensors, or get it once with: hf download {model}"
        ) from error
    return found.float()


def _require_text_encoder(model: str, settings: Any) -> None:
    """Raise InputError for encoder-decoders, and for models without one stack of states."""
    require(
        not settings.is_encoder_decoder
        and bool(getattr(settings, "hidden_size", 0))
        and hasattr(settings, "vocab_size"),
        f"text_encoder.model: {model!r} is a {settings.model_type} model, not a text encoder; choose one such as BERT, "
        "RoBERTa or DistilBERT",
    )


def _positions(backbone: "PreTrainedModel") -> int | None:
    """The longest caption that the model takes; None where its positions are relative."""
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "position_embedding", "wpe")):
            # RoBERTa counts positions from behind its padding's.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return getattr(backbone.config, "max_position_embeddings", None)
