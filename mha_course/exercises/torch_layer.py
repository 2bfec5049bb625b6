"""Exercises of notebook 05: weights and masks into PyTorch's layer, and the maps of all its heads."""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_course.checking.exercise import exercise
from mha_course.exercises.whole_layer import CompleteAttention as Layer
from mha_course.museum.wrong_attention import attention, programs

ENDS = torch.tensor([[False, False, False, True], [False, True, True, True]])  # True: padding
BEGINS = torch.tensor([[True, True, False, False], [False, False, False, False], [True, False, False, False]])
WITHIN = torch.tensor([[False, True, False, True, False], [False, False, False, True, False]])


class ReadOnly(nn.Module):
    """Make a module raise an error when it is called, so that only its parameters can be read (a mix-in class)."""

    def forward(self, *_, **__):
        raise RuntimeError("This layer cannot be called here. Copy its parameters into the other layer")


class OwnLayer(ReadOnly, Layer):
    """Hold the course's own multi-head attention layer with readable parameters; calling it raises an error."""


def drawn(layer: nn.Module) -> nn.Module:
    """Fill all parameters of a layer with random numbers, and return it in eval mode and without gradients."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.6)
    return layer.eval().requires_grad_(False)


def own_trial(num_hiddens: int, num_heads: int, valid_lens: list[list[int]]) -> tuple:
    """Return a test input: an attention layer with random parameters, random tokens, and ``valid_lens`` as a tensor."""
    lengths = torch.tensor(valid_lens)
    return drawn(OwnLayer(num_hiddens, num_heads, bias=True)), torch.randn(*lengths.shape, num_hiddens), lengths


MAPS = "(layer.W_q, layer.W_k, layer.W_v)"
REORDERED = " || ".join(f"({', '.join(maps)})" for maps in [*itertools.permutations(MAPS[1:-1].split(", "))][1:])


@exercise(
    trials=lambda: {
        "with one example": [own_trial(6, 3, [[1, 3, 2, 3]])] * 2,
        "with several examples": [own_trial(6, 3, [[2, 3, 1], [3, 1, 3]]), own_trial(8, 2, [[4, 1, 3], [1, 2, 2]] * 2)],
    },
    praise="PyTorch's layer has all your parameters and masks the right keys.",
    idea="Copy each parameter to its place. Then mark the keys that each query must not attend to.",
    begin="Begin with nn.MultiheadAttention and batch_first=True. Its state_dict shows the names and shapes.",
    mistakes=f"""
    {MAPS} -> {REORDERED} => The three matrices are stacked in a different order. PyTorch expects W_q, then W_k, then
        W_v.
    [each.weight for each in maps]) -> [W for rows in zip(*(each.weight.chunk(h) for each in maps)) for W in rows]) ;
        [each.bias for each in maps]) -> [b for rows in zip(*(each.bias.chunk(h) for each in maps)) for b in rows]) =>
        The rows are stacked head by head. PyTorch expects all rows of W_q first, then those of W_k and W_v.
    [each.bias for each in maps]) -> [maps[i].bias for i in (1, 0, 2)]) || [maps[i].bias for i in (0, 2, 1)]) ||
        [maps[i].bias for i in (2, 1, 0)]) || [maps[i].bias for i in (1, 2, 0)]) || [maps[i].bias for i in (2, 0, 1)])
        => The three biases are stacked in a different order from the matrices. PyTorch expects those of W_q, then W_k,
        then W_v.
    [each.weight for -> [each.weight.T for => The weights of queries, keys and values are transposed. `nn.Linear` and
        `in_proj_weight` both keep them as (output, input).
    (layer.W_o.weight) -> (layer.W_o.weight.T) => The output projection is transposed. `nn.Linear` and `out_proj` both
        keep it as (output, input).
    [each.weight for -> [each.weight.T for ; (layer.W_o.weight) -> (layer.W_o.weight.T) => All matrices are transposed.
        `nn.Linear` and `nn.MultiheadAttention` both keep them as (output, input).
    each.bias for -> 0 * each.bias for => The biases of queries, keys and values are not copied. They belong in
        `in_proj_bias`.
    (layer.W_o.bias) -> (0 * layer.W_o.bias) => The bias of W_o is not copied. It belongs in `out_proj.bias`.
    each.bias for -> 0 * each.bias for ; (layer.W_o.bias) -> (0 * layer.W_o.bias) => No bias is copied. They belong in
        `in_proj_bias` and `out_proj.bias`.
    ) >= valid_lens -> ) < valid_lens => The mask is inverted: in `nn.MultiheadAttention`, True means masked.
    ) >= valid_lens -> ) > valid_lens => Each query attends to one key too many. With length 2, key 2 is already
        masked, since keys are counted from 0.
    ) >= valid_lens -> ) + 1 >= valid_lens => Each query attends to one key too few. With length 2, keys 0 and 1 are
        valid.
    .repeat_interleave(h, dim=0) -> .repeat(h, 1, 1) => The masks are in a different order: all examples of head 0 come
        first. PyTorch expects all heads of example 0 first.
    .repeat_interleave(h, dim=0) -> $.mT => The mask is transposed. Its rows are queries, and its columns are keys.
    .repeat_interleave(h, dim=0) -> $.float() || $.float().neg() || $.logical_not().float() => The mask is made of
        numbers, and PyTorch adds these to the scores. Pass a bool mask.
    attn_mask=masked)[0] -> attn_mask=masked)[1] => These are the weights, averaged over the heads. Return the output,
        which is the first of the two results.
    (X.shape[-1], h, -> (X.shape[-1], 1, ; .repeat_interleave(h, dim=0) -> _ => PyTorch's layer has only one head. Make
        it with `layer.num_heads`.
    attn_mask=masked -> _ => The lengths have no effect. Pass the mask as `attn_mask`.
    .repeat_interleave(h, dim=0) -> .all(dim=1) ; attn_mask=masked -> key_padding_mask=masked ||
        .repeat_interleave(h, dim=0) -> .any(dim=1) ; attn_mask=masked -> key_padding_mask=masked ||
        .repeat_interleave(h, dim=0) -> [:, 0] ; attn_mask=masked -> key_padding_mask=masked ||
        .repeat_interleave(h, dim=0) -> .diagonal(dim1=1, dim2=2) ; attn_mask=masked -> key_padding_mask=masked =>
        All queries of an example get one mask, as with `key_padding_mask`. Lengths for each query need `attn_mask`.
    , batch_first=True -> _ => An error is raised: without `batch_first=True`, PyTorch takes the first axis for the
        tokens.
    .repeat_interleave(h, dim=0) -> _ => An error is raised: PyTorch expects a mask for each head of each example.
    """,
)
def into_torch(layer, X, valid_lens):
    """Copy the weights of ``layer`` into an ``nn.MultiheadAttention``, and return its output for X with ``valid_lens``.

    layer has W_q, W_k, W_v and W_o, each an ``nn.Linear`` with bias, and num_heads; X (batch, num_tokens, d);
    valid_lens (batch, num_tokens), at least 1, how many keys each query attends to → (batch, num_tokens, d).
    Source: PyTorch, ``nn.MultiheadAttention``.
    """
    h = layer.num_heads
    peer = nn.MultiheadAttention(X.shape[-1], h, batch_first=True)
    maps = (layer.W_q, layer.W_k, layer.W_v)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([each.weight for each in maps]))
        peer.in_proj_bias.copy_(torch.cat([each.bias for each in maps]))
        peer.out_proj.weight.copy_(layer.W_o.weight)
        peer.out_proj.bias.copy_(layer.W_o.bias)
    masked = torch.arange(X.shape[1]) >= valid_lens[:, :, None]  # (b, n, m)
    masked = masked.repeat_interleave(h, dim=0)  # (b * h, n, m)
    return peer(X, X, X, attn_mask=masked)[0]


def packed_trial(head_size, num_heads, padding) -> tuple:
    """Return a test input of ``every_map``: random tokens, in_proj_weight, in_proj_bias, num_heads and ``padding``."""
    d = num_heads * head_size
    return torch.randn(*padding.shape, d), 0.7 * torch.randn(3 * d, d), 0.5 * torch.randn(3 * d), num_heads, padding


def low_trial(padding: Tensor) -> tuple:
    """Return a test input of ``every_map`` for two heads, with scores near −1e6 that are lowest at padding keys.

    They are whole numbers or halves, at least 500 apart in a row: no order of computing rounds them.
    """
    X = torch.randint(-1, 2, (*padding.shape, 8)).float()
    X[..., 0] = torch.rand(padding.shape).argsort(dim=-1).argsort(dim=-1) - 8.0 * padding
    in_proj_weight, in_proj_bias = torch.randint(-1, 2, (24, 8)).float(), torch.zeros(24)
    in_proj_weight[[0, 4, 8, 12]] = 0.0
    in_proj_weight[[8, 12], 0] = 1.0
    in_proj_bias[:8:4], in_proj_bias[8:16:4] = 2000.0, -1000.0  # in each head's first feature
    return X, in_proj_weight, in_proj_bias, 2, padding


def from_packed(X, in_proj_weight, in_proj_bias, num_heads, padding, attention=attention):
    """Return attention weights that ``attention``, perhaps a wrong version, computes from torch's in_proj weights."""
    W_q, W_k, W_v = in_proj_weight.chunk(3)
    b_q, b_k, b_v = in_proj_bias.chunk(3)
    W_o, allowed = torch.eye(X.shape[-1]), ~padding[:, None, None]
    return attention(X, X, X, allowed, W_q, W_k, W_v, W_o, num_heads, b_q, b_k, b_v, only_weights=True)


@exercise(
    trials=lambda: {
        "with scores near 0": [packed_trial(2, 3, ENDS), packed_trial(6, 2, BEGINS), packed_trial(3, 2, WITHIN)],
        "with scores near −1 million": [low_trial(WITHIN)],
    },
    praise="These are the attention weights of every head.",
    idea="One linear map gives queries, keys and values, one third of the features each, with the heads in order.",
    begin="Begin with this linear map, with its bias.",
    mistakes="""
    3, num_heads, -1)).permute(2, 0, 3, 1, 4) -> num_heads, 3, -1)).permute(3, 0, 2, 1, 4) => The rows are read head by
        head. PyTorch stacks all rows of W_q first, then those of W_k and W_v.
    -math.inf) -> -1e5) || -math.inf) -> -1e4) || -math.inf) -> -1e3) || -math.inf) -> -100.0) || -math.inf) -> -20.0)
        => With this finite number, padding gets weight where the scores are low. Use −∞.
    padding[:, None, None] -> (torch.arange(X.shape[1]) >= (~padding).sum(dim=1)[:, None])[:, None, None] => This is
        right only if padding is at the end of a row. Here it can be anywhere: use `padding` itself as the mask.
    softmax(dim=-1) -> softmax(dim=-1).mean(dim=1) => The heads are averaged, as by default in PyTorch. Return the
        weights of each head.
    """,
    programs=programs(from_packed),
)
def every_map(X, in_proj_weight, in_proj_bias, num_heads, padding):
    """Return every head's attention weights in ``nn.MultiheadAttention``, from its packed parameters and padding mask.

    X (batch, num_tokens, d), in_proj_weight (3 · d, d), in_proj_bias (3 · d), padding (batch, num_tokens), True where a
    token is padding, anywhere in a row → (batch, num_heads, num_tokens, num_tokens).
    Source: PyTorch, ``nn.MultiheadAttention``.
    """
    packed = F.linear(X, in_proj_weight, in_proj_bias)  # (b, n, d) -> (b, n, 3d)
    Q, K, _ = packed.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (b, h, n, n)
    return scores.masked_fill(padding[:, None, None], -math.inf).softmax(dim=-1)
