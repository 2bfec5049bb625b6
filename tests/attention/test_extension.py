"""The layer extended, not rewritten: other scores, what comes between projection and attention, shared heads."""

import copy

import pytest
import torch
from references import assert_same, check, close, make_layer, masked_softmax, numpy, on_way, random_numbers

import mha_lib
from mha_lib import MultiHeadAttention
from mha_lib.attention import AttentionPooling, DotProductAttention, FusedAttention, split_heads

SIZES = dict(query_size=6, key_size=6, value_size=6)
X, LENGTHS = random_numbers(3, 5, 6), torch.tensor([4, 0, 2])


# Other scores.


class Uniform(FusedAttention):
    def weights(self, queries, keys, mask=None):
        zeros = torch.zeros(*queries.shape[:-1], keys.shape[-2], dtype=queries.dtype)
        return mha_lib.masked_softmax(zeros, attn_mask=mask)


@pytest.mark.real_device
@pytest.mark.parametrize("masks", [{"valid_lens": LENGTHS}, {"causal": True}], ids=str)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("base", [AttentionPooling, DotProductAttention, FusedAttention])
def test_an_overridden_score_is_obeyed_alone_and_in_a_layer(base, kept, masks):
    class Manhattan(base):
        keep_weights = kept

        def scores(self, queries, keys):
            return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs().sum(dim=-1)

    alone, layer = Manhattan(), MultiHeadAttention(8, 4, attention=Manhattan(), **SIZES).double()
    output, weights = alone(X, X, X, **masks), masked_softmax(-torch.cdist(X, X, p=1), **masks)
    assert_same(output, weights @ numpy(X))
    assert_same(alone.attention_weights, weights)
    Q, K, V = (split_heads(W(X), 4) for W in (layer.W_q, layer.W_k, layer.W_v))
    output, weights = layer(X, X, X, **masks), masked_softmax(-torch.cdist(Q, K, p=1), **masks)
    assert_same(layer.attention_weights, weights)
    close(output, layer.W_o((torch.from_numpy(weights).to(V) @ V).transpose(1, 2).flatten(2)))
    with pytest.raises(NotImplementedError):
        AttentionPooling()(X, X, X)


@pytest.mark.parametrize("base", [AttentionPooling, DotProductAttention, FusedAttention])
@pytest.mark.parametrize(
    ("error", "told", "made"),
    [
        (ValueError, r"scores must have shape \(3, 5, 5\), got \(3, 5, 4\)", lambda scores: scores[..., 1:]),
        (ValueError, r"scores must have shape .*, got \(5, 5\)", lambda scores: scores[0]),
        (TypeError, "scores must hold floating-point numbers .*, got torch.int64", torch.Tensor.long),
        (TypeError, "scores must be a tensor .*, got list", torch.Tensor.tolist),
    ],
)
def test_scores_that_no_softmax_can_take_are_named(base, error, told, made):
    class Wrong(base):
        def scores(self, queries, keys):
            return made(queries @ keys.mT)

    for masks in ({}, {"valid_lens": LENGTHS}, {"causal": True}):
        with pytest.raises(error, match=told):
            Wrong()(X, X, X, **masks)


def test_scores_of_ones_own_are_not_written_to():
    kept = random_numbers(3, 5, 5)

    class Given(FusedAttention):
        keep_weights = True

        def scores(self, queries, keys):
            return kept

    before = kept.clone()
    with torch.no_grad():
        Given()(X, X, X, torch.tensor([5, 0, 2]))
    assert torch.equal(kept, before)


def test_overridden_weights_are_obeyed():
    valid_lens, layer = torch.tensor([4, 2, 5]), Uniform()
    means = torch.stack([X[b, :length].mean(dim=0) for b, length in enumerate(valid_lens)])
    close(layer(X, X, X, valid_lens), means[:, None].expand(-1, 5, -1))
    close(layer.attention_weights[:, 0].count_nonzero(dim=-1), valid_lens)


# Between projection and attention.


def test_what_comes_between_is_what_attends():
    class Changed(MultiHeadAttention):
        def project(self, queries, keys, values):
            Q, K, V = super().project(queries, keys, values)
            return Q.flip(-2), 2 * K, V.roll(1, -1)

    layer = Changed(8, 2, **SIZES).double()
    Q, K, V = (split_heads(W(X), 2) for W in (layer.W_q, layer.W_k, layer.W_v))
    output, weights = layer(X, X, X), masked_softmax(Q.flip(-2) @ K.mT)  # 2 / √4 = 1
    assert_same(layer.attention_weights, weights)
    close(output, layer.W_o((torch.from_numpy(weights).to(V) @ V.roll(1, -1)).transpose(1, 2).flatten(2)))


class Cached(MultiHeadAttention):
    """Keys and values of earlier calls stay."""

    cache = None

    def project(self, queries, keys, values):
        Q, *new = super().project(queries, keys, values)
        both = [new] if self.cache is None else [self.cache, new]
        self.cache = [torch.cat(parts, dim=-2) for parts in zip(*both, strict=True)]
        return Q, *self.cache


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


@pytest.mark.real_device
def test_what_comes_between_is_checked():
    class OneKeyLost(MultiHeadAttention):
        def project(self, queries, keys, values):
            Q, K, V = super().project(queries, keys, values)
            return Q, K[:, :, 1:], V

    with pytest.raises(ValueError, match="values must be as many as keys: 4 keys, 5 values"):
        OneKeyLost(8, 2, **SIZES).double()(X, X, X)


@pytest.mark.cpu  # elsewhere lengths are not read, since that would have to be waited for
def test_lengths_are_held_against_the_keys_of_the_cache():
    layer = Cached(8, 2, **SIZES).double()
    layer(X, X, X)
    with pytest.raises(ValueError, match="valid_lens must lie between 0 and the number of keys, 10"):
        layer(X, X, X, torch.tensor([10, 11, 3]))


@pytest.mark.parametrize("groups", [3, 1])
def test_heads_of_a_size_of_their_own(groups):
    """Three heads of size 5 for an output of 8, which three does not divide."""
    layer = MultiHeadAttention(8, 3, bias=True, head_size=5, num_key_value_heads=groups, **SIZES).double()
    assert layer.head_size == 5 and layer.W_q.weight.shape == (15, 6) and layer.W_o.weight.shape == (8, 15)
    check(layer, X, X, X, valid_lens=LENGTHS, head_mask=torch.tensor([0.5, 0, 2], dtype=torch.float64))
    assert layer(X, X, X).shape == (3, 5, 8)


def test_a_head_size_that_does_not_fit_is_named():
    for size in (0, 2.5, True):
        with pytest.raises((TypeError, ValueError), match="head_size must be"):
            MultiHeadAttention(8, 3, head_size=size)


def test_what_is_seen_of_a_layer():
    """Its heads, and inside the weights in the shape of the book."""
    layer = make_layer(num_key_value_heads=2, **SIZES)
    assert "num_heads=4, num_key_value_heads=2" in repr(layer)
    layer(X, X, X)
    inner, outer = layer.attention.attention_weights, layer.attention_weights
    assert inner.shape == (12, 5, 5) and torch.equal(inner.reshape(3, 4, 5, 5), outer)


# What the kernel is given.


@pytest.mark.parametrize("masks", [{}, {"valid_lens": LENGTHS}, {"causal": True}, {"attn_mask": "heads"}], ids=str)
@pytest.mark.parametrize("groups", [2, 1])
def test_shared_keys_and_values_are_not_copied_for_the_kernel(kernel_calls, masks, groups):
    layer = MultiHeadAttention(8, 4, num_key_value_heads=groups, **SIZES).double()
    of_heads = masks.get("attn_mask") == "heads"
    masks = {"attn_mask": random_numbers(3, 4, 5, 5)} if of_heads else masks
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            check(layer, X, X, X, **masks)
    assert {call.heads for call in kernel_calls} == {(4, 4, 4) if of_heads else (4, groups, groups)}
    for way in ("formula", "kept"):
        check(on_way(layer, way), X, X, X, **masks)


def test_shared_heads_must_go_into_the_heads_of_the_queries():
    Q, K = random_numbers(3, 4, 5, 2), random_numbers(3, 3, 5, 2)
    fused = FusedAttention()
    fused.takes_groups = True
    for pooling, keys in ((fused, K), (DotProductAttention(), K[:, :2])):
        hint = "" if pooling is fused else r".*\(batch, num_heads, number, size\).*takes_groups"  # so flash-attn's axes
        with pytest.raises(ValueError, match=f"keys must have the batch size of queries, and its heads: .*{hint}"):
            pooling(Q, keys, keys)
    with pytest.raises(ValueError, match="values must have the batch size of queries, and its heads: queries is"):
        fused(Q, K[:, :2], K[:, :1])
    torch.testing.assert_close(fused(Q, K[:, :2], K[:, :2]), fused(Q, *[K[:, [0, 0, 1, 1]]] * 2))


@pytest.mark.parametrize("training, dropout", [(True, 0.25), (True, 0.0), (False, 0.25)])
@pytest.mark.cpu
def test_dropout_goes_by_the_formula_on_the_cpu_alone(kernel_calls, training, dropout):
    layer, active = MultiHeadAttention(8, 4, dropout, **SIZES).double().train(training), training and dropout
    layer(X, X, X, LENGTHS)
    assert [call.dropout for call in kernel_calls] == ([] if active else [0.0])
    kernel_calls.clear()
    Y = X.to("meta")
    for masks in ({}, {"valid_lens": LENGTHS.to("meta")}, {"causal": True}):
        layer.to("meta")(Y, Y, Y, **masks)
    assert [call.dropout for call in kernel_calls] == [dropout if active else 0.0] * 3


@pytest.mark.parametrize("groups", [4, 2])
def test_a_part_of_the_heads_alone(groups):
    """Tensor parallel: each process has some rows of W_q, W_k, W_v, and the columns of W_o that go with them."""
    whole = MultiHeadAttention(8, 4, num_key_value_heads=groups, **SIZES).double()
    expected, outputs, weights = whole(X, X, X, LENGTHS), [], []
    for part in range(2):
        layer = copy.deepcopy(whole)
        for W in (layer.W_q, layer.W_k, layer.W_v):
            W.weight = torch.nn.Parameter(W.weight.chunk(2)[part])
        layer.W_o.weight = torch.nn.Parameter(layer.W_o.weight.chunk(2, dim=1)[part])
        outputs.append(layer(X, X, X, LENGTHS))
        weights.append(layer.attention_weights)
    close(sum(outputs), expected)
    close(torch.cat(weights, dim=1), whole.attention_weights)


@pytest.mark.parametrize("masks", [{}, {"valid_lens": LENGTHS}, {"causal": True}, {"attn_mask": "bias"}], ids=str)
def test_single_precision_on_the_device(masks):
    """Where a GPU has kernels of its own for it: outputs and gradients are those of double precision."""
    masks = {"attn_mask": random_numbers(5, 5)} if "attn_mask" in masks else masks
    layer, results = MultiHeadAttention(8, 4, num_key_value_heads=2, **SIZES).double(), []
    for dtype in (torch.float64, torch.float32):
        Y = X.to(dtype).requires_grad_()
        given = {name: mask.to(dtype) if name == "attn_mask" else mask for name, mask in masks.items()}
        output = layer.to(dtype)(Y, Y, Y, **given)
        (gradient,) = torch.autograd.grad(output.square().sum(), Y)
        results.append((output.double(), gradient.double()))
    for single, double in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(single, double, rtol=1e-2, atol=1e-3)  # a GPU may multiply it in TF32
