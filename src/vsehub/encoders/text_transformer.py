"""Word embeddings and a small Transformer encoder, trained from the start."""

import torch
from torch import Tensor, nn

from vsehub.checks import require, whole
from vsehub.encoders.pooling import pooling_of
from vsehub.encoders.word_embedding import WordEmbedding
from vsehub.sets import Encoding


class TextTransformer(nn.Module):
    """(N, L) word ids to the words' last states, mapped to the joint space and pooled.

    Layers normalise before attention and feed-forward (pre-norm), and once more at the end. Positions are learned.

    vocabulary_size: from the data; id 0 pads. dim: D of the joint space. word_dim: size of the word embeddings and of
    all layers; four times as much within the feed-forward ones. max_positions: the longest caption, <start> and <end>
    counted. pooling: "last" (the state at <end>), "mean", "max", "gpo" or "none", the words' states as `Sets`.
    tune_words: False keeps the word embeddings as they start. Words and positions start from N(0, 0.02). Raises
    InputError for heads that do not divide word_dim and, when it runs, for longer captions.
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
        tune_words: bool = True,
    ):
        super().__init__()
        sizes = {"dim": dim, "word_dim": word_dim, "layers": layers, "heads": heads, "max_positions": max_positions}
        for name, value in sizes.items():
            whole(name, value)
        require(
            word_dim % heads == 0,
            f"text_encoder.word_dim is {word_dim}, which {heads} heads do not divide; change text_encoder.heads",
        )
        self.max_positions = max_positions
        self.words = WordEmbedding(vocabulary_size, word_dim, tune_words)
        self.positions = nn.Embedding(max_positions, word_dim)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        block = nn.TransformerEncoderLayer(
            word_dim, heads, 4 * word_dim, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(block, layers, nn.LayerNorm(word_dim), enable_nested_tensor=False)
        self.linear = nn.Linear(word_dim, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.pool = pooling_of(pooling)
        self.gives = self.pool.gives

    def start_words(self, rows: Tensor, vectors: Tensor) -> None:
        """Let the words `rows` (n,) begin with `vectors` (n, word_dim)."""
        self.words.start(rows, vectors)

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of words."""
        longest = texts.shape[1]
        require(
            longest <= self.max_positions,
            f"a caption of {longest} words, <start> and <end> counted, came; the model takes {self.max_positions}: "
            + (f"cut with loader.max_words={self.max_positions - 2}, or " if self.max_positions > 2 else "")
            + f"train with text_encoder.max_positions={longest}",
        )
        padding = torch.arange(longest, device=texts.device) >= lengths[:, None]
        states = self.dropout(self.words(texts) + self.positions.weight[:longest])
        states = self.layers(states, src_key_padding_mask=padding)
        return self.pool(self.linear(states), lengths)
