"""Answers that others gave to the exercises, each with a teacher's sentence of what is wrong and words of the verdict.

All but those at the end were written by someone who had seen the notebooks but not the tables of mistakes. To those at
the end, written down from what readers reported, something untrue had been said, or nothing,
or the verdict itself was false. The last ones, to the exercises of 01 and 02, are in other styles than the tables'
edits, by the author of the tables. Behind these, from `every_map` on, answers found by one more reader of the
statements.
"""
# ruff: noqa: B905, E741, RUF059 (they stand here as they were written)

import math
from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from mha_lib import masked_softmax, merge_heads, split_heads

WRONG: list[tuple[str, Callable, str]] = []  # exercise, answer, words of the verdict; none where it cannot name it
RIGHT: list[tuple[str, Callable]] = []


def wrong(name: str, words: str) -> Callable[[Callable], None]:
    return lambda answer: WRONG.append((name, answer, words))


def right(name: str) -> Callable[[Callable], None]:
    return lambda answer: RIGHT.append((name, answer))


@wrong("gaussian_pooling", "The scores hold the distance instead of its square")
def _(queries, keys, values, sigma):
    """The distance is not squared: cdist gives the norm, the score needs the squared norm."""
    scores = -torch.cdist(queries, keys) / (2 * sigma**2)
    return torch.softmax(scores, dim=1) @ values


@wrong("gaussian_pooling", "A larger σ makes the window narrower")
def _(queries, keys, values, sigma):
    """Without brackets around 2 * sigma ** 2 the score is multiplied by sigma squared instead of divided by it."""
    diff = queries[:, None, :] - keys[None, :, :]
    scores = -(diff**2).sum(dim=-1) / 2 * sigma**2
    weights = torch.softmax(scores, dim=-1)
    return weights @ values


@wrong("gaussian_pooling", "Check the axis of the softmax")
def _(queries, keys, values, sigma):
    """It normalises over the queries (dim 0), so the weights of one query do not sum to 1."""
    d2 = ((queries.unsqueeze(1) - keys) ** 2).sum(-1)
    weights = torch.exp(-d2 / (2 * sigma**2))
    weights = weights / weights.sum(dim=0)
    return torch.einsum("qk,kv->qv", weights, values)


@right("gaussian_pooling")
def _(queries, keys, values, sigma):
    rows = []
    for q in queries:
        score = -(keys - q).square().sum(1).div(2 * sigma * sigma)
        rows.append((score - score.logsumexp(0)).exp() @ values)
    return torch.stack(rows)


@wrong("sum_over_heads", "divided by √num_hiddens instead of √(head size)")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """The scores are divided by the root of num_hiddens instead of the root of the head's size."""
    d = W_q.shape[0] // num_heads
    output = 0
    for i in range(num_heads):
        rows = slice(i * d, (i + 1) * d)
        q, k, v = queries @ W_q[rows].T, keys @ W_k[rows].T, values @ W_v[rows].T
        weights = masked_softmax(q @ k.transpose(1, 2) / math.sqrt(W_q.shape[0]), valid_lens)
        output = output + weights @ v @ W_o[:, rows].T
    return output


@wrong("sum_over_heads", "W_o is used transposed")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """A head takes its rows of W_o instead of its columns (split along dim 0, no transpose)."""
    head_size = W_q.shape[0] // num_heads
    total = torch.zeros(queries.shape[0], queries.shape[1], W_o.shape[0])
    for W_q_i, W_k_i, W_v_i, W_o_i in zip(
        W_q.split(head_size), W_k.split(head_size), W_v.split(head_size), W_o.split(head_size)
    ):
        scores = torch.bmm(queries @ W_q_i.T, (keys @ W_k_i.T).transpose(1, 2)) / head_size**0.5
        total += torch.bmm(masked_softmax(scores, valid_lens), values @ W_v_i.T) @ W_o_i
    return total


@wrong("sum_over_heads", "A head takes every num_heads-th feature")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """A head takes every num_heads-th row (h::num_heads) instead of its own block of neighbouring rows."""
    out = 0
    for h in range(num_heads):
        q = queries @ W_q[h::num_heads].T
        k = keys @ W_k[h::num_heads].T
        v = values @ W_v[h::num_heads].T
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(q.shape[-1])
        out = out + masked_softmax(scores, valid_lens) @ v @ W_o[:, h::num_heads].T
    return out


@right("sum_over_heads")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    parts = zip(*(W.chunk(num_heads, dim=0) for W in (W_q, W_k, W_v)), W_o.chunk(num_heads, dim=1))

    def say(Q, K, V, O):
        # both matrices of the scores, and both of the values, as one each
        scores = queries @ (Q.T @ K) @ keys.mT * len(Q) ** -0.5
        return masked_softmax(scores, valid_lens) @ values @ (O @ V).T

    return sum(say(*part) for part in parts)


@wrong("transpose_qkv", "Exchange the axes of tokens and heads before you merge axes.")
def _(X, num_heads):
    """A bare reshape without exchanging the token and head axes: it has the right shape but mixes tokens and heads."""
    batch, tokens, hidden = X.shape
    return X.reshape(batch * num_heads, tokens, hidden // num_heads)


@wrong("transpose_qkv", "The matrices of head 0 come first")
def _(X, num_heads):
    """The tables go head by head (all examples of head 0 first) instead of example by example."""
    return torch.cat(X.chunk(num_heads, dim=-1), dim=0)


@wrong("transpose_qkv", "The features of the heads alternate")
def _(X, num_heads):
    """The last axis is split as (head size, heads) instead of (heads, head size), so a head gets every num_heads-th
    feature."""
    b, n, d = X.shape
    X = X.reshape(b, n, d // num_heads, num_heads)
    X = X.permute(0, 3, 1, 2)
    return X.reshape(b * num_heads, n, d // num_heads)


@right("transpose_qkv")
def _(X, num_heads):
    return torch.stack(X.tensor_split(num_heads, dim=2), dim=1).flatten(0, 1)


@wrong("split_fused", "W is divided into three thirds")
def _(W, num_heads):
    """It cuts the matrix into three thirds, as if all of W_q came first, though the rows go head by head."""
    W_q, W_k, W_v = W.chunk(3, dim=0)
    return W_q, W_k, W_v


@wrong("split_fused", "W_q, W_k and W_v get every third row")
def _(W, num_heads):
    """The axis of the three matrices stands inside the head's rows instead of outside: it takes every third row, as if
    the rows of W_q, W_k, W_v took turns."""
    head_size = W.shape[0] // (3 * num_heads)
    blocks = W.reshape(num_heads, head_size, 3, W.shape[1])
    return tuple(blocks[:, :, i].reshape(-1, W.shape[1]) for i in range(3))


@wrong("split_fused", "the heads alternate there")
def _(W, num_heads):
    """The heads' blocks are stacked along dim 1, so the rows of the heads take turns instead of standing one head
    after the other."""
    size = W.shape[1]
    d = W.shape[0] // 3 // num_heads
    parts = [[], [], []]
    for i, block in enumerate(W.split(d)):
        parts[i % 3].append(block)
    return [torch.stack(p, dim=1).reshape(-1, size) for p in parts]


@right("split_fused")
def _(W, num_heads):
    row = torch.arange(len(W))
    part = row // (len(W) // (3 * num_heads)) % 3
    return W[part == 0], W[part == 1], W[part == 2]


@wrong("contribution_map", "This is the length of the values")
def _(weights, values, W_o):
    """It takes the length of the value itself: the value has not gone through the head's columns of W_o."""
    return weights * values.norm(dim=-1).unsqueeze(2)


@wrong("contribution_map", "columns of W_o that are not its own")
def _(weights, values, W_o):
    """The columns of W_o are split as (head size, heads) instead of (heads, head size), so a head gets every h-th
    column instead of its block."""
    b, h, k, p = values.shape
    W = W_o.reshape(-1, p, h)
    said = torch.einsum("bhkp,oph->bhko", values, W)
    return weights * said.norm(dim=-1)[:, :, None, :]


@wrong("contribution_map", "This is not the length of the vector")
def _(weights, values, W_o):
    """The square root is missing: it gives the squared length of the vector."""
    head_size = values.shape[-1]
    maps = []
    for i in range(weights.shape[1]):
        W_i = W_o[:, i * head_size : (i + 1) * head_size]
        v = values[:, i] @ W_i.T
        maps.append(weights[:, i] * (v**2).sum(dim=-1).unsqueeze(1))
    return torch.stack(maps, dim=1)


@right("contribution_map")
def _(weights, values, W_o):
    p = values.shape[-1]
    gram = torch.stack([C.T @ C for C in W_o.split(p, dim=1)])
    length = ((values @ gram) * values).sum(-1).clamp(min=0).sqrt()
    return torch.einsum("bhqk,bhk->bhqk", weights, length)


@wrong("resample_pairs", "The task asks for the opposite")
def _(first, second):
    """The two directions are exchanged: roll by +1 brings the pair before, not the next one."""
    return torch.roll(first, 1, dims=0), torch.roll(second, -1, dims=0)


@wrong("resample_pairs", "Single numbers move on, not whole outputs")
def _(first, second):
    """Without dims=0, roll moves the flattened tensor by one number instead of by one pair."""
    return first.roll(-1), second.roll(1)


@right("resample_pairs")
def _(first, second):
    n = first.size(0)
    here = torch.arange(n)
    return first.index_select(0, (here + 1) % n), second[here - 1]


@wrong("step", "The causal mask starts at the first key")
def _(new, K, V, W_q, W_k, W_v, W_o):
    """is_causal sets the first new query at the first key, so with a cache the new tokens do not see all old tokens
    and themselves."""
    h = K.shape[1]
    q, k, v = (split_heads(new @ W.T, h) for W in (W_q, W_k, W_v))
    k = torch.cat([K, k], dim=2)
    v = torch.cat([V, v], dim=2)
    out = scaled_dot_product_attention(q, k, v, is_causal=True)
    return merge_heads(out) @ W_o.T


@wrong("step", "The mask has no effect")
def _(new, K, V, W_q, W_k, W_v, W_o):
    """There is no causal mask: the new tokens see later new tokens."""
    b, n, _ = new.shape
    _, h, old, d = K.shape

    def split(X):
        return X.view(b, n, h, d).transpose(1, 2)

    q = split(new @ W_q.T)
    k = torch.cat([K, split(new @ W_k.T)], dim=2)
    v = torch.cat([V, split(new @ W_v.T)], dim=2)
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d), dim=-1)
    return merge_heads(weights @ v) @ W_o.T


@wrong("step", "A token attends to one token too many")
def _(new, K, V, W_q, W_k, W_v, W_o):
    """Off by one in the mask: with tril(old + 1) every new token also sees the one after it."""
    num_heads, old = K.shape[1], K.shape[2]
    n = new.shape[1]
    q = split_heads(new @ W_q.T, num_heads)
    k = torch.cat((K, split_heads(new @ W_k.T, num_heads)), dim=2)
    v = torch.cat((V, split_heads(new @ W_v.T, num_heads)), dim=2)
    mask = torch.ones(n, old + n, dtype=torch.bool).tril(diagonal=old + 1)
    heads = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return merge_heads(heads) @ W_o.T


@wrong("step", "The heads are merged by a reshape without a transpose")
def _(new, K, V, W_q, W_k, W_v, W_o):
    """The heads are put together by a reshape without transposing heads and tokens first, so tokens get mixed."""
    b, n, size = new.shape
    h, old, d = K.shape[1:]
    q, k, v = [split_heads(new @ W.T, h) for W in (W_q, W_k, W_v)]
    k, v = torch.cat([K, k], 2), torch.cat([V, v], 2)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / d**0.5
    future = torch.ones(n, old + n).triu(old + 1).bool()
    out = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return out.reshape(b, n, h * d) @ W_o.T


@right("step")
def _(new, K, V, W_q, W_k, W_v, W_o):
    h, p = K.shape[1], K.shape[3]
    rows = []
    for x in new.unbind(1):  # one token after the other, as in decoding
        q, k, v = ((x @ W.T).unflatten(-1, (h, p)).unsqueeze(2) for W in (W_q, W_k, W_v))
        K, V = torch.cat([K, k], 2), torch.cat([V, v], 2)
        alpha = (q * K).sum(-1).div(p**0.5).softmax(-1)
        rows.append((alpha.unsqueeze(2) @ V).flatten(1) @ W_o.T)
    return torch.stack(rows, 1)


@wrong("rope", "The angles fall off too fast")
def _(X, places, base):
    """The factor 2 of the exponent is in twice: j already counts 0, 2, 4, ... and is multiplied by 2 again, so the
    angles fall too fast."""
    size = X.shape[-1]
    j = torch.arange(0, size, 2)
    angle = places[:, None] * base ** (-2 * j / size)
    cos, sin = angle.cos(), angle.sin()
    even, odd = X[..., 0::2], X[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


@wrong("rope", "all first features come before all second ones")
def _(X, places, base):
    """The rotated pairs are not put back in their own places: all first features come first, then all second ones (cat
    instead of interleaving)."""
    size = X.shape[-1]
    j = torch.arange(size // 2)
    angle = places[:, None] * base ** (-2 * j / size)
    a, b = X[..., ::2], X[..., 1::2]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


@wrong("rope", "computed from the first one after its rotation")
def _(X, places, base):
    """The even features are overwritten before they are used for the odd ones, so the second line reads already
    rotated numbers."""
    X = X.clone()
    size = X.shape[-1]
    angle = places.unsqueeze(-1) * base ** (-2 * torch.arange(size // 2) / size)
    cos, sin = torch.cos(angle), torch.sin(angle)
    X[..., 0::2] = X[..., 0::2] * cos - X[..., 1::2] * sin
    X[..., 1::2] = X[..., 0::2] * sin + X[..., 1::2] * cos
    return X


@wrong("rope", "Feature j of the first half is rotated with feature j of the second")
def _(X, places, base):
    """It pairs feature j of the first half with feature j of the second half, as in section 5, not neighbours."""
    half = X.shape[-1] // 2
    angle = places[:, None] * base ** (-2 * torch.arange(half) / X.shape[-1])
    cos, sin = angle.cos(), angle.sin()
    left, right = X[..., :half], X[..., half:]
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


@right("rope")
def _(X, places, base):
    size = X.shape[-1]
    angle = torch.outer(places.to(X.dtype), base ** (-torch.arange(0, size, 2, dtype=X.dtype) / size))
    turned = torch.view_as_complex(X.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).reshape(X.shape)


@wrong("for_halves", "The rows of all heads are reordered together")
def _(W, num_heads):
    """The conversion that the exercise shows: right for one head."""
    return torch.cat([W[0::2], W[1::2]])


@wrong("for_halves", "This is the conversion back")
def _(W, num_heads):
    """The two halves of each head are woven together, which is what the other program would need."""
    size = len(W) // num_heads
    heads = W.reshape(num_heads, 2, size // 2, -1)
    return torch.stack([heads[:, 0], heads[:, 1]], dim=2).reshape(W.shape)


@wrong("packed_window", "Only the first text of the row keeps its first tokens")
def _(starts, size, sinks, i, j):
    """The first tokens are those of the row, not of the query's text."""
    text_i, text_j = ((place[..., None] >= starts).sum(-1) for place in (i, j))
    return (text_i == text_j) & (i >= j) & ((i - size < j) | (j < sinks))


@wrong("packed_window", "A token attends to earlier texts, too")
def _(starts, size, sinks, i, j):
    """The texts are forgotten, but for where the first tokens are."""
    start = starts[(i[..., None] >= starts).sum(-1) - 1]
    return (i >= j) & ((i - j < size) | (j < start + sinks))


@wrong("change_when_alone", "The example is alone, but keeps its padding")
def _(layer, X, valid_lens):
    """Each example is called alone with its padding, so nothing of the padding changes."""
    batch = layer(X, X, X, valid_lens)
    worst = []
    for b in range(len(X)):
        x = X[b].unsqueeze(0)
        worst.append((layer(x, x, x, valid_lens[b].view(1)) - batch[b]).abs().max().item())
    return max(worst)


@wrong("blockwise_attention", "−∞ − (−∞) is NaN")
def _(queries, keys, values, allowed, block_size):
    """If a query may see nothing in the first block, its maximum is still minus infinity, and -inf minus -inf gives
    NaN."""
    q, d = queries.shape
    m = torch.full((q, 1), -torch.inf)
    total = torch.zeros(q, 1)
    out = torch.zeros(q, values.shape[1])
    for start in range(0, len(keys), block_size):
        part = slice(start, start + block_size)
        s = queries @ keys[part].T / math.sqrt(d)
        s = s.masked_fill(~allowed[:, part], -torch.inf)
        new_m = torch.maximum(m, s.max(dim=1, keepdim=True).values)
        factor = torch.exp(m - new_m)
        e = torch.exp(s - new_m)
        total = total * factor + e.sum(dim=1, keepdim=True)
        out = out * factor + e @ values[part]
        m = new_m
    return out / total


@wrong("blockwise_attention", "The total is not rescaled")
def _(queries, keys, values, allowed, block_size):
    """When the maximum rises only the sum of values is rescaled; the old part of the normaliser (sum of exponentials)
    keeps its old scale."""
    d = queries.shape[1]
    best = torch.full((len(queries),), -1e30)
    norm = torch.zeros(len(queries))
    acc = torch.zeros(len(queries), values.shape[1])
    for k, v, ok in zip(keys.split(block_size), values.split(block_size), allowed.split(block_size, dim=1)):
        scores = (queries @ k.T / d**0.5).masked_fill(~ok, -torch.inf)
        new_best = torch.maximum(best, scores.amax(dim=1))
        e = torch.exp(scores - new_best[:, None])
        acc = acc * torch.exp(best - new_best)[:, None] + e @ v
        norm = norm + e.sum(dim=1)
        best = new_best
    return acc / norm[:, None]


@wrong("blockwise_attention", "Keys that do not fill a block are not used")
def _(queries, keys, values, allowed, block_size):
    """The number of blocks is rounded down, so the keys of a last, shorter block are never read."""
    num_blocks = keys.shape[0] // block_size
    top = torch.full((queries.shape[0], 1), -1e9)
    z, y = torch.zeros_like(top), torch.zeros(queries.shape[0], values.shape[1])
    for i in range(num_blocks):
        now = slice(i * block_size, (i + 1) * block_size)
        scores = queries @ keys[now].T / math.sqrt(queries.shape[1])
        scores = scores.masked_fill(~allowed[:, now], -torch.inf)
        new_top = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        e, shrink = (scores - new_top).exp(), (top - new_top).exp()
        z = z * shrink + e.sum(dim=1, keepdim=True)
        y = y * shrink + e @ values[now]
        top = new_top
    return y / z


@right("blockwise_attention")
def _(queries, keys, values, allowed, block_size):
    out = queries.new_zeros(len(queries), values.shape[1])
    log_norm = queries.new_full((len(queries),), -math.inf)
    for start in range(0, len(keys), block_size):
        stop = start + block_size
        scores = queries @ keys[start:stop].mT / queries.shape[1] ** 0.5
        scores = scores.where(allowed[:, start:stop], -math.inf)
        together = torch.logaddexp(log_norm, scores.logsumexp(dim=1))
        safe = together.where(together > -math.inf, 0.0)
        out = (log_norm - safe).exp()[:, None] * out + (scores - safe[:, None]).exp() @ values[start:stop]
        log_norm = together
    return out


@wrong("induction_share", "the earlier copy of the query's own letter")
def _(weights, letters):
    """It reads the weight on the earlier copy itself, not on the token after it."""
    same = (letters[:, None] == letters[None, :]).tril(-1)
    query, earlier = same.nonzero(as_tuple=True)
    return weights[:, query, earlier].mean(dim=1)


@wrong("induction_share", "Every token counts in the mean")
def _(weights, letters):
    """It divides by the number of all queries instead of the number of queries whose letter stood there before."""
    total = torch.zeros(weights.shape[0])
    n = len(letters)
    for t in range(n):
        for s in range(t):
            if letters[s] == letters[t]:
                total += weights[:, t, s + 1]
    return total / n


@wrong("induction_share", "Queries and keys are swapped")
def _(weights, letters):
    """Rows and columns are exchanged: it reads the weight that the token after the copy gives to the query."""
    letters = torch.as_tensor(letters)
    query, earlier = torch.tril(letters[:, None] == letters, diagonal=-1).nonzero().T
    return weights[:, earlier + 1, query].mean(dim=-1)


@right("induction_share")
def _(weights, letters):
    names = torch.as_tensor(letters).tolist()
    wanted = [(t, names.index(name) + 1) for t, name in enumerate(names) if name in names[:t]]
    return sum(weights[:, t, s] for t, s in wanted) / len(wanted)


@wrong("split_fused", "Your code does not use `num_heads`")
def _(W, num_heads):
    """The columns are divided, where the rows should be."""
    return W.chunk(3, dim=1)


@wrong("into_torch", "Several things are returned. Part 0, counted from 0, is right")
def _(layer, X, valid_lens):
    """Output and weights come back, although only the output is asked for."""
    peer = torch.nn.MultiheadAttention(X.shape[2], layer.num_heads, batch_first=True)
    with torch.no_grad():
        for kind, packed in (("weight", peer.in_proj_weight), ("bias", peer.in_proj_bias)):
            packed.copy_(torch.cat([getattr(linear, kind) for linear in (layer.W_q, layer.W_k, layer.W_v)]))
        peer.out_proj.load_state_dict(layer.W_o.state_dict())
    mask = torch.arange(X.shape[1]) >= valid_lens[:, :, None]
    return peer(X, X, X, attn_mask=mask.repeat_interleave(layer.num_heads, dim=0))


@wrong("resample_pairs", "The parts are right, but in another order")
def _(first, second):
    """Both are right, and returned in the wrong order."""
    return second.roll(1, dims=0), first.roll(-1, dims=0)


@wrong("step", "Old keys and old values are exchanged")
def _(new, K, V, W_q, W_k, W_v, W_o):
    """K and V are mixed up when the new ones are joined to them."""
    q, k, v = (split_heads(new @ W.T, K.shape[1]) for W in (W_q, W_k, W_v))
    k, v = torch.cat([V, k], dim=2), torch.cat([K, v], dim=2)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(K.shape[2])
    return merge_heads(scaled_dot_product_attention(q, k, v, attn_mask=seen)) @ W_o.T


@wrong("blockwise_attention", "Does NaN arise, and is it replaced too late?")
def _(queries, keys, values, allowed, block_size):
    """The NaN of a block that nobody may read is swept to 0 in the end."""
    best = torch.full((len(queries), 1), -math.inf)
    norm, out = torch.zeros(len(queries), 1), torch.zeros(len(queries), values.shape[1])
    for start in range(0, len(keys), block_size):
        block = slice(start, start + block_size)
        scores = queries @ keys[block].T / math.sqrt(queries.shape[1])
        scores = scores.masked_fill(~allowed[:, block], -math.inf)
        new = torch.maximum(best, scores.amax(dim=1, keepdim=True))
        shrink, e = torch.exp(best - new), torch.exp(scores - new)
        norm, out, best = norm * shrink + e.sum(dim=1, keepdim=True), out * shrink + e @ values[block], new
    return (out / norm).nan_to_num(0)


@wrong("blockwise_attention", "A block is skipped for all queries")
def _(queries, keys, values, allowed, block_size):
    """A block is left out as soon as one query may read nothing of it."""
    top, norm, out = torch.full((len(queries), 1), -1e30), torch.zeros(len(queries), 1), 0
    for K, V, ok in zip(keys.split(block_size), values.split(block_size), allowed.split(block_size, dim=1)):
        if not ok.any(dim=1).all():
            continue
        scores = (queries @ K.T / math.sqrt(queries.shape[1])).masked_fill(~ok, -math.inf)
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        shrink, e = torch.exp(top - new), torch.exp(scores - new)
        norm, out, top = norm * shrink + e.sum(dim=1, keepdim=True), out * shrink + e @ V, new
    return out / norm


@wrong("sum_over_heads", "An error is raised")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """The output is given the width of the queries; there is no residual."""
    size, out = len(W_q) // num_heads, torch.zeros_like(queries)
    for q, k, v, o in zip(W_q.split(size), W_k.split(size), W_v.split(size), W_o.split(size, dim=1)):
        weights = masked_softmax((queries @ q.T) @ (keys @ k.T).mT / math.sqrt(size), valid_lens)
        out += weights @ (values @ v.T) @ o.T
    return out


@wrong("gaussian_pooling", "The scores are twice as large")
def _(queries, keys, values, sigma):
    """Sigma² is missing its 2: written as a variance parameter."""
    diff = queries.unsqueeze(1) - keys.unsqueeze(0)
    return (
        (-(diff / sigma).pow(2).sum(-1)).exp() / (-(diff / sigma).pow(2).sum(-1)).exp().sum(1, keepdim=True)
    ) @ values


@wrong("gaussian_pooling", "An error is raised")
def _(queries, keys, values, sigma):
    """Keepdim forgotten in the normalisation by hand."""
    k = torch.exp(-(torch.cdist(queries, keys) ** 2) / (2 * sigma**2))
    w = k / k.sum(dim=1)
    return w @ values


@wrong("gaussian_pooling", "")
def _(queries, keys, values, sigma):
    """The kernel is taken per feature and averaged instead of multiplied."""
    d = queries[:, None] - keys[None]
    k = torch.exp(-(d**2) / (2 * sigma**2)).mean(-1)
    return (k / k.sum(1, keepdim=True)) @ values


@wrong("gaussian_pooling", "")
def _(queries, keys, values, sigma):
    """Only the first feature."""
    d = queries[:, 0][:, None] - keys[:, 0]
    return torch.softmax(-(d**2) / (2 * sigma**2), 1) @ values


@wrong("gaussian_pooling", "The weights of a query do not sum to 1")
def _(queries, keys, values, sigma):
    """Divides by the density's constant and never normalises."""
    out = torch.zeros(len(queries), values.shape[1])
    for i in range(len(queries)):
        for j in range(len(keys)):
            out[i] += (
                math.exp(-float(((queries[i] - keys[j]) ** 2).sum()) / (2 * sigma**2))
                / math.sqrt(2 * math.pi * sigma**2)
                * values[j]
            )
    return out


@wrong("gaussian_pooling", "the value of its nearest key")
def _(queries, keys, values, sigma):
    """Nearest key only."""
    return values[torch.cdist(queries, keys).argmin(1)]


@right("gaussian_pooling")
def _(queries, keys, values, sigma):
    a = (queries**2).sum(1)[:, None]
    b = (keys**2).sum(1)
    return torch.softmax(-(a + b - 2 * queries @ keys.T) / (2 * sigma**2), dim=-1) @ values


@right("gaussian_pooling")
def _(queries, keys, values, sigma):
    s = (queries @ keys.T - keys.square().sum(1) / 2) / sigma**2
    return s.softmax(1).matmul(values)


@right("gaussian_pooling")
def _(q, k, v, s):
    k2 = torch.distributions.Normal(0, s)
    logp = k2.log_prob(q[:, None] - k).sum(-1)
    return torch.einsum("ij,jd->id", logp.softmax(-1), v)


@right("masked_weights")
def _(scores, valid):
    # masked_fill gives the empty row a gradient of 0
    b, n, m = scores.shape
    if valid.dtype == torch.bool:
        keep = valid
    elif valid.ndim == 1:
        keep = torch.arange(m).expand(b, n, m) < valid.view(b, 1, 1)
    else:
        keep = torch.arange(m).expand(b, n, m) < valid.view(b, n, 1)
    return torch.nan_to_num(torch.softmax(scores.masked_fill(keep.logical_not(), -math.inf), -1))


@wrong("masked_weights", "The Boolean mask is inverted")
def _(scores, valid):
    """Mask polarity as in nn.MultiheadAttention for the bool mask only."""
    if valid.dtype == torch.bool:
        drop = valid
    else:
        lens = valid if valid.dim() == 2 else valid.unsqueeze(1)
        drop = torch.arange(scores.size(-1)) >= lens.unsqueeze(-1)
    w = scores.masked_fill(drop, torch.finfo(scores.dtype).min).softmax(-1)
    return w.masked_fill(drop, 0.0)


@wrong("masked_weights", "A row without a valid key gets equal weights")
def _(scores, valid):
    """D2l: -1e6, and no care for empty rows."""
    if valid.dtype == torch.bool:
        keep = valid
    else:
        keep = torch.arange(scores.shape[-1])[None, None] < (
            valid[:, None, None] if valid.dim() == 1 else valid[..., None]
        )
    return torch.softmax(scores.masked_fill(~keep, -1e6), -1)


@wrong("masked_weights", "a mask after the softmax comes too late")
def _(scores, valid):
    """Masked after the softmax, renormalised with eps."""
    if valid.dtype != torch.bool:
        lens = valid.view(len(scores), -1, 1)
        valid = torch.arange(scores.shape[-1]) < lens
    w = torch.softmax(scores, -1) * valid.float()
    return w / (w.sum(-1, keepdim=True) + 1e-12)


@wrong("masked_weights", "Check the axis of the softmax")
def _(scores, valid):
    """The softmax runs over queries (dim 1)."""
    if valid.dtype != torch.bool:
        lens = valid.view(len(scores), -1, 1)
        valid = torch.arange(scores.shape[-1]) < lens
    e = torch.where(valid, scores, torch.tensor(-1e30))
    return torch.softmax(e, dim=1) * valid


@wrong("masked_weights", "read as a number of valid keys")
def _(scores, valid):
    """Bool handled by converting it to lengths: .sum."""
    if valid.dtype == torch.bool:
        valid = valid.sum(-1)
    if valid.dim() == 1:
        valid = valid[:, None].expand(scores.shape[:2])
    out = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            n = int(valid[i, j])
            if n:
                out[i, j, :n] = scores[i, j, :n].softmax(0)
    return out


@wrong("masked_weights", "exp(0) is 1")
def _(scores, valid):
    """Scores * mask."""
    if valid.dtype != torch.bool:
        lens = valid.view(len(scores), -1, 1)
        valid = torch.arange(scores.shape[-1]) < lens
    return torch.softmax(scores * valid, dim=2)


@wrong("masked_weights", "One key too many")
def _(scores, valid):
    """Counts from 1."""
    pos = torch.arange(1, scores.shape[-1] + 1)
    if valid.dtype != torch.bool:
        valid = pos < valid.reshape(len(scores), -1, 1)
    w = scores.masked_fill(~valid, torch.finfo(torch.float32).min)
    return torch.where(valid, w.softmax(-1), 0.0)


@wrong("masked_weights", "read as lengths")
def _(scores, valid):
    """Forgot the bool case: compares with it."""
    lens = valid[:, None] if valid.dim() == 1 else valid
    keep = torch.arange(scores.shape[-1]) < (lens[:, :, None] if lens.dim() == 2 else lens)
    return torch.softmax(scores.masked_fill(~keep, torch.finfo(scores.dtype).min), dim=-1) * keep


@wrong("masked_weights", "too many indices")
def _(scores, valid):
    """Forgot 1-D lengths."""
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.shape[-1]) < valid[:, :, None]
    return torch.softmax(scores.masked_fill(~valid, -1e30), dim=-1) * valid


@wrong("masked_weights", "in place")
def _(scores, valid):
    """In place."""
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.shape[-1]) < valid.reshape(len(scores), -1, 1)
    scores[~valid.expand_as(scores)] = -1e30
    return scores.softmax(-1) * valid


@wrong("masked_weights", "overflow")
def _(scores, valid):
    """Exp, no max."""
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.shape[-1]) < valid.reshape(len(scores), -1, 1)
    e = scores.exp().masked_fill(~valid, 0)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total)


@right("masked_weights")
def _(scores, valid):
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.shape[-1]) < valid.reshape(len(scores), -1, 1)
    empty = ~valid.any(-1, keepdim=True)
    return scores.masked_fill(~(valid | empty), -math.inf).softmax(-1).masked_fill(empty, 0) * valid


@right("masked_weights")
def _(scores, valid):
    if valid.dtype == torch.bool:
        return masked_softmax(scores, attn_mask=valid)
    return masked_softmax(scores, valid)


@right("masked_weights")
def _(scores, valid):
    b, n, m = scores.shape
    if valid.dtype != torch.bool:
        valid = (torch.arange(m) < valid.reshape(b, -1, 1)).expand(b, n, m)
    rows = []
    for s, v in zip(scores.reshape(-1, m), valid.reshape(-1, m)):
        row = torch.zeros(m)
        if v.any():
            row = row.masked_scatter(v, s[v].softmax(0))
        else:
            row = 0 * s
        rows.append(row)
    return torch.stack(rows).view(b, n, m)


@right("masked_weights")
def _(scores, valid):
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.shape[-1]) < valid.reshape(len(scores), -1, 1)
    valid = valid.expand_as(scores)
    top = scores.masked_fill(~valid, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
    e = torch.where(valid, (torch.where(valid, scores, top) - top).exp(), 0.0)
    return e / e.sum(-1, keepdim=True).clamp(min=1)


@wrong("attention_and_weights", "those of undivided scores")
def _(q, k, v):
    """Sdpa without scale=..., weights unscaled."""
    w = torch.softmax(torch.bmm(q, k.transpose(1, 2)), 2)
    return scaled_dot_product_attention(q, k, v), w


@wrong("attention_and_weights", "Return 2 things: the output and the weights")
def _(queries, keys, values):
    """Only the output."""
    d = queries.size(-1)
    return torch.softmax(queries @ keys.transpose(-2, -1) / d**0.5, -1) @ values


@wrong("attention_and_weights", "Check the axis of the softmax")
def _(queries, keys, values):
    """Softmax over queries."""
    s = torch.einsum("bnd,bmd->bnm", queries, keys) / math.sqrt(keys.shape[2])
    w = s.softmax(1)
    return torch.einsum("bnm,bmv->bnv", w, values), w


@wrong("attention_and_weights", "An error is raised")
def _(queries, keys, values):
    """Transposes the wrong axes: .T."""
    s = queries @ keys.permute(2, 1, 0) / math.sqrt(queries.shape[-1])
    w = s.softmax(-1)
    return w @ values, w


@wrong("attention_and_weights", "the root of another size")
def _(queries, keys, values):
    """Scale by number of keys."""
    s = queries @ keys.mT / len(keys[0]) ** 0.5
    w = torch.softmax(s, dim=-1)
    return w @ values, w


@wrong("attention_and_weights", "Right: output. Wrong: weights. Axes 1 and 2")
def _(queries, keys, values):
    """Weights are the transposed."""
    w = ((keys @ queries.mT) / math.sqrt(queries.shape[-1])).softmax(1)
    return w.mT @ values, w


@wrong("attention_and_weights", "divided by their norms")
def _(queries, keys, values):
    """Normalises vectors (cosine similarity) instead of dividing."""
    s = torch.nn.functional.normalize(queries, dim=-1) @ torch.nn.functional.normalize(keys, dim=-1).mT
    w = s.softmax(-1)
    return w @ values, w


@wrong("attention_and_weights", "divided by p.")
def _(queries, keys, values):
    """Weights after scaling twice."""
    d = queries.shape[-1]
    w = torch.softmax((queries / math.sqrt(d)) @ (keys / math.sqrt(d)).mT, -1)
    return w @ values, w


@wrong("attention_and_weights", "This is the logarithm")
def _(queries, keys, values):
    """Detached log weights."""
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    w = s.log_softmax(-1)
    return w.exp() @ values, w


@wrong("attention_and_weights", "Axis 0 of the right result is averaged away")
def _(queries, keys, values):
    """Mean over examples."""
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    w = s.softmax(-1)
    return w @ values, w.mean(0)


@wrong("attention_and_weights", "as in causal attention")
def _(queries, keys, values):
    """Causal by habit."""
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    s = s.masked_fill(torch.ones_like(s).triu(1).bool(), -math.inf)
    w = s.softmax(-1)
    return w @ values, w


@wrong("attention_and_weights", "overflow")
def _(queries, keys, values):
    """Hand softmax without max."""
    s = queries @ keys.mT / math.sqrt(queries.shape[-1])
    e = torch.e**s
    w = e / e.sum(-1)[..., None]
    return w @ values, w


@right("attention_and_weights")
def _(q, k, v):
    eye = torch.eye(k.shape[1]).expand(len(k), -1, -1)
    return scaled_dot_product_attention(q, k, v), scaled_dot_product_attention(q, k, eye)


@right("attention_and_weights")
def _(q, k, v):
    o, w = [], []
    for a, b, c in zip(q, k, v):
        s = (a[:, None] * b[None]).sum(-1) * a.shape[-1] ** -0.5
        s = (s - s.logsumexp(1, keepdim=True)).exp()
        w.append(s)
        o.append(s @ c)
    return [torch.stack(o), torch.stack(w)]


@right("attention_and_weights")
def _(q, k, v):
    w = torch.baddbmm(torch.zeros(len(q), q.shape[1], k.shape[1]), q, k.mT, alpha=q.shape[2] ** -0.5).softmax(-1)
    return torch.einsum("bnm,bmv->bnv", w, v), w


@wrong("every_map", "right only if padding is at the end of a row")
def _(X, in_proj_weight, in_proj_bias, num_heads, padding):
    """The padding is counted, as if it were at the end."""
    Q, K, _ = (split_heads(part, num_heads) for part in (X @ in_proj_weight.T + in_proj_bias).chunk(3, dim=-1))
    return masked_softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), (~padding).sum(1))


@wrong("sum_over_heads", "Each head uses all of W_v and W_o")
def _(queries, keys, values, valid_lens, W_q, W_k, W_v, W_o, num_heads):
    """Only the queries and the keys are divided among the heads."""
    output = 0
    for q, k in zip(W_q.chunk(num_heads), W_k.chunk(num_heads)):
        weights = masked_softmax((queries @ q.T) @ (keys @ k.T).mT / len(q) ** 0.5, valid_lens)
        output = output + weights @ (values @ W_v.T) @ W_o.T
    return output


@wrong("into_torch", "Lengths for each query need `attn_mask`")
def _(layer, X, valid_lens):
    """The longest length of each example becomes a key_padding_mask."""
    peer = torch.nn.MultiheadAttention(X.shape[2], layer.num_heads, batch_first=True)
    maps = layer.W_q, layer.W_k, layer.W_v
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([one.weight for one in maps]))
        peer.in_proj_bias.copy_(torch.cat([one.bias for one in maps]))
        peer.out_proj.load_state_dict(layer.W_o.state_dict())
    padding = torch.arange(X.shape[1]) >= valid_lens.amax(dim=1, keepdim=True)
    return peer(X, X, X, key_padding_mask=padding)[0]
