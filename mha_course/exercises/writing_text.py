"""The exercises of notebook 12: a step with a cache, and attention in blocks."""

import math

import torch

from mha_course.checking.exercise import exercise
from mha_course.museum.wrong_attention import attention, programs
from mha_lib.attention import merge_heads, split_heads


def step_trial(batch_size: int, num_new: int, num_old: int, num_heads: int, head_size: int) -> tuple:
    """Return random inputs of a decoding step: new tokens, cached keys and values, matrices W_q, W_k, W_v, W_o."""
    num_hiddens = num_heads * head_size
    old = torch.randn(2, batch_size, num_heads, num_old, head_size)
    return (torch.randn(batch_size, num_new, num_hiddens), *old, *torch.randn(4, num_hiddens, num_hiddens))


def with_cache(new, K, V, W_q, W_k, W_v, W_o, attention=attention):
    """Return the output of ``attention``, right or with a mistake, for new tokens after cached keys K and values V."""
    count, num_old = new.shape[1], K.shape[2]
    allowed = torch.ones(count, num_old + count, dtype=torch.bool).tril(num_old)
    return attention(new, new, new, allowed, W_q, W_k, W_v, W_o, K.shape[1], past=(K, V))


@exercise(
    trials=lambda: {
        "for a whole prompt, without old tokens": [step_trial(1, 2, 0, 1, 2), step_trial(2, 4, 0, 2, 3)],
        "for one new token": [step_trial(1, 1, 2, 1, 2), step_trial(2, 1, 5, 3, 2)],
        "for several new tokens on top of a cache": [step_trial(2, 2, 3, 2, 2), step_trial(3, 3, 4, 2, 3)],
    },
    praise="One mask is right for a prompt, for one token and for a piece of several tokens.",
    idea="The new keys come after the old ones. Which position in the whole text does new token number i have?",
    begin="Begin with the three projections of the new tokens, cut into heads.",
    mistakes="""
        scores.masked_fill(~allowed, -math.inf) -> scores.masked_fill(~allowed, -math.inf) if num_old == 0 else scores
            => With a cache nothing is masked. What may the first of several new tokens attend to?
        <= places[:, None] -> < places[:, None] + (places[:, None] == 0) => No token attends to itself. Is its own key
            in the past?
        [K, k], dim=2 -> [V, k], dim=2 ; [V, v], dim=2 -> [K, v], dim=2 => Old keys and old values are exchanged. Which
            of the two are compared with the queries?
        [K, k], dim=2 -> [k, K], dim=2 ; [V, v], dim=2 -> [v, V], dim=2 => The new keys come before the old ones. Which
            of them does the mask then let through?
        k, v = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2) -> V = torch.cat([V, v], dim=2) ; weights @ v ->
            weights[..., -count:] @ v ; q @ k.mT -> q @ torch.cat([K, k], dim=2).mT => The values of the old tokens are
            not used.
        [K, k], dim=2 -> [K[:, :, :0], k], dim=2 ; [V, v], dim=2 -> [V[:, :, :0], v], dim=2 ; torch.arange(num_old,
            num_old + count) -> torch.arange(count) ; torch.arange(num_old + count) <= -> torch.arange(count) <= => The
            old tokens are not used.
        <= places[:, None] -> $ + 1 => A token attends to one token too many.
    """,
    programs=programs(with_cache),
)
def step(new, K, V, W_q, W_k, W_v, W_o):
    """Compute causal multi-head attention for new tokens, with cached keys K and values V of the earlier tokens.

    new (batch, new tokens, num_hiddens); K, V (batch, heads, old tokens, head size), of no old tokens for a prompt;
    stacked matrices (num_hiddens, num_hiddens) → (batch, new tokens, num_hiddens).
    Source: Shazeer 2019, "Fast Transformer Decoding", section 2.4.
    """
    num_heads, num_old, count = K.shape[1], K.shape[2], new.shape[1]
    q, k, v = (split_heads(new @ W.T, num_heads) for W in (W_q, W_k, W_v))
    k, v = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)  # (b, h, old + new, p)
    places = torch.arange(num_old, num_old + count)
    allowed = torch.arange(num_old + count) <= places[:, None]  # (new, old + new)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), dim=-1)
    return merge_heads(weights @ v) @ W_o.T


def blocks_trial(sizes: tuple[int, int, int, int], block_size: int, scale: float, share: float, late: int) -> tuple:
    """Return random arguments of ``blockwise_attention``, in which no query may attend to the first ``late`` keys."""
    num_queries, num_keys, size, value_size = sizes
    allowed = torch.rand(num_queries, num_keys) < share
    allowed[:, :late], allowed[:, -1] = False, True
    queries = scale * torch.randn(num_queries, size)
    return queries, torch.randn(num_keys, size), torch.randn(num_keys, value_size), allowed, block_size


def partly_read_trial() -> tuple:
    """Return arguments of ``blockwise_attention`` in which some queries may not attend to any key of a whole block."""
    allowed = torch.ones(7, 7, dtype=torch.bool)
    allowed[0, :2] = allowed[1:3, 2:4] = allowed[-1, 6:] = False
    return torch.randn(7, 4), torch.randn(7, 4), torch.randn(7, 3), allowed, 2


def low_trial(num_queries: int, num_keys: int, block_size: int) -> tuple:
    """Return inputs of ``blockwise_attention`` with allowed scores near −1e6 and one masked key with scores near +1e6.

    They are quarters, and 500 apart: no order of computing rounds them, not even a sum of their powers' logarithms.
    """
    queries, keys = torch.randint(-4, 5, (num_queries, 16)).float(), torch.randint(-1, 2, (num_keys, 16)).float()
    queries[:, 0], keys[:, 0], keys[2, 0] = 2000.0, torch.randperm(num_keys) - 2000.0, 2000.0
    allowed = torch.rand(num_queries, num_keys) < 0.7
    allowed[:, 2], allowed[:, -1] = False, True
    return queries, keys, torch.randn(num_keys, 2), allowed, block_size


@exercise(
    trials=lambda: {
        "in a single block": [blocks_trial((2, 3, 2, 2), 4, 1.0, 1.0, 0), blocks_trial((3, 5, 4, 2), 5, 1.0, 0.7, 0)],
        "in several blocks": [blocks_trial((1, 4, 2, 1), 2, 2.0, 1.0, 0), blocks_trial((3, 11, 4, 5), 3, 2.0, 0.8, 0)],
        "with large scores": [blocks_trial((2, 7, 4, 3), 3, 300.0, 1.0, 0)],
        "with a first block that no query may read": [blocks_trial((3, 9, 4, 2), 2, 1.0, 0.8, 4)],
        "where a block is for some queries only": [partly_read_trial()],
        "where allowed keys score a million below 0": [low_trial(3, 7, 2)],
    },
    praise="Equal to softmax in any blocks, with large scores and with blocks that no query may read.",
    idea="For each query, keep the largest score, a total and a mixture. How must they change when a larger score "
    "comes?",
    begin="Begin with the three that are kept: −∞, zeros and zeros, a row for each query.",
    mistakes="""
        total * rescale -> total ; mixed * rescale -> mixed => The earlier sums are not rescaled when a larger score
            comes.
        total * rescale -> total => The total is not rescaled when a larger score comes; the mixture is.
        mixed * rescale -> mixed => The mixture is not rescaled when a larger score comes; the total is.
        torch.exp(largest - base) -> torch.exp(base - largest) => The rescaling is upside down.
        new.masked_fill(new == -math.inf, 0.0) -> new || new.masked_fill(new == -math.inf, 0.0) -> new.masked_fill((new
            == -math.inf).all(), 0.0) => Where a query has met no allowed key yet, −∞ − (−∞) is NaN.
        .masked_fill(~allowed[:, block], -math.inf) -> .masked_fill(~(allowed[:, block] & allowed[:,
            block].any(dim=1).all()), -math.inf) || .masked_fill(~allowed[:, block], -math.inf) ->
            .masked_fill(~(allowed[:, block] & allowed[0, block].any()), -math.inf) => A block is skipped for all
            queries because one query may attend to none of its keys; others may.
        new.masked_fill(new == -math.inf, 0.0) -> new ; return mixed / total -> return (mixed / total).nan_to_num(0) =>
            A query that may read nothing of the first block gets 0. Does NaN arise, and is it replaced too late?
        torch.maximum(largest, scores.amax(dim=1, keepdim=True)) -> scores.amax(dim=1, keepdim=True) ||
            torch.maximum(largest, scores.amax(dim=1, keepdim=True)) -> torch.zeros_like(largest) => Large scores
            overflow. Subtract the largest score of all blocks so far.
        return mixed / total -> return mixed => Nothing is divided by the total.
        .masked_fill(~allowed[:, block], -math.inf) -> .masked_fill(~allowed[:, block], 0.0) => Keys that may not be
            attended to get the score 0, and take part.
        .masked_fill(~allowed[:, block], -math.inf) -> _ => The mask has no effect.
        .masked_fill(~allowed[:, block], -math.inf) -> .masked_fill(~allowed[:, block], -1e4) ||
            .masked_fill(~allowed[:, block], -1e5) || - 1e4 * ~allowed[:, block] || - 1e5 * ~allowed[:, block] => A
            finite number masks the keys. Where all allowed scores are lower than the masked ones, masked keys take
            part. Which score has the weight 0?
        torch.full((len(queries), 1), -math.inf) -> torch.zeros(len(queries), 1) || torch.full((len(queries), 1), -1e4)
            => The largest score begins too high: where all scores are lower, their exponentials are 0. What is lower
            than every score?
        / math.sqrt(queries.shape[1]) -> _ => The scores are not divided by anything.
        range(0, len(keys), block_size) -> range(0, len(keys) - block_size + 1, block_size) => Keys that do not fill a
            block are not used.
        mixed * rescale + shares @ -> mixed + torch.softmax(scores, dim=1) @ ; return mixed / total -> return mixed /
            math.ceil(len(keys) / block_size) => Each block has its own softmax. What must blocks know about each other?
        math.sqrt(queries.shape[1]) -> math.sqrt(block_size) || queries.shape[1] => The scores are not divided by the
            root of the number of features.
        largest = new -> pass => The largest score is not kept for the next block.
    """,
)
def blockwise_attention(queries, keys, values, allowed, block_size):
    """Compute masked attention by blocks of ``block_size`` keys, with no more scores in memory than those of one block.

    queries (q, size), keys (k, size), values (k, value size), allowed (q, k) bool: every query may attend to some key,
    but to none of a whole block, perhaps → (q, value size).
    Source: Milakov & Gimelshein 2018; Dao et al. 2022, "FlashAttention", section 3.1.
    """
    largest = torch.full((len(queries), 1), -math.inf)
    total = torch.zeros(len(queries), 1)
    mixed = torch.zeros(len(queries), values.shape[1])
    for start in range(0, len(keys), block_size):
        block = slice(start, start + block_size)
        scores = queries @ keys[block].T / math.sqrt(queries.shape[1])  # (q, block)
        scores = scores.masked_fill(~allowed[:, block], -math.inf)
        new = torch.maximum(largest, scores.amax(dim=1, keepdim=True))
        base = new.masked_fill(new == -math.inf, 0.0)
        rescale, shares = torch.exp(largest - base), torch.exp(scores - base)
        total = total * rescale + shares.sum(dim=1, keepdim=True)
        mixed = mixed * rescale + shares @ values[block]
        largest = new
    return mixed / total
