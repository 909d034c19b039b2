"""A GRU over the tree of the batch's shared prefixes: each distinct beginning of a caption is run once.

A GRU's state after "<start> a man in a" is the same for every caption that begins so; backwards, where it has one
layer, for every caption that ends alike. In a batch of 128 captions about a fifth of all steps, and in larger batches
more, repeat a step of another caption. Further savings against torch.nn.GRU on a CPU: the input is projected once for
each distinct word, and the weights' gradient is one product over all steps instead of one for each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vsehub.encoders.pooling import PARAMETERS, reversal

# oneDNN prepares a product anew for each number of rows, which takes longer than the product: rows are padded to
# multiples of these numbers.
LEVEL_ROWS, ALL_ROWS = 16, 128


class Tree(NamedTuple):
    """Distinct prefixes as n nodes, level by level.

    words: (n,) the last word of each prefix. parents: for each level the parents (c,) of its c nodes; empty for the
    first level. levels: the nodes of each level; its last node is repeated until c is a multiple of LEVEL_ROWS.
    nodes: (N, L), the node that each caption has reached at each word, 0 behind its last.
    """

    words: Tensor
    parents: list[Tensor]
    levels: list[slice]
    nodes: Tensor

    @classmethod
    def build(cls, texts: Tensor, lengths: Tensor) -> "Tree":
        """The tree of captions (N, L) of lengths (N,), both at least 1, on the CPU."""
        ids, sizes = texts[:, : int(lengths.max())].numpy(), lengths.numpy()
        base = int(ids.max()) + 1
        words, parents, levels = [], [], []
        nodes = np.zeros(ids.shape, np.int64)
        node = np.zeros(len(ids), np.int64)  # each caption's node, counted within the level; all begin at the root
        above = first = 0  # the first node of the level above, and of this level
        for step in range(ids.shape[1]):
            alive = np.flatnonzero(sizes > step)
            keys, node[alive] = np.unique(node[alive] * base + ids[alive, step], return_inverse=True)
            keys = np.pad(keys, (0, -len(keys) % LEVEL_ROWS), mode="edge")
            words.append(keys % base)
            parents.append(torch.from_numpy(above + keys // base if step else keys[:0]))  # the first level has none
            nodes[alive, step] = first + node[alive]
            levels.append(slice(first, first + len(keys)))
            above, first = first, first + len(keys)
        return cls(torch.from_numpy(np.concatenate(words)), parents, levels, torch.from_numpy(nodes))


def can_share_prefixes(gru: nn.RNNBase, texts: Tensor) -> bool:
    """Return True for texts on the CPU and a GRU whose states depend only on earlier words, or only on later ones.

    torch.compile cannot trace the tree, so False while it compiles.
    """
    on_cpu = texts.is_cpu and not torch.compiler.is_compiling()
    return on_cpu and isinstance(gru, nn.GRU) and not (gru.bidirectional and gru.num_layers > 1)


def last_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor) -> Tensor:
    """The last layer's state at each caption's end, (N, hidden); equals running `gru` on each caption separately.

    embedding: (w,) word ids -> (w, word_dim). texts: (N, L) word ids. lengths: (N,), at least 1. All on the CPU. Two
    directions, each at its own end, are averaged. Under autocast the products run in its type and the states stay
    float32.
    """
    ends = lengths[:, None] - 1
    sides = [states[nodes.gather(1, ends)[:, 0]] for nodes, states in node_states(gru, embedding, texts, lengths)]
    return torch.stack(sides).mean(dim=0)


def all_states(gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor) -> Tensor:
    """As `last_states`, at every word: (N, longest, hidden), with arbitrary states behind a caption."""
    (nodes, states), *backward = node_states(gru, embedding, texts, lengths)
    result = F.embedding(nodes, states)
    for nodes, states in backward:
        result = (result + F.embedding(nodes.gather(1, reversal(lengths, nodes.shape[1])), states)) / 2
    return result


def node_states(
    gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The nodes (N, L) of each direction's tree, and the last layer's state at each of its nodes, (n, hidden)."""
    # Keyed by the suffix that torch gives to the names of a direction's parameters.
    trees = {"": Tree.build(texts, lengths)}
    if gru.bidirectional:
        trees["_reverse"] = Tree.build(texts.gather(1, reversal(lengths, texts.shape[1])), lengths)
    words = trees[""].words.unique()
    vectors, size, sides = embedding(words), gru.hidden_size, []
    vectors = F.pad(vectors, (0, 0, 0, -len(vectors) % LEVEL_ROWS))
    for suffix, tree in trees.items():
        states, rows = vectors, torch.searchsorted(words, tree.words)
        for layer in range(gru.num_layers):
            weight_in, weight, bias_in, bias = (getattr(gru, f"{name}_l{layer}{suffix}") for name in PARAMETERS)
            # The recurrent biases of the reset and update gates are added as the inputs are; the new state's is not.
            inputs = F.linear(states, weight_in, bias_in + F.pad(bias[: 2 * size], (0, size)))
            states = TreeGRU.apply(inputs, rows, tree, weight, bias[2 * size :])
            rows = torch.arange(len(states))
        sides.append((tree.nodes, states))
    return sides


def padded(rows: int, columns: int, like: Tensor) -> Tensor:
    """Uninitialised rows (rows, columns), followed by zeros up to a multiple of ALL_ROWS."""
    tensor = like.new_empty(rows + -rows % ALL_ROWS, columns)
    tensor[rows:].zero_()
    return tensor


class TreeGRU(torch.autograd.Function):
    """States (n, H) of all nodes.

    inputs: (w, 3H), projected. rows: (n,) the row of inputs that each node reads. weight: (3H, H), recurrent. bias:
    (H,), of the new state's recurrent part. The equations and the gates' order (reset, update, new) are torch.nn.GRU's.
    Nodes of the first level begin from the zero state.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, rows: Tensor, tree: Tree, weight: Tensor, bias: Tensor) -> Tensor:
        size, count = weight.shape[1], len(rows)
        # Under autocast the inputs are of its type, and so are the products; all else is as precise as the weight.
        factor, inputs = weight.T.to(inputs.dtype), inputs.to(weight.dtype)
        before = padded(count, size, factor)
        before[tree.levels[0]] = 0
        gates = inputs.new_empty(count, 3 * size)  # reset and update gates, and the new state's recurrent part
        new, states = inputs.new_empty(2, count, size).unbind()
        above = torch.zeros_like(states[tree.levels[0]])
        for parents, level in zip(tree.parents, tree.levels, strict=True):
            if len(parents):
                above = states.index_select(0, parents)
                before[level] = above
            for_gates, for_new = inputs.index_select(0, rows[level]).split((2 * size, size), dim=1)
            reset, update, recurrent = gates[level].chunk(3, dim=1)
            product = before[level] @ factor
            torch.add(for_gates, product[:, : 2 * size], out=gates[level, : 2 * size]).sigmoid_()
            torch.add(product[:, 2 * size :], bias, out=recurrent)
            torch.addcmul(for_new, reset, recurrent, out=new[level]).tanh_()
            torch.lerp(new[level], above, update, out=states[level])
        ctx.save_for_backward(rows, before, gates, new, states, factor)
        ctx.tree, ctx.inputs = tree, len(inputs)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, before, gates, new, states, factor = ctx.saved_tensors
        count, size = new.shape
        to_inputs = new.new_zeros(ctx.inputs, 3 * size)
        to_recurrent = padded(count, 3 * size, factor)
        flow = gradient.clone()
        for parents, level in zip(reversed(ctx.tree.parents), reversed(ctx.tree.levels), strict=True):
            reset, update, recurrent = gates[level].chunk(3, dim=1)
            to_gates = new.new_empty(level.stop - level.start, 3 * size)
            into_reset, into_update, into_new = to_gates.chunk(3, dim=1)
            back = flow[level] * update
            torch.sub(flow[level], back, out=into_new)
            into_new.addcmul_(into_new * new[level], new[level], value=-1)
            into_recurrent = into_new * reset
            torch.mul(into_recurrent, recurrent, out=into_reset)
            into_reset.addcmul_(into_reset, reset, value=-1)
            if len(parents):
                torch.sub(states.index_select(0, parents), new[level], out=into_update).mul_(back)
            else:
                torch.mul(new[level], back, out=into_update).neg_()
            into_update.addcmul_(into_update, update, value=-1)
            to_inputs.index_add_(0, rows[level], to_gates)
            to_recurrent[level, : 2 * size] = to_gates[:, : 2 * size]
            to_recurrent[level, 2 * size :] = into_recurrent
            if len(parents):
                flow.index_add_(0, parents, back.add_(to_recurrent[level] @ factor.T))
        to_weight = (to_recurrent.T @ before).to(new.dtype)
        to_bias = to_recurrent[:, 2 * size :].sum(dim=0, dtype=new.dtype)
        return to_inputs.to(factor.dtype), None, None, to_weight, to_bias
