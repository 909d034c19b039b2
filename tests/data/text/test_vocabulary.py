import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data.text.vocabulary import SPECIALS, Vocabulary, dump_words, load_words, tokenize


@looped(
    ("caption", "words"),
    [
        ("A man's DOG, the dogs' 'best' .", ["a", "man's", "dog", "the", "dogs", "best"]),
        ("a man’s dog", ["a", "man's", "dog"]),
        ("T-shirt no. 42 (foo_bar)", ["t", "shirt", "no", "42", "foo", "bar"]),
        ("café cafe\u0301 ÜBER", ["café", "café", "über"]),
        ("हिन्दी, foo_bar", ["हिन्दी", "foo", "bar"]),
        ("one\u2028two\tthree", ["one", "two", "three"]),
        ("... !", []),
        ("", []),
    ],
)
def test_tokenize(caption, words):
    assert tokenize(caption) == words


def test_words_are_numbered_by_count_then_alphabet():
    vocabulary = Vocabulary.build(["b a c", "b a c", "a b z", "<pad> z z q"], min_count=2)
    assert vocabulary.words == [*SPECIALS, "a", "b", "z", "c"]
    assert len(vocabulary) == 8
    assert list(vocabulary.encode_all(["Z, unseen a!", ""])) == [[1, 6, 3, 4, 2], [1, 2]]
    assert load_words(dump_words(vocabulary)).words == vocabulary.words
    with pytest.raises(InputError, match="min_count"):
        Vocabulary.build(["a b", "a b", "a"])


@looped("value", [{"a": 1}, "words", ["a", "b"], [*SPECIALS, ["x"]], [*SPECIALS, ""], [*SPECIALS, "x", "x"], 7])
def test_words_of_a_strangers_checkpoint(value):
    with pytest.raises(InputError, match="vocabulary"):
        load_words(value)
