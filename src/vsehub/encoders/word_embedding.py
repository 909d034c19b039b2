"""A vector for each word of the vocabulary, drawn at random or begun with those of a file."""

import torch
from torch import Tensor, nn

from vsehub.checks import require


class WordEmbedding(nn.Embedding):
    """(...) word ids to (..., word_dim) vectors; id 0 pads.

    tune: False keeps the vectors as they start.
    """

    def __init__(self, vocabulary_size: int, word_dim: int, tune: bool = True):
        super().__init__(vocabulary_size, word_dim, padding_idx=0)
        self.weight.requires_grad_(tune)

    @torch.no_grad()
    def start(self, rows: Tensor, vectors: Tensor) -> None:
        """Let the words `rows` (n,) begin with `vectors` (n, word_dim); InputError for vectors of another size."""
        require(
            vectors.ndim == 2 and vectors.shape[1] == self.embedding_dim,
            f"the word vectors have shape {tuple(vectors.shape)} but text_encoder.word_dim is {self.embedding_dim}; "
            f"set text_encoder.word_dim={vectors.shape[-1]}",
        )
        self.weight[rows.to(self.weight.device)] = vectors.to(self.weight)
