import math

import pytest
import torch

from vsehub.checks import InputError
from vsehub.encoders import TextTransformer

LENGTHS = torch.tensor([5, 1, 3])
TEXTS = torch.tensor([[1, 4, 5, 6, 2], [1, 0, 0, 0, 0], [1, 7, 2, 0, 0]])


def encoder(**settings):
    torch.manual_seed(0)
    return TextTransformer(9, dim=6, word_dim=8, heads=2, max_positions=7, **settings).double()


def attended(layer, states):
    """Two heads by their definition: (L, D) -> (L, D)."""
    queries, keys, values = (states @ layer.in_proj_weight.T + layer.in_proj_bias).split(states.shape[1], dim=1)
    heads = []
    for head in range(2):
        q, k, v = (matrix[:, head * 4 : head * 4 + 4] for matrix in (queries, keys, values))
        heads.append(torch.softmax(q @ k.T / math.sqrt(4), dim=1) @ v)
    return layer.out_proj(torch.cat(heads, dim=1))


def test_equals_the_equations_of_a_pre_norm_transformer():
    model = encoder(pooling="none").eval()
    for gradient in (True, False):  # torch has a fused path without
        with torch.set_grad_enabled(gradient):
            sets = model(TEXTS, LENGTHS)
        for row, (text, n) in enumerate(zip(TEXTS, LENGTHS, strict=True)):
            states = model.words.weight[text[:n]] + model.positions.weight[:n]
            for block in model.layers.layers:
                states = states + attended(block.self_attn, block.norm1(states))
                hidden = torch.nn.functional.gelu(block.linear1(block.norm2(states)))
                states = states + block.linear2(hidden)
            expected = model.linear(model.layers.norm(states))
            torch.testing.assert_close(sets[torch.tensor([row])].vectors, expected, rtol=1e-9, atol=1e-12)


def test_a_caption_beyond_the_positions_is_refused():
    with pytest.raises(InputError, match=r"loader.max_words=5"):
        encoder()(torch.ones(1, 9, dtype=torch.int64), torch.tensor([9]))
