import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data.text.vocabulary import SPECIALS, Vocabulary, tokenize


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
    vocabulary = Vocabulary.build(["b a c", "b a", "a b z", "<pad> z z"], min_count=2)
    assert vocabulary.words == [*SPECIALS, "a", "b", "z"]
    assert len(vocabulary) == 7
    assert vocabulary.encode("Z, unseen a!") == [1, 6, 3, 4, 2]
    assert vocabulary.encode("") == [1, 2]


def test_json_round_trip_and_fingerprint():
    vocabulary = Vocabulary.build(["é b", "b"], min_count=1)
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again.words == vocabulary.words
    assert again.fingerprint() == vocabulary.fingerprint()
    assert Vocabulary([*SPECIALS, "é", "b"]).fingerprint() != vocabulary.fingerprint()


@looped(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"a": 1}', "a dict came"),
        ('["a", "b"]', "begins with <pad> <start> <end> <unk>"),
        ('["<pad>", "<start>", "<end>", "<unk>", ["x"]]', "entry 4"),
        ('["<pad>", "<start>", "<end>", "<unk>", "x", "x"]', "'x' more than once"),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(InputError, match=message):
        Vocabulary.from_json(text)


def test_build_refuses_captions_without_frequent_words():
    with pytest.raises(InputError, match="none of the 2 words in the captions is seen 4 times"):
        Vocabulary.build(["a b", "a b", "a"])
    with pytest.raises(InputError, match="captions is one string"):
        Vocabulary.build("a b")
    with pytest.raises(InputError, match="min_count is 0"):
        Vocabulary.build(["a"], min_count=0)
