"""Each test of the museum's panel sees what it is there to see, and nothing in layers that are right.

What is seen of each wrong way to drop weights is tried in ``test_layer_check``.
"""

import math
import re
import sys

import pytest
import torch
from changed_layers import AdditiveByLoop, afterwards, infinite_where_padded, using, variant
from torch import nn
from torch.nn import functional as F

from mha_course.checking import running
from mha_course.museum import layer_tests
from mha_course.museum.editable_layer import AdditiveLayer, Layer
from mha_lib import MultiHeadAttention


class Einsum(Layer):
    def forward(self, queries, keys, values, valid_lens):
        pairs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        Q, K, V = (W(X).unflatten(-1, (self.num_heads, -1)) for W, X in pairs)
        scores = torch.einsum("bqhf,bkhf->bhqk", Q, K) / math.sqrt(Q.shape[-1])
        padding = torch.arange(keys.shape[1]) >= valid_lens[:, None, None, None]
        self.attention_weights = torch.softmax(scores - 1e9 * padding, dim=-1) * ~padding
        return self.W_o(torch.einsum("bhqk,bkhf->bqhf", self.dropout(self.attention_weights), V).flatten(2))


class OwnLayer(MultiHeadAttention):
    """The project's layer."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0):
        sizes = dict.fromkeys(("query_size", "key_size", "value_size"), num_hiddens)
        super().__init__(num_hiddens, num_heads, dropout, **sizes)

    split_heads = Layer.split_heads
    merge_heads = Layer.merge_heads


def keeping(change):
    """A layer whose output is right, but whose weights are kept otherwise."""
    return afterwards(
        lambda self, output: (setattr(self, "attention_weights", change(self.attention_weights)), output)[1]
    )


def with_scores(change):
    """A layer whose scores are the right ones, changed."""
    return variant(scores=lambda self, Q, K: change(Layer.scores(self, Q, K)))


def shifted_by_the_batch(self, Q, K):
    return Layer.scores(self, Q, K - K.mean(dim=(0, 2), keepdim=True) + K.mean(dim=0, keepdim=True))


TwiceAsSharp, FixedScores = with_scores(lambda scores: 2 * scores), with_scores(lambda scores: 0 * scores)
NaNInEmptyRows = variant(masked_softmax=infinite_where_padded)
NaNSweptFromTheOutput = variant(
    masked_softmax=infinite_where_padded, forward=lambda self, *inputs: Layer.forward(self, *inputs).nan_to_num(0)
)
KeysOfOthers = variant(scores=lambda self, Q, K: Layer.scores(self, Q, K.roll(1, 0)))
KeysForValues = variant(
    project=lambda self, q, k, v: Layer.project(self, q, k, v if q is not k else self.W_k(v)),
)
Unmasked = variant(masked_softmax=lambda self, scores, lens: scores.softmax(-1))


def counting(self, output):
    """Add how often the layer was called before."""
    self.calls = getattr(self, "calls", -1) + 1
    return output + self.calls


InDouble = afterwards(lambda self, output: output.double())
Flattened = afterwards(lambda self, output: output.flatten(0, 1))
NoisyInTraining = afterwards(lambda self, output: output + self.training * torch.randn_like(output))


@pytest.mark.parametrize("implementation", [Layer, AdditiveLayer, Einsum, OwnLayer, AdditiveByLoop])
def test_right_layers_pass_the_whole_panel(implementation):
    assert layer_tests.run(implementation).findings == dict.fromkeys(layer_tests.TESTS)


SEEN = {  # test of the panel → layers with a bug, and what it sees
    "shape": [
        (Flattened, r"the output must be a tensor of shape \(3, 5, 8\), got a tensor of shape \(15, 8\)"),
        (InDouble, "the output must be of torch.float32, as the queries are, got torch.float64"),
        (keeping(lambda weights: weights.mean(1)), r"attention_weights must be .* \(3, 4, 5, 6\), got .*5, 6"),
        (keeping(lambda weights: None), "attention_weights must be .*, got None"),
    ],
    "round trip": [
        (variant(merge_heads=lambda self, X: Layer.merge_heads(self, X.flip(1))), "is not X"),
    ],
    "all ones": [
        (
            variant(masked_softmax=lambda *inputs: 0.9 * Layer.masked_softmax(*inputs)),
            "the output is wrong, first at example 0, token 0",
        ),
    ],
    "random reference": [
        (TwiceAsSharp, "in evaluation: the output"),
        (keeping(lambda weights: weights.flip(1)), "the output is right, but attention_w.* 0, head 0, query 0, key 0"),
        (keeping(lambda weights: None), "attention_weights must be a tensor of shape .*, got None"),
        (NaNInEmptyRows, "in evaluation: .* first at example 1, token 0, feature 0"),
        (NoisyInTraining, "in training, dropout 0: the output"),
        (using(lambda w, *_: w), " 0% of them are dropped"),
    ],
    "self attention": [(KeysForValues, "the output is wrong, first at example 0, token 0")],
    "called again": [(afterwards(counting), "a second call with other lengths differs")],
    "token perturbation": [
        (KeysOfOthers, r"token 0 in example 0 \(valid\) changes output 0 of example 1"),
        (Unmasked, r"token 2 in example 1 \(padding\) changes output 0 of example 1"),
        (FixedScores, "query 0 in example 0 does not change output 0 of example 0"),
    ],
    "gradient": [
        (with_scores(torch.Tensor.detach), "W_q.weight gets no gradient"),
        (FixedScores, "the gradient of W_q.weight is 0"),
        (NaNSweptFromTheOutput, "is not finite"),
        (variant(forward=lambda self, q, *rest: Layer.forward(self, q.detach(), *rest)), "reaches the queries"),
    ],
    "ragged batch": [
        (NaNInEmptyRows, "example 1 has no valid key, but its output is not 0"),
        (variant(scores=shifted_by_the_batch), "the output of example 0 in the batch differs"),
    ],
}


@pytest.mark.parametrize(("test", "bug", "message"), [(test, *case) for test, cases in SEEN.items() for case in cases])
def test_a_test_sees_what_it_is_there_for(test, bug, message):
    assert re.search(message, layer_tests.TESTS[test](bug) or "passes")


def test_every_test_of_the_panel_has_been_seen_red():
    assert set(SEEN) == set(layer_tests.TESTS)


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_the_formula_is_torchs_where_all_have_valid_keys_and_zero_where_none_has(num_heads):
    layer, (queries, keys, values) = Layer(8, num_heads), [torch.randn(3, n, 8) for n in (4, 5, 5)]
    mask = (torch.arange(5) < torch.tensor([[5], [2], [1]]))[:, None, None].expand(-1, num_heads, 4, -1)
    with torch.no_grad():
        heads = F.scaled_dot_product_attention(*layer.project(queries, keys, values), attn_mask=mask)
        right = layer.W_o(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer_tests.by_formula(layer, queries, keys, values, torch.tensor([5, 2, 1]))[0], right)
    for zero in layer_tests.by_formula(layer, queries, keys, values, torch.tensor([0, 2, 1])):
        assert zero[0].eq(0).all() and not zero[1].eq(0).all()


def never_end(self, *inputs):
    while True:
        pass


Raises = variant(scores=lambda self, Q, K: Q @ K)


def test_what_an_implementation_raises_is_what_a_test_sees():
    assert layer_tests.shape(Raises).startswith("it raises RuntimeError")
    assert layer_tests.round_trip(Raises) is None
    assert (
        layer_tests.shape(variant(forward=lambda self, *inputs: None))
        == "the output must be a tensor of shape (3, 5, 8), got None"
    )
    assert layer_tests.shape(variant(forward=lambda self, *inputs: sys.exit())) == "it raises SystemExit"
    assert layer_tests.shape(None).startswith("it raises TypeError")


def test_an_implementation_that_never_ends_is_cut_short(monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 0.1)
    assert layer_tests.shape(variant(forward=never_end)) == "Your code ran for more than 0.1 seconds."


def test_a_test_that_ends_sees_what_it_sees_though_others_do_not_end(monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 0.1)
    quick = {name: layer_tests.TESTS[name] for name in ("shape", "round trip")}
    wrong = variant(forward=never_end, merge_heads=lambda self, X: Layer.merge_heads(self, X) + 1)
    first, second = layer_tests.run(wrong, quick).findings.values()
    assert first == "Your code ran for more than 0.1 seconds."
    assert second and second == layer_tests.round_trip(wrong)


def test_the_panel_draws_the_same_numbers_each_time_and_leaves_the_random_state_alone(capsys):
    remembers = afterwards(lambda self, output: (print(output.sum().item()), output)[1])
    for seed in (5, 6):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        layer_tests.shape(remembers)
        assert torch.equal(torch.get_rng_state(), state)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_tests_look_at_parameters_of_their_own_making():
    class StartsAtZero(Layer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    assert layer_tests.verdict(StartsAtZero)


def test_the_verdict_names_the_tests_and_what_the_first_sees():
    verdict = layer_tests.verdict(NaNInEmptyRows)
    assert not verdict
    assert repr(verdict).startswith("… Not yet. Still caught by: random reference, gradient, ragged batch. (random")
    passed = repr(layer_tests.verdict(Einsum))
    assert passed.startswith("✓ All tests pass. The 9 tests find no fault, which does not prove the layer right.")
    raised = layer_tests.verdict(Raises)
    assert raised.state == "wrong" and raised.text == f"The tests could not run it: {layer_tests.shape(Raises)}."
    assert layer_tests.verdict(Layer(8, 4)).text == "Give the class itself; this is a Layer."


def test_a_report_has_a_line_for_each_test_and_the_matrix_says_who_catches_what():
    report = layer_tests.run(TwiceAsSharp)
    first, *lines = repr(report).splitlines()
    assert first == "The tests on Variant:" and len(lines) == len(layer_tests.TESTS)
    for line, (test, finding) in zip(lines, report.findings.items(), strict=True):
        assert line.split("  ")[1] == test and line.endswith(finding or "  passes")
    matrix = layer_tests.matrix({"right": Einsum, "sharp": TwiceAsSharp, "NaN": NaNInEmptyRows})
    header, *rows = layer_tests.as_text(matrix).splitlines()
    assert header.split() == ["right", "sharp", "NaN", "caught"]
    assert [" ".join(row.split()[:-4]) for row in rows] == list(layer_tests.TESTS)
    assert [row.split()[-4:] for row in rows[2:5]] == [list("···0"), list("·××2"), list("·×·1")]
    assert "".join(row[-1] for row in rows) == "000210110"
