"""Anybody's layer: the right ones pass, a wrong one is told which bug it looks like, with the smallest example."""

import json
import re

import pytest
import torch
from torch import nn

from mha_lib import MultiHeadAttention
from mha_lib.attention import other_libraries
from mha_lib.exercises.check_layer import (
    FORMULA,
    WITHOUT_KEYS,
    additive_output,
    assert_layer,
    attention_output,
    check_layer,
)
from mha_lib.exercises.editable_layer import AdditiveLayer, Layer

pytestmark = pytest.mark.usefixtures("in_this_process")


def ours(size, heads, dropout):
    return MultiHeadAttention(size, heads, dropout, query_size=size, key_size=size, value_size=size)


def torch_layer(size, heads, dropout):
    return nn.MultiheadAttention(size, heads, dropout, bias=False, batch_first=True)


def torch_matrices(layer):
    return (*layer.in_proj_weight.chunk(3), layer.out_proj.weight)


def torch_output(layer, *inputs):
    return other_libraries.call_torch(layer, *inputs)[0]  # its weights are those after dropout


@pytest.mark.parametrize("make", [ours, Layer, AdditiveLayer])
def test_right_layers_pass(make):
    assert check_layer(make), check_layer(make)
    assert_layer(make)


def test_torch_layer_passes_where_every_example_has_a_key():
    assert check_layer(torch_layer, torch_output, torch_matrices, empty_rows=False)
    verdict = check_layer(torch_layer, torch_output, torch_matrices)
    assert "without a valid key gets NaN" in verdict.text


def test_d2l_layer_passes_where_every_example_has_a_key():
    try:
        d2l = other_libraries.load_d2l()
    except ImportError as error:
        pytest.skip(str(error))

    def make(size, heads, dropout):
        return d2l.MultiHeadAttention(size, heads, dropout)

    verdict = check_layer(make, other_libraries.call_d2l, empty_rows=False)
    assert verdict, verdict
    assert "average of its padding" in check_layer(make, other_libraries.call_d2l).text


class Named(nn.Module):
    """A layer of somebody else's: other names, one stacked matrix, its lengths by keyword, and a bug if it is given."""

    def __init__(self, size, heads, formula):
        super().__init__()
        self.heads, self.formula = heads, formula
        self.wqkv, self.out = nn.Parameter(torch.randn(3 * size, size)), nn.Parameter(torch.randn(size, size))
        self.extra = nn.Parameter(torch.randn(heads, size // heads))

    def forward(self, k, q, v, *, lengths):
        extra = [self.extra] if self.formula.__name__ == "additive_output" else []
        return self.formula(q, k, v, lengths, *self.wqkv.chunk(3), self.out, *extra, self.heads)


def verdict_on(formula, **options):
    def matrices(layer):
        extra = [layer.extra] if formula.__name__ == "additive_output" else []
        return (*layer.wqkv.chunk(3), layer.out, *extra)

    return check_layer(
        make=lambda size, heads, dropout: Named(size, heads, formula),
        call=lambda layer, queries, keys, values, valid_lens: layer(keys, queries, values, lengths=valid_lens),
        matrices=matrices,
        **options,
    )


CASES = [
    pytest.param(text, wrong, id=f"{name}-{number}")
    for name, check in {"formula": FORMULA, "additive": additive_output, "without keys": WITHOUT_KEYS}.items()
    for number, (text, wrong) in enumerate(check.mistakes)
]


@pytest.mark.parametrize(("text", "wrong"), CASES)
def test_a_bug_is_named_with_an_example(text, wrong):
    verdict = verdict_on(wrong)
    assert (verdict.state, verdict.text) == ("wrong", text)
    assert verdict.evidence and verdict.inputs is not None


def test_the_example_is_the_smallest_that_shows_it():
    verdict = verdict_on(lambda *inputs: 2 * attention_output(*inputs))
    queries, keys = verdict.inputs[:2]
    assert queries.shape == (1, 1, 2) and keys.shape == (1, 2, 2)
    assert "2 times what it should be" in verdict.text
    assert "queries (1, 1, 2), keys (1, 2, 2), valid_lens [2], num_heads 1" in verdict.evidence


def test_an_unknown_bug_is_shown_by_its_example():
    verdict = verdict_on(lambda *inputs: attention_output(*inputs) ** 3 + 0.3)
    assert "none of the bugs that this check knows" in verdict.text
    place, got, right = re.search(r"at (\[.*?\]) is (\S+) instead of (\S+);", verdict.evidence).groups()
    assert verdict.got[tuple(json.loads(place))].item() == pytest.approx(float(got), rel=1e-3)
    assert verdict.expected[tuple(json.loads(place))].item() == pytest.approx(float(right), rel=1e-3)
    assert "hint" not in verdict.next_step


def test_dropout_that_never_arrives_is_named():
    assert "0% of the weights are dropped" in verdict_on(attention_output).text


class AfterDropout(Layer):
    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        self.attention_weights = self.dropout(self.masked_softmax(self.scores(Q, K), valid_lens))
        return self.W_o(self.merge_heads(self.attention_weights @ V))


class OfAnotherCall(Layer):
    def forward(self, *inputs):
        output = super().forward(*inputs)
        self.attention_weights = self.attention_weights.flip(0)
        return output


def test_weights_that_are_not_those_used_are_named():
    assert "those after dropout" in check_layer(AfterDropout).text
    assert "not those that it used" in check_layer(OfAnotherCall).text


def test_a_layer_that_cannot_be_made_is_no_bug_yet():
    verdict = check_layer(lambda size, heads, dropout: nn.MultiheadAttention(size))
    assert verdict.state == "not yet" and "TypeError" in verdict.text


def test_a_failing_test_says_which_bug():
    class NoScale(Layer):
        def scores(self, Q, K):
            return Q @ K.mT

    with pytest.raises(AssertionError, match="not divided by"):
        assert_layer(NoScale)


def test_the_state_of_the_random_numbers_stays():
    before = torch.get_rng_state()
    check_layer(Layer)
    assert torch.equal(torch.get_rng_state(), before)
