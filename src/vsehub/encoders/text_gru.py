"""Word embeddings and a GRU; a caption is the state at its last word (VSE++, AAAI)."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from vsehub.checks import one_of, require
from vsehub.encoders.prefix_gru import last_states


class TextGRU(nn.Module):
    """(N, L) word ids to the last layer's state at the last word; two directions are averaged.

    vocabulary_size: from the data; id 0 pads. dim: D, the hidden size. word_dim: size of the word embeddings. init:
    "release" draws words from U(-0.1, 0.1) and leaves the GRU to torch's default, as the authors' code does; "paper"
    is Xavier-uniform everywhere (AAAI). On a CPU one direction runs over the batch's shared prefixes. Raises
    InputError for an unknown init.
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int = 1024,
        word_dim: int = 300,
        layers: int = 1,
        bidirectional: bool = False,
        init: str = "release",
    ):
        super().__init__()
        one_of("init", init, ("release", "paper"))
        require(layers > 0, f"layers is {layers}; expected at least 1")
        self.words = nn.Embedding(vocabulary_size, word_dim, padding_idx=0)
        self.gru = nn.GRU(word_dim, dim, layers, batch_first=True, bidirectional=bidirectional)
        if init == "release":
            nn.init.uniform_(self.words.weight, -0.1, 0.1)
        else:
            nn.init.xavier_uniform_(self.words.weight)
            for name, parameter in self.gru.named_parameters():
                if name.startswith("weight"):
                    nn.init.xavier_uniform_(parameter)
                else:
                    nn.init.zeros_(parameter)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """texts (N, L) ids, lengths (N,) of at least 1 -> (N, D)."""
        if self.gru.bidirectional:
            packed = pack_padded_sequence(self.words(texts), lengths.cpu(), batch_first=True, enforce_sorted=False)
            last = self.gru(packed)[1][-2:]  # the last layer's end states, forwards and backwards
            return last.mean(dim=0)
        if texts.device.type == "cpu":
            return last_states(self.gru, self.words, texts, lengths)
        states = self.gru(self.words(texts))[0]
        return states[torch.arange(len(texts), device=texts.device), lengths - 1]
