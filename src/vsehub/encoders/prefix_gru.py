"""A GRU over the tree of the batch's shared prefixes: each distinct beginning of a caption is run once.

A GRU's state after "<start> a man in a" is the same for every caption that begins so; backwards, where it has one
layer, for every caption that ends alike. In a batch of 128 captions about a fifth of all steps, and in larger batches
more, repeat a step of another caption. Further savings against torch.nn.GRU on a CPU: the input is projected once for
each distinct word, the weights' gradient is one product over all steps instead of one for each, both directions go
through the gates together, and the factors of the gates' gradients are computed for all steps at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vsehub.sets import Sets


class Forest(NamedTuple):
    """Distinct prefixes as n nodes, level by level; for a GRU of both directions a tree of each, forwards first.

    words: (n,) the last word of each prefix. directions: (n,) the tree of each node. parents: the parent (c,) of each
    node of each level; empty for the first level. levels: the nodes of each tree, for each level. nodes: (N, L) of each
    tree, the node that each caption has reached at each word, 0 behind its last.
    """

    words: Tensor
    directions: Tensor
    parents: list[Tensor]
    levels: list[list[slice]]
    nodes: tuple[Tensor, ...]

    @classmethod
    def build(cls, texts: Tensor, lengths: Tensor, both_ways: bool = False) -> "Forest":
        """The forest of captions (N, L) of lengths (N,), both at least 1, on the CPU; read in both directions if so."""
        read = [texts[:, : int(lengths.max())]]
        if both_ways:
            read.append(texts.gather(1, reversal(lengths)))
        ids, sizes = torch.cat(read).numpy(), lengths.repeat(len(read)).numpy()
        base, above, first = int(ids.max()) + 1, 0, 0
        words, parents, levels, directions = [], [], [], [np.arange(len(read))]
        nodes, node = np.zeros(ids.shape, np.int64), np.repeat(directions[0], len(texts))  # each tree has a root
        for step in range(ids.shape[1]):
            alive = np.flatnonzero(sizes > step)
            keys, node[alive] = np.unique(node[alive] * base + ids[alive, step], return_inverse=True)
            words.append(keys % base)
            parents.append(torch.from_numpy(above + keys // base if step else keys[:0]))
            directions.append(directions[-1][keys // base])
            nodes[alive, step] = first + node[alive]
            ends = first + np.searchsorted(directions[-1], np.arange(len(read) + 1))
            levels.append([slice(*pair) for pair in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)])
            above, first = first, first + len(keys)
        all_words, all_directions = np.concatenate(words), np.concatenate(directions[1:])
        by_direction = torch.from_numpy(nodes).split(len(texts))
        return cls(torch.from_numpy(all_words), torch.from_numpy(all_directions), parents, levels, by_direction)


def fits(gru: nn.RNNBase, texts: Tensor) -> bool:
    """Return True for texts on the CPU if each state depends only on the words before it, or only on those after."""
    return texts.device.type == "cpu" and isinstance(gru, nn.GRU) and not (gru.bidirectional and gru.num_layers > 1)


def last_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor) -> Tensor:
    """The last layer's state at each caption's end, (N, hidden); equals running `gru` on each caption separately.

    embedding: (w,) word ids -> (w, word_dim). texts: (N, L) word ids. lengths: (N,), at least 1. All on the CPU. Two
    directions, each at its own end, are averaged. Under autocast the products run in its type and the states stay
    float32.
    """
    forest = Forest.build(texts, lengths, gru.bidirectional)
    states, ends = forest_states(gru, embedding, forest), lengths[:, None] - 1
    return torch.stack([states.index_select(0, nodes.gather(1, ends)[:, 0]) for nodes in forest.nodes]).mean(dim=0)


def all_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor) -> Sets:
    """As `last_states`, at every word: N sets of (hidden,)."""
    forest = Forest.build(texts, lengths, gru.bidirectional)
    states, nodes = forest_states(gru, embedding, forest), list(forest.nodes)
    inside = torch.arange(nodes[0].shape[1]) < lengths[:, None]
    if gru.bidirectional:
        nodes[1] = nodes[1].gather(1, reversal(lengths))
    return Sets(torch.stack([states.index_select(0, node[inside]) for node in nodes]).mean(dim=0), lengths)


def reversal(lengths: Tensor) -> Tensor:
    """Position of each word of the captions read backwards: (N, longest), 0 behind a caption; its own inverse."""
    return (lengths[:, None] - 1 - torch.arange(int(lengths.max()))).clamp(min=0)


def forest_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], forest: Forest) -> Tensor:
    """The last layer's state at each node, (n, hidden)."""
    words, where = forest.words.unique(return_inverse=True)
    states = embedding(words)
    directions = ("", "_reverse") if gru.bidirectional else ("",)
    size = gru.hidden_size
    for layer in range(gru.num_layers):
        weights_in, weights, biases_in, biases = (
            [getattr(gru, f"{name}_l{layer}{direction}") for direction in directions]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        # The recurrent biases of the reset and update gates are added as the inputs are; the new state's is not.
        added = [ahead + F.pad(bias[: 2 * size], (0, size)) for ahead, bias in zip(biases_in, biases, strict=True)]
        inputs = F.linear(states, torch.cat(weights_in), torch.cat(added)).to(weights[0].dtype)
        if layer == 0:  # each distinct word was projected once
            inputs = F.embedding(where * len(directions) + forest.directions, inputs.view(-1, 3 * size))
        states = ForestGRU.apply(inputs, forest, *weights, *(bias[2 * size :] for bias in biases))
    return states


class ForestGRU(torch.autograd.Function):
    """States (n, H) of all nodes from projected inputs (n, 3H), the directions' recurrent weights (3H, H) each and
    their biases (H,) of the new state's recurrent part.

    The equations and the gates' order (reset, update, new) are torch.nn.GRU's. The root of every level-one node is the
    zero state.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, forest: Forest, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        size = weights[0].shape[1]
        # Under autocast the products run in its type.
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs.dtype
        factors = [weight.T.to(dtype) for weight in weights]
        before, recurrent, states = inputs.new_zeros(3, len(inputs), size).unbind()
        gates = torch.empty_like(inputs)
        for parents, parts in zip(forest.parents, forest.levels, strict=True):
            rows = slice(parts[0].start, parts[-1].stop)
            if len(parents):
                torch.index_select(states, 0, parents, out=before[rows])
            for part, factor, bias in zip(parts, factors, biases, strict=True):
                for_gates, for_new = (before[part].to(dtype) @ factor).split((2 * size, size), dim=1)
                torch.add(inputs[part, : 2 * size], for_gates, out=gates[part, : 2 * size])
                torch.add(for_new, bias, out=recurrent[part])
            reset, update, new = gates[rows].chunk(3, dim=1)
            gates[rows, : 2 * size].sigmoid_()
            torch.addcmul(inputs[rows, 2 * size :], reset, recurrent[rows], out=new).tanh_()
            torch.lerp(new, before[rows], update, out=states[rows])
        ctx.save_for_backward(before, gates, recurrent, *weights)
        ctx.forest, ctx.dtype = forest, dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        before, gates, recurrent, *weights = ctx.saved_tensors
        forest: Forest = ctx.forest
        reset, update, new = gates.chunk(3, dim=1)
        # Times a state's gradient, these factors are the gradients of the gates' inputs: `into_new` of the new state,
        # `into_reset` and `into_update` of the gates, `from_before` of the new state's recurrent part.
        into_new = new.square().neg_().add_(1)
        into_new.addcmul_(into_new, update, value=-1)
        factors = gates.new_empty(len(gates), 3, new.shape[1])
        into_reset, into_update, from_before = factors.unbind(1)
        torch.mul(into_new, reset, out=from_before)
        torch.mul(from_before, recurrent, out=into_reset)
        into_reset.addcmul_(into_reset, reset, value=-1)
        torch.sub(before, new, out=into_update).mul_(update)
        into_update.addcmul_(into_update, update, value=-1)

        turned = [weight.to(ctx.dtype) for weight in weights]
        to_recurrent = torch.empty(factors.shape, dtype=ctx.dtype)
        flow = gradient.clone()
        for parents, parts in zip(reversed(forest.parents), reversed(forest.levels), strict=True):
            rows = slice(parts[0].start, parts[-1].stop)
            torch.mul(flow[rows, None], factors[rows], out=to_recurrent[rows])
            if len(parents):
                back = [to_recurrent[part].flatten(1) @ weight for part, weight in zip(parts, turned, strict=True)]
                flow.index_add_(0, parents, flow[rows].mul(update[rows]).add_(torch.cat(back)))
        to_inputs = factors.mul_(flow[:, None]).flatten(1)
        torch.mul(flow, into_new, out=to_inputs[:, -new.shape[1] :])
        to_weights, to_biases = [], []
        for direction in range(len(weights)):
            nodes = (forest.directions == direction).nonzero()[:, 0]
            left, right = before[nodes].to(ctx.dtype), to_recurrent.flatten(1)[nodes]
            # To one of few numbers of rows: oneDNN prepares a product anew for each new one.
            more = (0, 0, 0, -len(nodes) % (64 if len(nodes) < 1024 else 256))
            to_weights.append((F.pad(right, more).T @ F.pad(left, more)).to(gates.dtype))
            to_biases.append(right[:, -new.shape[1] :].sum(dim=0, dtype=gates.dtype))
        return to_inputs, None, *to_weights, *to_biases
