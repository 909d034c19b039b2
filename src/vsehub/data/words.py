"""How a model numbers its words, as a checkpoint carries it."""

from vsehub.data.subwords import Subwords
from vsehub.data.vocabulary import Vocabulary

Words = Vocabulary | Subwords


def stored(words: Words | None) -> list[str] | dict[str, str] | None:
    """Plain values for a checkpoint: the words; {"subwords": JSON}; None where texts are vectors."""
    if words is None:
        return None
    return {"subwords": words.to_json()} if isinstance(words, Subwords) else list(words.words)


def restored(value: list[str] | dict[str, str] | None) -> Words | None:
    """What `stored` made the values of; InputError where they are anything else."""
    if value is None:
        return None
    return Subwords.from_json(value["subwords"]) if isinstance(value, dict) else Vocabulary(value)
