"""Dropout of features and words: nothing in evaluation, the given share in training, prefixes still shared."""

import pytest
import torch

from vsehub.encoders import ImageFeatures, ImageRegions, TextFeatures
from vsehub.encoders.texts import WordEmbedding


@pytest.mark.parametrize("cpu", [True, False])
def test_a_word_loses_the_same_dimensions_wherever_it_stands(cpu, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", cpu)
    torch.manual_seed(0)
    words = WordEmbedding(50, 400, dropout=0.25)
    ids = torch.tensor([[3, 4, 3, 7], [7, 3, 9, 0]])
    dropped = words(ids)
    assert torch.equal(dropped[0, 0], dropped[0, 2])
    nonzero = dropped != 0
    assert torch.allclose(dropped[nonzero], (words.weight[ids] / 0.75)[nonzero])
    assert 0.7 < nonzero[:, :3].float().mean() < 0.8
    assert not torch.equal(words(ids), dropped)
    assert torch.equal(words.eval()(ids), words.weight[ids])


def test_features_are_dropped_after_they_are_normalised():
    features = torch.rand(4, 300) + 0.5
    for encoder, arguments in (
        (ImageFeatures((300,), 300, dropout=0.4), (features,)),
        (TextFeatures((300,), 300, dropout=0.4), (features, torch.ones(4))),
        (ImageRegions((1, 300), 300, "mean", dropout=0.4), (features[:, None],)),
    ):
        with torch.no_grad():
            encoder.linear.weight.copy_(torch.eye(300))
        dropped, normal = encoder(*arguments), torch.nn.functional.normalize(features, dim=1)
        nonzero = dropped != 0
        assert torch.allclose(dropped[nonzero], (normal / 0.6)[nonzero])
        assert 0.5 < nonzero.float().mean() < 0.7
        assert torch.allclose(encoder.eval()(*arguments), normal, atol=1e-6)
