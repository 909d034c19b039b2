"""Words that may stand for each other: from a table, or found in the captions of the same images."""

import logging
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.data.records import DELIMITERS
from vsehub.data.tables import TableFile
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import SPECIALS, Vocabulary, tokenize

log = logging.getLogger(__name__)

COLUMNS = ("word", "synonym")
_WINDOW = 2  # words on each side that are a word's context
_LEAST_ALIKE = 0.2  # cosine of two words' contexts
_LEAST_TIMES = 5  # least number of exchanges of two words
_LEAST_OFTEN = 0.5  # least logarithm of observed over expected exchanges
_MOST = 5  # synonyms of a word
_NEAR = 4  # later captions of an image that a caption is compared with
_BLOCK = 100_000  # pairs of captions at a time


class Synonyms:
    """For each of V words the numbers of its synonyms: those of word w are words[offsets[w]:offsets[w + 1]]."""

    def __init__(self, offsets: np.ndarray, words: np.ndarray):
        self.offsets, self.words = torch.from_numpy(offsets), torch.from_numpy(words)

    @classmethod
    def of_pairs(cls, pairs: np.ndarray, size: int) -> "Synonyms":
        """From pairs (P, 2) of the numbers of a word and its synonym, of V words."""
        order = np.unique(pairs.astype(np.int64).reshape(-1, 2), axis=0)
        offsets = np.concatenate([[0], np.bincount(order[:, 0], minlength=size).cumsum()])
        return cls(offsets, order[:, 1].copy())

    @classmethod
    def read(cls, path: str | Path, vocabulary: Vocabulary) -> "Synonyms":
        """From a .csv or .tsv with columns word and synonym; words that the vocabulary lacks are passed over.

        Raises InputError for another table, and if no row has two different words of the vocabulary.
        """
        file = existing("synonyms", path, "Give a .csv with columns word and synonym")
        table = TableFile(file, "a table of words and synonyms", tuple(DELIMITERS))
        table.require_columns(COLUMNS, "its columns are word and synonym")
        known = {word: number for number, word in enumerate(vocabulary.words)}
        entries = table.entries(COLUMNS)
        rows = zip(*(entries[name] for name in COLUMNS), strict=True)
        found = [[known.get(" ".join(tokenize(str(entry))), -1) for entry in row] for row in rows]
        pairs = np.array([row for row in found if -1 not in row and row[0] != row[1]], np.int64).reshape(-1, 2)
        require(
            len(pairs) > 0,
            f"synonyms: none of the {len(found)} rows of {file} has two different words of the training captions; "
            "write single words, as captions have them",
        )
        log.info("synonyms: %d of the %d rows of %s are used", len(pairs), len(found), file)
        return cls.of_pairs(pairs, len(vocabulary))

    @classmethod
    def found(cls, table: TokenTable, images: np.ndarray, size: int) -> "Synonyms":
        """Words with alike contexts that take each other's place in captions of the same image.

        table: the training captions. images: (T,) their images. size: the number of words V. Words stand near the same
        words (the cosine of their positive pointwise mutual information with the two words on each side is 0.2 or
        more), and one is in a caption that lacks the other, and the reverse, for two captions of an image, 5 times or
        more and e^0.5 times as often as by chance: "big" and "huge", but not "red" and "blue". At most 5 of a word, the
        most alike. Raises InputError if there are none.
        """
        alike = _alike_contexts(table, size)
        times = _exchanged(table, images, size)
        total = max(float(times.sum()), 1.0)
        own = np.asarray(times.sum(axis=1)).ravel()
        times = times.tocoo()
        often = np.log(times.data * total / (own[times.row] * own[times.col]))
        kept = (times.data >= _LEAST_TIMES) & (often >= _LEAST_OFTEN) & (times.row != times.col)
        rows, columns = times.row[kept], times.col[kept]
        cosines = np.asarray(alike[rows].multiply(alike[columns]).sum(axis=1)).ravel() if len(rows) else np.zeros(0)
        kept = cosines >= _LEAST_ALIKE
        rows, columns, cosines = rows[kept], columns[kept], cosines[kept]
        order = np.lexsort((columns, -cosines, rows))
        rows, columns = rows[order], columns[order]
        first = np.searchsorted(rows, rows)
        near = np.arange(len(rows)) - first < _MOST
        pairs = np.stack([rows[near], columns[near]], axis=1)
        require(
            len(pairs) > 0,
            "augmentation.replace_words: the training captions show no words that stand for each other, which takes "
            "images with several captions; give augmentation.synonyms=FILE.csv, or leave replace_words out",
        )
        log.info("synonyms: %d, of %d words, from the training captions", len(pairs), len(np.unique(rows)))
        return cls.of_pairs(pairs, size)

    def replaced(self, texts: Tensor, share: float, random: np.random.Generator) -> Tensor:
        """Captions (N, L), each word that has synonyms replaced by one of them with probability `share`."""
        counts = self.offsets.diff()[texts]
        drawn, which = (torch.from_numpy(random.random(tuple(texts.shape))) for _ in range(2))
        places = self.offsets[texts] + (which * counts).long()
        return torch.where((drawn < share) & (counts > 0), self.words[places.clamp(max=len(self.words) - 1)], texts)


def _alike_contexts(table: TokenTable, size: int) -> sparse.csr_array:
    """(V, C) rows of norm 1 whose products are the cosines of two words' contexts; special words have none."""
    caption = np.repeat(np.arange(len(table)), table.lengths)
    tokens, words, contexts = table.tokens.astype(np.int64), [], []
    for step in range(1, _WINDOW + 1):
        same = np.flatnonzero(caption[:-step] == caption[step:])
        left, right = tokens[same], tokens[same + step]
        words += [left, right]
        contexts += [right + 2 * (step - 1) * size, left + (2 * step - 1) * size]
    word, context = np.concatenate(words), np.concatenate(contexts)
    usual = word >= len(SPECIALS)
    shape = (size, 2 * _WINDOW * size)
    counts = sparse.coo_array((np.ones(int(usual.sum())), (word[usual], context[usual])), shape=shape).tocsr().tocoo()
    total = counts.data.sum()
    rows = np.asarray(counts.sum(axis=1)).ravel()
    columns = np.asarray(counts.sum(axis=0)).ravel() ** 0.75  # Levy, Goldberg and Dagan (2015)
    columns *= total / columns.sum()
    information = np.log(counts.data * total / (rows[counts.row] * columns[counts.col])).clip(min=0)
    found = sparse.csr_array((information, (counts.row, counts.col)), shape=shape)
    norms = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
    return sparse.csr_array(sparse.diags_array(1 / np.where(norms > 0, norms, 1)) @ found)


def _exchanged(table: TokenTable, images: np.ndarray, size: int) -> sparse.csr_array:
    """(V, V) how often one word is in a caption and the other is not, and the reverse in another of the same image."""
    caption = np.repeat(np.arange(len(table)), table.lengths)
    usual = table.tokens >= len(SPECIALS)
    places = caption[usual], table.tokens[usual]
    held = sparse.csr_array((np.ones(len(places[0]), np.float32), places), shape=(len(table), size))
    held.sum_duplicates()
    held.data[:] = 1
    order = np.argsort(images, kind="stable")
    found = sparse.csr_array((size, size), dtype=np.float32)
    for step in range(1, _NEAR + 1):
        same = np.flatnonzero(images[order[:-step]] == images[order[step:]])
        for first in range(0, len(same), _BLOCK):
            rows = same[first : first + _BLOCK]
            difference = held[order[rows]] - held[order[rows + step]]
            found = found + difference.maximum(0).T @ (-difference).maximum(0)
    return sparse.csr_array(found + found.T)
