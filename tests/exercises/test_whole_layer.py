"""The layer of notebook 00: right classes pass in several styles, a wrong one is told its step, and one is kept."""

import inspect
import linecache
import math

import pytest
import torch
from learners_layers import OfTheBook
from torch import nn

from mha_course import exercises, kept_work
from mha_course.exercises import whole_layer
from mha_course.exercises.whole_layer import CompleteAttention, my_layer

pytestmark = pytest.mark.usefixtures("in_this_process")
SOURCE = inspect.getsource(CompleteAttention)
SCALE, GATED = "math.sqrt(Q.shape[-1])", "heads * head_mask.repeat(len(queries)).view(-1, 1, 1)"
MERGED = "self.W_o(transpose_output(heads, h))"
LATER = "heads if head_mask is None else transpose_qkv(transpose_output(heads, h) * head_mask.repeat(Q.shape[-1]), h)"
WRONG = {  # number of the step that is named → what is replaced in the complete class
    "Step 4: no scale": (f" / {SCALE}", ""),
    "Step 4: root of num_heads": (SCALE, "math.sqrt(h)"),
    "Step 4: root of num_hiddens": (SCALE, "math.sqrt(queries.shape[-1])"),
    "Step 3: lengths": ("repeat_interleave(h, dim=0)", "repeat(h)"),
    "Step 2: split of V": ("transpose_qkv(self.W_v(values), h)", "self.W_v(values).reshape(K.shape)"),
    "Step 8: no head_mask": ("if head_mask is not None", "if False"),
    "Step 2: heads cannot be removed": ("self.num_heads", "self.h"),
    "Step 1: bias of one map": ("nn.Linear(num_hiddens, num_hiddens, bias=bias)\n        self.W_v",
                                "nn.Linear(num_hiddens, num_hiddens)\n        self.W_v"),
    "Step 6: keys averaged": ("torch.bmm(self.dropout(weights), V)", "torch.bmm(self.dropout(weights), K)"),
    "Step 4: softmax over queries": ("masked_softmax(scores, valid_lens)", "scores.softmax(1)"),
    "Step 6: no W_o": (MERGED, "transpose_output(heads, h)"),
    "Step 5: weights after dropout": ("= weights.unflatten", "= self.dropout(weights).unflatten"),
}  # fmt: skip


UNFINISHED = {  # beginning of the verdict → what is replaced in the complete class, and what else is said
    "Step 4: The layer could not be called": (
        "K.transpose(1, 2)",
        "K.mT.mT",
        "transpose the last two axes of the keys",
    ),
    "Step 4: The layer could not be called: A": (
        "torch.bmm(self.dropout(weights), V)",
        "(torch.bmm(weights, V), weights)",
        "Unpack it, as in `heads, weights = attention(…)`.",
    ),
    "Step 1: The layer could not be called": ("self.num_heads = num_heads", "", "`self.num_heads` is used, and"),
    "Step 1: The layer could not be made": ("num_heads = num_heads", "num_heads = heads", "NameError"),
    "Step 6: `forward` returns nothing so far": (f"return {MERGED}", MERGED, "`return` the output"),
}
SAID = {  # what is said of a right output without a promise → what is replaced in the complete class
    "Step 1: The output is right. With `bias=True`, W_q, W_k, W_v, W_o have no bias.": ("bias=bias", "bias=False"),
    "Step 5: The output is right. It reports no weights: `attention_weights` is not there.": (
        "self.attention_weights =",
        "weights_by_head =",
    ),
    "Step 6: The output is right. A call returns a tuple of 2, not one tensor.": (MERGED, f"{MERGED}, weights"),
    "Step 3: The output is right. A call without valid_lens raises AttributeError: 'NoneType' object has no attribute "
    "'repeat_interleave'. Without lengths, valid_lens is None.": ("if valid_lens is not None", "if True"),
}


class ByEinsum(nn.Module):
    """Four axes, a mask of its own, other names and another order of the maps."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads, self.drop = num_heads, nn.Dropout(dropout)
        self.W_o, self.W_v, self.W_k, self.W_q = (nn.Linear(num_hiddens, num_hiddens, bias=bias) for _ in range(4))

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        pairs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        Q, K, V = (W(X).unflatten(-1, (self.num_heads, -1)) for W, X in pairs)
        scores = torch.einsum("bqhp,bkhp->bhqk", Q, K) * Q.shape[-1] ** -0.5
        if valid_lens is not None:
            scores = scores.masked_fill(
                torch.arange(keys.shape[1]) >= valid_lens.view(len(queries), 1, -1, 1), -math.inf
            )
        self.attention_weights = scores.softmax(-1).nan_to_num(0)
        heads = torch.einsum("bhqk,bkhp->bqhp", self.drop(self.attention_weights), V)
        return self.W_o((heads if head_mask is None else heads * head_mask[:, None]).flatten(2))


@pytest.fixture(autouse=True)
def nothing_accepted(monkeypatch):
    monkeypatch.setattr(whole_layer, "accepted", [])
    monkeypatch.setattr(kept_work, "this_sitting", {})


def written(*changes):
    """A class as a learner writes it in a cell, with changes in the complete one: pairs, or an old and a new text."""
    changes = [changes] if changes and isinstance(changes[0], str) else changes
    namespace, name = dict(whole_layer.AT_HAND), f"<cell of a notebook {hash(tuple(changes))}>"
    source = SOURCE.replace("CompleteAttention", "MultiHeadAttention") if changes else SOURCE
    for old, new in changes:
        assert source.count(old) >= 1
        source = source.replace(old, new)
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), namespace)
    return namespace["MultiHeadAttention" if changes else "CompleteAttention"]


@pytest.mark.parametrize("Layer", [CompleteAttention, ByEinsum, OfTheBook])
def test_a_right_class_passes_both_steps_and_is_given_back(Layer):
    assert exercises.layer_by_formula(Layer) and my_layer() is CompleteAttention
    assert exercises.layer_with_head_mask(Layer) and my_layer() is Layer


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_class_is_told_its_step_and_not_given_back(what):
    Layer = written(*WRONG[what])
    verdict = exercises.layer_with_head_mask(Layer)
    assert verdict.state == "wrong" and verdict.text.startswith(what.partition(":")[0] + ":")
    assert my_layer() is CompleteAttention


@pytest.mark.parametrize("begins", UNFINISHED)
def test_an_error_is_told_with_its_step_and_what_to_write(begins):
    old, new, said = UNFINISHED[begins]
    verdict = exercises.layer_by_formula(written(old, new))
    assert verdict.state == ("not yet" if "so far" in begins else "wrong"), verdict
    assert verdict.text.startswith(begins) and said in verdict.text
    assert "`self.reshape`" not in verdict.text


BEHIND = "return self.W_o(transpose_output(heads, h)) * (1 if head_mask is None else head_mask.{}(Q.shape[-1]))"
HEAD_MASKS = {  # what is said → what is replaced in the complete class
    "Step 8: `head_mask` is applied behind `W_o`, where features no longer belong to heads.": [
        ("if head_mask is not None", "if False"),
        (f"return {MERGED}", BEHIND.format("repeat_interleave")),
    ],
    "Step 8: `head_mask` is applied behind `W_o`, where features no longer belong to heads, and repeated in the wrong "
    "order.": [("if head_mask is not None", "if False"), (f"return {MERGED}", BEHIND.format("repeat"))],
    "Step 8: `head_mask` is multiplied into the scores: with 0, a head averages all values. It belongs to the heads' "
    "outputs.": [
        ("if head_mask is not None", "if False"),
        ("weights = masked_softmax(scores,", "g = torch.ones(h) if head_mask is None else head_mask\n"
         "        weights = masked_softmax(scores * g.repeat(len(queries)).view(-1, 1, 1),"),
    ],
    "Step 8: `head_mask` is repeated in the wrong order for batch and heads (`repeat_interleave` for `repeat`): a head "
    "is multiplied by another head's number.": [("head_mask.repeat(", "head_mask.repeat_interleave(")],
    "Step 8: `head_mask` is repeated in the wrong order for the features (`repeat` for `repeat_interleave`): a head is "
    "multiplied by several numbers.": [(GATED, LATER)],
}  # fmt: skip


@pytest.mark.parametrize("text", [*SAID, *HEAD_MASKS])
def test_a_promise_that_is_not_kept_and_a_wrong_head_mask_are_told_in_one_sentence(text):
    check, changes = (
        (exercises.layer_by_formula, SAID) if text in SAID else (exercises.layer_with_head_mask, HEAD_MASKS)
    )
    verdict = check(written(*changes[text]))
    assert (verdict.state, verdict.text) == ("wrong", text)


def test_a_mistake_that_is_not_known_is_told_without_a_step():
    for change in (("weights = masked_softmax(scores, valid_lens)", "weights = masked_softmax(scores, valid_lens)[0]"),
                   (MERGED, f"{MERGED} + 0.1 * queries.sin()"),
                   (MERGED, f"{MERGED} * queries.cos()")):  # fmt: skip
        verdict = exercises.layer_by_formula(written(change))
        assert verdict.state == "wrong" and "Step" not in verdict.text, verdict


def test_the_code_of_a_line_that_raises_names_no_step():
    verdict = exercises.layer_by_formula(written((f"return {MERGED}", "return self.W_o(padding_mask_of_dropout)")))
    assert verdict.state == "wrong" and verdict.text.startswith("The layer could not be called: NameError"), verdict


@pytest.mark.parametrize(
    "signature",
    ["bias=False, dropout=0.0", "dropout, bias", "bias", "bias, dropout=0.0", "*, bias=False", "rate=0.0, bias=False",
     "*, dropout=0.0, bias=False", "**options"],
)  # fmt: skip
def test_a_class_from_memory_may_take_its_options_in_any_order(signature):
    options = "bias=options.get('bias', False)" if "options" in signature else "bias=bias"
    changes = [("num_heads, dropout=0.0, bias=False", f"num_heads, {signature}"), ("bias=bias", options)]
    Layer = written(
        *changes, ("nn.Dropout(dropout)", "nn.Dropout(0)"), (", head_mask=None", ""), ("head_mask is not None", "False")
    )
    verdict = exercises.layer_by_formula(Layer)
    assert verdict, verdict
    wrong = written(*changes, ("nn.Dropout(dropout)", "nn.Dropout(0)"), (f" / {SCALE}", ""))
    assert exercises.layer_by_formula(wrong).text.startswith("Step 4:")


@pytest.mark.parametrize("signature", ["bias=False, dropout=0.0", "*, dropout=0.0, bias=False"])
def test_the_second_step_takes_dropout_wherever_it_stands(signature):
    assert exercises.layer_with_head_mask(written(("dropout=0.0, bias=False", signature)))


@pytest.mark.parametrize("signature", ["num_heads, bias=False", "num_heads, *, bias=False", "num_heads"])
def test_the_first_step_asks_for_no_dropout_in_the_signature_and_the_second_does(signature):
    changes = [("num_heads, dropout=0.0, bias=False", signature), ("nn.Dropout(dropout)", "nn.Identity()")]
    Layer = written(*changes, *[("bias=bias", "bias=False")] * (signature == "num_heads"))
    verdict = exercises.layer_by_formula(Layer)
    if signature == "num_heads":
        assert verdict.text.startswith("Step 1: The output is right. With `bias=True` the layer cannot be made")
    else:
        assert verdict, verdict
    text = exercises.layer_with_head_mask(Layer).text
    assert text == "Step 7: `__init__` takes no `dropout`. Add it after `num_heads`."


REPEATED = "valid_lens.repeat_interleave(h, dim=0)"
BY_ROW = "valid_lens.repeat_interleave(h) if valid_lens.dim() == 1 else {}"
OF_QUERIES = {  # what is wrong with lengths (b, n) alone → what stands in place of the repeated lengths, what is said
    "flattened": ("valid_lens.repeat_interleave(h)", "query 0 of example 0"),
    "not repeated": (BY_ROW.format("valid_lens"), "raises RuntimeError"),
    "one behind the other": (BY_ROW.format("valid_lens.repeat(h, 1)"), "query 0 of example 0"),
    "of the first query": (BY_ROW.format("valid_lens[:, 0].repeat_interleave(h)"), "query 1 of example 0"),
    "of the longest": (BY_ROW.format("valid_lens.amax(1).repeat_interleave(h)"), "is not masked by its own length"),
    "in reverse": (BY_ROW.format("valid_lens.flip(1).repeat_interleave(h, dim=0)"), "query 0 of example 0"),
}
RIGHT_LENGTHS = [
    "torch.stack([valid_lens] * h, dim=1).flatten(0, 1)",
    "valid_lens[torch.arange(len(queries)).repeat_interleave(h)]",
    "torch.cat([length.expand(h, *length.shape) for length in valid_lens])",
]


def softmax_of_the_notebook(scores, valid_lens=None):
    """Unlike the library's, it takes lengths of any shape that has one for each row or each matrix of scores."""
    if valid_lens is not None:
        lengths = valid_lens.view(len(scores), -1, 1)
        scores = scores.masked_fill(torch.arange(scores.shape[-1]) >= lengths, -math.inf)
    return scores.softmax(dim=-1)


@pytest.mark.parametrize("what", OF_QUERIES)
def test_a_class_that_takes_one_length_for_each_query_in_the_wrong_way_is_told_step_3(what, monkeypatch):
    monkeypatch.setitem(whole_layer.AT_HAND, "masked_softmax", softmax_of_the_notebook)
    wrong, told = OF_QUERIES[what]
    verdict = exercises.layer_by_formula(written(REPEATED, wrong))
    begins = "Step 3: Right with `valid_lens` of the shape (b,), wrong with (b, n), one length for each query."
    assert verdict.state == "wrong" and verdict.text.startswith(begins) and told in verdict.text, verdict
    assert "along axis 0 (`dim=0`), from (2, 4) to (6, 4)" in verdict.text


def test_the_second_step_asks_for_one_length_for_each_query_too():
    verdict = exercises.layer_with_head_mask(written(REPEATED, "valid_lens.repeat_interleave(h)"))
    assert verdict.text.startswith("Step 3:") and "your class raises ValueError: valid_lens must have" in verdict.text


def test_the_kept_weights_of_each_query_are_masked_by_its_own_length():
    weights = "weights.unflatten(0, (-1, h))"
    wrong = f"({weights}.flip(2) if valid_lens is not None and valid_lens.dim() == 2 else {weights})"
    assert exercises.layer_by_formula(written(weights, wrong)).text.startswith("Step 3: Right with `valid_lens`")


@pytest.mark.parametrize("repeated", RIGHT_LENGTHS)
def test_lengths_may_be_repeated_for_the_heads_in_any_way(repeated):
    assert exercises.layer_with_head_mask(written(REPEATED, repeated))


def test_dropout_is_no_matter_of_the_first_step():
    Layer = written("self.dropout(weights)", "weights")
    assert "ropout" not in exercises.layer_by_formula(Layer).text
    text = "Step 7: The output is right. `dropout` has no effect."
    assert exercises.layer_with_head_mask(Layer).text == text


def test_dropout_that_evaluation_does_not_turn_off_is_a_matter_of_dropout():
    changes = ("nn.Dropout(dropout)", "(lambda weights: F.dropout(weights, dropout))")
    for check in (exercises.layer_by_formula, exercises.layer_with_head_mask):
        text = check(written(changes)).text
        assert text.startswith("Step 7: In evaluation, the same call gives another output each time."), text
        assert text.endswith("`F.dropout` needs `training=self.training`.")


def test_of_a_class_of_the_first_step_the_second_asks_for_its_first_missing_step():
    class OfTheFirstStep(CompleteAttention):
        def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
            self.dropout.eval()
            return super().forward(queries, keys, values, valid_lens)

    assert exercises.layer_with_head_mask(OfTheFirstStep).text.startswith("Step 7:")


def test_a_size_that_stays_when_heads_are_removed_is_named():
    Layer = written(SCALE, "math.sqrt(self.W_o.in_features // h)")
    assert exercises.layer_by_formula(Layer)
    text = exercises.layer_with_head_mask(Layer).text
    assert "Right with all heads, wrong when two of three heads are kept" in text
    assert "Take p from `Q.shape[-1]`, not from `num_hiddens // num_heads`." in text and "self.num_heads" not in text


def test_a_stub_is_not_yet_an_answer():
    class MultiHeadAttention(nn.Module):
        def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
            super().__init__()

        def forward(self, queries, keys, values, valid_lens=None, head_mask=None): ...

    assert exercises.layer_by_formula(MultiHeadAttention).state == "not yet"
    assert exercises.layer_with_head_mask(3).state == "wrong"


def test_a_class_is_kept_as_source_for_the_next_kernel(monkeypatch):
    Layer = written("h = self.num_heads", "h = self.num_heads + 0")
    assert exercises.layer_with_head_mask(Layer)
    kept = kept_work.this_sitting[whole_layer.KEPT_AS]["text"]
    assert "h = self.num_heads + 0" in kept
    monkeypatch.setattr(whole_layer, "accepted", [])
    assert my_layer().__name__ == "MultiHeadAttention"
    kept_work.keep(whole_layer.KEPT_AS, {"text": kept.replace(SCALE, "3")})
    monkeypatch.setattr(whole_layer, "accepted", [])
    assert my_layer() is CompleteAttention


def test_the_complete_class_is_shown_unless_worked_answers_are_off(monkeypatch):
    monkeypatch.delenv("MHA_SOLUTIONS", raising=False)
    assert "repeat_interleave" in repr(exercises.complete_layer())
    monkeypatch.setenv("MHA_SOLUTIONS", "off")
    assert "repeat_interleave" not in repr(exercises.complete_layer()) and my_layer() is CompleteAttention
