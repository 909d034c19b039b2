"""The words or subwords known to a model, and their numbers."""

import hashlib
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vsehub.checks import InputError, one_of, require
from vsehub.extras import package

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = logging.getLogger(__name__)

SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
PAD, START, END, UNKNOWN = range(4)
# The cleaning of captions by open_clip's tokenizers: CLIP's own, and those named in its configurations.
CLEANINGS = ("clip", "lower", "whitespace", "canonicalize")
_CHUNK = 4096  # captions at a time: enough for the threads of tokenizers, with little memory


@cache
def word_pattern() -> re.Pattern[str]:
    """The pattern of a word: letters, digits and marks within words in scripts like Devanagari, which `\\w` omits."""
    marks = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
    word = rf"\w+(?:[{marks}]+\w*)*"
    return re.compile(rf"{word}(?:'{word})*")


_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


def tokenize(caption: str) -> list[str]:
    """The lower-cased words of a caption, apostrophes within words kept ("man's"), all other punctuation dropped.

    Different compositions of accents (NFC) and different apostrophes give the same word. Without words: [].
    """
    caption = caption.lower()
    if caption.isascii():
        return _ASCII_WORD.findall(caption)
    caption = unicodedata.normalize("NFC", caption).replace("’", "'").replace("_", " ")
    return word_pattern().findall(caption)


class Vocabulary:
    """The words a model knows, numbered from 0: `<pad> <start> <end> <unk>`, then the rest.

    words: all words in order, including the four special ones. Raises InputError if these do not come first, if an
    entry is not a word, or if a word is repeated.
    """

    def __init__(self, words: list[str]):
        require(
            isinstance(words, list)
            and tuple(words[:4]) == SPECIALS
            and all(isinstance(word, str) and word for word in words)
            and len(set(words)) == len(words),
            f"a vocabulary is a list of different words that begins with {' '.join(SPECIALS)}, unlike {words!r:.200}",
        )
        self.words = list(words)
        self._numbers = {word: number for number, word in enumerate(words)}

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> "Vocabulary":
        """The vocabulary of the words that occur at least `min_count` times in `captions`.

        The most frequent word comes first, equally frequent ones in alphabetical order. Raises InputError if empty.
        """
        counts = Counter(word for caption in captions for word in tokenize(caption))
        frequent = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        require(len(frequent) > 0, f"none of the {len(counts)} words occurs {min_count} times; give a lower min_count")
        return cls([*SPECIALS, *frequent])

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, caption: str) -> list[int]:
        """The numbers of the caption's words; a word that the vocabulary lacks is `<unk>`."""
        return [self._numbers.get(word, UNKNOWN) for word in tokenize(caption)]

    def encode_all(self, captions: Iterable[str], max_words: int | None = None) -> Iterator[list[int]]:
        """The numbers of each caption's first `max_words` words (None: all) between `<start>` and `<end>`."""
        return ([START, *self.numbers(caption)[:max_words], END] for caption in captions)


class Subwords:
    """The subwords of a pretrained model, and the special tokens that it puts around a caption.

    tokenizer: a tokenizer of the `tokenizers` library. most: largest number of tokens, special tokens included; longer
    captions are cut, and their number is logged. None: no limit. clean: open_clip's cleaning of captions, a name of
    `CLEANINGS`; None: no cleaning. special: the number of special tokens around a caption. json: the tokenizer
    serialised, for `from_json`. Raises InputError for a tokenizer that adds no special tokens, since an empty caption
    would then have no tokens, and for other limits and names.
    """

    def __init__(self, tokenizer: "Tokenizer", most: int | None = None, clean: str | None = None):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer, self.json = tokenizer, tokenizer.to_str()
        self.special, self.most, self.clean = tokenizer.num_special_tokens_to_add(False), most, clean
        require(self.special > 0, "the model's tokenizer has no special tokens; choose an encoder model such as BERT")
        require(
            most is None or (type(most) is int and most > self.special),
            f"the subwords' limit is {most!r}; expected a number above {self.special}, that of the special tokens",
        )
        one_of("the subwords' cleaning", clean, (None, *CLEANINGS))
        self._cleaned = cleaning(clean) if clean else str

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode_all(self, captions: Sequence[str], max_words: int | None = None) -> Iterator[list[int]]:
        """The numbers of each caption's first `max_words` subwords (None: all) between the special tokens."""
        limits = [self.most, None if max_words is None else max_words + self.special]
        limit = min((length for length in limits if length is not None), default=None)
        cut = 0
        if limit is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(limit)
        for first in range(0, len(captions), _CHUNK):
            chunk = [self._cleaned(caption) for caption in captions[first : first + _CHUNK]]
            for encoding in self._tokenizer.encode_batch_fast(chunk):
                if limit == self.most and encoding.overflowing:
                    cut += 1
                yield encoding.ids
        if cut:
            log.warning("%d of %d texts were cut to the %d tokens that the model takes", cut, len(captions), limit)

    @classmethod
    def from_json(cls, text: str, most: int | None = None, clean: str | None = None) -> "Subwords":
        """The subwords of a serialised tokenizer. Raises InputError for other texts, or if `tokenizers` is missing."""
        library = package("the model's vocabulary of subwords", "transformers", "tokenizers")
        try:
            tokenizer = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"the subwords cannot be read: {error}") from error
        return cls(tokenizer, most, clean)

    def fingerprint(self) -> str:
        """A short hash of the serialised tokenizer, its limit and its cleaning."""
        limits = "" if self.most is None and self.clean is None else f" {self.most} {self.clean}"
        return hashlib.sha256((self.json + limits).encode()).hexdigest()[:16]


def clip_pattern() -> str:
    """The pattern of a word in CLIP's own tokenizer, for the package regex, ignoring case."""
    from open_clip.tokenizer import SimpleTokenizer

    return str(SimpleTokenizer().pat.pattern)


@cache
def cleaning(name: str) -> Callable[[str], str]:
    """The function caption -> cleaned caption; "clip" also splits it into words, as CLIP's own tokenizer does first."""
    tokenizer = package("the model's tokenizer", "open-clip", "open_clip").tokenizer
    if name != "clip":
        return tokenizer.get_clean_fn(name)

    import regex

    clean, words = tokenizer.get_clean_fn("lower"), regex.compile(clip_pattern(), regex.IGNORECASE)
    return lambda caption: " ".join(words.findall(clean(caption)))


Words = Vocabulary | Subwords


def dump_words(words: Words | None) -> list[str] | dict[str, Any] | None:
    """The plain values for a checkpoint: a list of words, {"subwords": JSON, ...}, or None if texts are vectors."""
    if isinstance(words, Subwords):
        return {"subwords": words.json, "most": words.most, "clean": words.clean}
    return None if words is None else words.words


def load_words(value: Any) -> Words | None:
    """The vocabulary or subwords from the values of `dump_words`. Raises InputError for other values."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return Vocabulary(value)
    require("subwords" in value, f"a vocabulary with the keys {', '.join(map(str, value))} lacks the key subwords")
    return Subwords.from_json(value["subwords"], value.get("most"), value.get("clean"))
