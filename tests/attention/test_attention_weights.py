"""The weights that a layer keeps of its last call, and the caller's tensors, which it leaves alone."""

import copy
import pickle

import pytest
import torch
from references import cases, make_additive, make_layer, random_numbers
from torch import nn

from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention, attention
from mha_lib.attention import FusedAttention

CASE = cases()["empty rows"]


def keeping(layer: nn.Module) -> nn.Module:
    """The layer, its weights kept by every call."""
    getattr(layer, "attention", layer).keep_weights = True
    return layer


LAYERS = {
    "multi-head": lambda dropout: make_layer(attention, CASE, dropout),
    "multi-head, kept": lambda dropout: keeping(make_layer(attention, CASE, dropout)),
    "additive": lambda dropout: make_additive(attention, CASE, dropout),
    "dot product": DotProductAttention,
    "fused": FusedAttention,
    "fused, kept": lambda dropout: keeping(FusedAttention(dropout)),
    "kernel": lambda dropout: KernelPooling().double(),
}
every_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def arguments(layer: nn.Module) -> tuple[torch.Tensor, ...]:
    same_sizes = isinstance(layer, DotProductAttention | KernelPooling)
    return tuple(X.clone() for X in (CASE.same_sizes if same_sizes else CASE).arguments)


@every_layer
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("training", [True, False])
def test_a_call_writes_to_none_of_its_arguments(make, dropout, training):
    layer = make(dropout).train(training)
    given = arguments(layer)
    before = [X.clone() for X in given]
    layer(*given)
    assert layer.attention_weights is not None
    for X, then in zip(given, before, strict=True):
        assert torch.equal(X, then)
        assert X._version == 0


@every_layer
def test_the_weights_are_those_of_the_last_call_and_detached(make):
    layer = make(0.0)
    queries, keys, values, valid_lens = arguments(layer)
    layer(queries, keys, values, valid_lens)
    first = layer.attention_weights
    layer(queries + 1, keys, values)
    second = layer.attention_weights
    assert not first.requires_grad
    assert first.shape == second.shape
    assert not torch.equal(first, second)
    layer(queries, keys, values, valid_lens)
    assert torch.equal(layer.attention_weights, first)


@every_layer
def test_the_weights_do_not_follow_lengths_and_values_changed_later(make):
    layer = make(0.0)
    queries, keys, values, valid_lens = arguments(layer)
    layer(queries, keys, values, valid_lens)
    before = layer.attention_weights.clone()
    valid_lens.fill_(1)
    values.zero_()
    assert torch.equal(layer.attention_weights, before)


def test_the_weights_of_a_projecting_layer_do_not_follow_inputs_or_parameters_changed_later():
    layer = make_layer(attention, CASE)
    given = arguments(layer)
    layer(*given)
    before = layer.attention_weights
    with torch.no_grad():
        for X in (*given, *layer.parameters()):
            X.zero_()
    assert torch.equal(layer.attention_weights, before)


@pytest.mark.parametrize("changed", ["queries", "keys"])
def test_an_attention_that_computes_weights_late_says_that_its_inputs_were_changed_in_place(changed):
    layer = FusedAttention()
    queries, keys, values, valid_lens = arguments(layer)
    layer(queries, keys, values, valid_lens)
    {"queries": queries, "keys": keys}[changed].add_(1)
    with pytest.raises(RuntimeError, match="queries or keys were changed in place since the last call; call the layer"):
        _ = layer.attention_weights
    layer(queries, keys, values, valid_lens)
    assert layer.attention_weights.shape == (3, 5, 6)


@every_layer
def test_before_the_first_call_there_are_none(make):
    with pytest.raises(RuntimeError, match="attention_weights: there are none"):
        _ = make(0.0).attention_weights


@every_layer
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_after_a_training_step_work_and_leave_the_weights_behind(make, copied):
    layer = make(0.5).train()
    given = arguments(layer)
    layer(*(X.requires_grad_(X.is_floating_point()) for X in given)).sum().backward()
    twin = copied(layer)
    with pytest.raises(RuntimeError, match="nor does a copy of a layer"):
        _ = twin.attention_weights
    assert layer.attention_weights is not None
    assert torch.equal(twin.eval()(*given), layer.eval()(*given))


def test_a_pickle_holds_no_activations():
    layer = FusedAttention()
    empty = len(pickle.dumps(layer))
    X = random_numbers(1, 1000, 10)
    layer(X, X, X)
    assert len(pickle.dumps(layer)) == empty


@every_layer
def test_inference_mode(make):
    layer = make(0.0)
    given = arguments(layer)
    expected = layer(*given).detach()
    with torch.inference_mode():
        output = layer(*given)
        inside = layer.attention_weights
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


def test_weights_are_computed_when_they_are_first_read_and_no_second_time(computed):
    layer = make_layer(attention, CASE)
    for number_of_calls in (1, 2):
        layer(*arguments(layer))
        assert len(computed) == number_of_calls - 1
        first = layer.attention_weights
        assert torch.equal(layer.attention_weights, first)
        assert len(computed) == number_of_calls


def test_weights_that_were_read_do_not_follow_queries_changed_later():
    layer = FusedAttention()
    queries, keys, values, valid_lens = (X.clone() for X in CASE.same_sizes.arguments)
    layer(queries, keys, values, valid_lens)
    before = layer.attention_weights.clone()
    queries.zero_()
    assert torch.equal(layer.attention_weights, before)


@pytest.mark.parametrize(("dropout", "factor"), [(0.0, 1), (0.5, 2)])
@pytest.mark.parametrize("num_tokens", [6, 256])
def test_keeping_the_weights_changes_no_result(dropout, factor, num_tokens):
    given = [random_numbers(3, 2, num_tokens, 4) for _ in range(3)]
    valid_lens = torch.tensor([num_tokens, 0, 2])
    results = []
    for layer in (FusedAttention(dropout), keeping(FusedAttention(dropout))):
        layer.dropout.forward = lambda weights: factor * weights
        sequences = [X.clone().requires_grad_() for X in given]
        output = layer.train(dropout > 0)(*sequences, valid_lens)
        output.backward(given[0])
        results.append((output, layer.attention_weights, *(X.grad for X in sequences)))
    torch.testing.assert_close(results[0], results[1])


def test_kept_weights_overflow_in_half_precision_where_the_kernel_does_not():
    X = torch.full((1, 2, 4), 200.0, dtype=torch.float16)  # scores of 80,000: more than float16 can hold
    assert torch.equal(FusedAttention()(X, X, X), X)
    for by_formula in (keeping(FusedAttention()), DotProductAttention()):
        assert by_formula(X, X, X).isnan().all()


@pytest.mark.parametrize("gradients", [True, False])
def test_kept_weights_are_computed_once_and_stay_when_the_queries_change(computed, gradients):
    layer = keeping(FusedAttention())
    queries, keys, values, valid_lens = arguments(layer)
    with torch.set_grad_enabled(gradients):
        layer(queries, keys, values, valid_lens)
    before = layer.attention_weights.clone()
    queries.zero_()
    assert torch.equal(layer.attention_weights, before)
    assert len(computed) == 1


def test_the_parameters_have_the_names_of_the_book():
    assert list(MultiHeadAttention(8, 4, bias=True).state_dict()) == [
        f"{W}.{kind}" for W in ("W_q", "W_k", "W_v", "W_o") for kind in ("weight", "bias")
    ]
    assert sorted(AdditiveAttention(8).state_dict()) == ["W_k.weight", "W_q.weight", "w_v.weight"]
