import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from vsehub.checks import InputError
from vsehub.encoders.image_cnn import ImageCNN
from vsehub.encoders.image_features import ImageFeatures
from vsehub.encoders.prefix_gru import PrefixTree
from vsehub.encoders.text_gru import TextGRU


def captions(seed, n=40, words=7, longest=9):
    """Few words, so that many prefixes are shared, and some whole captions are equal or prefixes of others."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator)
    texts = torch.randint(1, words, (n, longest), generator=generator)
    texts[:, 0] = 1
    texts[: n // 2, 1] = 2
    return texts.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths


def packed(encoder, texts, lengths):
    rows = pack_padded_sequence(encoder.words(texts), lengths, batch_first=True, enforce_sorted=False)
    return encoder.gru(rows)[1][-1]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_shared_prefixes_equal_the_packed_gru(seed, layers):
    torch.manual_seed(seed)
    encoder = TextGRU(7, dim=6, word_dim=5, layers=layers).double()
    texts, lengths = captions(seed)
    weight = torch.randn(len(texts), 6, dtype=torch.float64)
    answers = []
    for encode in (encoder, lambda t, n: packed(encoder, t, n)):
        encoder.zero_grad()
        states = encode(texts, lengths)
        (states * weight).sum().backward()
        answers.append([states, *(parameter.grad.clone() for parameter in encoder.parameters())])
    for ours, theirs in zip(*answers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    encoder = TextGRU(5, dim=3, word_dim=2).double()
    texts, lengths = captions(1, n=6, words=5, longest=4)
    names = [name for name, _ in encoder.named_parameters()]

    def run(*parameters):
        return torch.func.functional_call(encoder, dict(zip(names, parameters, strict=True)), (texts, lengths))

    assert torch.autograd.gradcheck(run, tuple(p.detach().requires_grad_() for p in encoder.parameters()))


def test_bf16_products_stay_near_float32():
    torch.manual_seed(0)
    encoder = TextGRU(7, dim=64, word_dim=32)
    texts, lengths = captions(2)
    exact = encoder(texts, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        rough = encoder(texts, lengths)
    assert rough.dtype == torch.float32
    assert (rough - exact).norm() / exact.norm() < 0.02
    rough.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters())


def test_each_distinct_prefix_is_one_node():
    texts, lengths = captions(3)
    prefixes = {tuple(text[:end].tolist()) for text, n in zip(texts, lengths, strict=True) for end in range(1, n + 1)}
    tree = PrefixTree.build(texts, lengths)
    assert len(tree.words) == len(prefixes) < lengths.sum()


def test_padding_changes_nothing():
    torch.manual_seed(0)
    texts, lengths = captions(4)
    for bidirectional in (False, True):
        encoder = TextGRU(7, dim=6, word_dim=5, bidirectional=bidirectional)
        alone = torch.cat([encoder(text[None, :n], n[None]) for text, n in zip(texts, lengths, strict=True)])
        torch.testing.assert_close(encoder(texts, lengths), alone)


def test_paper_init_is_xavier_everywhere():
    torch.manual_seed(0)
    encoder = TextGRU(50, dim=32, word_dim=20, init="paper")
    assert encoder.gru.weight_hh_l0.abs().max() <= (6 / (32 * 4)) ** 0.5
    assert encoder.gru.bias_hh_l0.abs().max() == 0
    with pytest.raises(InputError, match="init is 'papre'; choose one of 'release', 'paper'"):
        TextGRU(50, init="papre")


def test_image_encoders():
    torch.manual_seed(0)
    features = torch.rand(4, 10).half()
    encoder = ImageFeatures((10,), dim=6)
    torch.testing.assert_close(encoder(features), encoder(features * 3), rtol=1e-2, atol=1e-3)
    with pytest.raises(InputError, match=r"image_features takes one feature vector .* shape \(36, 10\)"):
        ImageFeatures((36, 10))
    pixels = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    cnn = ImageCNN((3, 64, 64), dim=6, width=4)
    torch.testing.assert_close(cnn(pixels), cnn(pixels.float() / 255))
    with pytest.raises(InputError, match=r"image_cnn with 4 stages takes pictures .* shape \(10,\)"):
        ImageCNN((10,))
