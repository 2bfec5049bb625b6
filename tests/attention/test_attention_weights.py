"""The weights that a layer keeps of its last call, and the caller's tensors, which it leaves alone."""

import copy
import pickle

import pytest
import torch
from references import LENGTHS, make_additive, make_layer, on_way, sequences

from mha_lib import DotProductAttention, KernelPooling
from mha_lib.attention import FusedAttention

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
    given = sequences(same_sizes=isinstance(layer, DotProductAttention | KernelPooling))
    return *(X.clone() for X in given), LENGTHS["empty rows"].clone()


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
def test_the_weights_are_those_of_the_last_call_and_detached(make):
    layer = make(0.0)
    with pytest.raises(RuntimeError, match="attention_weights: there are none"):
        _ = layer.attention_weights
    queries, keys, values, valid_lens = arguments(layer)
    layer(queries, keys, values, valid_lens)
    first = layer.attention_weights
    layer(queries + 1, keys, values)
    second = layer.attention_weights
    assert not first.requires_grad and not second.requires_grad
    assert first.shape == second.shape and not torch.equal(first, second)
    layer(queries, keys, values, valid_lens)
    assert torch.equal(layer.attention_weights, first)


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


@pytest.mark.parametrize("changed", [0, 1], ids=["queries", "keys"])
def test_an_attention_that_computes_weights_late_says_that_its_inputs_were_changed_in_place(changed):
    layer = FusedAttention()
    given = arguments(layer)
    layer(*given)
    given[changed].add_(1)
    with pytest.raises(RuntimeError, match="queries or keys were changed in place since the last call; call the layer"):
        _ = layer.attention_weights
    layer(*given)
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
    assert len(pickle.dumps(layer)) == len(pickle.dumps(twin))  # without activations
    assert layer.attention_weights is not None
    assert torch.equal(twin.eval()(*given), layer.eval()(*given))


@every_layer
def test_inference_mode(make):
    layer = make(0.0)
    given = arguments(layer)
    expected = layer(*given).detach()
    with torch.inference_mode():
        output, inside = layer(*given), layer.attention_weights
    assert torch.equal(output, expected)
    assert torch.equal(layer.attention_weights, inside)


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


def test_kept_weights_overflow_in_half_precision_where_the_kernel_does_not():
    X = torch.full((1, 2, 4), 200.0, dtype=torch.float16)  # scores of 80,000: more than float16 can hold
    assert torch.equal(FusedAttention()(X, X, X), X)
    for by_formula in (on_way(FusedAttention(), "kept"), DotProductAttention()):
        assert by_formula(X, X, X).isnan().all()
