"""The subwords of a pretrained text model, in the place of a vocabulary of words."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vsehub.checks import InputError, require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHUNK = 4096  # captions at a time: enough for the library's threads, few enough to hold
_INSTALL = "install it: pip install 'vsehub[transformers]'"


class Subwords:
    """How a model cuts captions into numbered subwords, between the special tokens that it puts around them.

    tokenizer: of the `tokenizers` library. InputError for one that adds no special tokens, since an empty caption would
    then be nothing.
    """

    def __init__(self, tokenizer: "Tokenizer"):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer, self._json = tokenizer, tokenizer.to_str()
        require(
            tokenizer.num_special_tokens_to_add(False) > 0,
            "the model's tokenizer puts no special tokens around a caption, so that an empty one would be nothing; "
            "choose an encoder model such as BERT",
        )

    @classmethod
    def of_model(cls, model: str) -> "Subwords":
        """Those of a model of the transformers library: a local folder, or a name that is in the library's cache.

        InputError where transformers is missing, the model is not found, or it has no fast tokenizer.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise InputError(f"loader.tokenizer={model} needs transformers; {_INSTALL}") from error
        try:
            found = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"loader.tokenizer: no tokenizer of {model!r} is found: neither a folder that holds one nor in the "
                f"cache of transformers; give a folder, or get it once with: hf download {model}"
            ) from error
        require(
            getattr(found, "backend_tokenizer", None) is not None,
            f"loader.tokenizer: {model!r} has no fast tokenizer (tokenizer.json); choose another model",
        )
        return cls.from_json(found.backend_tokenizer.to_str())

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, caption: str, max_words: int | None = None) -> list[int]:
        """The caption's numbers, the first `max_words` (None: all) of its own and the special tokens around them."""
        return next(self.encode_all([caption], max_words))

    def encode_all(self, captions: Sequence[str], max_words: int | None = None) -> Iterator[list[int]]:
        """`encode` of each caption, many at a time."""
        for first in range(0, len(captions), _CHUNK):
            if max_words is None:
                self._tokenizer.no_truncation()
            else:
                self._tokenizer.enable_truncation(max_words + self._tokenizer.num_special_tokens_to_add(False))
            for encoding in self._tokenizer.encode_batch_fast(list(captions[first : first + _CHUNK])):
                yield encoding.ids

    def to_json(self) -> str:
        """The tokenizer's own serialisation, which `from_json` reads."""
        return self._json

    @classmethod
    def from_json(cls, text: str) -> "Subwords":
        """The subwords that `to_json` wrote; InputError where the text is anything else or `tokenizers` is missing."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise InputError(f"the model's subwords need the tokenizers library; {_INSTALL}") from error
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise InputError(
                f"the subwords cannot be read: {error}. Give the text that Subwords.to_json wrote"
            ) from error
        return cls(tokenizer)

    def fingerprint(self) -> str:
        """A short hash of the serialisation: equal where two cut and number captions alike."""
        return hashlib.sha256(self._json.encode()).hexdigest()[:16]
