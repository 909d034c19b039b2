import json

import pytest
import torch
from looped import looped
from tiny_bert import SIZES, tiny_bert

from vsehub.checks import InputError
from vsehub.encoders import TextPretrained
from vsehub.encoders.pretrained.configurations import TEXTS as KINDS
from vsehub.encoders.pretrained.configurations import reduced

TEXTS = torch.tensor([[2, 4, 5, 6, 3], [2, 3, 0, 0, 0], [2, 7, 3, 0, 0]])
LENGTHS = torch.tensor([5, 2, 3])
CONFIG = {"model_type": "bert", **SIZES}


@pytest.fixture
def folder(tmp_path):
    return tiny_bert(tmp_path / "bert")


def test_equals_the_model_run_on_each_caption_alone(folder):
    from transformers import AutoModel

    theirs = AutoModel.from_pretrained(folder).eval()
    ours = TextPretrained(folder, 14, dim=6)
    for garbage in (0, 19, -7):
        texts = TEXTS.masked_fill(torch.arange(5) >= LENGTHS[:, None], garbage)
        found = ours(texts, LENGTHS)
        for row, (text, n) in enumerate(zip(TEXTS, LENGTHS, strict=True)):
            states = theirs(input_ids=text[None, :n]).last_hidden_state[0]
            torch.testing.assert_close(found[row], ours.linear(states).mean(dim=0), rtol=1e-5, atol=1e-6)


def test_frozen_means_frozen_and_tuned_means_trained_at_its_own_rate(folder):
    encoder = TextPretrained(folder, 14, dim=6).train()
    assert torch.equal(encoder(TEXTS, LENGTHS), encoder(TEXTS, LENGTHS))  # no dropout
    encoder(TEXTS, LENGTHS).sum().backward()
    assert {name for name, p in encoder.named_parameters() if p.grad is not None} == {"linear.weight", "linear.bias"}
    assert encoder.own_rates() == []
    tuned = TextPretrained(folder, 14, dim=6, tune=True, learning_rate=1e-5)
    assert not torch.equal(tuned(TEXTS, LENGTHS), tuned(TEXTS, LENGTHS))
    tuned(TEXTS, LENGTHS).square().sum().backward()
    assert tuned.backbone.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
    ((parameters, rate),) = tuned.own_rates()
    assert (rate, len(parameters)) == (1e-5, len(list(tuned.backbone.parameters())))


def test_is_rebuilt_without_the_folder(folder):
    encoder = TextPretrained(folder, 14, dim=6, pooling="gpo").eval()
    arguments = json.loads(json.dumps(encoder.rebuilt))  # as a run's record keeps it
    assert folder not in json.dumps(arguments)
    again = TextPretrained("gone", 14, dim=6, pooling="gpo", **arguments).eval()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(TEXTS, LENGTHS), encoder(TEXTS, LENGTHS))
    assert again.rebuilt == encoder.rebuilt


@looped(
    ("kind", "positions"),
    [("bert", 12), ("roberta", 10), ("distilbert", 12), ("mpnet", 10), ("albert", 12), ("electra", 12), ("gpt2", 12)],
)
def test_positions_of_other_kinds(kind, positions):
    """As many as the model can really take: RoBERTa's first two are never used."""
    names = {"gpt2": ("n_embd", "n_layer", "n_head", "n_inner", "n_positions")}
    names["distilbert"] = ("dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings")
    sizes = dict(zip(names.get(kind, list(SIZES)[1:]), list(SIZES.values())[1:], strict=True))
    config = {"model_type": kind, "vocab_size": 20, "bos_token_id": 2, "eos_token_id": 3, **sizes}
    encoder = TextPretrained("nowhere", 14, dim=6, config=config).eval()
    assert encoder.max_positions == positions
    texts = torch.full((2, positions), 5)
    found = encoder(texts, torch.tensor([positions, 3]))
    torch.testing.assert_close(found[1:], encoder(texts[1:, :3], torch.tensor([3])), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=f"loader.max_words={positions - 2}"):
        encoder(torch.full((1, positions + 1), 5), torch.tensor([positions + 1]))


def test_each_type_of_text_encoder_is_described_and_rebuilt():
    """The smallest of each type: its reduced configuration gives the same values again."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    small = ("hidden_size", "dim", "n_embd", "d_model", "word_embed_proj_dim", "embedding_size", "projection_dim")
    few = ("num_hidden_layers", "n_layers", "n_layer", "vocab_size", "intermediate_size", "hidden_dim", "ffn_dim")
    for kind in sorted(KINDS):
        known = CONFIG_MAPPING[kind]().to_dict()
        sizes = {key: 24 for key in small if key in known} | {key: 3 for key in few if key in known}
        sizes |= {key: 2 for key in ("num_attention_heads", "n_heads", "n_head", "num_key_value_heads") if key in known}
        sizes |= {key: 0 for key in known if key.endswith("_token_id") and isinstance(known[key], int)}
        found = reduced("x", CONFIG_MAPPING[kind](**sizes).to_dict(), KINDS)
        assert reduced("x", json.loads(json.dumps(found)), KINDS) == found, kind
        again = CONFIG_MAPPING[kind](**{key: value for key, value in found.items() if key != "model_type"}).to_dict()
        assert {key: value for key, value in again.items() if key in found} == found, kind


def test_refusals(tmp_path, folder):
    for absent in (str(tmp_path / "absent"), "nobody/no-model", str(tmp_path)):
        with pytest.raises(InputError, match=r"hf download"):
            TextPretrained(absent, 14)
    for hostile in (
        {"model_type": "t5"},
        {"model_type": "clip"},
        {"model_type": "vit"},
        CONFIG | {"auto_map": {"AutoModel": "evil/repo--model.Evil"}},
        CONFIG | {"_attn_implementation": "evil/repo"},
        CONFIG | {"hidden_act": "os.system"},
    ):
        with pytest.raises(InputError, match=r"^model: nowhere"):
            TextPretrained("nowhere", 14, config=hostile)
    with pytest.raises(InputError, match="21 ids"):
        TextPretrained(folder, 21)
