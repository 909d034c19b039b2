"""A GRU over the tree of the batch's shared prefixes: each distinct beginning of a caption is run once.

A GRU's state after "<start> a man in a" is the same for every caption that begins so; backwards, where it has one
layer, for every caption that ends alike. In a batch of 128 captions about a fifth of all steps, and in larger batches
more, repeat a step of another caption. Further savings against torch.nn.GRU on a CPU: the input is projected once for
each distinct word, the weights' gradient is one product over all steps instead of one for each, both directions go
through the gates together, and the factors of the gates' gradients are computed for all steps at once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vsehub.encoders.fast.products import fixed_product
from vsehub.sets import Sets


class Forest(NamedTuple):
    """Distinct prefixes as nodes, level by level; for a GRU of both directions a tree of each, forwards first.

    words: (n,) the last word of each prefix. directions: (n,) the tree of each node. parents: for each level (c,), the
    row of each node's parent in the level above (the first level's are not used). counts: for each level, the nodes of
    each tree. nodes: for each tree (N, L), the node that each caption has reached at each of its words, 0 behind its
    last.
    """

    words: Tensor
    directions: Tensor
    parents: list[Tensor]
    counts: list[list[int]]
    nodes: tuple[Tensor, ...]

    @property
    def sizes(self) -> list[int]:
        """The nodes of each level."""
        return [sum(counts) for counts in self.counts]

    def parts(self, rows: Tensor) -> list[tuple[Tensor, ...]]:
        """Views of (n, ...): of each level and there of each direction."""
        directions = len(self.nodes)
        views = rows.split([count for counts in self.counts for count in counts])
        return [views[first : first + directions] for first in range(0, len(views), directions)]

    @classmethod
    def build(cls, texts: Tensor, lengths: Tensor, both_ways: bool = False) -> "Forest":
        """The forest of captions (N, L) of lengths (N,), both at least 1, on the CPU; read in both directions if so."""
        read = [texts[:, : int(lengths.max())]]
        if both_ways:
            read.append(texts.gather(1, reversal(lengths)))
        ids, sizes = torch.cat(read).numpy(), lengths.repeat(len(read)).numpy()
        base, first = int(ids.max()) + 1, 0
        words, parents, directions, counts = [], [], [np.arange(len(read))], []
        nodes, node = np.zeros(ids.shape, np.int64), np.repeat(directions[0], len(texts))  # each tree has a root
        for step in range(ids.shape[1]):
            alive = np.flatnonzero(sizes > step)
            keys, node[alive] = np.unique(node[alive] * base + ids[alive, step], return_inverse=True)
            words.append(keys % base)
            parents.append(torch.from_numpy(keys // base))
            directions.append(directions[-1][keys // base])
            counts.append(np.bincount(directions[-1], minlength=len(read)).tolist())
            nodes[alive, step] = first + node[alive]
            first += len(keys)
        of_words, of_directions = (torch.from_numpy(np.concatenate(one)) for one in (words, directions[1:]))
        return cls(of_words, of_directions, parents, counts, torch.from_numpy(nodes).split(len(texts)))


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
    ends = lengths[:, None] - 1
    return averaged(forest_states(gru, embedding, forest), [nodes.gather(1, ends)[:, 0] for nodes in forest.nodes])


def all_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor) -> Sets:
    """As `last_states`, at every word: N sets of (hidden,)."""
    forest = Forest.build(texts, lengths, gru.bidirectional)
    inside = torch.arange(forest.nodes[0].shape[1]) < lengths[:, None]
    where = [forest.nodes[0][inside]]
    if gru.bidirectional:
        where.append(forest.nodes[1].gather(1, reversal(lengths))[inside])
    return Sets(averaged(forest_states(gru, embedding, forest), where), lengths)


def averaged(states: Tensor, nodes: Sequence[Tensor]) -> Tensor:
    """The mean over the directions of the states (n, H) at their nodes (m,) each: (m, H)."""
    total = states.index_select(0, nodes[0])
    for more in nodes[1:]:
        total = total + states.index_select(0, more)
    return total / len(nodes) if len(nodes) > 1 else total


def reversal(lengths: Tensor) -> Tensor:
    """Where each word of the captions read backwards stands: (N, longest), 0 behind a caption; its own inverse."""
    return (lengths[:, None] - 1 - torch.arange(int(lengths.max()))).clamp(min=0)


def forest_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], forest: Forest) -> Tensor:
    """The last layer's state at each node, (n, hidden)."""
    words, where = forest.words.unique(return_inverse=True)
    states = embedding(words)
    directions = ("", "_reverse") if gru.bidirectional else ("",)
    for layer in range(gru.num_layers):
        weights_in, weights, biases_in, biases = (
            [getattr(gru, f"{name}_l{layer}{direction}") for direction in directions]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        size = gru.hidden_size
        # The recurrent biases of the reset and update gates are added as the inputs are; the new state's is not.
        added = [ahead + F.pad(bias[: 2 * size], (0, size)) for ahead, bias in zip(biases_in, biases, strict=True)]
        rows = len(states)
        states = F.pad(states, (0, 0, 0, padded(rows) - rows))
        inputs = F.linear(states, torch.cat(weights_in), torch.cat(added)).to(weights[0].dtype)
        if layer == 0:  # each distinct word was projected once
            inputs = F.embedding(where * len(directions) + forest.directions, inputs.view(-1, 3 * size))
        else:
            inputs = inputs[:rows]
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
        states, before, recurrent = inputs.new_empty(3, len(inputs), size).unbind()
        gates = inputs.new_empty(len(inputs), 3 * size)
        product_type = _product_type(inputs)
        products = [fixed_product(weight.T, product_type) for weight in weights]
        # Views of each level's rows, and within it of each direction's, are made at once: one by one they would take
        # longer than the short levels' arithmetic.
        levels = (inputs[:, 2 * size :], before, recurrent, *gates.chunk(3, dim=1), gates[:, : 2 * size], states)
        given, befores, kept, resets, updates, news, both, found = (one.split(forest.sizes) for one in levels)
        parts = (inputs[:, : 2 * size], gates[:, : 2 * size], recurrent)
        given_parts, gate_parts, kept_parts = (forest.parts(one) for one in parts)
        for level, parents in enumerate(forest.parents):
            if level == 0:
                befores[0].zero_()
                both[0].copy_(inputs[: forest.sizes[0], : 2 * size])
                for part, bias in zip(kept_parts[0], biases, strict=True):
                    part.copy_(bias.expand_as(part))
            else:
                torch.index_select(found[level - 1], 0, parents, out=befores[level])
                left = befores[level].to(product_type).split(forest.counts[level])
                for i, product in enumerate(products):
                    for_gates, for_new = product(left[i]).split((2 * size, size), dim=1)
                    torch.add(given_parts[level][i], for_gates, out=gate_parts[level][i])
                    torch.add(for_new, biases[i], out=kept_parts[level][i])
            both[level].sigmoid_()
            torch.addcmul(given[level], resets[level], kept[level], out=news[level]).tanh_()
            torch.lerp(news[level], befores[level], updates[level], out=found[level])
        ctx.save_for_backward(before, gates, recurrent, *weights)
        ctx.forest, ctx.product_type = forest, product_type
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

        products = [fixed_product(weight, ctx.product_type) for weight in weights]
        to_recurrent = torch.empty(factors.shape, dtype=ctx.product_type)
        flow = gradient.clone()
        flows, flows_wide, updates, wide, out = (
            one.split(forest.sizes) for one in (flow, flow[:, None], update, factors, to_recurrent)
        )
        out_parts = forest.parts(to_recurrent.flatten(1))
        for level in range(len(forest.sizes) - 1, -1, -1):
            torch.mul(flows_wide[level], wide[level], out=out[level])
            if level:
                kept = flows[level] * updates[level]
                for i, part in enumerate(kept.split(forest.counts[level])):
                    part += products[i](out_parts[level][i])
                flows[level - 1].index_add_(0, forest.parents[level], kept)
        to_inputs = factors.mul_(flow[:, None]).flatten(1)
        torch.mul(flow, into_new, out=to_inputs[:, -new.shape[1] :])
        to_weights, to_biases = [], []
        for direction in range(len(weights)):
            own = (forest.directions == direction).nonzero()[:, 0]
            left, right = (_taken(one, own, ctx.product_type) for one in (before, to_recurrent.flatten(1)))
            to_weights.append((right.T @ left).to(gates.dtype))
            to_biases.append(right[:, -new.shape[1] :].sum(dim=0, dtype=gates.dtype))
        return to_inputs, None, *to_weights, *to_biases


def padded(rows: int) -> int:
    """`rows`, rounded up to one of few numbers.

    oneDNN prepares a product anew for each new number of rows, which takes several times as long as the product.
    """
    step = 64 if rows < 1024 else 256
    return -(-rows // step) * step


def _taken(rows: Tensor, own: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows `own` of (n, D), then zeros up to a padded number."""
    taken = rows.new_zeros(padded(len(own)), rows.shape[1], dtype=dtype)
    taken[: len(own)] = rows.index_select(0, own)
    return taken


def _product_type(like: Tensor) -> torch.dtype:
    """Autocast's type where it is on, else the tensor's own."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else like.dtype
