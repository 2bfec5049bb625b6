"""Right answers in other styles than the worked ones: name of an exercise → answers that must pass.

More of them, to other exercises, are in tests/checking/answers_by_others.py.
"""

import itertools
import math

import torch
from torch.nn import functional as F


def mask(scores, valid):
    """True where a key takes part, for lengths of one or two dimensions, or a mask."""
    lengths = valid[:, None] if valid.dim() == 1 else valid
    is_mask = valid.dtype == torch.bool
    return (valid if is_mask else torch.arange(scores.shape[2]) < lengths[:, :, None]).expand_as(scores)


def window_by_texts(starts, size, sinks, i, j):
    """Text by text: where it begins, and which of the pairs inside it may attend."""
    allowed = torch.zeros(torch.broadcast_shapes(i.shape, j.shape), dtype=torch.bool)
    for start, end in itertools.pairwise([*starts.tolist(), math.inf]):
        inside = (start <= i) & (i < end) & (start <= j) & (j <= i)
        allowed |= inside & (((i - j).abs() < size) | (j < start + sinks))
    return allowed


def halves_by_lists(W, num_heads):
    """The rows of each head, picked by their numbers."""
    size = len(W) // num_heads
    order = [first + k for first in range(0, len(W), size) for k in (*range(0, size, 2), *range(1, size, 2))]
    return W[order]


def change_by_padded_queries(layer, X, valid_lens):
    """Only keys and values are cut off, and the outputs of padded queries are left out."""
    changes = []
    for x, length, got in zip(X, valid_lens, layer(X, X, X, valid_lens), strict=True):
        alone = layer(x[None], x[None, :length], x[None, :length], length[None])
        changes += [(got[t] - alone[0, t]).norm(p=math.inf) for t in range(length)]
    return torch.stack(changes).max()


def by_hits_of_the_mean_map(weights, target):
    """How often the largest weight is on the target, and how often that of the head's mean map is."""

    def hits(weights):
        return (weights.argmax(dim=-1) == target[:, None]).double().mean(dim=(0, 2))

    return hits(weights), hits(weights.mean(dim=0, keepdim=True))


def by_all_exchanges(weights, target):
    """The weight on the target, beside that of the same head on the targets of all examples."""
    one_hot = F.one_hot(target, weights.shape[-1]).float()  # (examples, queries, keys)
    number = (weights * one_hot[:, None]).sum(dim=-1).mean(dim=(0, 2))
    return [number.tolist(), (weights.mean(dim=0) * one_hot.mean(dim=0)).sum(dim=-1).mean(dim=1).tolist()]


def half_open(accuracy, shape):
    """What a head adds while all others are half open."""
    found = torch.zeros(shape)
    for place in itertools.product(*map(range, shape)):
        with_it, without = torch.full(shape, 0.5), torch.full(shape, 0.5)
        with_it[place], without[place] = 1, 0
        found[place] = accuracy(with_it) - accuracy(without)
    return found


def by_random_orders(accuracy, shape):
    """What a head adds where it comes in five random orders, and in these from back to front."""
    torch.manual_seed(0)
    found = torch.zeros(shape).flatten()
    orders = [torch.randperm(len(found)) for _ in range(5)]
    for order in orders + [order.flip(0) for order in orders]:
        gates = torch.zeros(shape).flatten()
        before = accuracy(gates.view(shape))
        for head in order:
            gates[head] = 1
            after = accuracy(gates.view(shape))
            found[head] += after - before
            before = after
    return found.view(shape)


def set_by_loops(calibration, test, share):
    found = {}
    for number, accuracy in enumerate(calibration.tolist()):
        size = number.bit_count()
        if size not in found or accuracy > calibration[found[size]]:
            found[size] = number
    return next(found[size] for size in sorted(found) if test[found[size]] >= share * test[-1])


def maps_from_torch(X, in_proj_weight, in_proj_bias, num_heads, padding):
    """What torch itself gives for these parameters."""
    d = X.shape[-1]
    layer = torch.nn.MultiheadAttention(d, num_heads, batch_first=True)
    layer.in_proj_weight.data, layer.in_proj_bias.data = in_proj_weight, in_proj_bias
    return layer(X, X, X, key_padding_mask=padding, average_attn_weights=False)[1]


def into_torch_by_state(layer, X, valid_lens):
    """The parameters as a dictionary, and a mask of numbers that are added to the scores."""
    own, peer = layer.state_dict(), torch.nn.MultiheadAttention(X.shape[2], layer.num_heads)
    packed = {f"in_proj_{kind}": torch.cat([own[f"W_{name}.{kind}"] for name in "qkv"]) for kind in ("weight", "bias")}
    peer.load_state_dict(packed | {f"out_proj.{kind}": own[f"W_o.{kind}"] for kind in ("weight", "bias")})
    added = torch.zeros(len(X) * layer.num_heads, X.shape[1], X.shape[1])
    for number, query in itertools.product(range(len(added)), range(X.shape[1])):
        added[number, query, valid_lens[number // layer.num_heads, query] :] = -math.inf
    return peer(*[X.transpose(0, 1)] * 3, attn_mask=added)[0].transpose(0, 1)


RIGHT = {
    "transpose_output": [lambda X, h: torch.stack([torch.cat([*X[i : i + h]], dim=1) for i in range(0, len(X), h)])],
    "split_fused": [lambda W, h: W.view(h, 3, -1, W.shape[1]).transpose(0, 1).flatten(1, 2)],  # as one tensor
    "every_map": [maps_from_torch],
    "into_torch": [into_torch_by_state],
    "packed_window": [window_by_texts],
    "for_halves": [halves_by_lists],
    "change_when_alone": [change_by_padded_queries],
    "smallest_set": [set_by_loops],
    "own_evidence": [by_hits_of_the_mean_map, by_all_exchanges],
    "own_importance": [half_open, by_random_orders],
}
