"""Notes on words that a model does not know stay short, whatever is asked."""

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
    assert word_notes("a red square", vocabulary, 2) == ["Read to its word 2, as in training."]


def test_few_of_many_unknown_words_are_named(vocabulary):
    unknown = [f"x{number}" for number in range(1000)]
    (note,) = word_notes(" ".join(["red", *unknown, *unknown, "y" * 3000]), vocabulary, None)
    assert all(word in note for word in unknown[:5])
    assert len(note) < 400
    for text in (" ".join(unknown), "?!"):
        with pytest.raises(InputError) as caught:
            word_notes(text, vocabulary, None)
        assert len(str(caught.value)) < 400
