"""Captions to words, words to numbers."""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from vsehub.checks import InputError, require

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
PAD, START, END, UNKNOWN = range(4)


@cache
def _word_pattern() -> re.Pattern:
    """Letters, digits and the marks that scripts such as Devanagari write within words, which `\\w` leaves out."""
    marks = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
    word = rf"\w+(?:[{marks}]+\w*)*"
    return re.compile(rf"{word}(?:'{word})*")


_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


def tokenize(caption: str) -> list[str]:
    """The lower-cased words of a caption, apostrophes within words kept ("man's"), all other punctuation dropped.

    One word whichever way its accents are composed (NFC) and its apostrophe is typed. A caption without words gives [].
    """
    caption = caption.lower()
    if caption.isascii():
        return _ASCII_WORD.findall(caption)
    caption = unicodedata.normalize("NFC", caption).replace("’", "'").replace("_", " ")
    return _word_pattern().findall(caption)


class Vocabulary:
    """The words a model knows, numbered from 0: `<pad> <start> <end> <unk>`, then the rest.

    words: all of them in order, the four specials included. InputError where the specials do not come first, an entry
    is not a word, or one comes twice.
    """

    def __init__(self, words: list[str]):
        require(isinstance(words, list), f"a vocabulary is a list of words; a {type(words).__name__} came")
        require(
            tuple(words[:4]) == SPECIALS,
            f"a vocabulary begins with {' '.join(SPECIALS)}; this one begins with {words[:4]!r}. "
            "Give the list that Vocabulary.words or Vocabulary.to_json wrote",
        )
        for number, word in enumerate(words):
            require(isinstance(word, str) and word != "", f"entry {number} of the vocabulary is {word!r}, not a word")
        self.words = list(words)
        self._numbers = {word: number for number, word in enumerate(words)}
        if len(self._numbers) < len(words):
            twice = next(word for word, count in Counter(words).items() if count > 1)
            raise InputError(f"the vocabulary holds {twice!r} more than once; each word has one number")

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> "Vocabulary":
        """The words seen at least `min_count` times in `captions`, most frequent first, equals in alphabetical order.

        InputError where no word is.
        """
        require(min_count >= 1, f"min_count is {min_count!r}; expected a whole number from 1 up")
        require(not isinstance(captions, str), "captions is one string; expected a list of them")
        counts: Counter[str] = Counter()
        for caption in captions:
            counts.update(tokenize(caption))
        kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        require(
            len(kept) > 0,
            f"none of the {len(counts)} words in the captions is seen {min_count} times or more; "
            "give more captions or a lower min_count",
        )
        return cls([*SPECIALS, *kept])

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, caption: str) -> list[int]:
        """The numbers of the caption's words alone; a word that the vocabulary lacks is `<unk>`."""
        find = self._numbers.get
        return [find(word, UNKNOWN) for word in tokenize(caption)]

    def encode(self, caption: str, max_words: int | None = None) -> list[int]:
        """The numbers of the caption's first `max_words` words (None: all) between `<start>` and `<end>`."""
        return [START, *self.numbers(caption)[:max_words], END]

    def encode_all(self, captions: Iterable[str], max_words: int | None = None) -> Iterator[list[int]]:
        """`encode` of each caption."""
        return (self.encode(caption, max_words) for caption in captions)

    def to_json(self) -> str:
        """The words as a JSON list, which `from_json` reads."""
        return json.dumps(self.words, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Vocabulary":
        """The vocabulary that `to_json` wrote; InputError where the text is anything else."""
        try:
            words = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(
                f"the vocabulary is not JSON: {error}. Give the text that Vocabulary.to_json wrote"
            ) from error
        return cls(words)

    def fingerprint(self) -> str:
        """A short hash of the words and their order: equal where two vocabularies number words alike."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]
