"""Trained weights in layers of other classes: the same answers, or a sentence that names what the class lacks."""

import pytest
import torch
from learners_layers import FixedSizes, LoopOverHeads, OfTheBook, OtherNames, TwoResults, WithoutGates
from on_device import DEVICE
from torch import nn

from mha_course.models import find_task, shipped_model, to_grouped, with_layer
from mha_lib.attention import MultiHeadAttention

FITTING = [OfTheBook, WithoutGates, FixedSizes, LoopOverHeads]


@pytest.mark.parametrize("task", ["lookups", "dates", "digits"])
@pytest.mark.parametrize("Layer", [*FITTING, MultiHeadAttention], ids=lambda Layer: Layer.__name__)
def test_a_shipped_model_answers_the_same_with_a_learners_layer(Layer, task):
    model, examples = shipped_model(task), find_task(task).held_out[:8].to(DEVICE)
    inside = with_layer(model, Layer)
    assert [type(attention) for attention in inside.attentions] == [Layer] * len(model.blocks)
    with torch.no_grad():
        torch.testing.assert_close(
            inside(examples.inputs, examples.valid_lens), model(examples.inputs, examples.valid_lens),
            rtol=1e-4, atol=1e-4,
        )  # fmt: skip
    assert not inside.training and type(model.attentions[0]) is MultiHeadAttention


@pytest.mark.parametrize("Layer", [OfTheBook, WithoutGates], ids=lambda Layer: Layer.__name__)
def test_gates_of_the_whole_batch_and_of_each_example_reach_a_learners_layer(Layer):
    model, examples = shipped_model("lookups"), find_task("lookups").held_out[:4].to(DEVICE)
    inside = with_layer(model, Layer)
    for shape in [(2, 6), (4, 2, 6)]:
        gates = torch.rand(shape)
        with torch.no_grad():
            expected = model(examples.inputs, examples.valid_lens, gates)
            torch.testing.assert_close(
                inside(examples.inputs, examples.valid_lens, gates), expected, rtol=1e-4, atol=1e-4
            )


def test_a_layer_replaces_a_learners_own_after_a_call_and_draws_nothing():
    task = find_task("lookups")
    model = with_layer(task.model(), OfTheBook)
    model(task.held_out[:2].to(DEVICE).inputs)  # keeps weights that have a gradient, which torch does not copy
    before = torch.get_rng_state()
    again = with_layer(model, WithoutGates)
    assert torch.equal(before, torch.get_rng_state())
    torch.testing.assert_close(again.attentions[0].W_k.weight, model.attentions[0].W_k.weight, rtol=0, atol=0)
    assert again.attentions[0].W_k.weight is not model.attentions[0].W_k.weight


def test_weights_of_a_learners_layer():
    task = find_task("lookups")
    inputs = task.held_out[:3].to(DEVICE).inputs
    model, inside = shipped_model("lookups"), with_layer(shipped_model("lookups"), OfTheBook)
    model(inputs), inside(inputs)
    for ours, theirs in zip(model.attention_weights, inside.attention_weights, strict=True):
        torch.testing.assert_close(theirs, ours.detach(), rtol=1e-4, atol=1e-5)
        assert not theirs.requires_grad
    with pytest.raises(TypeError, match=r"WithoutGates must keep its weights in forward: self.attention_weights = …"):
        _ = with_layer(model, WithoutGates).attention_weights


def test_maps_with_a_bias_by_default_get_zeros_where_the_trained_ones_have_none():
    model = nn.ModuleDict({"block": nn.Module()})
    model["block"].attention = MultiHeadAttention(6, 3, query_size=6, key_size=6, value_size=6)
    made = with_layer(model, LoopOverHeads)["block"].attention
    X = torch.randn(2, 4, 6)
    torch.testing.assert_close(made(X, X, X), model["block"].attention(X, X, X))


class NoBias(OfTheBook):
    def __init__(self, num_hiddens, num_heads):
        super().__init__(num_hiddens, num_heads)


class WithNorm(OfTheBook):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__(num_hiddens, num_heads, dropout, bias)
        self.norm = nn.LayerNorm(num_hiddens)


class Narrow(OfTheBook):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__(num_hiddens // 2, num_heads, dropout, bias)


class NeedsMore(OfTheBook):
    def __init__(self, num_hiddens, num_heads, max_len):
        super().__init__(num_hiddens, num_heads)


@pytest.mark.parametrize(
    ("Layer", "error", "sentence"),
    [
        (OtherNames, TypeError, "OtherNames must have W_q, W_k, W_v and W_o, each an nn.Linear with a bias, for the "
         "trained weights; missing: W_q.weight.*there are: q_proj.weight"),
        (NoBias, TypeError, "NoBias must have .* with a bias, .*missing: W_q.bias"),
        (WithNorm, ValueError, "WithNorm has parameters for which the trained layer has no values: norm.weight"),
        (Narrow, ValueError, r"W_q.weight of Narrow must have shape \(48, 48\), got \(24, 24\)"),
        (NeedsMore, TypeError, r"Layer must be made by NeedsMore\(48, 6\): .*max_len"),
    ],
)  # fmt: skip
def test_what_a_class_lacks_for_the_weights_is_named(Layer, error, sentence):
    with pytest.raises(error, match=sentence):
        with_layer(shipped_model("lookups"), Layer)


class OneSequence(OfTheBook):
    def forward(self, X, head_mask=None):
        return super().forward(X, X, X, None, head_mask)


class WithMask(OfTheBook):
    def forward(self, queries, keys, values, mask=None):
        return super().forward(queries, keys, values)


@pytest.mark.parametrize(
    ("Layer", "sentence"),
    [
        (
            TwoResults,
            r"TwoResults.forward must return the output alone, \(batch, num_queries, num_hiddens\), got tuple",
        ),
        (OneSequence, r"OneSequence.forward must take queries, keys and values, got \(X, head_mask\)"),
        (WithMask, r"WithMask.forward must take valid_lens, .* fourth argument, got \(queries, keys, values, mask\)"),
    ],
)
def test_what_a_class_lacks_for_a_call_is_named(Layer, sentence):
    examples = find_task("dates").held_out[:2].to(DEVICE)
    with pytest.raises(TypeError, match=sentence):
        with_layer(shipped_model("dates"), Layer)(examples.inputs, examples.valid_lens)


def test_models_without_plain_attention_are_refused():
    with pytest.raises(ValueError, match="num_key_value_heads=2, num_heads=6"):
        with_layer(to_grouped(shipped_model("lookups"), 2), OfTheBook)
    with pytest.raises(ValueError, match="blocks with an attention of heads, got Linear"):
        with_layer(nn.Linear(2, 2), OfTheBook)

    class Rotary(MultiHeadAttention):
        pass

    model = shipped_model("lookups")
    model.blocks["layer 1"].attention = Rotary(48, 6, bias=True)
    with pytest.raises(ValueError, match=r"plain multi-head attention .* got Rotary"):
        with_layer(model, OfTheBook)
