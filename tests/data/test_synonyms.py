"""Synonyms from a table, from captions, and replacing words by them."""

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data.text.synonyms import Synonyms
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Vocabulary


def known(synonyms, vocabulary):
    """{word: its synonyms}."""
    bounds = synonyms.offsets.tolist()
    return {
        word: {vocabulary.words[other] for other in synonyms.words[first:last].tolist()}
        for word, first, last in zip(vocabulary.words, bounds[:-1], bounds[1:], strict=True)
        if last > first
    }


@pytest.fixture(scope="module")
def captions():
    """Two captions an image: sizes are named by either of two words, colours and things by one of their own."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(400):
        colour, thing = random.choice(["red", "blue", "green"]), random.choice(["ball", "box", "cup"])
        size, place = random.choice([("big", "huge"), ("small", "tiny")]), random.choice(["table", "floor"])
        for word in random.permutation(size):
            found.append(f"a {word} {colour} {thing} lies on the {place}")
    return found


def test_words_that_take_each_others_place_in_captions_of_an_image(captions):
    vocabulary = Vocabulary.build(captions, 1)
    table = TokenTable.build(vocabulary, captions)
    synonyms = Synonyms.found(table, np.arange(len(captions)) // 2, len(vocabulary))
    pairs = {"big": {"huge"}, "huge": {"big"}, "small": {"tiny"}, "tiny": {"small"}}
    assert known(synonyms, vocabulary) == pairs, "colours have alike contexts too, but never stand for each other"
    order = np.random.default_rng(1).permutation(len(captions))
    shuffled = TokenTable.build(vocabulary, [captions[row] for row in order])
    assert known(Synonyms.found(shuffled, order // 2, len(vocabulary)), vocabulary) == pairs
    with pytest.raises(InputError, match=r"show no words that stand for each other"):
        Synonyms.found(table, np.arange(len(captions)), len(vocabulary))


def test_a_table_of_words(tmp_path):
    vocabulary = Vocabulary.build(["a big huge dog and a small tiny puppy"], 1)
    file = tmp_path / "words.csv"
    file.write_text(
        "synonym,word,note\nHuge,big,\nbig,huge,\nlarge,big,not known\npuppy,dog,\nbig,big,itself\nhuge,big,\n"
    )
    assert known(Synonyms.read(file, vocabulary), vocabulary) == {"big": {"huge"}, "huge": {"big"}, "dog": {"puppy"}}
    for text, message in (
        ("word,synonym\nlarge,giant\n", "none of the 1 rows of .* has two different words"),
        ("word,synonym\n", "none of the 0 rows of .* has"),
        ("word,other\nbig,huge\n", "synonym"),
        ("", "is empty"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            Synonyms.read(file, vocabulary)
    with pytest.raises(InputError, match="no such file"):
        Synonyms.read(tmp_path / "none.csv", vocabulary)


def test_words_are_replaced_at_the_rate_and_evenly():
    synonyms = Synonyms.of_pairs(np.array([[5, 6], [5, 7], [5, 6], [6, 5]]), 8)
    texts = torch.tensor([[1, 5, 4, 6, 2, 0]]).repeat(4000, 1)
    left = synonyms.replaced(texts, 0.4, np.random.default_rng(0))
    assert torch.equal(left[:, [0, 2, 4, 5]], texts[:, [0, 2, 4, 5]])
    shares = left[:, 1].bincount(minlength=8) / len(left)
    torch.testing.assert_close(shares[5:], torch.tensor([0.6, 0.2, 0.2]), atol=0.03, rtol=0)
    shares = left[:, 3].bincount(minlength=8) / len(left)
    torch.testing.assert_close(shares[5:7], torch.tensor([0.4, 0.6]), atol=0.03, rtol=0)
    assert torch.equal(synonyms.replaced(texts, 0.4, np.random.default_rng(0)), left)
    assert torch.equal(synonyms.replaced(texts, 0.0, np.random.default_rng(0)), texts)
