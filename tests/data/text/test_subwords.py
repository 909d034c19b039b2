import pytest
from tiny_bert import tiny_bert, tiny_tokenizer
from tokenizers import Tokenizer, models

from vsehub.checks import InputError
from vsehub.data.text.vocabulary import Subwords
from vsehub.encoders.pretrained.joint.hf import tokenizer_of

CAPTIONS = ["A man's red dogs.", "", "running RUNNING dogs in dogs", "é café", "..."]


def test_numbers_are_those_of_the_models_own_tokenizer_and_a_checkpoint_keeps_them(tmp_path):
    from transformers import AutoTokenizer

    model = tiny_bert(tmp_path)
    original = AutoTokenizer.from_pretrained(model)
    subwords = Subwords.from_json(tokenizer_of(model).backend_tokenizer.to_str())
    assert len(subwords) == len(original) == 14
    assert list(subwords.encode_all(CAPTIONS)) == original(CAPTIONS)["input_ids"]
    assert list(subwords.encode_all(CAPTIONS[:2])) == [[2, 4, 5, 1, 1, 8, 6, 7, 13, 3], [2, 3]]
    again, other = Subwords.from_json(subwords.json), tiny_tokenizer()
    assert list(again.encode_all(CAPTIONS)) == list(subwords.encode_all(CAPTIONS))
    other.add_tokens(["man's"])
    assert again.fingerprint() == subwords.fingerprint() != Subwords(other).fingerprint()


def test_cut_captions_keep_the_special_tokens():
    subwords = Subwords(tiny_tokenizer())
    # The last is not cut: no cut leaves anything behind.
    for most, numbers in ((3, [2, 9, 10, 6, 3]), (1, [2, 9, 3]), (None, [2, 9, 10, 6, 7, 3])):
        assert list(subwords.encode_all(["running dogs", ""], most)) == [numbers, [2, 3]]


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="subwords"):
        Subwords.from_json('{"model": 1}')
    with pytest.raises(InputError, match="special tokens"):
        Subwords(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(InputError, match=r"loader\.tokenizer"):
        tokenizer_of(str(tmp_path), "loader.tokenizer")
