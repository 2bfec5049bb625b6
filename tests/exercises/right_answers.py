"""Right answers in other styles than the worked ones: name of an exercise → answers that must pass."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from mha_lib import AdditiveAttention, KernelPooling, MultiHeadAttention

# ---------------------------------------------------------------------------------------------------------------------
# 01


def effective_number_by_loop(attention_weights):
    return torch.stack([1 / sum(weight**2 for weight in row) for row in attention_weights])


def pooling_by_loops(queries, keys, values, sigma):
    output = torch.zeros(len(queries), values.shape[1])
    for i, query in enumerate(queries):
        heights = torch.stack([torch.exp(-((query - key) ** 2).sum() / (2 * sigma**2)) for key in keys])
        for height, value in zip(heights / heights.sum(), values, strict=True):
            output[i] += height * value
    return output


def hour_out_by_loop(hours, sigma):
    weights = torch.zeros(len(hours), len(hours))
    for i in range(len(hours)):
        heights = torch.exp(-((hours - hours[i]) ** 2) / (2 * sigma**2))
        heights[(hours - hours[i]).abs() <= 1] = 0
        weights[i] = heights / heights.sum()
    return weights


def hour_out_by_subsets(hours, sigma):
    weights = torch.zeros(len(hours), len(hours))
    for i in range(len(hours)):
        (others,) = torch.where((hours - hours[i]).abs() > 1)
        weights[i, others] = torch.softmax(-0.5 * ((hours[others] - hours[i]) / sigma) ** 2, dim=0)
    return weights


def hour_out_after_softmax(hours, sigma):
    """Masked after the softmax, but divided by the sum again."""
    apart = torch.cdist(hours[:, None], hours[:, None])
    weights = torch.softmax(-(apart**2) / 2 / sigma**2, dim=1) * (apart > 1)
    return weights / weights.sum(dim=1, keepdim=True)


def line_by_least_squares(queries, keys, values, sigma):
    """A fit for each query, its rows multiplied by the root of the weights."""
    answers = []
    for query in queries:
        root = torch.exp(-((query - keys) ** 2) / (4 * sigma**2))
        design = torch.stack([torch.ones_like(keys), keys - query], dim=1)
        answers.append(torch.linalg.lstsq(root[:, None] * design, (root * values)[:, None]).solution[0, 0])
    return torch.stack(answers)


def line_by_numpy(queries, keys, values, sigma):
    roots = torch.exp(-((queries[:, None] - keys) ** 2) / (4 * sigma**2)).double()
    fits = [np.polyfit(keys.double(), values.double(), 1, w=root) for root in roots]
    return torch.tensor(np.array([np.polyval(fit, query) for fit, query in zip(fits, queries.tolist(), strict=True)]))


# ---------------------------------------------------------------------------------------------------------------------
# 02


def scores_by_loop(queries, keys, std):
    rows = [[[q @ k for k in k_set] for q in q_set] for q_set, k_set in zip(queries, keys, strict=True)]
    return torch.tensor(rows) / (std * std * math.sqrt(queries.shape[2]))


def mask(scores, valid_lens):
    """True where a key counts, for lengths of one or two dimensions."""
    lengths = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
    return (torch.arange(scores.shape[2]) < lengths[:, :, None]).expand_as(scores)


def softmax_by_rows(scores, valid_lens):
    """A row of its own for every query, of nothing but zeros where its length is 0."""
    weights = torch.zeros_like(scores)
    for example, lengths in enumerate(valid_lens.tolist()):
        for row in range(scores.shape[1]):
            length = lengths if isinstance(lengths, int) else lengths[row]
            weights[example, row, :length] = torch.softmax(scores[example, row, :length], dim=0)
    return weights


def by_shifted_exponentials(scores, valid_lens):
    valid = mask(scores, valid_lens)
    top = scores.where(valid, -torch.inf).amax(dim=-1, keepdim=True).nan_to_num(neginf=0)
    heights = torch.exp((scores - top).where(valid, 0)) * valid
    return heights / heights.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def renormalised(scores, valid_lens):
    weights = torch.softmax(scores, dim=-1) * mask(scores, valid_lens)
    return weights / weights.sum(dim=-1, keepdim=True)


def by_attention_kernel(scores, valid_lens):
    """The weights are what attention gives for one-hot values; an identity as keys makes the scores the queries."""
    identity = torch.eye(scores.shape[2]).expand(len(scores), -1, -1)
    return scaled_dot_product_attention(scores, identity, identity, mask(scores, valid_lens), scale=1.0)


def unmasked_then_zero(scores, valid_lens):
    valid = mask(scores, valid_lens)
    return scores.masked_fill(~(valid | ~valid.any(-1, keepdim=True)), -math.inf).softmax(-1) * valid


def additive_by_loops(queries, keys, values, W_q, W_k, w_v):
    output = torch.zeros(*queries.shape[:2], values.shape[2])
    for b in range(queries.shape[0]):
        for i in range(queries.shape[1]):
            scores = [w_v @ torch.tanh(W_q @ queries[b, i] + W_k @ key) for key in keys[b]]
            output[b, i] = torch.softmax(torch.stack(scores), dim=0) @ values[b]
    return output


def additive_by_layer(queries, keys, values, W_q, W_k, w_v):
    layer = AdditiveAttention(len(w_v), query_size=W_q.shape[1], key_size=W_k.shape[1])
    layer.load_state_dict({"W_q.weight": W_q, "W_k.weight": W_k, "w_v.weight": w_v[None]})
    return layer(queries, keys, values)


def additive_by_one_matrix(queries, keys, values, W_q, W_k, w_v):
    """Every query beside every key, through one matrix: the form in which "concat" attention is written."""
    shape = (*queries.shape[:2], keys.shape[1], -1)
    pairs = torch.cat([queries[:, :, None].expand(shape), keys[:, None].expand(shape)], dim=-1)
    return torch.softmax(torch.tanh(pairs @ torch.cat([W_q, W_k], dim=1).T) @ w_v, dim=2) @ values


# ---------------------------------------------------------------------------------------------------------------------
# 03


def parameters_of_a_layer(num_hiddens, num_heads, input_size, bias):
    sizes = dict.fromkeys(["query_size", "key_size", "value_size"], input_size)
    layer = MultiHeadAttention(num_hiddens, num_heads, bias=bias, **sizes)
    return sum(parameter.numel() for parameter in layer.parameters())


def operations_by_torch(batch_size, num_tokens, num_hiddens, num_heads):
    X = torch.randn(batch_size, num_tokens, num_hiddens)
    W = [torch.randn(num_hiddens, num_hiddens) for _ in range(4)]
    with FlopCounterMode(display=False) as counter:
        Q, K, V = ((X @ matrix).unflatten(-1, (num_heads, -1)).transpose(1, 2) for matrix in W[:3])
        ((Q @ K.mT).softmax(-1) @ V).transpose(1, 2).flatten(2) @ W[3]
    return counter.get_total_flops()


def operations_by_head(b, n, d, h):
    return sum(2 * (3 * n * d * (d // h) + 2 * n * n * (d // h) + n * (d // h) * d) for _ in range(b * h))


def heads_by_layer(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    layer = MultiHeadAttention(
        len(W_q), num_heads, query_size=W_q.shape[1], key_size=W_k.shape[1], value_size=W_v.shape[1]
    )
    layer.load_state_dict({f"W_{name}.weight": W for name, W in zip("qkvo", (W_q, W_k, W_v, W_o), strict=True)})
    return layer(queries, keys, values, valid_lens).detach()


def heads_by_concatenation(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    outputs = []
    for q_rows, k_rows, v_rows in zip(*(W.chunk(num_heads) for W in (W_q, W_k, W_v)), strict=True):
        scores = torch.einsum("bqd,bkd->bqk", queries @ q_rows.T, keys @ k_rows.T) / len(q_rows) ** 0.5
        scores += torch.where(torch.arange(keys.shape[1]) < valid_lens[:, None, None], 0, -math.inf)
        outputs.append(scores.softmax(-1) @ nn.functional.linear(values, v_rows))
    return torch.cat(outputs, dim=-1) @ W_o.T


RIGHT = {
    "triangle": [
        lambda d: torch.relu(1 - d.abs() / 2),
        lambda d: torch.where(d.abs() < 2, 1 - 0.5 * d.abs(), 0.0),
        lambda d: torch.maximum(1 - torch.sqrt(d**2) / 2, torch.zeros_like(d)),
        lambda d: torch.tensor([max(0.0, 1 - abs(x) / 2) for x in d.flatten().tolist()]).reshape(d.shape),
    ],
    "effective_number": [
        effective_number_by_loop,
        lambda w: torch.einsum("qk,qk->q", w, w).reciprocal(),
        lambda w: 1 / torch.diagonal(w @ w.T),
    ],
    "gaussian_pooling": [
        pooling_by_loops,
        lambda q, k, v, sigma: KernelPooling(sigma)(q[None], k[None], v[None])[0].detach(),
        lambda q, k, v, sigma: torch.softmax((q @ k.T - (k * k).sum(1) / 2) / sigma**2, dim=1) @ v,
    ],
    "leave_hour_out": [hour_out_by_loop, hour_out_by_subsets, hour_out_after_softmax],
    "local_line": [line_by_least_squares, line_by_numpy],
    "scaled_scores": [
        scores_by_loop,
        lambda q, k, std: torch.einsum("bqd,bkd->bqk", q / std, k / std) * q.shape[2] ** -0.5,
    ],
    "masked_softmax_1d": [
        softmax_by_rows,
        by_shifted_exponentials,
        renormalised,
        by_attention_kernel,
        lambda scores, lens: torch.softmax(scores - 1e4 * ~mask(scores, lens), dim=-1),  # lower than it was by so much
        lambda scores, lens: torch.softmax(scores.where(mask(scores, lens), -1e9), dim=-1),
    ],
    "masked_softmax_2d": [
        softmax_by_rows,
        by_shifted_exponentials,
        by_attention_kernel,
        unmasked_then_zero,
        lambda scores, lens: torch.softmax(scores.masked_fill(~mask(scores, lens), -math.inf), dim=-1).nan_to_num(0),
    ],
    "additive_attention": [additive_by_loops, additive_by_layer, additive_by_one_matrix],
    "distance_weights": [
        lambda q, k: torch.softmax(-torch.cdist(q, k).square() / 2, dim=2),
        lambda q, k: torch.softmax(-((q[:, :, None] - k[:, None]) ** 2).sum(-1) / 2, dim=-1),
    ],
    "parameter_count": [
        parameters_of_a_layer,
        lambda d, h, size, bias: torch.tensor(d * (3 * (size + int(bias)) + d + int(bias))),
        lambda d, h, size, bias: float(d * (3 * size + d + 4 * bias)),
    ],
    "operation_count": [operations_by_torch, operations_by_head],
    "sum_over_heads": [heads_by_layer, heads_by_concatenation],
}
