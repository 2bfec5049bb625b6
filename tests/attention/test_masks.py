"""Which query may attend to which key: lengths, masks, biases and causal attention, alone and together."""

import math

import numpy as np
import pytest
import torch
from references import random_numbers
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lib import AdditiveAttention, KernelPooling, MultiHeadAttention, attention, masked_softmax
from mha_lib.attention import DotProductAttention, FusedAttention

B, H, D = 3, 2, 4


def keeping():
    layer = FusedAttention()
    layer.keep_weights = True
    return layer


def masking():
    layer = FusedAttention()
    layer.skip_padding = False
    return layer


DOT_PRODUCTS = {"formula": DotProductAttention, "fused": FusedAttention, "kept": keeping, "not skipping": masking}
every_dot_product = pytest.mark.parametrize("make", DOT_PRODUCTS.values(), ids=DOT_PRODUCTS)


def by_loops(scores, valid_lens=None, attn_mask=None, causal=False):
    """Weights (b, h, q, k), one query and one key at a time."""
    scores = scores.detach().numpy()
    num_queries, num_keys = scores.shape[-2:]
    weights = np.zeros_like(scores)
    for b, h, i in np.ndindex(scores.shape[:-1]):
        powers = {}
        for j in range(num_keys):
            length = num_keys if valid_lens is None else valid_lens[b] if valid_lens.dim() == 1 else valid_lens[b, i]
            bias = 0.0
            if attn_mask is not None:
                bias = attn_mask.expand(scores.shape)[b, h, i, j].item()
                bias = (0.0 if bias else -math.inf) if isinstance(bias, bool) else bias
            if j < length and bias > -math.inf and (not causal or num_keys - j >= num_queries - i):
                powers[j] = math.exp(scores[b, h, i, j] + bias)
        for j, power in powers.items():
            weights[b, h, i, j] = power / sum(powers.values())
    return torch.from_numpy(weights)


def masks(num_queries, num_keys):
    """Every kind of mask that scores (B, H, q, k) take, by name."""
    torch.manual_seed(0)
    bias = torch.randn(B, H, num_queries, num_keys, dtype=torch.float64)
    return {
        "none": None,
        "one for all": torch.rand(num_queries, num_keys) > 0.4,
        "keys of each example": torch.rand(B, 1, 1, num_keys) > 0.4,
        "full": torch.rand(B, H, num_queries, num_keys) > 0.4,
        "bias": bias,
        "bias with −∞, single precision": torch.where(bias[:, :1] > -0.5, bias[:, :1], -math.inf).float(),
    }


def lengths(num_queries, num_keys):
    return {
        "none": None,
        "per example": torch.tensor([num_keys, 0, num_keys - 1]),
        "per query": torch.arange(B * num_queries).reshape(B, -1) % (num_keys + 1),
    }


@pytest.mark.parametrize("q, k", [(5, 5), (3, 6), (6, 3), (1, 4)])
@pytest.mark.parametrize("length", lengths(1, 1))
@pytest.mark.parametrize("causal", [False, True])
def test_all_that_masks_holds_together(q, k, length, causal):
    Q, K, V = random_numbers(B, H, q, D), random_numbers(B, H, k, D), random_numbers(B, H, k, 3)
    valid_lens = lengths(q, k)[length]
    for name, attn_mask in masks(q, k).items():
        expected = by_loops(Q @ K.mT / math.sqrt(D), valid_lens, attn_mask, causal)
        tolerance = dict(rtol=0, atol=1e-6 if name.endswith("precision") else 1e-12)
        for layer in (make() for make in DOT_PRODUCTS.values()):
            output = layer(Q, K, V, valid_lens, attn_mask=attn_mask, causal=causal)
            torch.testing.assert_close(output, expected @ V, **tolerance)
            torch.testing.assert_close(layer.attention_weights, expected.flatten(0, 1), **tolerance)


@pytest.mark.parametrize("length", ["none", "per example", "per query"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_attention_and_the_softmax_take_the_same_masks(length, causal):
    X, valid_lens, attn_mask = random_numbers(B, 5, D), lengths(5, 5)[length], torch.rand(B, 1, 5) > 0.3
    options = dict(attn_mask=attn_mask, causal=causal)
    for layer in (AdditiveAttention(3).double(), KernelPooling().double(), DotProductAttention(), FusedAttention()):
        layer(X, X, X, valid_lens, **options)
        scores = layer.scores(X, X)
        expected = by_loops(scores[:, None], valid_lens, attn_mask[:, None], causal)[:, 0]
        torch.testing.assert_close(layer.attention_weights, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(masked_softmax(scores, valid_lens, **options), expected, rtol=0, atol=1e-12)


def test_a_causal_layer_that_gets_its_queries_one_by_one():
    """The last query stands at the last key, so that a step of decoding is a row of the whole."""
    layer = MultiHeadAttention(8, 2, query_size=4, key_size=4, value_size=4).double()
    X = random_numbers(B, 6, 4)
    whole = layer(X, X, X, causal=True)
    for t in range(1, 7):
        step = layer(X[:, t - 1 : t], X[:, :t], X[:, :t], causal=True)
        torch.testing.assert_close(step, whole[:, t - 1 : t], rtol=0, atol=1e-12)
        torch.testing.assert_close(layer(X[:, 2:], X, X, causal=True), whole[:, 2:], rtol=0, atol=1e-12)


def test_the_kernels_own_causal_mask_stands_elsewhere():
    Q, K = random_numbers(1, 1, 2, D), random_numbers(1, 1, 5, D)
    kernel = F.scaled_dot_product_attention
    assert not torch.allclose(FusedAttention()(Q, K, K, causal=True), kernel(Q, K, K, is_causal=True))
    assert torch.allclose(FusedAttention()(K, K, K, causal=True), kernel(K, K, K, is_causal=True))


class LargestTensor(TorchDispatchMode):
    """Notes how many numbers the largest tensor that torch makes has."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for X in result if isinstance(result, tuple | list) else (result,):
            if isinstance(X, torch.Tensor):
                self.numbers = max(self.numbers, X.untyped_storage().size())
        return result


@pytest.mark.parametrize("valid_lens", [None, torch.tensor([400, 512]), torch.tensor([0, 512])])
@pytest.mark.parametrize("gradients", [False, True])
def test_causal_attention_needs_no_mask_of_queries_by_keys(valid_lens, gradients):
    layer, n = MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8).eval(), 512
    X = torch.randn(2, n, 8, requires_grad=gradients)
    with LargestTensor() as largest, torch.set_grad_enabled(gradients):
        layer(X, X, X, valid_lens, causal=True)
    assert largest.numbers < n * n  # bytes: a mask would have as many


def test_a_bias_is_learned():
    bias = torch.zeros(H, 5, 5, dtype=torch.float64, requires_grad=True)
    Q, K = random_numbers(B, H, 5, D), random_numbers(B, H, 5, 3)
    grads = [
        torch.autograd.grad(make()(Q, Q, K, torch.tensor([5, 2, 3]), attn_mask=bias[None]).square().sum(), bias)[0]
        for make in DOT_PRODUCTS.values()
    ]
    assert (grads[0] != 0).any(dim=-1).all()
    for other in grads[1:]:
        torch.testing.assert_close(other, grads[0], rtol=0, atol=1e-12)


SPOILT = {
    "per example": dict(valid_lens=torch.tensor([3, 0, 5])),
    "per query": dict(valid_lens=torch.tensor([[3, 1], [0, 0], [2, 5]])),
    "mask": dict(attn_mask=torch.tensor([True, False, True, False, False, True])[None]),
    "mask of each example": dict(attn_mask=(torch.arange(6) < torch.tensor([3, 0, 5])[:, None])[:, None]),
    "bias": dict(attn_mask=torch.tensor([0.0, 1.0, -math.inf, 0.0, -math.inf, -math.inf])[None]),
    "causal with lengths": dict(valid_lens=torch.tensor([3, 0, 5]), causal=True),
}


@pytest.mark.parametrize("repeats", [1, 60], ids=["6 keys", "360 keys"])
@pytest.mark.parametrize("junk", [math.nan, math.inf])
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("name", [*DOT_PRODUCTS, "additive", "kernel"])
def test_what_stands_at_keys_that_no_query_sees_has_no_effect(name, how, junk, repeats):
    makers = DOT_PRODUCTS | {
        "additive": lambda: AdditiveAttention(3).double(),
        "kernel": lambda: KernelPooling().double(),
    }
    layer, num_keys = makers[name](), 6 * repeats
    Q, K, V = random_numbers(B, 2, D), random_numbers(B, num_keys, D), random_numbers(B, num_keys, 3)
    if repeats > 1:
        Q = Q.repeat(1, 182, 1)  # long enough for padding to be skipped
    masks = {name: stretched(mask, repeats, Q.shape[1]) for name, mask in SPOILT[how].items()}
    unseen = (weights_of_ones(Q, K, masks) == 0).all(dim=1)  # (b, k)
    assert unseen.any()
    results = []
    for filling in (0.0, junk):
        given = [X.clone().requires_grad_() for X in (Q, K.masked_fill(unseen[..., None], filling),
                                                      V.masked_fill(unseen[..., None], filling))]  # fmt: skip
        output = layer(*given, **masks)
        output.square().sum().backward()
        results.append((output, layer.attention_weights, *(X.grad for X in given)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    assert all((X.grad[unseen] == 0).all() for X in given[1:])


def stretched(mask, repeats, num_queries):
    """A mask or lengths for ``repeats`` times as many keys."""
    if isinstance(mask, bool):
        return mask
    if mask.dtype == torch.int64:
        mask = mask * repeats
        return mask.repeat(1, num_queries // 2) if mask.dim() == 2 else mask
    return mask.repeat_interleave(repeats, dim=-1)


def weights_of_ones(Q, K, masks):
    return masked_softmax(torch.zeros(B, Q.shape[1], K.shape[1]), **masks)


@pytest.mark.parametrize("n", [3, 5])
def test_lengths_that_were_surely_meant_for_the_queries(n):
    """With n examples of n queries, one length a query looks like one an example: causal lengths are told."""
    X, layer = torch.randn(n, n, 4), FusedAttention()
    meant = torch.arange(1, n + 1)
    with pytest.warns(UserWarning, match=rf"\({n},\) is one length for each example.*causal=True.*expand\({n}, {n}\)"):
        layer(X, X, X, meant)
    torch.testing.assert_close(layer(X, X, X, meant.expand(n, n)), layer(X, X, X, causal=True))
    layer(X, X, X, meant.flip(0))  # any other lengths are taken for those of the examples, without a word
    layer(X[1:], X[1:], X[1:], meant[1:])


MASK_ERRORS = {
    "integers": (torch.ones(5, 6).long(), TypeError, "attn_mask must be bool, .*or floats .*got torch.int64"),
    "list": (
        [[True]],
        TypeError,
        r"attn_mask must be a tensor of shape \(5, 6\) or \(3 or 1, 2 or 1, 5 or 1, 6\), got list",
    ),
    "one axis": (torch.ones(6), ValueError, r"attn_mask must have shape \(5, 6\) or .*got \(6,\)"),
    "three axes": (torch.ones(3, 5, 6), ValueError, r"attn_mask must have shape .*got \(3, 5, 6\)"),
    "other keys": (torch.ones(5, 5), ValueError, r"attn_mask must have shape .*got \(5, 5\)"),
    "one key for all": (torch.ones(5, 1), ValueError, r"attn_mask must have shape .*got \(5, 1\)"),
    "other batch": (torch.ones(2, 1, 5, 6), ValueError, r"attn_mask must have shape .*got \(2, 1, 5, 6\)"),
    "elsewhere": (
        torch.ones(5, 6, device="meta"),
        ValueError,
        "attn_mask must be on the device of the scores, cpu, got meta",
    ),
}


@every_dot_product
@pytest.mark.parametrize("attn_mask, error, message", MASK_ERRORS.values(), ids=MASK_ERRORS)
def test_masks_that_do_not_fit(make, attn_mask, error, message):
    Q, K = random_numbers(3, 2, 5, D), random_numbers(3, 2, 6, D)
    with pytest.raises(error, match=message):
        make()(Q, K, K, attn_mask=attn_mask)


def test_causal_is_yes_or_no():
    X = torch.randn(3, 5, 4)
    for call in (lambda: FusedAttention()(X, X, X, causal=X), lambda: masked_softmax(X, causal=1)):
        with pytest.raises(TypeError, match="causal must be True or False"):
            call()


def test_which_keys_come_no_later():
    assert attention.keys_so_far(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    assert attention.keys_so_far(3, 2).tolist() == [[False, False], [True, False], [True, True]]
