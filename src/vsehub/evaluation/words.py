"""Notes on a text for a model: unknown words, and the words beyond its limit."""

from vsehub.checks import nearest, require
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, Words, tokenize

_NAMED, _LETTERS = 5, 40  # words named in a note, and letters of one


def word_notes(text: str, vocabulary: Words, max_words: int | None) -> list[str]:
    """Notes on words that the model does not know or does not read. Raises InputError if all words are unknown."""
    if not isinstance(vocabulary, Vocabulary):  # subwords spell every word
        is_cut = len(vocabulary.encode(text)) > len(vocabulary.encode(text, max_words))
        return [f"Read to its subword {max_words}, as in training."] if is_cut else []
    words = tokenize(text)
    require(bool(words), f"the text {text!r} holds no word; give one or more words")
    numbers = vocabulary.numbers(text)[:max_words]
    unknown = [word for word, number in zip(words, numbers, strict=False) if number == UNKNOWN]
    distinct = list(dict.fromkeys(unknown))
    said = ", ".join(f"{word[:_LETTERS]}{nearest(word[:_LETTERS], vocabulary.words[4:])}" for word in distinct[:_NAMED])
    said += f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    require(
        len(unknown) < len(numbers),
        f"the checkpoint knows no word of the text {text[:_LETTERS]!r}: {said}. Give words of its training captions",
    )
    cut = [f"Read to its word {max_words}, as in training."] if len(numbers) < len(words) else []
    return [*([f"Not known to the checkpoint: {said}."] if unknown else []), *cut]
