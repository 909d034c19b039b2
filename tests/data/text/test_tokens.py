import numpy as np
import pytest
import torch
from looped import looped

from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Vocabulary

CAPTIONS = ["a b c d e", "", "a", "e d unseen a b c a", "b b"]


@pytest.fixture
def vocabulary():
    return Vocabulary.build(["a b c d e"], min_count=1)


@looped("max_words", [None, 1, 3, 50])
@looped("indices", [[0], [1], [4, 0, 0, 3, 1], [1, 2], [-1, -5], []])
def test_batch_agrees_with_a_loop(vocabulary, indices, max_words):
    table = TokenTable.build(vocabulary, CAPTIONS, max_words=max_words)
    texts, lengths = table.batch(np.array(indices, dtype=int))
    rows = [*vocabulary.encode_all([CAPTIONS[i] for i in indices])]
    rows = [[row[0], *row[1:-1][:max_words], row[-1]] for row in rows]
    longest = max(map(len, rows), default=0)
    assert texts.dtype == lengths.dtype == torch.int64
    assert texts.shape == (len(indices), longest)
    assert texts.tolist() == [row + [0] * (longest - len(row)) for row in rows]
    assert lengths.tolist() == [len(row) for row in rows]
