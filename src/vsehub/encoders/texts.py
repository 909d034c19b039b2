"""Text encoders trained from the start: word numbers through a GRU, an LSTM or a Transformer, or summed."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import one_of, require
from vsehub.encoders.features import linear_map
from vsehub.encoders.pooling import gives, last, pooling_of, recurrent_states
from vsehub.encoders.prefix_gru import all_states, can_share_prefixes, last_states
from vsehub.sets import Encoding
from vsehub.types import Encoder


class WordEmbedding(nn.Embedding):
    """(...) word ids to (..., word_dim) vectors; id 0 pads.

    dropout: probability of dropping a dimension of a word's vector in a training step, the same dimensions for all
    occurrences of the word in a call, so that captions that begin with the same words still share their states (Gal and
    Ghahramani 2016).
    """

    def __init__(self, vocabulary_size: int, word_dim: int, dropout: float = 0.0):
        super().__init__(vocabulary_size, word_dim, padding_idx=0)
        self.dropout = dropout

    def forward(self, ids: Tensor) -> Tensor:
        """(...) ids -> (..., word_dim)."""
        if not (self.training and self.dropout):
            return super().forward(ids)
        if ids.is_cpu:
            words, where = ids.unique(return_inverse=True)
            return F.embedding(where, F.dropout(super().forward(words), self.dropout))
        # Listing the words that occur would make a step wait for the GPU: all words of the vocabulary draw.
        return F.embedding(ids, F.dropout(self.weight, self.dropout), self.padding_idx)


CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}


class TextGRU(Encoder):
    """(N, L) word ids to the last layer's states, pooled; two directions are averaged at each word (SCAN).

    vocabulary_size: from the data; id 0 pads. dim: D, the hidden size. word_dim: size of the word embeddings. cell:
    "gru" or "lstm". pooling: "last" (with two directions, the mean of both end states), "mean", "max", "gpo" or "none",
    the words' states as `Sets`. init: "release" draws words from U(-0.1, 0.1) and leaves the cell to torch's default,
    as the authors' code does; "paper" is Xavier-uniform everywhere (AAAI). word_dropout: `dropout` of `WordEmbedding`.
    On a CPU a GRU runs once over prefixes that captions share and, with two directions and one layer, once over shared
    endings. Raises InputError for an unknown cell, pooling or init.
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        layers: int = 1,
        bidirectional: bool = False,
        cell: str = "gru",
        pooling: str = "last",
        init: str = "release",
        word_dropout: float = 0.0,
    ):
        super().__init__()
        one_of("init", init, ("release", "paper"))
        one_of("cell", cell, tuple(CELLS))
        self.words = WordEmbedding(vocabulary_size, word_dim, word_dropout)
        # Called gru whatever the cell: checkpoints of GRUs know it by that name.
        self.gru = CELLS[cell](word_dim, dim, layers, batch_first=True, bidirectional=bidirectional)
        self.pool = pooling_of(pooling)
        self.gives = gives(pooling)
        if init == "release":
            nn.init.uniform_(self.words.weight, -0.1, 0.1)
        else:
            nn.init.xavier_uniform_(self.words.weight)
            for name, parameter in self.gru.named_parameters():
                if name.startswith("weight"):
                    nn.init.xavier_uniform_(parameter)
                else:
                    nn.init.zeros_(parameter)

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of words."""
        if can_share_prefixes(self.gru, texts):
            if self.pool is last:
                return last_states(self.gru, self.words, texts, lengths)
            return self.pool(all_states(self.gru, self.words, texts, lengths), lengths)
        padded, ends = recurrent_states(self.gru, self.words(texts), lengths)
        return ends if self.pool is last else self.pool(padded, lengths)


class TextTransformer(Encoder):
    """(N, L) word ids to the words' last states, mapped to the joint space and pooled.

    Layers normalise before attention and feed-forward (pre-norm), and once more at the end. Positions are learned.

    vocabulary_size: from the data; id 0 pads. dim: D of the joint space. word_dim: size of the word embeddings and of
    all layers; four times as much within the feed-forward ones. max_positions: the longest caption, <start> and <end>
    counted. pooling: "last" (the state at <end>), "mean", "max", "gpo" or "none", the words' states as `Sets`.
    Words and positions start from N(0, 0.02). Raises InputError, when it runs, for longer captions.
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
        max_positions: int = 128,
        pooling: str = "last",
    ):
        super().__init__()
        self.max_positions: int = max_positions
        self.words = WordEmbedding(vocabulary_size, word_dim)
        self.positions = nn.Embedding(max_positions, word_dim)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        block = nn.TransformerEncoderLayer(
            word_dim, heads, 4 * word_dim, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(block, layers, nn.LayerNorm(word_dim), enable_nested_tensor=False)
        self.linear = linear_map(word_dim, dim)
        self.pool = pooling_of(pooling)
        self.gives = gives(pooling)

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of words."""
        longest = texts.shape[1]
        require(
            longest <= self.max_positions,
            f"a caption has {longest} words, <start> and <end> counted; the model takes {self.max_positions}: cut "
            f"with loader.max_words={self.max_positions - 2}, or train with +text_encoder.max_positions={longest}",
        )
        padding = torch.arange(longest, device=texts.device) >= lengths[:, None]
        states = self.dropout(self.words(texts) + self.positions.weight[:longest])
        return self.pool(self.linear(self.layers(states, src_key_padding_mask=padding)), lengths)


class TextBag(Encoder):
    """(N, L) word ids to the TF-IDF weighted sum of the words' vectors, (N, D).

    A caption's vector x has, for each word w, its count times its weight, and is divided by its norm. The embedding is
    Σ_w x_w v_w + bias: a linear map of TF-IDF vectors. `solver=cca` computes the vectors, the bias and the weights in
    closed form; trained by a loss, all words weigh 1.

    vocabulary_size: from the data; id 0 pads. dim: D, the size of the word vectors. word_dropout: `dropout` of
    `WordEmbedding`. specials: ids below it, of <pad>, <start>, <end> and <unk>, do not count.
    """

    weights: Tensor

    def __init__(self, vocabulary_size: int, dim: int = 1024, word_dropout: float = 0.0, specials: int = 4):
        super().__init__()
        self.dim = dim
        self.words = WordEmbedding(vocabulary_size, dim, word_dropout)
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("weights", (torch.arange(vocabulary_size) >= specials).float())
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """texts (N, L) ids, padded with 0, lengths (N,), not used -> (N, D). A text without known words gives bias."""
        weights = F.embedding(texts, self.weights[:, None])[..., 0]
        alike = (texts[:, :, None] == texts[:, None, :]).to(weights.dtype)
        squares = torch.einsum("ni,nij,nj->n", weights, alike, weights)  # Σ over words of (count · weight)²
        weights = weights / squares.sqrt().clamp_min(1e-12)[:, None]
        return torch.einsum("nl,nld->nd", weights, self.words(texts)) + self.bias
