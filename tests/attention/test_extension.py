"""The layer extended, not rewritten: other scores, what comes between projection and attention, shared heads."""

import math

import pytest
import torch
from references import cases, dot_product, make_layer, multi_head, random_numbers
from torch import nn

from mha_lib import AdditiveAttention, KernelPooling, MultiHeadAttention, attention, masked_softmax
from mha_lib.attention import AttentionPooling, DotProductAttention, FusedAttention, split_heads
from mha_lib.attention.other_libraries import loop_over_heads

CASES = cases()
SIZES = dict(query_size=6, key_size=6, value_size=6)
X = random_numbers(3, 5, 6)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


# Other scores.


class Alibi(FusedAttention):
    """Press, Smith, Lewis 2022: scores fall with the distance of the key, in each head with a slope of its own."""

    def scores(self, queries, keys):
        distance = torch.arange(queries.shape[-2])[:, None] - torch.arange(keys.shape[-2])
        return super().scores(queries, keys) - 2.0 ** -torch.arange(1, 1 + queries.shape[1])[:, None, None] * distance


class Manhattan(AttentionPooling):
    def scores(self, queries, keys):
        return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs().sum(dim=-1)


class Uniform(FusedAttention):
    def weights(self, queries, keys, mask=None):
        return masked_softmax(torch.zeros(*queries.shape[:-1], keys.shape[-2], dtype=queries.dtype), attn_mask=mask)


@pytest.mark.parametrize("keep_weights", [False, True])
def test_alibi_is_a_bias(keep_weights):
    layer = MultiHeadAttention(8, 4, attention=Alibi(), **SIZES).double()
    layer.attention.keep_weights = keep_weights
    plain = MultiHeadAttention(8, 4, **SIZES).double()
    plain.load_state_dict(layer.state_dict())
    slopes = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16], dtype=torch.float64)
    bias = -slopes[:, None, None] * (torch.arange(5)[:, None] - torch.arange(5))
    close(layer(X, X, X, causal=True), plain(X, X, X, attn_mask=bias[None], causal=True))
    close(layer.attention_weights, plain.attention_weights)
    assert not torch.allclose(layer(X, X, X, causal=True), plain(X, X, X, causal=True))


@pytest.mark.parametrize("base", [AttentionPooling, DotProductAttention, FusedAttention])
def test_an_overridden_score_is_obeyed_alone_and_in_a_layer(base):
    class OwnScores(base):
        scores = Manhattan.scores

    case = CASES["empty rows"].same_sizes
    alone = OwnScores()
    output = alone(*case.arguments)
    weights = masked_softmax(-torch.cdist(case.queries, case.keys, p=1), case.valid_lens)
    close(output, weights @ case.values)
    close(alone.attention_weights, weights)

    layer = MultiHeadAttention(8, 4, attention=OwnScores(), **SIZES).double()
    Q, K, V = (split_heads(W(X), 4) for W in (layer.W_q, layer.W_k, layer.W_v))
    output, weights = layer(X, X, X, torch.tensor([4, 0, 2])), layer.attention_weights
    expected = masked_softmax(-torch.cdist(Q, K, p=1), torch.tensor([4, 0, 2]))
    close(weights, expected)
    close(output, layer.W_o((expected @ V).transpose(1, 2).flatten(2)))


def test_scores_of_ones_own_are_not_written_to():
    kept = random_numbers(3, 5, 5)

    class Given(FusedAttention):
        def scores(self, queries, keys):
            return kept

    before = kept.clone()
    with torch.no_grad():
        layer = Given()
        layer.keep_weights = True
        layer(X, X, X, torch.tensor([5, 0, 2]))
        assert torch.equal(kept, before)


def test_overridden_weights_are_obeyed():
    valid_lens = torch.tensor([4, 2, 5])
    layer = Uniform()
    means = torch.stack([X[b, :length].mean(dim=0) for b, length in enumerate(valid_lens)])
    close(layer(X, X, X, valid_lens), means[:, None].expand(-1, 5, -1))
    close(layer.attention_weights[:, 0].count_nonzero(dim=-1), valid_lens)


@pytest.mark.parametrize(
    "make",
    [lambda: AdditiveAttention(3), KernelPooling, DotProductAttention],
    ids=["additive", "kernel", "dot product"],
)
def test_every_attention_serves_in_a_layer(make):
    layer = MultiHeadAttention(8, 4, attention=make(), **SIZES).double()
    valid_lens = torch.tensor([4, 0, 2])
    output, weights = layer(X, X, X, valid_lens, need_weights=True)
    heads = [split_heads(W(X), 4)[:, 1] for W in (layer.W_q, layer.W_k, layer.W_v)]
    alone = layer.attention(*heads, valid_lens)
    close(weights[:, 1], layer.attention.attention_weights)
    gates = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    close(layer(X, X, X, valid_lens, gates), alone @ layer.W_o.weight[:, 2:4].T)
    close(layer(X, X, X, valid_lens), output)


@pytest.mark.parametrize(
    "given, error, message",
    [
        (dict(attention=FusedAttention(), dropout=0.1), ValueError, "dropout must be left to the attention.*got 0.1"),
        (dict(attention=FusedAttention), TypeError, "attention must be an instance of AttentionPooling, got <class"),
        (
            dict(attention=nn.MultiheadAttention(8, 4)),
            TypeError,
            "attention must be an instance of AttentionPooling, got",
        ),
    ],
)
def test_an_attention_that_does_not_serve(given, error, message):
    with pytest.raises(error, match=message):
        MultiHeadAttention(8, 4, **given)


# Between projection and attention.


class Rotary(MultiHeadAttention):
    """Su et al. 2021: pairs of features turn with the position, so that scores depend on distances alone."""

    start = 0

    def project(self, queries, keys, values):
        Q, K, V = super().project(queries, keys, values)
        return self.turned(Q), self.turned(K), V

    def turned(self, Q):
        places = torch.arange(self.start, self.start + Q.shape[-2], dtype=Q.dtype)
        angles = places[:, None] * 100.0 ** -torch.arange(0, 1, 2 / Q.shape[-1], dtype=Q.dtype)
        turns = torch.polar(torch.ones_like(angles), angles)  # (n, d / 2), complex
        return torch.view_as_real(torch.view_as_complex(Q.unflatten(-1, (-1, 2))) * turns).flatten(-2)


class Cached(MultiHeadAttention):
    """Keys and values of earlier calls stay."""

    cache = None

    def project(self, queries, keys, values):
        Q, *new = super().project(queries, keys, values)
        self.cache = (
            new if self.cache is None else [torch.cat(both, dim=-2) for both in zip(self.cache, new, strict=True)]
        )
        return Q, *self.cache


def test_rotated_queries_and_keys():
    layer = Rotary(8, 2, **SIZES).double()
    output = layer(X, X, X, causal=True)
    Q, K = (split_heads(W(X), 2) for W in (layer.W_q, layer.W_k))
    scores = torch.zeros(3, 2, 5, 5, dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            for pair, frequency in enumerate((1.0, 0.1)):
                angle = torch.tensor((i - j) * frequency, dtype=torch.float64)
                turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
                parts = slice(2 * pair, 2 * pair + 2)
                scores[:, :, i, j] += torch.einsum("bhc,cd,bhd->bh", K[:, :, j, parts], turn, Q[:, :, i, parts]) / 2
    close(layer.attention_weights, masked_softmax(scores, causal=True))
    layer.start = 7
    close(layer(X, X, X, causal=True), output)  # distances have not changed


@pytest.mark.parametrize("groups", [2, 1])
def test_a_cache_of_keys_and_values(groups):
    layer = Cached(8, 2, num_key_value_heads=groups, **SIZES).double()
    whole = layer(X, X, X, causal=True)
    assert [tuple(part.shape) for part in layer.cache] == [(3, groups, 5, 4)] * 2
    layer.cache = None
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        part = X[:, start:stop]
        close(layer(part, part, part, causal=True), whole[:, start:stop])
        assert layer.attention_weights.shape == (3, 2, stop - start, stop)


def test_what_comes_between_is_checked():
    class OneKeyLost(MultiHeadAttention):
        def project(self, queries, keys, values):
            Q, K, V = super().project(queries, keys, values)
            return Q, K[:, :, 1:], V

    with pytest.raises(ValueError, match="values must be as many as keys: 4 keys, 5 values"):
        OneKeyLost(8, 2, **SIZES).double()(X, X, X)
    layer = Cached(8, 2, **SIZES).double()
    layer(X, X, X)
    with pytest.raises(ValueError, match="valid_lens must lie between 0 and the number of keys, 10"):
        layer(X, X, X, torch.tensor([10, 11, 3]))


# Heads that share keys and values.


def with_repeated_heads(layer):
    """A layer without shared heads that computes the same."""
    whole = MultiHeadAttention(layer.num_hiddens, layer.num_heads, bias=True, query_size=7, key_size=9, value_size=10)
    state, repeats = layer.state_dict(), layer.num_heads // layer.num_key_value_heads
    for name in ("W_k.weight", "W_k.bias", "W_v.weight", "W_v.bias"):
        by_head = state[name].unflatten(0, (layer.num_key_value_heads, -1))
        state[name] = by_head.repeat_interleave(repeats, dim=0).flatten(0, 1)
    whole.double().load_state_dict(state)
    return whole


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_shared_heads_are_repeated_heads(case, groups):
    sizes = dict(query_size=7, key_size=9, value_size=10)
    layer = MultiHeadAttention(8, 4, bias=True, num_key_value_heads=groups, **sizes).double()
    assert layer.W_k.weight.shape == (2 * groups, 9) and layer.W_v.weight.shape == (2 * groups, 10)
    output, weights = multi_head(with_repeated_heads(layer), *case.arguments, case.head_mask)
    close(layer(*case.arguments, case.head_mask), torch.from_numpy(output))
    close(layer.attention_weights, torch.from_numpy(weights))
    looped, weights_of_loop = loop_over_heads(layer, *case.arguments, case.head_mask)
    close(looped, torch.from_numpy(output))
    close(weights_of_loop, torch.from_numpy(weights))


@pytest.mark.parametrize(
    "groups, error, message",
    [
        (3, ValueError, "num_key_value_heads must divide num_heads, got num_key_value_heads=3, num_heads=4"),
        (8, ValueError, "num_key_value_heads must divide num_heads"),
        (0, ValueError, "num_key_value_heads must be at least 1, got 0"),
        (2.0, TypeError, "num_key_value_heads must be an integer, got 2.0"),
    ],
)
def test_heads_that_cannot_be_shared(groups, error, message):
    with pytest.raises(error, match=message):
        MultiHeadAttention(8, 4, num_key_value_heads=groups)


def test_what_is_shown_of_a_layer():
    assert "num_heads=4, num_key_value_heads=2" in repr(MultiHeadAttention(8, 4, num_key_value_heads=2))
    assert "num_heads=4" in repr(make_layer(attention, CASES["bias"]))


def test_the_attention_inside_has_the_shape_of_the_book():
    layer = make_layer(attention, CASES["all keys"])
    layer(*CASES["all keys"].arguments)
    inner, outer = layer.attention.attention_weights, layer.attention_weights
    assert inner.shape == (12, 5, 6) and outer.shape == (3, 4, 5, 6)
    assert torch.equal(inner.reshape(3, 4, 5, 6), outer)
    Q = random_numbers(3, 5, 7)
    alone = DotProductAttention()
    alone(Q, Q, Q)
    close(alone.attention_weights, torch.from_numpy(dot_product(Q, Q, Q)[1]))
    assert math.isclose(alone.attention_weights.sum(), 15)
