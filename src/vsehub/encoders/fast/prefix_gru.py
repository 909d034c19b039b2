"""A GRU over the tree of the batch's shared prefixes: each distinct beginning of a caption is run once.

A GRU's state after "<start> a man in a" is the same for every caption that begins so; backwards, where it has one
layer, for every caption that ends alike. In a batch of 128 captions about a fifth of all steps, and in larger batches
more, repeat a step of another caption. Two further savings against torch.nn.GRU on a CPU: the input is projected once
for each distinct word, and the weights' gradient is one product over all steps instead of one for each.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Inductor's own operators: absent from builds without oneDNN.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
TYPICAL_ROWS = 64


class PrefixTree(NamedTuple):
    """Distinct prefixes as nodes, level by level.

    words: (n,) the last word of each prefix. parents: for each level (c,), where in the level above each node's
    parent lies (the first level's are not used). nodes: (N, L) the node that each caption has reached at each of its
    words, 0 behind its last.
    """

    words: Tensor
    parents: list[Tensor]
    nodes: Tensor

    @classmethod
    def build(cls, texts: Tensor, lengths: Tensor) -> "PrefixTree":
        """The tree of (N, L) word ids with (N,) lengths, both at least 1, on the CPU."""
        ids, sizes = texts.numpy(), lengths.numpy()
        base = int(ids.max()) + 1
        words, parents = [], []
        nodes = np.zeros((len(ids), int(sizes.max())), np.int64)
        node = np.zeros(len(ids), np.int64)
        first = 0
        for step in range(nodes.shape[1]):
            alive = np.flatnonzero(sizes > step)
            keys, node[alive] = np.unique(node[alive] * base + ids[alive, step], return_inverse=True)
            words.append(keys % base)
            parents.append(torch.from_numpy(keys // base))
            nodes[alive, step] = first + node[alive]
            first += len(keys)
        return cls(torch.from_numpy(np.concatenate(words)), parents, torch.from_numpy(nodes))


def fits(gru: nn.RNNBase, texts: Tensor) -> bool:
    """Whether the texts are on the CPU and each state depends only on the words before it, or only on those after."""
    return texts.device.type == "cpu" and isinstance(gru, nn.GRU) and not (gru.bidirectional and gru.num_layers > 1)


def last_states(gru: nn.GRU, embedding: nn.Embedding, texts: Tensor, lengths: Tensor) -> Tensor:
    """The last layer's state at each caption's end, (N, hidden); equals running `gru` on each caption separately.

    texts: (N, L) word ids. lengths: (N,), at least 1. All on the CPU. Two directions, each at its own end, are
    averaged. Under autocast the products run in its type and the states stay float32.
    """
    tree = PrefixTree.build(texts, lengths)
    ends = lengths[:, None] - 1
    states = tree_states(gru, embedding, tree).index_select(0, tree.nodes.gather(1, ends)[:, 0])
    if not gru.bidirectional:
        return states
    tree = PrefixTree.build(texts.gather(1, reversal(lengths)), lengths)
    back = tree_states(gru, embedding, tree, "_reverse").index_select(0, tree.nodes.gather(1, ends)[:, 0])
    return (states + back) / 2


def all_states(gru: nn.GRU, embedding: nn.Embedding, texts: Tensor, lengths: Tensor) -> Tensor:
    """As `last_states`, at every word: (N, longest, hidden); entries beyond a caption's last word are undefined."""
    tree = PrefixTree.build(texts, lengths)
    states = tree_states(gru, embedding, tree).index_select(0, tree.nodes.flatten())
    if gru.bidirectional:
        order = reversal(lengths)
        reverse = PrefixTree.build(texts.gather(1, order), lengths)
        nodes = reverse.nodes.gather(1, order).flatten()
        states = (states + tree_states(gru, embedding, reverse, "_reverse").index_select(0, nodes)) / 2
    return states.unflatten(0, tree.nodes.shape)


def reversal(lengths: Tensor) -> Tensor:
    """Where each word of the captions read backwards stands: (N, longest), 0 behind a caption; its own inverse."""
    return (lengths[:, None] - 1 - torch.arange(int(lengths.max()))).clamp(min=0)


def tree_states(gru: nn.GRU, embedding: nn.Embedding, tree: PrefixTree, direction: str = "") -> Tensor:
    """The last layer's state at each node, (n, hidden), by the weights whose names end in `direction`."""
    words, where = tree.words.unique(return_inverse=True)
    states: Tensor = embedding(words)
    for layer in range(gru.num_layers):
        weight_in, weight, bias_in, bias = (
            getattr(gru, f"{name}_l{layer}{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        inputs = F.linear(states, weight_in, bias_in).to(weight.dtype)
        if layer == 0:  # each distinct word was projected once
            inputs = F.embedding(where, inputs)
        states = TreeGRU.apply(inputs, weight, bias, tree.parents)
    return states


class TreeGRU(torch.autograd.Function):
    """States (n, H) of all nodes from projected inputs (n, 3H), the recurrent weight (3H, H) and bias (3H,).

    The equations and the gates' order (reset, update, new) are torch.nn.GRU's. The root of every level-one node is the
    zero state.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, parents: list[Tensor]) -> Tensor:
        size = weight.shape[1]
        states = inputs.new_empty(len(inputs), size)
        before = inputs.new_zeros(len(inputs), size)
        gates = inputs.new_empty(len(inputs), 3 * size)
        recurrent = inputs.new_empty(len(inputs), size)
        product = _Product(weight.T, repeated=True)
        first, above = 0, 0
        for level, parent in enumerate(parents):
            last = first + len(parent)
            here = slice(first, last)
            if level == 0:
                added = bias.expand(len(parent), -1)
            else:
                torch.index_select(states[above:first], 0, parent, out=before[here])
                added = product(before[here], bias)
            gate = gates[here]
            torch.add(inputs[here, : 2 * size], added[:, : 2 * size], out=gate[:, : 2 * size]).sigmoid_()
            recurrent[here] = added[:, 2 * size :]
            reset, update, new = gate.split(size, dim=1)
            torch.addcmul(inputs[here, 2 * size :], reset, recurrent[here], out=new).tanh_()
            torch.lerp(new, before[here], update, out=states[here])
            above, first = first, last
        ctx.save_for_backward(weight, before, gates, recurrent)
        ctx.parents, ctx.product_type = parents, product.dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, before, gates, recurrent = ctx.saved_tensors
        size = weight.shape[1]
        flow = gradient.clone()
        to_inputs, to_recurrent = torch.empty_like(gates), torch.empty_like(gates)
        product = _Product(weight, ctx.product_type, repeated=True)
        last = len(gates)
        for level in range(len(ctx.parents) - 1, -1, -1):
            parent = ctx.parents[level]
            first = last - len(parent)
            here = slice(first, last)
            reset, update, new = gates[here].split(size, dim=1)
            into_reset, into_update, into_new = to_inputs[here].split(size, dim=1)
            kept = flow[here] * update
            torch.mul(flow[here] - kept, 1 - new.square(), out=into_new)
            torch.mul((before[here] - new).mul_(kept), 1 - update, out=into_update)
            torch.mul((into_new * recurrent[here]).mul_(reset), 1 - reset, out=into_reset)
            to_recurrent[here, : 2 * size] = to_inputs[here, : 2 * size]
            torch.mul(into_new, reset, out=to_recurrent[here, 2 * size :])
            if level:
                above = first - len(ctx.parents[level - 1])
                flow[above:first].index_add_(0, parent, product(to_recurrent[here], kept))
            last = first
        roots = len(ctx.parents[0])
        to_weight = _Product(before[roots:], ctx.product_type)(to_recurrent[roots:].T)
        return to_inputs, to_weight, to_recurrent.sum(dim=0), None


class _Product:
    """Multiplies by one fixed right-hand matrix, in autocast's type where it is on, else in the matrix's own.

    repeated: the matrix serves many small products; where torch has oneDNN's it is laid out for them once, which makes
    products of a few dozen rows 1.3 to 2.5 times as fast.
    """

    def __init__(self, right: Tensor, dtype: torch.dtype | None = None, repeated: bool = False):
        if dtype is None:
            dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else right.dtype
        self.dtype, self.result, self.right = dtype, right.dtype, right.to(dtype)
        self.packed = None
        if repeated and ONEDNN and dtype in (torch.float32, torch.bfloat16):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.right.T, TYPICAL_ROWS)

    def __call__(self, left: Tensor, plus: Tensor | None = None) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            left = left.to(self.dtype)
            if self.packed is not None:
                product = torch.ops.mkldnn._linear_pointwise(left, self.packed, None, "none", [], "")
            elif plus is not None and self.dtype == self.result:
                return torch.addmm(plus, left, self.right)
            else:
                product = left @ self.right
            product = product.to(self.result)
            return product if plus is None else product.add_(plus)
