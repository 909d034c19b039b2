"""Dropout of features and words: nothing in evaluation, the given share in training, prefixes still shared."""

import torch

from vsehub.encoders import ImageFeatures, ImageRegions, TextFeatures
from vsehub.encoders.texts import WordEmbedding


def test_a_word_loses_the_same_dimensions_wherever_it_stands():
    torch.manual_seed(0)
    words = WordEmbedding(50, 400, dropout=0.25)
    ids = torch.tensor([[3, 4, 3, 7], [7, 3, 9, 0]])
    found = words(ids)
    assert torch.equal(found[0, 0], found[0, 2])
    kept = found != 0
    assert torch.allclose(found[kept], (words.weight[ids] / 0.75)[kept])
    assert 0.7 < kept[:, :3].float().mean() < 0.8
    assert not torch.equal(words(ids), found)
    assert torch.equal(words.eval()(ids), words.weight[ids])


def test_features_are_dropped_after_they_are_normalised():
    features = torch.rand(4, 300) + 0.5
    for encoder, given in (
        (ImageFeatures((300,), 300, dropout=0.4), (features,)),
        (TextFeatures((300,), 300, dropout=0.4), (features, torch.ones(4))),
        (ImageRegions((1, 300), 300, "mean", dropout=0.4), (features[:, None],)),
    ):
        with torch.no_grad():
            encoder.linear.weight.copy_(torch.eye(300))
        found, normal = encoder(*given), torch.nn.functional.normalize(features, dim=1)
        kept = found != 0
        assert torch.allclose(found[kept], (normal / 0.6)[kept])
        assert 0.5 < kept.float().mean() < 0.7
        assert torch.allclose(encoder.eval()(*given), normal, atol=1e-6)
