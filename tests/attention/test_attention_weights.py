"""The weights that a layer keeps of its last call, and the caller's tensors, which it leaves alone.

That they are the formula's, and none after a call that was refused, is tried in ``test_random_calls``.
"""

import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from on_device import DEVICE
from references import (
    LENGTHS,
    WAYS,
    assert_same,
    attention,
    make_additive,
    make_layer,
    on_way,
    random_numbers,
    sequences,
)

import mha_lib
from mha_lib import DotProductAttention, KernelPooling, MultiHeadAttention
from mha_lib.attention import FusedAttention, masked_scores

LAYERS = {
    "multi-head": lambda dropout: make_layer(dropout),
    "multi-head, kept": lambda dropout: on_way(make_layer(dropout), "kept"),
    "additive": lambda dropout: make_additive(dropout),
    "dot product": DotProductAttention,
    "fused": FusedAttention,
    "fused, kept": lambda dropout: on_way(FusedAttention(dropout), "kept"),
    "kernel": lambda dropout: KernelPooling().double(),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def arguments(layer):
    size = 7 if isinstance(layer, DotProductAttention | KernelPooling) else None  # the kernel needs values of it, too
    return *(X[..., :size].clone() for X in sequences()), LENGTHS["empty rows"].clone()


@every_layer
@pytest.mark.parametrize("dropout, training", [(0.0, False), (0.0, True), (0.5, True)])
def test_a_call_and_a_look_write_to_none_of_the_arguments(make, dropout, training):
    layer = make(dropout).train(training)
    given = arguments(layer)
    before = [X.clone() for X in given]
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            layer(*given)
            first = layer.attention_weights
            assert torch.equal(layer.attention_weights, first)
    for X, then in zip(given, before, strict=True):
        assert torch.equal(X, then) and X._version == 0


@every_layer
@pytest.mark.parametrize("training, options", [(False, {}), (True, {}), (True, {"need_weights": True})], ids=str)
def test_nothing_of_a_call_stays_alive_in_the_layer_but_what_its_weights_need(make, training, options):
    """The graph of a call, which holds everything that led to it, goes with the output."""
    layer = make(0.5).train(training)
    if options and not isinstance(layer, MultiHeadAttention):
        return
    for backward in (True, False):
        inputs = [torch.tanh(X.requires_grad_()) for X in arguments(layer)[:3]]
        alive = [weakref.ref(X) for X in inputs]
        output = layer(*inputs, **options)
        del inputs
        if backward:  # which lets go of what led to an output, even if that stays
            (output[0] if options else output).sum().backward()
        else:
            del output
        assert not any(X() is not None for X in alive)
        assert layer.attention_weights.shape[-2:] == (5, 6)


@every_layer
def test_the_weights_do_not_follow_what_changes_later(make):
    """A layer that projects is not concerned by changed queries either, nor one that has its weights already."""
    layer = make(0.0)
    queries, keys, values, valid_lens = arguments(layer)
    layer(queries, keys, values, valid_lens)
    expected = layer.attention_weights.clone()
    layer(queries, keys, values, valid_lens)
    valid_lens.fill_(1)
    values.zero_()
    if not isinstance(layer, FusedAttention) or layer.keep_weights:
        with torch.no_grad():
            for X in (queries, keys, *layer.parameters()):
                X.zero_()
    assert torch.equal(layer.attention_weights, expected)
    queries.zero_()
    assert torch.equal(layer.attention_weights, expected)


@pytest.mark.parametrize("changed", [0, 1, 2], ids=["queries", "keys", "attn_mask"])
def test_an_attention_that_computes_weights_late_says_that_its_inputs_were_changed_in_place(changed):
    layer = FusedAttention()
    queries, keys, values, _ = arguments(layer)
    bias = torch.zeros(5, 6, dtype=torch.float64)
    layer(queries, keys, values, attn_mask=bias)
    (queries, keys, bias)[changed].add_(1)
    with pytest.raises(RuntimeError, match="queries, keys or attn_mask were changed in place since the last call"):
        _ = layer.attention_weights
    layer(queries, keys, values, attn_mask=bias)
    assert layer.attention_weights.shape == (3, 5, 6)


@every_layer
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_after_a_training_step_work_and_leave_the_weights_behind(make, copied):
    layer = make(0.5).train()
    given = arguments(layer)
    layer(*(X.requires_grad_(X.is_floating_point()) for X in given)).sum().backward()
    twin = copied(layer)
    with pytest.raises(RuntimeError, match="nor does a copy of a layer"):
        _ = twin.attention_weights
    # Without activations, which would be 360 bytes at least; addresses in memory have a digit more or less.
    assert abs(len(pickle.dumps(layer)) - len(pickle.dumps(twin))) < 100
    assert layer.attention_weights is not None
    assert torch.equal(twin.eval()(*given), layer.eval()(*given))


@pytest.fixture
def computed(monkeypatch):
    """A list that grows each time weights are computed."""
    calls, weights = [], FusedAttention.weights

    def counted(self, *arguments):
        calls.append(arguments)
        return weights(self, *arguments)

    monkeypatch.setattr(FusedAttention, "weights", counted)
    return calls


@pytest.mark.parametrize("way, at_once", [("kernel", 0), ("kept", 1)])
def test_weights_are_computed_once_a_call_and_only_where_they_are_read_or_kept(computed, way, at_once):
    layer = on_way(make_layer(), way)
    for number_of_calls in (1, 2):
        layer(*arguments(layer))
        assert len(computed) == number_of_calls - 1 + at_once
        first = layer.attention_weights
        assert torch.equal(layer.attention_weights, first)
        assert len(computed) == number_of_calls


@pytest.mark.parametrize("dtype, atol", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize(
    "mask", [{}, {"causal": True}, {"attn_mask": 2 * torch.eye(5)}], ids=["none", "causal", "bias"]
)
@pytest.mark.parametrize("size", [3.0, 200.0])  # scores of tens, and up to 100,000: more than float16 can hold
def test_in_half_precision_every_way_gives_what_the_kernel_gives(size, mask, dtype, atol):
    X, V = (size * random_numbers(3, 2, 5, 4)).to(dtype), random_numbers(3, 2, 5, 4).flip(0).to(dtype)
    output, weights = attention(DotProductAttention(), X, X, V, **mask)
    for layer in (DotProductAttention(), *(on_way(FusedAttention(), way) for way in WAYS)):
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                by_call = layer(X, X, V, **mask), layer.attention_weights
                for result, inside in (by_call, layer.attend(X, X, V, **mask)):
                    assert result.dtype == inside.dtype == dtype
                    assert_same(result.double(), output, 3 * atol)
                    assert_same(inside.double().reshape(6, 5, 5), weights, atol)


WITH_EMPTY_ROWS = {
    "lengths": dict(valid_lens=torch.tensor([100, 0, 128])),
    "lengths, causal": dict(valid_lens=torch.tensor([100, 0, 128]), causal=True),
    "bool": dict(attn_mask=torch.ones(128, 128, dtype=torch.bool).tril(-1)),
    "bias": dict(attn_mask=torch.full((128, 128), -math.inf).triu()),
}


@pytest.mark.parametrize("dtype, atol", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("masks", WITH_EMPTY_ROWS.values(), ids=WITH_EMPTY_ROWS)
def test_rows_without_a_key_are_zeros_at_the_sizes_of_a_gpus_own_kernels(masks, dtype, atol):
    """Head sizes divisible by 8 in half precision: there torch has more kernels to choose from."""
    given = [X.to(dtype).requires_grad_() for X in random_numbers(3, 3, 2, 128, 64)]
    expected, weights = attention(FusedAttention(), *given, **masks)
    output, is_empty = FusedAttention()(*given, **masks), weights.sum(-1).reshape(3, 2, 128) == 0
    assert is_empty.any()
    assert_same(output.double(), expected, 3 * atol)
    assert (output.detach().cpu()[torch.from_numpy(is_empty)] == 0).all()
    output.square().sum().backward()
    assert all(X.grad.isfinite().all() for X in given)


@pytest.mark.parametrize("dtype, epsilon", [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)], ids=str)
@pytest.mark.parametrize("masks", [{}, *WITH_EMPTY_ROWS.values()], ids=["none", *WITH_EMPTY_ROWS])
def test_products_of_half_precision_that_give_single_precision_are_rounded_once(masks, dtype, epsilon, monkeypatch):
    """The way of a GPU, with a product that no CPU has; here it is computed from converted numbers."""
    multiply, asked = torch.baddbmm, []

    def product(added, Q, K, *, out_dtype=None, **others):
        asked.append((out_dtype, Q.dtype, K.dtype, added.dtype))
        return multiply(added, Q.float(), K.float(), **others)

    monkeypatch.setattr(masked_scores, "_gives_single", lambda device, dtype: True)
    monkeypatch.setattr(torch, "baddbmm", product)
    Q, K, V = (3 * random_numbers(3, 3, 2, 128, 40)).to(dtype).unbind()
    _, weights = attention(DotProductAttention(), Q, K, V, **masks)
    with torch.no_grad():
        found = FusedAttention().attend(Q, K, V, **masks)[1]
    assert asked == [(torch.float32, dtype, dtype, torch.float32)] and found.shape == (3, 2, 128, 128)
    found, is_empty = found.double().cpu().numpy().reshape(weights.shape), weights.sum(-1) == 0
    assert (abs(found - weights) <= 1.01 * epsilon * weights + torch.finfo(dtype).smallest_normal).all()
    assert is_empty.any() == bool(masks) and (found[is_empty] == 0).all()


def test_a_row_without_a_key_gives_zeros_even_where_its_query_is_nan():
    Q, K, V = random_numbers(3, 1, 2, 4, 8).unbind()
    Q[:, :, 1] = math.nan
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1], [0, 1, 1, 1]], dtype=torch.bool)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            output, weights = FusedAttention().attend(Q, K.requires_grad_(), V, attn_mask=mask)
        assert (output[:, :, 1] == 0).all() and (weights[:, :, 1] == 0).all() and output.isfinite().all()
    output.sum().backward()
    assert K.grad.isfinite().all()


@pytest.mark.cpu  # elsewhere it would take a pass over all weights
def test_weights_of_a_row_without_a_key_are_zeros_beside_a_key_of_nan_and_have_a_memory_of_their_own():
    Q, K, V = random_numbers(3, 1, 2, 4, 8).unbind()
    K[:, :, 2] = math.nan  # which query 0 sees
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1]], dtype=torch.bool)
    with torch.no_grad():
        _, weights = FusedAttention().attend(Q, K, V, attn_mask=mask)
    assert (weights[:, :, 1] == 0).all() and weights[:, :, 0].isnan().all()
    assert weights.view(8, 4).untyped_storage().nbytes() == weights.nbytes


@pytest.mark.real_device
@pytest.mark.parametrize("dtype, atol", [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
def test_under_autocast_every_way_gives_what_the_kernel_gives(dtype, atol):
    V = random_numbers(3, 5, 4).flip(0).float()
    for size in (3.0, 200.0):
        X = (size * random_numbers(3, 5, 4)).to(dtype).float()  # numbers that lose nothing
        output, weights = attention(DotProductAttention(), X, X, V)
        with torch.autocast(DEVICE.type, dtype=dtype):
            for layer in (DotProductAttention(), *(on_way(FusedAttention(), way) for way in WAYS)):
                assert_same(layer(X, X, V).double(), output, 3 * atol)
                assert_same(layer.attention_weights.double(), weights, atol)


def test_other_scores_are_finite_in_half_precision_wherever_they_are():
    """A Gaussian's squares exceed float16, also those of a bandwidth; a hidden layer is bounded."""
    X = (300 * random_numbers(3, 5, 4)).half()
    for bandwidth in (1e-6, 1.0, 1e3):
        layer = KernelPooling(bandwidth, dtype=torch.float16)
        output, weights = attention(layer, X, X, X)
        assert_same(layer(X, X, X).double() / 300, output / 300, 2e-3)
        assert_same(layer.attention_weights.double(), weights, 2e-3)
    additive = make_additive().half()
    queries, keys, values, lengths = (X.half() for X in arguments(additive))
    for layer in (additive, make_layer().half()):
        output, weights = attention(layer, queries, keys, values, lengths)
        assert_same(layer(queries, keys, values, lengths).double(), output, 1e-2)
        assert_same(layer.attention_weights.double(), weights, 1e-2)


def test_softmax_of_half_precision_scores_and_a_bias_that_exceed_it_together():
    scores, bias = torch.tensor([[[60000.0, 59968.0, 0.0]]]).half(), torch.tensor([[60000.0, 60032.0, 0.0]]).half()
    assert mha_lib.masked_softmax(scores, attn_mask=bias).tolist() == [[[0.5, 0.5, 0.0]]]


def num_tensors():
    """How many tensors are alive in this process."""
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


@pytest.mark.parametrize(
    "mode",
    [torch.enable_grad, torch.no_grad, pytest.param(torch.inference_mode, marks=pytest.mark.real_device)],
)
def test_nothing_stays_alive_where_inputs_are_not_to_be_kept(mode):
    layer = make_layer().eval()
    given = arguments(layer)
    with mode():
        output, weights = layer(*given), layer.attention_weights
        of_weights = num_tensors()
        layer(*given)
        assert num_tensors() > of_weights
        layer.attention.keep_inputs = False
        assert torch.equal(layer(*given), output)
    assert num_tensors() <= of_weights
    with pytest.raises(RuntimeError, match=r"attention_weights: .*keep_inputs is False.*need_weights=True"):
        _ = layer.attention_weights
    torch.testing.assert_close(layer(*given, need_weights=True)[1], weights)
    layer.attention.keep_weights = True
    layer(*given)
    torch.testing.assert_close(layer.attention_weights, weights)
    layer.attention.keep_inputs = "no"
    with pytest.raises(TypeError, match="keep_inputs must be True or False, got 'no'"):
        layer(*given)
