"""Multi-head attention, and its known mistakes as edits of its source, each written once."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from mha_course.checking.edits import mistakes_of, rows_of, source_of_answer
from mha_lib.attention import merge_heads, split_heads
from mha_lib.attention.pooling import softmax_of_allowed as softmax


def attention(
    queries, keys, values, allowed, W_q, W_k, W_v, W_o, num_heads, b_q=0, b_k=0, b_v=0, b_o=0, w_v=None, past=None,
    turn=None, bias=None, gates=None, only_weights=False,
):  # fmt: skip
    """Compute multi-head attention with these matrices; return the output, or with ``only_weights`` the weights.
    Shapes: (batch, queries, num_hiddens), or (batch, heads, queries, keys).

    queries, keys, values (batch, number, features); allowed, bool, broadcasts to (batch, 1, queries, keys); matrices
    (num_hiddens, features of their input); w_v (heads, head size) makes the scores additive; past, old keys and values
    (batch, heads, number, head size); turn changes the heads' queries, keys and values, bias the scores;
    gates (heads,) multiply the heads' outputs.
    Source: Vaswani et al. 2017, section 3.2.2; Bahdanau, Cho, Bengio 2015, A.1.2.
    """
    matrices = (queries, W_q, b_q), (keys, W_k, b_k), (values, W_v, b_v)
    Q, K, V = (split_heads(X @ W.T + b, num_heads) for X, W, b in matrices)
    if past:
        K, V = torch.cat([past[0], K], dim=2), torch.cat([past[1], V], dim=2)
    if turn:
        Q, K, V = turn(Q, K, V)
    if gates is not None:
        V = V * gates[:, None, None]
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (b, h, q, p) @ (b, h, p, k) -> (b, h, q, k)
    if w_v is not None:
        scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)), w_v)
    scores = bias(scores) if bias else scores
    valid = allowed.expand(len(scores), 1, *scores.shape[2:])
    weights = softmax(scores, valid)
    if only_weights:
        return weights
    return merge_heads(weights @ V) @ W_o.T + b_o


@functools.cache
def part_of(text: str) -> str:
    """Return the part of a layer that the known mistake with this message is in: where its first edit is made."""
    source, edits = source_of_answer(attention), dict([*rows_of(MISTAKES), *rows_of(OTHERS)][::-1])[text]
    first = source.index(next(iter(edits)))
    return [part for mark, part in PARTS.items() if source.index(mark) <= first][-1]


@functools.cache
def wrong_attentions() -> list[tuple[str, Callable]]:
    """Return a pair (message, function) for each known mistake: ``attention`` with the mistake in its source code."""
    return [*mistakes_of(attention, MISTAKES)]


@functools.cache
def other_attentions() -> list[tuple[str, Callable]]:
    """Return a pair (message, function) for each known attention that is another than the formula, and no mistake."""
    return [*mistakes_of(attention, OTHERS)]


def programs(program: Callable[..., Any], rows: list | None = None) -> list[tuple[str, Callable]]:
    """Return a pair (message, function) for each known mistake: ``program`` given a wrong function as ``attention``.
    ``rows`` are pairs (message, wrong function); left out, all mistakes, and what is another attention.
    """
    rows = [*wrong_attentions(), *other_attentions()] if rows is None else rows
    return [(text, functools.partial(program, attention=wrong)) for text, wrong in rows]


def cut(X, num_heads):
    """Split features into heads by a reshape without a transpose, a typical mistake."""
    return X.reshape(len(X), num_heads, X.shape[1], -1)


def glued(heads):
    """Merge heads by a reshape without a transpose, a typical mistake."""
    return heads.reshape(len(heads), heads.shape[2], -1)


def every_other(X, num_heads):
    """Give a head every num_heads-th feature, a typical mistake."""
    return X.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def interleaved(heads):
    """Merge heads with head and feature in the wrong order, a typical mistake."""
    return heads.permute(0, 2, 3, 1).flatten(2)


def some(heads, first, end):
    """Put all heads but those from ``first`` to before ``end`` to zero, a typical mistake."""
    return F.pad(heads[:, first:end], (0, 0, 0, 0, first, heads.shape[1] - end))


def in_blocks(scores, valid, block, above, below):
    """Compute a softmax over blocks of keys with a running maximum, with or without correcting earlier sums.

    ``above`` and ``below`` say whether the sums above and below the fraction bar are corrected when a larger score
    comes later.
    """
    scores = scores.masked_fill(~valid, -math.inf)
    ends = (torch.arange(scores.shape[-1]) // block * block + block - 1).clamp(max=scores.shape[-1] - 1)
    so_far = (scores - scores.cummax(dim=-1).values[..., ends]).exp()
    corrected = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    bar = (corrected if below else so_far).sum(dim=-1, keepdim=True)
    return ((corrected if above else so_far) / bar).nan_to_num(0)


def regrouped(heads):
    """Repeat the heads of two groups, which share keys and values, in the wrong order, a typical mistake."""
    times = heads.shape[1] // 2
    return heads if heads.shape[1] % 2 else heads[:, ::times].repeat(1, times, 1, 1)


def low(scores, valid, number=-1e9, dim=-1):
    """Compute a softmax in which masked scores become the finite ``number`` instead of −∞, a typical mistake."""
    return scores.masked_fill(~valid, number).softmax(dim)


def counted(valid):
    """Return a mistaken mask over queries, not keys: True for as many queries as there are valid keys, (b, 1, q, 1)."""
    return torch.arange(valid.shape[2])[:, None] < valid.sum(dim=-1, keepdim=True)


def on_queries(valid):
    """Return ``valid``, a mask of keys, applied to the queries instead: a typical mistake."""
    return (valid.mT if valid.shape[2] == valid.shape[3] else counted(valid)).expand_as(valid)


def back(valid):
    """Return how many positions before each query each key is, (q, k), for the sizes of a mask ``valid``.
    The last query is at the last key.
    """
    return torch.arange(valid.shape[3] - valid.shape[2], valid.shape[3])[:, None] - torch.arange(valid.shape[3])


def by_length(valid, descending):
    """Return ``valid``, a mask, with the batch's examples sorted by length: a typical mistake."""
    return valid[valid[:, 0, -1].sum(-1).argsort(descending=descending)]


PARTS = {  # where a part of the layer begins in ``attention``, in its order → the name of the part
    "matrices =": "projections",
    "scores =": "scores",
    "scores, valid": "lengths",
    "return merge_heads": "output",
}
MISTAKES = """
    split_heads -> cut ; merge_heads -> glued || split_heads -> cut => The features are split into heads by a reshape
        without a transpose: a head gets pieces of the sequence instead of its own features of every token.
    split_heads -> (cut if W is W_q else split_heads) => Only the queries are split by a reshape without a transpose.
    split_heads -> (cut if W is W_k else split_heads) => Only the keys are split by a reshape without a transpose.
    split_heads -> (cut if W is W_v else split_heads) => Only the values are split by a reshape without a transpose.
    merge_heads -> glued => The heads are merged by a reshape without a transpose: positions and heads are mixed in the
        output.
    split_heads -> every_other || split_heads -> every_other ; merge_heads -> interleaved => A head takes every
        num_heads-th feature; its own features are next to each other.
    + b, num_heads -> + b, len(W) // num_heads => The number of heads and the head size have changed places.
    merge_heads -> interleaved => The heads are merged with head and feature in the wrong order: features of all heads
        are interleaved.
    weights @ V -> ($).flatten(0, 1).unflatten(0, (num_heads, -1)).transpose(0, 1) => Examples and heads are exchanged:
        what is stored as (batch, heads) is read as (heads, batch).
    + b, num_heads) -> $[:, :1].expand(-1, num_heads, -1, -1) => All heads use the rows of the first head.
    split_heads(X @ W.T + b, num_heads) -> ($ if W is W_q else $[:, :1].expand(-1, num_heads, -1, -1)) || ($ if W is W_q
        else $[:, -1:].expand(-1, num_heads, -1, -1)) => All heads use the keys and values of one head.
    + b, num_heads -> + b, 1 => There is only one head, which compares all features: num_heads has no effect.
    weights @ V -> ($).flip(1) => The heads are multiplied by the columns of W_o in reverse order.
    merge_heads(weights @ V) -> F.pad((weights @ V).sum(1), (0, V.shape[-1] * (num_heads - 1))) => Every head is
        multiplied by the first head's columns of W_o.
    merge_heads(weights @ V) -> $ / num_heads => The heads are averaged instead of added.
    merge_heads(weights @ V) -> (weights @ V).mean(1).repeat(1, 1, num_heads) || (weights @ V).sum(1).repeat(1, 1,
        num_heads) => The heads are averaged or added instead of concatenated.
    weights @ V -> some($, 0, 1) || some($, num_heads - 1, num_heads) || some($, 0, num_heads - 1) || some($, 1,
        num_heads) => Not all heads reach the output.
    split_heads(X @ W.T + b, num_heads) -> ($ if W is W_q else regrouped($)) || (regrouped($) if W is W_k else $) ||
        (regrouped($) if W is W_v else $) => Shared keys and values are repeated in the wrong order (`repeat` for
        `repeat_interleave`): heads use those of another group.
    math.sqrt(Q.shape[-1]) -> math.sqrt(len(W_q)) => The scores are divided by √num_hiddens instead of √(head size).
    math.sqrt(Q.shape[-1]) -> math.sqrt(num_heads) || math.sqrt(queries.shape[-1]) || math.sqrt(queries.shape[1]) ||
        math.sqrt(keys.shape[1]) => The scores are divided by the root of a size that is not the head size.
    / math.sqrt(Q.shape[-1]) -> _ => The scores are not divided by √(head size).
    / math.sqrt(Q.shape[-1]) -> * math.sqrt(Q.shape[-1]) => The scores are multiplied by √(head size) instead of
        divided.
    math.sqrt(Q.shape[-1]) -> Q.shape[-1] => The scores are divided by the head size instead of its root.
    / math.sqrt(Q.shape[-1]) -> _ ; softmax(scores, valid) -> softmax(scores, valid) / math.sqrt(Q.shape[-1]) => The
        scale comes after the softmax: rows of weights do not sum to 1.
    torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)) -> Q.unsqueeze(-2) + K.unsqueeze(-3) => There is no tanh in the
        scores: the query's part is the same for all keys and cancels.
    torch.tanh(Q.unsqueeze(-2) + K.unsqueeze(-3)) -> torch.relu(Q.unsqueeze(-2) + K.unsqueeze(-3)) => A ReLU is used
        instead of tanh.
    softmax(scores, valid) -> low(scores, valid, 0.0) => Masked scores become 0 before the softmax, so they keep some
        weight; −∞ is needed.
    softmax(scores, valid) -> (scores + valid.float()).softmax(-1) || (scores + (~valid).float()).softmax(-1) => The
        mask's 0 and 1 are added to the scores; 0 and −∞ are needed.
    softmax(scores, valid) -> scores.softmax(-1) * valid => The mask comes after the softmax: rows do not sum to 1 over
        the valid keys.
    softmax(scores, valid) -> scores.softmax(-1) => The mask has no effect.
    softmax(scores, valid) -> low(scores, valid, 1e9) => Masked scores become a large number; −∞ is needed.
    softmax(scores, valid) -> softmax(scores, valid).softmax(-1) || softmax(softmax(scores, valid), valid) => The
        softmax is applied twice.
    softmax(scores, valid) -> low(scores, valid, -1e4) || low(scores, valid, -1e3) || low(scores, valid, -100.0) ||
        low(scores, valid, -10.0) || low(scores, valid, -5.0) || (scores - 1e4 * ~valid).softmax(-1) || (scores - 2.0 *
        ~valid).softmax(-1) || (scores - 10.0 * ~valid).softmax(-1) || (scores - 100.0 * ~valid).softmax(-1) => Masked
        scores are low, but not low enough: large scores get through; −∞ is needed.
    scores, valid -> scores, ~valid || softmax(scores, valid) -> low(scores, ~valid) || low(scores, ~valid, -math.inf)
        => The mask is inverted: the masked keys take part, and the valid keys do not.
    scores, valid -> scores, F.pad(valid[..., 1:], (0, 1)) || scores, F.pad(valid[..., 1:], (0, 1)) | (back(valid) ==
        back(valid)[:, :1]) || softmax(scores, valid) -> low(scores, F.pad(valid[..., 1:], (0, 1)), -math.inf) => The
        mask is one key too short.
    scores, valid -> scores, F.pad(valid[..., :-1], (1, 0), value=True) => The mask is one key too long.
    scores, valid -> scores, valid.repeat(num_heads, 1, 1, 1).view(-1, num_heads, *valid.shape[2:]) => The valid lengths
        are repeated in the wrong order for the heads (`repeat` for `repeat_interleave`): examples get each other's
        lengths.
    scores, valid -> scores, valid.flip(0) => The examples' masks are in reverse order.
    scores, valid -> scores, valid[:1].expand_as(valid) => All examples get the mask of the first one.
    scores, valid -> scores, valid.any(0, keepdim=True).expand_as(valid) => All examples get the mask of the longest
        one.
    scores, valid -> scores, by_length(valid, True) || scores, by_length(valid, False) => The masks are sorted by
        length: examples get each other's masks.
    scores, valid -> scores, on_queries(valid) || softmax(scores, valid) -> low(scores, on_queries(valid)) ||
        low(scores, on_queries(valid), -math.inf) || scores.softmax(-1) * on_queries(valid) => The mask is transposed:
        it is on the queries instead of the keys.
    scores, valid -> scores, valid & on_queries(valid) || softmax(scores, valid) -> low(scores, valid &
        on_queries(valid)) || low(scores, valid & on_queries(valid), -math.inf) || merge_heads(weights @ V) @ W_o.T +
        b_o -> ($) * counted(valid)[:, 0] => Rows of padded queries are masked or set to 0 as well. The mask is on keys
        only.
    softmax(scores, valid) -> low(scores, valid, dim=2) || low(scores, valid, -math.inf, 2) || low(scores, valid, dim=2)
        * valid || scores.softmax(2) => The softmax runs over the queries: columns of weights sum to 1 instead of rows.
    softmax(scores, valid) -> low(scores, valid, dim=1) || low(scores, valid, dim=1) * valid || low(scores, valid,
        -math.inf, 1) => The softmax runs over the heads: for a query and a key, the weights of all heads sum to 1.
    softmax(scores, valid) -> low(scores, valid, -math.inf, 0).nan_to_num(0) || low(scores, valid, dim=0) => The softmax
        runs over the batch: for a query and a key, the weights of all examples sum to 1.
    softmax(scores, valid) -> scores.masked_fill(~valid, 0.0) || scores.masked_fill(~valid, -math.inf) => There is no
        softmax: the scores themselves are the weights.
    softmax(scores, valid) -> scores.relu() * valid || scores.relu() * valid / valid.shape[3] || scores.relu() * valid /
        valid.shape[2] || F.normalize(scores.relu() * valid, p=1, dim=-1) || scores.relu() * valid / ((scores.relu() *
        valid).sum(-1, keepdim=True) + 1e-6) => A ReLU replaces the softmax.
    softmax(scores, valid) -> scores.sigmoid() * valid => A sigmoid replaces the softmax: rows of weights do not sum to
        1.
    softmax(scores, valid) -> scores * valid / (scores * valid).sum(dim=-1, keepdim=True) || F.normalize(scores.abs() *
        valid, p=1, dim=-1) => The scores are divided by their sum, without a softmax.
    softmax(scores, valid) -> softmax(scores.abs(), valid) || softmax(scores.relu(), valid) => The scores lose their
        signs before the softmax.
    softmax(scores, valid) -> scores.exp() * valid || scores.masked_fill(~valid, -math.inf).exp() || (scores -
        scores.masked_fill(~valid, -math.inf).amax(-1, keepdim=True)).exp() * valid => The softmax has no sum in its
        denominator: rows of weights do not sum to 1.
    softmax(scores, valid) -> scores.exp() * valid / (scores.exp() * valid).sum(dim=-1, keepdim=True).clamp(min=1e-30)
        || scores.exp() * valid / (scores.exp() * valid).sum(dim=-1, keepdim=True) => Exponentials of large scores
        overflow: the largest score of a row must be subtracted first.
    softmax(scores, valid) -> in_blocks(scores, valid, 1, 0, 0) || in_blocks(scores, valid, 1, 0, 1) ||
        in_blocks(scores, valid, 1, 1, 0) || in_blocks(scores, valid, 16, 0, 0) || in_blocks(scores, valid, 16, 0, 1) ||
        in_blocks(scores, valid, 16, 1, 0) || in_blocks(scores, valid, 64, 0, 0) || in_blocks(scores, valid, 64, 0, 1)
        || in_blocks(scores, valid, 64, 1, 0) => The softmax reads keys in blocks, and does not correct its sums when a
        larger score comes.
    K.mT -> K.reshape(*K.shape[:2], K.shape[3], K.shape[2]) => The keys are reshaped in QKᵀ, and not transposed.
    softmax(scores, valid) -> torch.full_like(scores, 1 / scores.shape[3]) || softmax(0 * scores, valid) => All weights
        are equal: every key is masked, or all scores are the same.
    weights @ V -> weights.mT @ V => The weights are transposed where they multiply the values.
    split_heads(X @ W.T + b, num_heads) -> (X @ W.T + b).unflatten(-1, (num_heads, -1)) ; merge_heads(weights @ V) ->
        (weights @ V).flatten(2) ; valid = allowed.expand(len(scores), 1, *scores.shape[2:]) -> valid =
        torch.ones_like(scores, dtype=torch.bool) || split_heads(X @ W.T + b, num_heads) -> (X @ W.T + b).unflatten(-1,
        (num_heads, -1)) ; merge_heads(weights @ V) -> (weights @ V).flatten(2) ; valid = allowed.expand(len(scores), 1,
        *scores.shape[2:]) -> valid = torch.ones_like(scores, dtype=torch.bool).tril() => Attention runs over the heads
        of each token, not over the tokens: the two axes are not transposed before it.
    weights @ V -> weights @ K => The keys are averaged instead of the values.
    (values, W_v, b_v) -> (keys, W_v, b_v) => The values are made from the keys.
    (keys, W_k, b_k), (values, W_v, b_v) -> (values, W_k, b_k), (keys, W_v, b_v) || Q @ K.mT -> Q @ V.mT ; weights @ V
        -> weights @ K => Keys and values have changed places.
    (values, W_v, b_v) -> (values, W_k, b_k) => The values go through W_k.
    (keys, W_k, b_k) -> (keys, W_q, b_q) => The keys go through W_q.
    (keys, W_k, b_k) -> (keys, W_v, b_v) => The keys go through W_v.
    (queries, W_q, b_q), (keys, W_k, b_k) -> (queries, W_k, b_k), (keys, W_q, b_q) => W_q and W_k have changed places.
    (queries, W_q, b_q) -> (queries, torch.eye(len(W_q)), 0) => W_q has no effect.
    (keys, W_k, b_k) -> (keys, torch.eye(len(W_k)), 0) => W_k has no effect.
    (values, W_v, b_v) -> (values, torch.eye(len(W_v)), 0) => W_v has no effect.
    @ W_o.T + b_o -> _ => W_o has no effect.
    @ W_o.T -> @ W_o => W_o is used transposed.
    merge_heads(weights @ V) @ W_o.T + b_o -> ($) @ W_o.T + b_o => W_o is applied twice.
    X @ W.T -> X @ W ; @ W_o.T -> @ W_o || X @ W.T -> X @ W => The matrices are used transposed, as (input, output).
    softmax(scores, valid) -> F.normalize(scores.softmax(-1) * valid, p=1, dim=-1) || scores.softmax(-1) * valid /
        (scores.softmax(-1) * valid).sum(-1, keepdim=True) || scores.softmax(-1) * valid / ((scores.softmax(-1) *
        valid).sum(-1, keepdim=True) + 1e-9) => The mask comes after the softmax, and rows are divided by their sum:
        where a masked score is large, little or nothing is left of the others.
    + b_o -> _ => W_o's bias is missing.
    + b_o -> + 2 * b_o || + num_heads * b_o => W_o's bias is added more than once.
    W.T + b -> W.T + 2 * b || (queries, W_q, b_q) -> (queries, W_q, 2 * b_q) || (values, W_v, b_v) -> (values, W_v, 2 *
        b_v) => A bias of W_q, W_k or W_v is added twice.
    (queries, W_q, b_q) -> (queries, W_q, 0) => W_q's bias is missing.
    (values, W_v, b_v) -> (values, W_v, 0) => W_v's bias is missing.
    W.T + b -> W.T => The biases of W_q, W_k and W_v are missing.
    W.T + b -> W.T ; + b_o -> _ => All biases are missing.
    return merge_heads(weights @ V) -> return queries + merge_heads(weights @ V) => The input is added to the output (a
        residual).
    merge_heads(weights @ V) @ W_o.T + b_o -> ($).relu() => A ReLU follows the layer.
    merge_heads(weights @ V) @ W_o.T + b_o -> F.gelu($) => A GELU follows the layer.
    merge_heads(weights @ V) -> $.relu() || F.gelu($) => A ReLU or a GELU is between the heads and W_o.
    X @ W.T + b -> ($).relu() => A ReLU follows the projections of queries, keys and values.
    scores, valid -> scores, valid & (back(valid) >= 0) => This is causal: queries do not attend to later keys.
    scores, valid -> scores, valid & torch.ones_like(valid).tril() => The causal mask starts at the first key, as
        `is_causal` does; the last query belongs to the last key.
    scores, valid -> scores, torch.ones_like(valid).tril() => There is only a causal mask, from the first key on, as
        `is_causal` makes it: valid_lens has no effect.
    scores, valid -> scores, valid & (back(valid) != 0) || scores, valid & (back(valid) > 0) || softmax(scores, valid)
        -> low(scores, valid & (back(valid) > 0)) || low(scores, valid & (back(valid) > 0), -math.inf) => A token does
        not attend to itself.
    (queries, W_q, b_q), (keys, W_k, b_k), (values, W_v, b_v) -> (queries.transpose(0, 1), W_q, b_q), (keys.transpose(0,
        1), W_k, b_k), (values.transpose(0, 1), W_v, b_v) ; valid = allowed.expand(len(scores), 1, *scores.shape[2:]) ->
        valid = scores.new_ones(scores.shape, dtype=torch.bool) ; merge_heads(weights @ V) @ W_o.T + b_o ->
        ($).transpose(0, 1) => Batch and sequence are exchanged: a token attends to the other examples.
    """
# What is another attention, and no mistake.
OTHERS = """
    softmax(scores, valid) -> softmax(50 * torch.tanh(scores / 50), valid) || softmax(30 * torch.tanh(scores / 30),
        valid) || softmax(20 * torch.tanh(scores / 20), valid) || softmax(10 * torch.tanh(scores / 10), valid) ||
        softmax(5 * torch.tanh(scores / 5), valid) => This is a soft-cap: the scores pass through a tanh before the
        softmax.
    Q @ K.mT / math.sqrt(Q.shape[-1]) -> F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT || F.normalize(Q, dim=-1) @
        F.normalize(K, dim=-1).mT / math.sqrt(Q.shape[-1]) => Queries and keys are normalised before they are compared.
    softmax(scores, valid) -> F.pad(F.pad(scores.masked_fill(~valid, -math.inf), (0, 1)).softmax(-1), (0, -1)) => A 1 is
        added to the denominator of the softmax.
    softmax(scores, valid) -> F.normalize((F.elu(Q) + 1) @ (F.elu(K) + 1).mT * valid, p=1, dim=-1) ||
        F.normalize(Q.relu() @ K.relu().mT * valid, p=1, dim=-1) => This is linear attention: products of positive
        features of queries and keys replace the softmax.
    (keys, W_k, b_k), (values, W_v, b_v) -> (torch.cat([queries, keys], 1), W_k, b_k), (torch.cat([queries, values], 1),
        W_v, b_v) ; valid = allowed.expand(len(scores), 1, *scores.shape[2:]) -> valid = F.pad(allowed.expand(len(keys),
        1, queries.shape[1], keys.shape[1]), (queries.shape[1], 0), value=True) => This is joint attention: a query
        attends to its own sequence, too.
    merge_heads(weights @ V) -> $ * merge_heads(Q).sigmoid() => This is a gate: a sigmoid of the queries multiplies the
        heads' outputs.
    """
