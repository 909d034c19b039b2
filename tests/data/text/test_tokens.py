import time

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
    rows = [vocabulary.encode(CAPTIONS[i]) for i in indices]
    rows = [[row[0], *row[1:-1][:max_words], row[-1]] for row in rows]
    longest = max(map(len, rows), default=0)
    assert texts.dtype == lengths.dtype == torch.int64
    assert texts.shape == (len(indices), longest)
    assert texts.tolist() == [row + [0] * (longest - len(row)) for row in rows]
    assert lengths.tolist() == [len(row) for row in rows]


def test_table_is_flat(vocabulary):
    table = TokenTable.build(vocabulary, CAPTIONS)
    assert len(table) == 5
    assert table.tokens.dtype == np.int32
    assert table.offsets.tolist() == [0, 7, 9, 12, 21, 25]
    assert table.lengths.tolist() == [7, 2, 3, 9, 4]
    for bad in (5, -6):
        with pytest.raises(IndexError):
            table.batch(np.array([0, bad]))
    assert len(TokenTable.build(vocabulary, [])) == 0


def test_tokenising_is_fast(vocabulary):
    captions = [f"a man in a red shirt number {i} rides a bicycle" for i in range(20_000)]
    begin = time.process_time()
    TokenTable.build(vocabulary, captions)
    assert time.process_time() - begin < 2, "20,000 captions took 2 s or more; 0.25 s was measured on one core"
