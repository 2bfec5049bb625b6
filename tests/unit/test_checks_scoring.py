"""Exercises of notebook 02: right answers pass, typical mistakes are named, others are not taken for them."""

import math

import pytest
import torch
from judged import Answers
from torch.nn.functional import scaled_dot_product_attention

import mha_lib
from mha_lib import checks
from mha_lib.checks import scoring


def scores_by_loop(queries, keys, std):
    rows = [[[q @ k for k in k_set] for q in q_set] for q_set, k_set in zip(queries, keys, strict=True)]
    return torch.tensor(rows) / (std * std * math.sqrt(queries.shape[2]))


def mask(scores, valid_lens):
    """True where a key counts, for lengths of one or two dimensions."""
    lengths = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
    return (torch.arange(scores.shape[2]) < lengths[:, :, None]).expand_as(scores)


def filled(scores, valid, fill=-math.inf, dim=-1):
    return torch.where(valid, scores, fill).softmax(dim)


def softmax_of_slices(scores, valid_lens):
    weights = torch.zeros_like(scores)
    for example, length in enumerate(valid_lens.tolist()):
        weights[example, :, :length] = torch.softmax(scores[example, :, :length], dim=1)
    return weights


def softmax_by_rows(scores, valid_lens):
    """A row of its own for every query, of nothing but zeros where its length is 0."""
    rows = []
    for example, lengths in zip(scores, valid_lens.tolist(), strict=True):
        for row, length in zip(example, lengths, strict=True):
            padding = torch.zeros(len(row) - length)
            rows.append(torch.cat([torch.softmax(row[:length], dim=0), padding]))
    return torch.stack(rows).reshape(scores.shape)


def by_exponentials(scores, valid_lens):
    exponentials = torch.exp(scores) * mask(scores, valid_lens)
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-12)


def by_shifted_exponentials(scores, valid_lens):
    valid = mask(scores, valid_lens)
    top = scores.where(valid, -torch.inf).amax(dim=-1, keepdim=True)
    return by_exponentials((scores - top.nan_to_num(neginf=0)).where(valid, 0), valid_lens)


def renormalised(scores, valid_lens):
    weights = torch.softmax(scores, dim=-1) * mask(scores, valid_lens)
    return weights / weights.sum(dim=-1, keepdim=True)


def in_the_style_of_the_book(scores, valid_lens):
    rows = scores.reshape(-1, scores.shape[-1]).clone()
    lengths = valid_lens.repeat_interleave(scores.shape[1]) if valid_lens.dim() == 1 else valid_lens.reshape(-1)
    rows[torch.arange(rows.shape[1])[None] >= lengths[:, None]] = -1e6
    return torch.softmax(rows.reshape(scores.shape), dim=-1)


def book_with_repeat(scores, valid_lens):
    return in_the_style_of_the_book(scores, valid_lens.repeat(scores.shape[1]).reshape(scores.shape[:2]))


def broadcast_to_rows(scores, valid_lens):
    return filled(scores, torch.arange(scores.shape[2]) < valid_lens[:, None])


def with_a_penalty(scores, valid_lens):
    """Lowers what it masks, from wherever it is, by so much that nothing is left."""
    return torch.softmax(scores - 1e4 * ~mask(scores, valid_lens), dim=-1)


def penalty(scores, valid_lens):
    return torch.zeros(scores.shape).masked_fill(~mask(scores, valid_lens), -math.inf)


def story(scores, valid_lens):
    valid = mask(scores, valid_lens)
    return filled(scores, valid | ~valid.any(-1, keepdim=True)) * valid


def by_attention_kernel(scores, valid_lens):
    """The weights are what attention gives for one-hot values; an identity as keys makes the scores the queries."""
    identity = torch.eye(scores.shape[2]).expand(len(scores), -1, -1)
    return scaled_dot_product_attention(scores, identity, identity, mask(scores, valid_lens), scale=1.0)


def nan_replaced(scores, valid_lens):
    return filled(scores, mask(scores, valid_lens)).nan_to_num(0)


def nan_replaced_behind_a_sum(scores, valid_lens):
    return torch.softmax(scores + penalty(scores, valid_lens), dim=-1).nan_to_num(0)


def divided_by_zero_and_replaced(scores, valid_lens):
    exponentials = torch.exp(scores) * mask(scores, valid_lens)
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return torch.where(mask(scores, valid_lens).any(-1, keepdim=True), weights, torch.zeros(()))


def as_numbers(scores, valid_lens):
    return torch.tensor(story(scores, valid_lens).tolist())


def emptied_in_place(scores, valid_lens):
    weights = in_the_style_of_the_book(scores, valid_lens)
    weights[valid_lens == 0] = 0
    return weights


def empty_rows_as_if_unmasked(scores, valid_lens):
    valid = mask(scores, valid_lens)
    return filled(scores, valid | ~valid.any(-1, keepdim=True))


def features(queries, keys, W_q, W_k):
    return torch.einsum("bqi,hi->bqh", queries, W_q).unsqueeze(2) + (keys @ W_k.T).unsqueeze(1)


def additive_by_loops(queries, keys, values, W_q, W_k, w_v):
    output = torch.zeros(*queries.shape[:2], values.shape[2])
    for b in range(queries.shape[0]):
        for i in range(queries.shape[1]):
            scores = [w_v @ torch.tanh(W_q @ queries[b, i] + W_k @ key) for key in keys[b]]
            output[b, i] = torch.softmax(torch.stack(scores), dim=0) @ values[b]
    return output


def additive_by_einsum(queries, keys, values, W_q, W_k, w_v):
    weights = torch.softmax(torch.einsum("bqkh,h->bqk", features(queries, keys, W_q, W_k).tanh(), w_v), dim=-1)
    return torch.einsum("bqk,bkv->bqv", weights, values)


def additive_by_layer(queries, keys, values, W_q, W_k, w_v):
    layer = mha_lib.AdditiveAttention(len(w_v), query_size=W_q.shape[1], key_size=W_k.shape[1])
    layer.load_state_dict({"W_q.weight": W_q, "W_k.weight": W_k, "w_v.weight": w_v[None]})
    return layer(queries, keys, values)


def additive_by_one_matrix(queries, keys, values, W_q, W_k, w_v):
    """Every query beside every key, through one matrix: the form in which "concat" attention is written."""
    shape = (*queries.shape[:2], keys.shape[1], -1)
    pairs = torch.cat([queries[:, :, None].expand(shape), keys[:, None].expand(shape)], dim=-1)
    return torch.softmax(torch.tanh(pairs @ torch.cat([W_q, W_k], dim=1).T) @ w_v, dim=2) @ values


def pooled(scores, values, dim=-1):
    return scores.softmax(dim) @ values


def half_square(X):
    return X.square().sum(-1) / 2


def of_keys(term):
    """Weights of dot products plus a term of the keys."""
    return lambda q, k: torch.softmax(q @ k.transpose(1, 2) + term(k).unsqueeze(1), dim=-1)


def distance_weights_by_loops(queries, keys):
    weights = torch.empty(*queries.shape[:2], keys.shape[1])
    for b in range(len(queries)):
        for i, query in enumerate(queries[b]):
            heights = torch.stack([torch.exp(-((query - key) ** 2).sum() / 2) for key in keys[b]])
            weights[b, i] = heights / heights.sum()
    return weights


def products(queries, keys):
    return queries @ keys.transpose(1, 2)


MASKS = {  # typical mistakes whatever the form of the lengths
    "nothing is masked": lambda s, lens: torch.softmax(s, dim=-1),
    "masked scores became 0": lambda s, lens: torch.softmax(s * mask(s, lens), dim=-1),
    "after the softmax": lambda s, lens: torch.softmax(s, dim=-1).masked_fill(~mask(s, lens), 0),
    "upside down": lambda s, lens: filled(s, ~mask(s, lens)),
    "one key too many": lambda s, lens: filled(s, mask(s, lens + 1)),
    "one key too few": lambda s, lens: filled(s, mask(s, lens - 1)),
    "normalised over the queries": lambda s, lens: filled(s, mask(s, lens), dim=1),
    "normalised over the examples": lambda s, lens: filled(s, mask(s, lens), dim=0),
}

EXERCISES = [
    Answers(
        checks.scaled_scores,
        right=[
            scores_by_loop,
            lambda q, k, std: torch.bmm(q, k.transpose(1, 2)) / (std**2 * math.sqrt(q.shape[2])),
            lambda q, k, std: torch.einsum("bqd,bkd->bqk", q / std, k / std) * q.shape[2] ** -0.5,
            lambda q, k, std: products(q, k) / math.sqrt(q.shape[2] * std**4),
        ],
        wrong={
            "not divided by anything": lambda q, k, std: products(q, k),
            "of standard deviation 1 only": lambda q, k, std: products(q, k) / math.sqrt(q.shape[2]),
            "two factors": lambda q, k, std: products(q, k) / (std * math.sqrt(q.shape[2])),
            "its root is needed": lambda q, k, std: products(q, k) / (std**4 * q.shape[2]),
            "the root covers d alone": lambda q, k, std: products(q, k) / (std**4 * math.sqrt(q.shape[2])),
            "under the root stands std": lambda q, k, std: products(q, k) / math.sqrt(q.shape[2] * std),
            "grows as √d": lambda q, k, std: products(q, k) / (std**2 * q.shape[2]),
            "the size of the vectors has no say": lambda q, k, std: products(q, k) / std**2,
            "you multiplied": lambda q, k, std: products(q, k) * std**2 * math.sqrt(q.shape[2]),
            "the number of queries for d": lambda q, k, std: products(q, k) / std**2 / math.sqrt(q.shape[1]),
            "the number of keys for d": lambda q, k, std: products(q, k) / std**2 / math.sqrt(k.shape[1]),
            "a row for each key": lambda q, k, std: products(k, q) / std**2 / math.sqrt(k.shape[2]),
        },
        unlisted=[
            lambda q, k, std: products(q, k) / (std**3 * math.sqrt(q.shape[2])),
            lambda q, k, std: products(q, k) / math.sqrt(q.shape[2] - 1),
            lambda q, k, std: products(q, k) / products(q, k).std(),
            lambda q, k, std: torch.softmax(products(q, k) / (std**2 * math.sqrt(q.shape[2])), dim=-1),
        ],
    ),
    Answers(
        checks.masked_softmax_1d,
        right=[softmax_of_slices, by_shifted_exponentials, renormalised, with_a_penalty, by_attention_kernel, story],
        wrong={
            **MASKS,
            "rows of an example have different lengths": book_with_repeat,
            "are 3 million lower": in_the_style_of_the_book,
            "are 100 higher": by_exponentials,
            "exactly 0: does a number": lambda s, lens: filled(s, mask(s, lens), fill=-20.0),
        },
        unlisted=[
            lambda s, lens: filled(s, mask(s, lens + 2)),
            lambda s, lens: filled(s, mask(s, lens), fill=-3.0),
            lambda s, lens: filled(s, mask(s, lens.flip(0))),
            lambda s, lens: torch.softmax(s * mask(s, lens), dim=-1) * mask(s, lens),
        ],
    ),
    Answers(
        checks.masked_softmax_2d,
        right=[softmax_by_rows, by_shifted_exponentials, by_attention_kernel, nan_replaced, story],
        wrong={
            **MASKS,
            "share one length, the first": lambda s, lens: filled(s, mask(s, lens[:, 0])),
            "against the length of query number j": lambda s, lens: filled(
                s, (torch.arange(s.shape[2]) < lens[:, None, :]).expand_as(s)
            ),
            "0 divided by 0": lambda s, lens: filled(s, mask(s, lens)),
            "but equally low": in_the_style_of_the_book,
            "as if nothing were masked": empty_rows_as_if_unmasked,
            "listens to the first key": lambda s, lens: filled(s, mask(s, lens.clamp(min=1))),
            "the gradient of the scores holds NaN": nan_replaced_behind_a_sum,
            "no gradient flows back": as_numbers,
            "does not find its way back": emptied_in_place,
        },
        unlisted=[
            lambda s, lens: filled(s, mask(s, lens + 2)),
            lambda s, lens: filled(s, mask(s, lens), fill=-3.0),
            lambda s, lens: filled(s, mask(s, lens[:, -1])),
            lambda s, lens: story(s, lens) + (lens == 0)[:, :, None] * 0.01,
        ],
    ),
    Answers(
        checks.additive_attention,
        right=[additive_by_loops, additive_by_einsum, additive_by_layer, additive_by_one_matrix],
        wrong={
            "one and the same answer": lambda q, k, v, W_q, W_k, w: pooled(features(q, k, W_q, W_k) @ w, v),
            "each projection on its own": lambda q, k, v, W_q, W_k, w: pooled(
                (q @ W_q.T).tanh().unsqueeze(2) @ w + (k @ W_k.T).tanh().unsqueeze(1) @ w, v
            ),
            "bends the finished score": lambda q, k, v, W_q, W_k, w: pooled((features(q, k, W_q, W_k) @ w).tanh(), v),
            "are multiplied": lambda q, k, v, W_q, W_k, w: pooled(
                torch.tanh(torch.einsum("bqh,bkh->bqkh", q @ W_q.T, k @ W_k.T)) @ w, v
            ),
            "summed as they are": lambda q, k, v, W_q, W_k, w: pooled(features(q, k, W_q, W_k).tanh().sum(3), v),
            "taken away": lambda q, k, v, W_q, W_k, w: pooled(features(q, -k, W_q, W_k).tanh() @ w, v),
            "divided by a root": lambda q, k, v, W_q, W_k, w: pooled(
                features(q, k, W_q, W_k).tanh() @ w / len(w) ** 0.5, v
            ),
            "normalised over the queries": lambda q, k, v, W_q, W_k, w: pooled(
                features(q, k, W_q, W_k).tanh() @ w, v, dim=1
            ),
            "normalised over the examples": lambda q, k, v, W_q, W_k, w: pooled(
                features(q, k, W_q, W_k).tanh() @ w, v, dim=0
            ),
            "softmax is missing": lambda q, k, v, W_q, W_k, w: features(q, k, W_q, W_k).tanh() @ w @ v,
        },
        unlisted=[
            lambda q, k, v, W_q, W_k, w: pooled(features(q, k, W_q, W_k).relu() @ w, v),
            lambda q, k, v, W_q, W_k, w: pooled(features(q, k, W_q, W_k).tanh() @ w * 2, v),
            lambda q, k, v, W_q, W_k, w: pooled(features(q, k, W_q, W_k).tanh() @ w, v).relu(),
            lambda q, k, v, W_q, W_k, w: 1.001 * pooled(features(q, k, W_q, W_k) @ w, v),
        ],
    ),
    Answers(
        checks.distance_weights,
        right=[
            of_keys(lambda k: -half_square(k)),
            distance_weights_by_loops,
            lambda q, k: torch.softmax(-torch.cdist(q, k).square() / 2, dim=2),
            lambda q, k: torch.softmax(products(q, k) - half_square(k)[:, None] - half_square(q)[:, :, None], dim=2),
        ],
        wrong={
            "bare dot product": lambda q, k: torch.softmax(products(q, k) - half_square(q)[:, :, None], dim=2),
            "lacks its ½": of_keys(lambda k: -2 * half_square(k)),
            "long keys gain": of_keys(half_square),
            "norm is not squared": of_keys(lambda k: -torch.linalg.vector_norm(k, dim=2) / 2),
            "twice what they should be": lambda q, k: torch.softmax(-torch.cdist(q, k).square(), dim=2),
            "the distance is not squared": lambda q, k: torch.softmax(-torch.cdist(q, k) / 2, dim=2),
            "the most distant keys": lambda q, k: torch.softmax(torch.cdist(q, k).square() / 2, dim=2),
            "dot product alone is divided": lambda q, k: torch.softmax(
                products(q, k) / q.shape[2] ** 0.5 - half_square(k)[:, None], dim=2
            ),
            "all scores are divided": lambda q, k: torch.softmax(
                -torch.cdist(q, k).square() / 2 / q.shape[2] ** 0.5, dim=2
            ),
            "normalised over the queries": lambda q, k: torch.softmax(-torch.cdist(q, k).square() / 2, dim=1),
            "these are the scores; the softmax is missing": lambda q, k: -torch.cdist(q, k).square() / 2,
            "without the queries' norm": lambda q, k: products(q, k) - half_square(k)[:, None],
        },
        unlisted=[
            of_keys(lambda k: -3 * half_square(k)),
            of_keys(lambda k: -k.abs().sum(-1)),
            lambda q, k: torch.softmax(products(q, k) / q.shape[2] ** 0.5, dim=2),
            lambda q, k: 1.001 * torch.softmax(products(q, k), dim=2),
        ],
    ),
]


def test_lengths_broadcast_over_rows_are_named_where_they_raise_at_other_sizes():
    assert "rows of an example have different lengths" in checks.masked_softmax_1d(broadcast_to_rows).text


def test_the_columns_of_bare_scores_are_no_rows_either():
    weights = checks.distance_weights(lambda q, k: torch.softmax(products(q, k) - half_square(k)[:, None], dim=1))
    assert "normalised over the queries" in weights.text


@pytest.mark.parametrize(("fill", "words"), [(-17.0, "exactly 0:"), (-50.0, "exactly 0:"), (-2.9e6, "exactly 0 where")])
def test_a_fill_that_low_scores_come_down_to_is_too_high(fill, words):
    verdict = checks.masked_softmax_1d(lambda s, lens: filled(s, mask(s, lens), fill))
    assert words in verdict.text and "take the place of a score" in verdict.text


@pytest.mark.parametrize("fill", [-1e9, torch.finfo(torch.float32).min])
def test_a_fill_below_all_scores_passes(fill):
    verdict = checks.masked_softmax_1d(lambda s, lens: filled(s, mask(s, lens), fill))
    assert verdict.text.startswith("padding gets exactly 0")


def test_a_division_by_zero_hidden_by_where_is_found_in_the_gradient():
    assert "the gradient of the scores holds NaN" in checks.masked_softmax_2d(divided_by_zero_and_replaced).text


@pytest.mark.parametrize("check", [checks.masked_softmax_1d, checks.masked_softmax_2d])
@pytest.mark.parametrize(("dim", "words"), [(0, "normalised over the examples"), (1, "normalised over the queries")])
def test_a_wrong_axis_is_named_though_nan_was_replaced(check, dim, words):
    assert words in check(lambda s, lens: filled(s, mask(s, lens), dim=dim).nan_to_num(0)).text


def test_scores_may_not_be_written_to():
    def fill_in_place(scores, valid_lens):
        scores[~mask(scores, valid_lens)] = -math.inf
        return torch.softmax(scores, dim=-1)

    assert "in place" in checks.masked_softmax_1d(fill_in_place).text


def test_what_is_said_of_right_scores():
    torch.manual_seed(3)
    scores = scoring.right_scores(0.2 * torch.randn(50, 40, 30), 0.2 * torch.randn(50, 60, 30), 0.2)
    assert scores.std().item() == pytest.approx(1, abs=0.02)
