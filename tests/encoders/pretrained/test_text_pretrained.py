import json

import pytest
import torch
from looped import looped
from tiny_bert import SIZES, tiny_bert

from vsehub.checks import InputError
from vsehub.encoders import TextPretrained

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
    assert folder not in json.dumps(ours.rebuilt)
    for garbage in (0, 19, -7):
        texts = TEXTS.masked_fill(torch.arange(5) >= LENGTHS[:, None], garbage)
        vectors = ours(texts, LENGTHS)
        for row, (text, n) in enumerate(zip(TEXTS, LENGTHS, strict=True)):
            states = theirs(input_ids=text[None, :n]).last_hidden_state[0]
            torch.testing.assert_close(vectors[row], ours.linear(states).mean(dim=0), rtol=1e-5, atol=1e-6)


def test_frozen_means_frozen_and_tuned_means_trained_at_its_own_rate(folder):
    encoder = TextPretrained(folder, 14, dim=6).train()
    assert torch.equal(encoder(TEXTS, LENGTHS), encoder(TEXTS, LENGTHS))  # no dropout
    encoder(TEXTS, LENGTHS).sum().backward()
    assert {name for name, p in encoder.named_parameters() if p.grad is not None} == {"linear.weight", "linear.bias"}
    assert encoder.learning_rates() == []
    tuned = TextPretrained(folder, 14, dim=6, tune=True, learning_rate=1e-5)
    assert not torch.equal(tuned(TEXTS, LENGTHS), tuned(TEXTS, LENGTHS))
    tuned(TEXTS, LENGTHS).square().sum().backward()
    assert tuned.backbone.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
    ((parameters, rate),) = tuned.learning_rates()
    assert (rate, len(parameters)) == (1e-5, len(list(tuned.backbone.parameters())))


@looped(("kind", "positions"), [("roberta", 10), ("distilbert", 12), ("mpnet", 10), ("albert", 12), ("gpt2", 12)])
def test_positions_of_other_kinds(kind, positions):
    """As many as the model can really take: RoBERTa's first two are never used. A description gives the model again."""
    names = {"gpt2": ("n_embd", "n_layer", "n_head", "n_inner", "n_positions")}
    names["distilbert"] = ("dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings")
    sizes = dict(zip(names.get(kind, list(SIZES)[1:]), list(SIZES.values())[1:], strict=True))
    config = {"model_type": kind, "vocab_size": 20, "bos_token_id": 2, "eos_token_id": 3, **sizes}
    encoder = TextPretrained("nowhere", 14, dim=6, config=config).eval()
    texts, lengths = torch.full((2, positions), 5), torch.tensor([positions, 3])
    vectors = encoder(texts, lengths)
    torch.testing.assert_close(vectors[1:], encoder(texts[1:, :3], lengths[1:]), rtol=1e-4, atol=1e-5)
    again = TextPretrained("gone", 14, dim=6, **json.loads(json.dumps(encoder.rebuilt))).eval()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(texts, lengths), vectors)
    with pytest.raises(InputError, match=f"loader.max_words={positions - 2}"):
        encoder(torch.full((1, positions + 1), 5), torch.tensor([positions + 1]))


def test_refusals(tmp_path):
    for absent in (str(tmp_path / "absent"), "nobody/no-model", str(tmp_path)):
        with pytest.raises(InputError, match=r"hf download"):
            TextPretrained(absent, 14)
    for hostile in (
        {"model_type": "t5"},
        {"auto_map": {"AutoModel": "evil/repo--model.Evil"}},
        {"_attn_implementation": "evil/repo"},
        {"hidden_act": "os.system"},
    ):
        with pytest.raises(InputError, match=r"^model: nowhere"):
            TextPretrained("nowhere", 14, config=CONFIG | hostile)
    with pytest.raises(InputError, match="21 ids"):
        TextPretrained("nowhere", 21, config=CONFIG)
