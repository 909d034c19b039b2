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
        result = (result + F.embedding(nodes.gather(1, reversal(lengths)), states)) / 2
    return result


def reversal(lengths: Tensor) -> Tensor:
    """Position of each word of the captions read backwards: (N, longest), 0 behind a caption; its own inverse."""
    return (lengths[:, None] - 1 - torch.arange(int(lengths.max()))).clamp(min=0)


def node_states(
    gru: nn.GRU, embedding: Callable[[Tensor], Tensor], texts: Tensor, lengths: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The nodes (N, L) of each direction's tree, and the last layer's state at each of its nodes, (n, hidden)."""
    # Keyed by the suffix that torch gives to the names of a direction's parameters.
    trees = {"": Tree.build(texts, lengths)}
    if gru.bidirectional:
        trees["_reverse"] = Tree.build(texts.gather(1, reversal(lengths)), lengths)
    words = trees[""].words.unique()
    vectors, size, sides = embedding(words), gru.hidden_size, []
    vectors = F.pad(vectors, (0, 0, 0, -len(vectors) % LEVEL_ROWS))
    for suffix, tree in trees.items():
        states = vectors
        for layer in range(gru.num_layers):
            weight_in, weight, bias_in, bias = (
                getattr(gru, f"{name}_l{layer}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            # The recurrent biases of the reset and update gates are added as the inputs are; the new state's is not.
            inputs = F.linear(states, weight_in, bias_in + F.pad(bias[: 2 * size], (0, size))).to(weight.dtype)
            if layer == 0:  # each distinct word was projected once
                inputs = F.embedding(torch.searchsorted(words, tree.words), inputs)
            states = TreeGRU.apply(inputs, tree, weight, bias[2 * size :])
        sides.append((tree.nodes, states))
    return sides


def padded(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Uninitialised rows (rows, columns), followed by zeros up to a multiple of ALL_ROWS."""
    tensor = torch.empty(rows + -rows % ALL_ROWS, columns, dtype=dtype)
    tensor[rows:].zero_()
    return tensor


class TreeGRU(torch.autograd.Function):
    """States (n, H) of all nodes from projected inputs (n, 3H), the recurrent weight (3H, H) and the bias (H,) of the
    new state's recurrent part.

    The equations and the gates' order (reset, update, new) are torch.nn.GRU's. Nodes of the first level
    begin from the zero state.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, tree: Tree, weight: Tensor, bias: Tensor) -> Tensor:
        size = weight.shape[1]
        # Under autocast the products run in its type.
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs.dtype
        factor = weight.T.to(dtype)
        recurrent, states = inputs.new_empty(2, len(inputs), size).unbind()
        padded_before = padded(len(inputs), size, inputs.dtype)
        before = padded_before[: len(inputs)]
        before[tree.levels[0]].zero_()
        gates = torch.empty_like(inputs)
        for parents, rows in zip(tree.parents, tree.levels, strict=True):
            if len(parents):
                torch.index_select(states, 0, parents, out=before[rows])
            for_gates, for_new = (before[rows].to(dtype) @ factor).split((2 * size, size), dim=1)
            torch.add(inputs[rows, : 2 * size], for_gates, out=gates[rows, : 2 * size])
            torch.add(for_new, bias, out=recurrent[rows])
            reset, update, new = gates[rows].chunk(3, dim=1)
            gates[rows, : 2 * size].sigmoid_()
            torch.addcmul(inputs[rows, 2 * size :], reset, recurrent[rows], out=new).tanh_()
            torch.lerp(new, before[rows], update, out=states[rows])
        ctx.save_for_backward(padded_before, gates, recurrent, factor)
        ctx.tree, ctx.dtype = tree, dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        padded_before, gates, recurrent, factor = ctx.saved_tensors
        before = padded_before[: len(gates)]
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

        padded_recurrent = padded(len(gates), 3 * new.shape[1], ctx.dtype)
        to_recurrent = padded_recurrent[: len(gates)].view(factors.shape)
        flow = gradient.clone()
        for parents, rows in zip(reversed(ctx.tree.parents), reversed(ctx.tree.levels), strict=True):
            torch.mul(flow[rows, None], factors[rows], out=to_recurrent[rows])
            if len(parents):
                back = to_recurrent[rows].flatten(1) @ factor.T
                flow.index_add_(0, parents, flow[rows].mul(update[rows]).add_(back))
        to_inputs = factors.mul_(flow[:, None]).flatten(1)
        torch.mul(flow, into_new, out=to_inputs[:, -new.shape[1] :])
        to_weight = (padded_recurrent.T @ padded_before.to(ctx.dtype)).to(gates.dtype)
        return to_inputs, None, to_weight, to_recurrent[:, 2].sum(dim=0, dtype=gates.dtype)
