"""Notes on words that a model does not know."""

import pytest

from vsehub.checks import InputError
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.evaluation.words import word_notes


@pytest.fixture
def vocabulary():
    return Vocabulary.build(["a red circle", "a green square"], 1)


def test_unknown_words_are_named_with_what_is_like_them(vocabulary):
    (note,) = word_notes("a circel", vocabulary, None)
    assert "circel (did you mean circle?)" in note
    with pytest.raises(InputError, match="circel"):
        word_notes("circel", vocabulary, None)
    assert word_notes("a red square", vocabulary, 2) == ["Read to its word 2, as in training."]
