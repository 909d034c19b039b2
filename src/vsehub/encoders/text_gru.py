"""Word embeddings and a recurrent network; a caption is the state at its last word (VSE++, AAAI), or all pooled."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsehub.checks import one_of, whole
from vsehub.encoders.pooling import Last, pooling_of
from vsehub.encoders.prefix_gru import all_states, fits, last_states
from vsehub.encoders.word_embedding import WordEmbedding
from vsehub.sets import Encoding

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}


class TextGRU(nn.Module):
    """(N, L) word ids to the last layer's states, pooled; two directions are averaged at each word (SCAN).

    vocabulary_size: from the data; id 0 pads. dim: D, the hidden size. word_dim: size of the word embeddings. cell:
    "gru" or "lstm". pooling: "last" (of two directions their end states), "mean", "max", "gpo" or "none", the words'
    states as `Sets`. init: "release" draws words from U(-0.1, 0.1) and leaves the cell to torch's default, as the
    authors' code does; "paper" is Xavier-uniform everywhere (AAAI). tune_words: False keeps the word embeddings as they
    start. On a CPU a GRU of one direction runs over the batch's shared prefixes, one layer of both over shared endings
    too. Raises InputError for an unknown cell, pooling or init.
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
        tune_words: bool = True,
    ):
        super().__init__()
        one_of("init", init, ("release", "paper"))
        one_of("cell", cell, tuple(CELLS))
        for name, value in (("dim", dim), ("word_dim", word_dim), ("layers", layers)):
            whole(name, value)
        self.words = WordEmbedding(vocabulary_size, word_dim, tune_words)
        # Called gru whatever the cell: checkpoints of GRUs know it by that name.
        self.gru = CELLS[cell](word_dim, dim, layers, batch_first=True, bidirectional=bidirectional)
        self.pool = pooling_of(pooling)
        self.gives = self.pool.gives
        if init == "release":
            nn.init.uniform_(self.words.weight, -0.1, 0.1)
        else:
            nn.init.xavier_uniform_(self.words.weight)
            for name, parameter in self.gru.named_parameters():
                if name.startswith("weight"):
                    nn.init.xavier_uniform_(parameter)
                else:
                    nn.init.zeros_(parameter)

    def start_words(self, rows: Tensor, vectors: Tensor) -> None:
        """Let the words `rows` (n,) begin with `vectors` (n, word_dim)."""
        self.words.start(rows, vectors)

    def forward(self, texts: Tensor, lengths: Tensor) -> Encoding:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D), or N `Sets` of words."""
        at_the_end = isinstance(self.pool, Last)
        if fits(self.gru, texts):
            run = last_states if at_the_end else all_states
            states = last = run(self.gru, self.words, texts, lengths)
        elif self.gru.bidirectional:
            states, last = self._both_ways(texts, lengths)
        else:  # one direction never sees the padding behind a caption
            return self.pool(self.gru(self.words(texts))[0], lengths)
        return last if at_the_end else self.pool(states, lengths)

    def _both_ways(self, texts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The directions' mean at each word (N, L, D), and of their end states (N, D)."""
        packed = pack_padded_sequence(self.words(texts), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.gru(packed)
        last = last[0] if isinstance(self.gru, nn.LSTM) else last
        states = pad_packed_sequence(states, batch_first=True)[0]
        return states.unflatten(2, (2, -1)).mean(dim=2), last[-2:].mean(dim=0)
