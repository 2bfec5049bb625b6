"""Which query may attend to which key: lengths, masks, biases and causal attention, alone and together."""

import math

import pytest
import torch
from references import LENGTHS, WAYS, check, close, on_way, random_numbers
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import mha_lib
from mha_lib import AdditiveAttention, KernelPooling, MultiHeadAttention
from mha_lib.attention import DotProductAttention, FusedAttention, causal
from mha_lib.attention.masks import indices

B, H, D = 3, 2, 4


def fused(way):
    return on_way(FusedAttention(), way)


DOT_PRODUCTS = {"by the formula": DotProductAttention} | {way: lambda way=way: fused(way) for way in WAYS}
ATTENTIONS = DOT_PRODUCTS | {
    "additive": lambda: AdditiveAttention(3, query_size=D, key_size=D).double(),
    "gaussian": lambda: KernelPooling().double(),
}


@pytest.mark.parametrize("lengths", [None, torch.tensor([4, 0, 6])], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("gradients", [True, False])
def test_a_causal_layer_that_gets_its_queries_one_by_one(gradients, way, lengths):
    """The last query stands at the last key, so that a step of decoding is a row of the whole."""
    layer = on_way(MultiHeadAttention(8, 2, query_size=4, key_size=4, value_size=4).double(), way)
    X = random_numbers(B, 6, 4)
    with torch.set_grad_enabled(gradients):
        check(layer, X, X, X, valid_lens=lengths, causal=True)
        whole = layer(X, X, X, lengths, causal=True)
        for t in range(1, 7):
            seen = None if lengths is None else lengths.clamp(max=t)
            close(layer(X[:, t - 1 : t], X[:, :t], X[:, :t], seen, causal=True), whole[:, t - 1 : t])
        check(layer, X[:, 2:], X, X, valid_lens=lengths, causal=True)


def test_the_causal_mask_of_the_kernel_stands_at_the_other_end():
    """Where there are fewer queries than keys, ``is_causal`` of torch's function is another mask than ours."""
    Q, K = random_numbers(B, H, 3, D), random_numbers(B, H, 6, D)
    ours = FusedAttention()
    assert not torch.allclose(ours(Q, K, K, causal=True), F.scaled_dot_product_attention(Q, K, K, is_causal=True))
    close(ours(K, K, K, causal=True), F.scaled_dot_product_attention(K, K, K, is_causal=True))
    assert causal(*indices((1, 2, 4))).tolist() == [[True, True, True, False], [True] * 4]
    assert causal(*indices((1, 3, 2))).tolist() == [[False, False], [True, False], [True, True]]


class LargestTensor(TorchDispatchMode):
    """Notes how many bytes the largest tensor that torch makes has."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for X in result if isinstance(result, tuple | list) else (result,):
            if isinstance(X, torch.Tensor):
                self.bytes = max(self.bytes, X.untyped_storage().size())
        return result


@pytest.mark.real_device
@pytest.mark.parametrize(
    "valid_lens",
    [None, *(pytest.param(torch.tensor(lens), marks=pytest.mark.cpu) for lens in ([400, 512], [0, 512]))],
    ids=str,
)  # with lengths on the CPU alone: on a GPU they are not read, since that would have to be waited for
@pytest.mark.parametrize("gradients", [False, True])
def test_causal_attention_needs_no_mask_of_queries_by_keys(valid_lens, gradients):
    layer, n = MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8).eval(), 512
    X = torch.randn(2, n, 8, requires_grad=gradients)
    with LargestTensor() as largest, torch.set_grad_enabled(gradients):
        layer(X, X, X, valid_lens, causal=True)
    assert largest.bytes < n * n  # as many as a mask would have


def test_a_bias_is_learned():
    bias = torch.zeros(1, H, 5, 5, dtype=torch.float64, requires_grad=True)
    Q, V, lens = random_numbers(B, H, 5, D), random_numbers(B, H, 5, 3), torch.tensor([5, 2, 3])
    losses = [make()(Q, Q, V, lens, attn_mask=bias).square().sum() for make in DOT_PRODUCTS.values()]
    first, *others = [torch.autograd.grad(loss, bias)[0] for loss in losses]
    assert (first != 0).any(dim=-1).all()
    for other in others:
        close(other, first)


SPOILT = {
    "per example": lambda q, k: dict(valid_lens=torch.tensor([k // 2, 0, k - 1])),
    "per query": lambda q, k: dict(valid_lens=(torch.arange(B * q) % (k // 2)).reshape(B, q)),
    "mask": lambda q, k: dict(attn_mask=(torch.arange(k) % 3 == 0)[None]),
    "mask of each example": lambda q, k: dict(attn_mask=torch.arange(k) < torch.tensor([[[2]], [[0]], [[k - 1]]])),
    "bias": lambda q, k: dict(attn_mask=torch.where(torch.arange(k) % 3 == 0, torch.arange(k) / k, -math.inf)[None]),
    "causal with lengths": lambda q, k: dict(valid_lens=torch.tensor([k // 2, 0, k - 1]), causal=True),
}  # fmt: skip


def whole(way):
    return on_way(MultiHeadAttention(8, H, bias=True, query_size=D, key_size=D, value_size=3).double(), way)


WITH_LAYERS = [pytest.param(make, id=name) for name, make in ATTENTIONS.items()]
WITH_LAYERS += [pytest.param(lambda way=way: whole(way), id=f"layer, {way}", marks=pytest.mark.cpu) for way in WAYS]


@pytest.mark.parametrize("make", WITH_LAYERS)  # of a layer on the CPU alone: elsewhere numbers are not read
@pytest.mark.parametrize("q, k", [(2, 6), (364, 360)], ids=str)  # short, and long enough for padding to be skipped
@pytest.mark.parametrize("junk", [math.nan, math.inf])
@pytest.mark.parametrize("how", SPOILT)
def test_what_stands_at_keys_that_no_query_sees_has_no_effect(make, how, junk, q, k):
    layer, options = make(), SPOILT[how](q, k)
    Q, K, V = random_numbers(B, q, D), random_numbers(B, k, D), random_numbers(B, k, 3)
    unseen = (mha_lib.masked_softmax(torch.zeros(B, q, k), **options) == 0).all(dim=1)  # (b, k)
    assert unseen.any()
    if isinstance(layer, MultiHeadAttention) and how == "mask of each example":
        options["attn_mask"] = options["attn_mask"][:, None]
    results, trained = [], [p for p in layer.parameters() if p.requires_grad]
    for filling in (0.0, junk):
        given = [X.requires_grad_() for X in (Q.clone(), *(X.masked_fill(unseen[..., None], filling) for X in (K, V)))]
        output = layer(*given, **options)
        gradients = torch.autograd.grad(output.square().sum(), [*given, *trained])
        with torch.no_grad():
            without_gradients = layer(*given, **options)
        results.append((output, without_gradients, layer.attention_weights, *gradients))
    close(results[1], results[0], atol=1e-9 if trained else 0)
    assert all((gradient[unseen] == 0).all() and (gradient[~unseen] != 0).any() for gradient in gradients[1:3])
    with torch.no_grad():
        V[(~unseen).nonzero()[0].unbind()] = math.nan  # a value that is not padding is not silently dropped
        assert not layer(Q, K, V, **options).isfinite().all()


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e300])
def test_masked_scores_have_no_effect(junk):
    scores, valid_lens = random_numbers(3, 5, 6), LENGTHS["empty rows"]
    valid = torch.arange(6) < valid_lens[:, :, None]
    spoilt = torch.where(valid, scores, junk).requires_grad_()
    weights = mha_lib.masked_softmax(spoilt, valid_lens)
    assert torch.equal(weights, mha_lib.masked_softmax(scores, valid_lens))
    weights.square().sum().backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad[~valid] == 0).all() and (spoilt.grad[valid_lens > 1][:, 0] != 0).all()


@pytest.mark.cpu
@pytest.mark.parametrize("n", [3, 5])
def test_lengths_that_were_surely_meant_for_the_queries(n):
    """With n examples of n queries, one length a query looks like one an example: causal lengths are told."""
    X, layer = torch.randn(n, n, 4), FusedAttention()
    meant = torch.arange(1, n + 1)
    with pytest.warns(UserWarning, match=rf"\({n},\) is one length for each example.*causal=True.*expand\({n}, {n}\)"):
        layer(X, X, X, meant)
    whole = MultiHeadAttention(4, 2, query_size=4, key_size=4, value_size=4)

    def softmax(queries, keys, _, lengths):
        return mha_lib.masked_softmax(queries @ keys.mT, lengths)

    for call in (layer, AdditiveAttention(3), whole, softmax):
        with pytest.warns(UserWarning, match="one length for each example") as told:
            call(X, X, X, meant)
        assert [warning.filename for warning in told] == [__file__]  # where the lengths were given
    torch.testing.assert_close(layer(X, X, X, meant.expand(n, n)), layer(X, X, X, causal=True))
    layer(X, X, X, meant.flip(0))  # any other lengths are taken for those of the examples, without a word
    layer(X[1:], X[1:], X[1:], meant[1:])
