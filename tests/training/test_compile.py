"""A training step that torch.compile has compiled."""

import shutil

import pytest
import torch

from vsehub.encoders import ImageCNN, TextGRU
from vsehub.losses import HAL
from vsehub.similarities import Cosine
from vsehub.training.module import RetrievalModule
from vsehub.types import Batch


def batches(count, pairs=16):
    random = torch.Generator().manual_seed(0)
    ids = torch.arange(pairs)
    for _ in range(count):
        images = torch.randint(0, 256, (pairs, 3, 32, 32), generator=random, dtype=torch.uint8)
        lengths = torch.randint(3, 9, (pairs,), generator=random)
        texts = torch.randint(4, 60, (pairs, int(lengths.max())), generator=random)
        texts[torch.arange(texts.shape[1]) >= lengths[:, None]] = 0
        yield Batch(images, texts, lengths, ids, ids, None)


def trained(compile_mode, text):
    """The weights after 20 steps, and the names of the state."""
    torch.manual_seed(0)
    images = ImageCNN(image_shape=(3, 32, 32), dim=32, width=4, norm="group")
    texts = TextGRU(60, dim=32, word_dim=16, **text)
    module = RetrievalModule(images, texts, Cosine(), HAL(), None, None, compile_mode=compile_mode)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for index, batch in enumerate(batches(20)):
        module.training_step(batch, index + 1).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]), list(module.state_dict())


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
@pytest.mark.parametrize("text", [{}, {"bidirectional": True, "pooling": "gpo"}])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_step_trains_as_the_eager_step_does(mode, text):
    (eager, names), (compiled, compiled_names) = trained(None, text), trained(mode, text)
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)
    assert compiled_names == names
