"""What a process does of those that share a batch."""

import numpy as np
import torch
import torch.distributed as dist
from test_chunks import CASES, batch, module

from vsehub.sets import Sets
from vsehub.training.gather import encode_together, gather, shares

PROCESSES = 2


def part(whole, process):
    """A process's images and texts, with all ids."""
    counts = shares(len(whole.image_ids), PROCESSES)
    share = slice(sum(counts[:process]), sum(counts[: process + 1]))
    return whole._replace(images=whole.images[share], texts=whole.texts[share], lengths=whole.lengths[share])


def step(case, positives, chunk, process=None):
    """Loss and gradients of a step; with a process those of its share, averaged as distributed training does."""
    encoders, similarity, loss, bank = CASES[case]
    inputs = batch(4 if "sets" in case else None)
    model = module(encoders, similarity, loss, chunk, bank, positives)
    loss_value = model.training_step(inputs if process is None else part(inputs, process), 0)
    loss_value.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    if process is not None:
        for gradient in gradients.values():
            dist.all_reduce(gradient)
            gradient /= PROCESSES
    return loss_value.item(), gradients


def multiplied(encoder, factor, rows, batch_size):
    """An encoding that is told from others."""
    return factor * torch.from_numpy(rows)[:, None].double()


def work(process, folder):
    """What a process does: all cases, and rows of unequal counts there and back."""
    torch.set_num_threads(1)
    torch.Tensor.float = torch.Tensor.double
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=process, world_size=PROCESSES)
    results = {(case, kind): step(case, kind, 5, process) for case in CASES for kind in ("image", "pair")}
    rows = torch.arange(6.0).view(3, 2)[: 2 + process].clone().requires_grad_()
    whole = gather(rows, [2, 3])
    (whole * torch.arange(1.0, 6)[:, None]).sum().backward()
    sets = gather(Sets(rows.detach()[:2], torch.tensor([2])))
    numbers = gather(torch.tensor([process, 7]))
    encoder = torch.nn.Linear(1, 1)
    together = [encode_together(multiplied, encoder, 3.0, np.arange(count), 2) for count in (5, 1)]
    results |= {
        "together": together,
        "rows": (whole.detach(), rows.grad),
        "sets": (sets.vectors, sets.lengths),
        "numbers": numbers,
    }
    torch.save(results, f"{folder}/{process}.pt")
    dist.destroy_process_group()
