"""Notes on a text for a model: unknown words, and the words beyond its limit."""

from vsehub.checks import nearest, require
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, Words, tokenize
from vsehub.io.arrays import listed

_LETTERS = 40  # of a word in a note


def word_notes(text: str, vocabulary: Words, max_words: int | None) -> list[str]:
    """Notes on words that the model does not know or does not read. Raises InputError if all words are unknown."""
    if not isinstance(vocabulary, Vocabulary):  # subwords spell every word
        return []
    words, numbers = tokenize(text), vocabulary.numbers(text)[:max_words]
    unknown = [word[:_LETTERS] for word, number in zip(words, numbers, strict=False) if number == UNKNOWN]
    named = [f"{word}{nearest(word, vocabulary.words[4:])}" for word in dict.fromkeys(unknown)]
    require(
        len(unknown) < len(numbers),
        f"the checkpoint knows no word of the text {text[:_LETTERS]!r}: {listed(named)}. Give words of its captions",
    )
    notes = [f"Not known to the checkpoint: {listed(named)}."] if unknown else []
    return [*notes, *([f"Read to its word {max_words}, as in training."] if len(numbers) < len(words) else [])]
