"""A text encoder without word order: the weighted sum of a caption's word vectors."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.encoders.texts import WordEmbedding, WordEncoder


class TextBag(WordEncoder):
    """(N, L) word ids to the TF-IDF weighted sum of the words' vectors, (N, D).

    A caption x counts its words, each count times the word's weight; x is divided by its norm, and the embedding is
    Σ_w x_w v_w + bias: a linear map of TF-IDF vectors. `vsehub cca` computes the vectors, the bias and the weights in
    closed form; trained by a loss, all words weigh 1.

    vocabulary_size: from the data; id 0 pads. dim: D, the size of the word vectors. word_dropout: as `WordEmbedding`
    has it. specials: ids below it, of <pad>, <start>, <end> and <unk>, do not count.
    """

    weights: Tensor

    def __init__(self, vocabulary_size: int, dim: int = 1024, word_dropout: float = 0.0, specials: int = 4):
        super().__init__()
        self.dim = dim
        self.words = WordEmbedding(vocabulary_size, dim, dropout=word_dropout)
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("weights", (torch.arange(vocabulary_size) >= specials).float())
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """texts (N, L) ids, padded with 0, lengths (N,), not used -> (N, D). A text without known words gives bias."""
        weights = F.embedding(texts, self.weights[:, None])[..., 0]
        alike = (texts[:, :, None] == texts[:, None, :]).to(weights.dtype)
        squares = torch.einsum("ni,nij,nj->n", weights, alike, weights)  # a word twice has twice its weight
        weights = weights / squares.sqrt().clamp_min(1e-12)[:, None]
        return torch.einsum("nl,nld->nd", weights, self.words(texts)) + self.bias
