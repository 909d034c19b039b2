"""How a model numbers its words, as a checkpoint carries it."""

from typing import Any

from vsehub.checks import require
from vsehub.data.subwords import Subwords
from vsehub.data.vocabulary import Vocabulary

Words = Vocabulary | Subwords


def stored(words: Words | None) -> list[str] | dict[str, str] | None:
    """Plain values for a checkpoint: the words; {"subwords": JSON}; None where texts are vectors."""
    if words is None:
        return None
    return {"subwords": words.to_json()} if isinstance(words, Subwords) else list(words.words)


def restored(value: Any) -> Words | None:
    """What `stored` made the values of; InputError where they are anything else."""
    if value is None:
        return None
    if isinstance(value, dict):
        require(
            value.keys() == {"subwords"} and isinstance(value["subwords"], str),
            f"a vocabulary with the keys {', '.join(map(str, value))} came; expected subwords, a text",
        )
        return Subwords.from_json(value["subwords"])
    sound = isinstance(value, list) and all(isinstance(word, str) for word in value)
    require(sound, f"a vocabulary that is a {type(value).__name__} came; expected a list of words")
    return Vocabulary(value)
