"""Right answers in other styles than the worked ones: name of an exercise → answers that must pass."""

import itertools
import math

import torch
from torch.nn import functional as F

from mha_lib import KernelPooling, masked_softmax


def pooling_by_loops(queries, keys, values, sigma):
    output = torch.zeros(len(queries), values.shape[1])
    for i, query in enumerate(queries):
        heights = torch.stack([torch.exp(-((query - key) ** 2).sum() / (2 * sigma**2)) for key in keys])
        for height, value in zip(heights / heights.sum(), values, strict=True):
            output[i] += height * value
    return output


def mask(scores, valid):
    """True where a key takes part, for lengths of one or two dimensions, or a mask."""
    lengths = valid[:, None] if valid.dim() == 1 else valid
    is_mask = valid.dtype == torch.bool
    return (valid if is_mask else torch.arange(scores.shape[2]) < lengths[:, :, None]).expand_as(scores)


def softmax_by_rows(scores, valid):
    """A row of its own for every query, of nothing but zeros where no key takes part."""
    weights = torch.zeros_like(scores)
    for row in itertools.product(range(len(scores)), range(scores.shape[1])):
        kept = mask(scores, valid)[row]
        weights[row][kept] = torch.softmax(scores[row][kept], dim=0)
    return weights


def by_attention_kernel(scores, valid):
    """The weights are what attention gives for one-hot values; an identity as keys makes the scores the queries."""
    identity = torch.eye(scores.shape[2]).expand(len(scores), -1, -1)
    return F.scaled_dot_product_attention(scores, identity, identity, mask(scores, valid), scale=1.0)


def attention_by_kernel(queries, keys, values):
    identity = torch.eye(keys.shape[1]).expand(len(keys), -1, -1)
    return [F.scaled_dot_product_attention(queries, keys, each) for each in (values, identity)]


def attention_by_loops(q, k, v):
    outputs, weights = [], []
    for queries, keys, values in zip(q, k, v, strict=True):
        scores = (queries[:, None] * keys).sum(dim=-1) * len(keys[0]) ** -0.5
        weights.append((scores - scores.logsumexp(dim=1, keepdim=True)).exp())
        outputs.append(weights[-1] @ values)
    return torch.stack(outputs), torch.stack(weights)


def heads_by_concatenation(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    outputs = []
    for q_rows, k_rows, v_rows in zip(*(W.chunk(num_heads) for W in (W_q, W_k, W_v)), strict=True):
        scores = torch.einsum("bqd,bkd->bqk", queries @ q_rows.T, keys @ k_rows.T) / len(q_rows) ** 0.5
        scores += torch.where(torch.arange(keys.shape[1]) < valid_lens[:, None, None], 0, -math.inf)
        outputs.append(scores.softmax(-1) @ values @ v_rows.T)
    return torch.cat(outputs, dim=-1) @ W_o.T


def split_by_a_matrix(X, num_heads):
    """Each head's columns picked by a matrix of 0 and 1."""
    columns = torch.eye(X.shape[-1]).chunk(num_heads, dim=1)
    return torch.stack([X @ own for own in columns], dim=1).flatten(end_dim=1)


def unfused_by_chunks(W, num_heads):
    heads = [head.chunk(3) for head in W.chunk(num_heads)]
    return [torch.cat(parts) for parts in zip(*heads, strict=True)]


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


def gain_by_combinations(seen, unseen, number):
    sets = [
        sum(2**head for head in heads) for heads in itertools.combinations(range(len(seen).bit_length() - 1), number)
    ]
    return unseen[max(sets, key=lambda heads: seen[heads])] - unseen[sets].mean()


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


def resampled_by_number(first, second):
    pairs = torch.arange(len(first))
    return first[(pairs + 1) % len(first)], second[pairs - 1]


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
    "gaussian_pooling": [
        pooling_by_loops,
        lambda q, k, v, sigma: KernelPooling(sigma)(q[None], k[None], v[None])[0].detach(),
    ],
    "masked_weights": [
        softmax_by_rows,
        by_attention_kernel,
        lambda scores, valid: masked_softmax(
            scores, **{"attn_mask" if valid.dtype == torch.bool else "valid_lens": valid}
        ),
        lambda scores, valid: (
            torch.softmax(scores.masked_fill(~mask(scores, valid), -1e9), dim=-1) * mask(scores, valid)
        ),
        lambda scores, valid: scores.masked_fill(~mask(scores, valid), -math.inf).softmax(dim=-1).nan_to_num(0),
    ],
    "attention_and_weights": [attention_by_kernel, attention_by_loops],
    "sum_over_heads": [heads_by_concatenation],
    "transpose_qkv": [split_by_a_matrix],
    "transpose_output": [lambda X, h: torch.stack([torch.cat([*X[i : i + h]], dim=1) for i in range(0, len(X), h)])],
    "split_fused": [unfused_by_chunks, lambda W, h: torch.stack(unfused_by_chunks(W, h))],
    "every_map": [maps_from_torch],
    "into_torch": [into_torch_by_state],
    "contribution_map": [
        lambda weights, values, W: torch.einsum(
            "bhqk,bhkp,ohp->bhqko", weights, values, W.unflatten(1, weights.shape[1:2] + values.shape[-1:])
        ).norm(dim=-1)
    ],
    "packed_window": [window_by_texts],
    "for_halves": [halves_by_lists],
    "change_when_alone": [change_by_padded_queries],
    "smallest_set": [set_by_loops],
    "own_evidence": [by_hits_of_the_mean_map, by_all_exchanges],
    "resample_pairs": [resampled_by_number],
    "own_importance": [half_open, by_random_orders],
}
