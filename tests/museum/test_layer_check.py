"""Anybody's layer: the right ones pass, a wrong one is told which bug it looks like, with the smallest example."""

import json
import math
import re
import sys
import time

import pytest
import torch
from changed_layers import AdditiveByLoop, afterwards, using, variant
from torch import nn
from torch.nn import functional as F

from mha_course.checking import running
from mha_course.exercises import assert_layer, check_layer
from mha_course.museum.editable_layer import AdditiveLayer, Layer
from mha_course.museum.layer_reference import by_formula
from mha_course.museum.layer_trials import formula
from mha_course.museum.wrong_attention import attention, wrong_attentions
from mha_lib import MultiHeadAttention
from mha_lib.attention import converters

pytestmark = pytest.mark.quarter
here = pytest.mark.usefixtures("in_this_process")


def ours(size, heads, dropout):
    return MultiHeadAttention(size, heads, dropout, query_size=size, key_size=size, value_size=size)


def torch_layer(size, heads, dropout):
    return nn.MultiheadAttention(size, heads, dropout, bias=False, batch_first=True)


def torch_matrices(layer):
    return (*layer.in_proj_weight.chunk(3), layer.out_proj.weight)


def torch_output(layer, *inputs):
    return converters.call_torch(layer, *inputs)[0]  # its weights are those after dropout


def valid(keys, valid_lens):
    return torch.arange(keys.shape[1]) < valid_lens[:, None, None, None]


class Head(nn.Module):
    def __init__(self, size, head_size):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, head_size, bias=False) for _ in range(3))


class HeadByHead(nn.Module):
    """Each head has linear maps of its own, and walks through the examples."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads = nn.ModuleList(Head(size, size // heads) for _ in range(heads))
        self.out, self.drop = nn.Linear(size, size, bias=False), nn.Dropout(dropout)

    def forward(self, queries, keys, values, valid_lens):
        examples = []
        for q, k, v, length in zip(queries, keys, values, valid_lens.tolist(), strict=True):
            parts = []
            for head in self.heads:
                scores = head.query(q) @ head.key(k[:length]).T / head.query.out_features**0.5
                parts.append(self.drop(scores.softmax(-1)) @ head.value(v[:length]))
            examples.append(self.out(torch.cat(parts, -1)))
        return torch.stack(examples)

    def matrices(self):
        names = "query", "key", "value"
        return *(torch.cat([getattr(head, name).weight for head in self.heads]) for name in names), self.out.weight


class Kernel(nn.Module):
    """One stacked matrix of buffers, torch's kernel, and (length, batch, size) inside."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.register_buffer("stacked", torch.randn(4 * size, size) / 2)

    def forward(self, queries, keys, values, valid_lens):
        *W, W_o = self.stacked.chunk(4)
        Q, K, V = (
            F.linear(X, w).unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
            for X, w in zip((queries, keys, values), W, strict=True)
        )
        mask = (torch.arange(keys.shape[0]) < valid_lens[:, None])[:, None, None]
        heads = F.scaled_dot_product_attention(Q, K, V, mask, dropout_p=self.rate if self.training else 0.0)
        return F.linear((heads * mask.any(-1, keepdim=True)).permute(2, 0, 1, 3).flatten(2), W_o)


class Folded(nn.Module):
    """Heads folded into the batch, maps whose sizes are found in the first call, dropout by a mask of its own."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.q, self.k, self.v, self.o = (nn.LazyLinear(size, bias=False) for _ in range(4))

    def fold(self, X):
        return (
            X.reshape(*X.shape[:2], self.heads, -1)
            .permute(0, 2, 1, 3)
            .reshape(-1, X.shape[1], X.shape[2] // self.heads)
        )

    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.fold(self.q(queries)), self.fold(self.k(keys)), self.fold(self.v(values))
        lengths = torch.repeat_interleave(valid_lens, self.heads)[:, None, None]
        padding = torch.arange(keys.shape[1]) >= lengths
        weights = (
            torch.bmm(Q / math.sqrt(Q.shape[-1]), K.transpose(1, 2)).masked_fill(padding, -1e9).softmax(-1) * ~padding
        )
        kept = torch.bernoulli(torch.full_like(weights, 1 - self.rate)) / (1 - self.rate) if self.training else 1
        heads = torch.bmm(weights * kept, V).reshape(-1, self.heads, queries.shape[1], V.shape[-1])
        return self.o(heads.permute(0, 2, 1, 3).flatten(2)), weights.unflatten(0, (-1, self.heads))


class Blockwise(Layer):
    """A softmax that reads keys in blocks, and corrects what it has added up, or forgets to."""

    corrected, block = True, 2

    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        scores = self.scores(Q, K).masked_fill(~valid(keys, valid_lens), -1e9)
        top = torch.full_like(scores[..., :1], -math.inf)
        bar, total = torch.zeros_like(top), torch.zeros_like(Q)
        for part, v in zip(scores.split(self.block, -1), V.split(self.block, -2), strict=True):
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            old = (top - new).exp() if self.corrected else 1
            powers = (part - new).exp()
            bar, total, top = bar * old + powers.sum(-1, keepdim=True), total * old + self.dropout(powers) @ v, new
        return self.W_o(self.merge_heads(total / bar * (valid_lens > 0)[:, None, None, None]))


class Transposed(nn.Module):
    """Matrices that stand on the right, and names for all axes; the weights are a part of the result."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.W, self.heads, self.drop = nn.Parameter(torch.randn(4, size, size)), heads, nn.Dropout(dropout)

    def forward(self, inputs, valid_lens):
        Q, K, V = ((X @ W).unflatten(-1, (self.heads, -1)) for X, W in zip(inputs, self.W, strict=False))
        scores = torch.einsum("bqhf,bkhf->bhqk", Q, K) / Q.shape[-1] ** 0.5
        weights = torch.softmax(scores - 1e9 * ~valid(K, valid_lens), dim=-1) * valid(K, valid_lens)
        return torch.einsum("bhqk,bkhf->bqhf", self.drop(weights), V).flatten(2) @ self.W[3], weights


RIGHT = {
    "ours": (ours,),
    "the museum's": (Layer,),
    "additive": (AdditiveLayer,),
    "additive, key by key": (AdditiveByLoop,),
    "head by head": (HeadByHead, lambda layer, *inputs: layer(*inputs), HeadByHead.matrices),
    "torch's kernel, buffers, batch second": (
        Kernel,
        lambda layer, *inputs: layer(*(X.transpose(0, 1) for X in inputs[:3]), inputs[3]).transpose(0, 1),
        lambda layer: layer.stacked.chunk(4),
    ),
    "folded and lazy, own dropout": (
        Folded,
        lambda layer, *inputs: layer(*inputs),
        lambda layer: (layer.q.weight, layer.k.weight, layer.v.weight, layer.o.weight),
    ),
    "blockwise": (Blockwise,),
    "transposed, a pair": (
        Transposed,
        lambda layer, *inputs: layer(inputs[:3], inputs[3]),
        lambda layer: [W.T for W in layer.W],
    ),
}


@here
@pytest.mark.parametrize("name", RIGHT)
def test_right_layers_pass(name):
    verdict = check_layer(*RIGHT[name])
    assert verdict, verdict


NO_ZEROS = {"torch": "gets NaN", "d2l": "gets an average of its padding"}


@here
@pytest.mark.parametrize("name", NO_ZEROS)
def test_what_an_example_without_a_key_gets_is_a_note_and_a_promise(name):
    given = (torch_layer, torch_output, torch_matrices)
    if name == "d2l":
        try:
            d2l = converters.load_d2l()
        except ImportError as error:
            pytest.skip(str(error))
        given = (lambda size, heads, dropout: d2l.MultiHeadAttention(size, heads, dropout), converters.call_d2l)
    verdict, promised = check_layer(*given), check_layer(*given, promises=["empty_rows"])
    assert verdict and NO_ZEROS[name] in verdict.text
    assert not promised and NO_ZEROS[name] in promised.text


@here
def test_torch_layer_with_its_defaults_is_right_and_its_habits_are_notes():
    def call(layer, queries, keys, values, valid_lens):
        return layer(queries, keys, values, key_padding_mask=torch.arange(keys.shape[1]) >= valid_lens[:, None])

    verdict = check_layer(
        lambda size, heads, dropout: nn.MultiheadAttention(size, heads, dropout, batch_first=True),
        call,
        lambda layer: [*layer.in_proj_weight.chunk(3), layer.out_proj],
    )
    assert verdict, verdict
    for note in ("with biases", "averaged over the heads", "gets NaN", "Dropout acts on the weights."):
        assert note in verdict.text


def telling(change, base=Layer):
    """A layer whose output is right, and whose reported weights are not."""
    return afterwards(lambda self, output: (output, change(self.attention_weights)), base)


def heads_that(change):
    """A layer whose dropout is not on the weights, but on what comes out of the heads, (b, h, q, f)."""

    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        self.attention_weights = self.masked_softmax(self.scores(Q, K), valid_lens)
        return self.W_o(self.merge_heads(change(self.attention_weights @ V, self.dropout)))

    return variant(forward=forward)


def dropping_scores(self, queries, keys, values, valid_lens):
    """The forward pass with dropout on the scores, and none on the weights."""
    Q, K, V = self.project(queries, keys, values)
    return self.W_o(self.merge_heads(self.masked_softmax(self.dropout(self.scores(Q, K)), valid_lens) @ V))


def masked_softmax(change):
    """A layer with another masked softmax: (scores, valid) -> weights."""
    return variant(
        masked_softmax=lambda self, scores, lens: change(
            scores, torch.arange(scores.shape[-1]) < lens[:, None, None, None]
        )
    )


def keep(shape, rate):
    return (torch.rand(shape) >= rate).float()


def by_queries(scores, valid_lens):
    return torch.arange(scores.shape[-2])[:, None] >= valid_lens[:, None, None, None]


class ValuesDropped(Layer):
    def project(self, *inputs):
        Q, K, V = super().project(*inputs)
        return Q, K, self.dropout(V)


class Fairseqs(Layer):
    """Heads and examples in one axis, cut again in the wrong order."""

    def merge_heads(self, X):
        batch_size, heads, queries, size = X.shape
        folded = X.reshape(batch_size * heads, queries, size)
        return super().merge_heads(folded.view(heads, batch_size, queries, size).transpose(0, 1))


class ScoresDropped(Layer):
    def scores(self, Q, K):
        return self.dropout(super().scores(Q, K))


class InPlace(Layer):
    def forward(self, queries, keys, values, valid_lens):
        return super().forward(queries, keys, values.mul_(1), valid_lens) + 0 * values.mul_(2).sum()


DROPS = {  # layer → what is said of its dropout, in a note or where it is promised
    "no rescaling": (using(lambda w, p, on: w * keep(w.shape, p) if on else w), "multiplied by 1.000 instead of 1.333"),
    "0.2 for 0.25": (
        using(lambda w, p, on: F.dropout(w, 0.8 * p, on)),
        "(19|20|21)% of them are dropped|multiplied by 1.250",
    ),
    "0.24 for 0.25": (using(lambda w, p, on: F.dropout(w, 0.96 * p, on)), "multiplied by 1.316 instead of 1.333"),
    "the right factor, too few": (
        using(lambda w, p, on: w * keep(w.shape, 0.8 * p) / (1 - p) if on else w),
        "20% of them are dropped|19% of them|21% of them",
    ),
    "no dropout": (using(lambda w, p, on: w), "`dropout` has no effect"),
    "what is kept for what is dropped": (
        using(lambda w, p, on: F.dropout(w, 1 - p, on) if p else w),
        "7[456]% of them",
    ),
    "one mask for all heads": (
        using(lambda w, p, on: w * keep(w[:, :1].shape, p) / (1 - p) if on else w),
        "those of different heads are dropped together",
    ),
    "one mask for all queries": (
        using(lambda w, p, on: w * keep(w[:, :, :1].shape, p) / (1 - p) if on else w),
        "those of different queries are dropped together",
    ),
    "rows of weights": (
        using(lambda w, p, on: w * keep(w[..., :1].shape, p) / (1 - p) if on else w),
        "those of different keys are dropped together",
    ),
    "whole heads": (
        heads_that(lambda X, drop: X * drop(torch.ones_like(X[:, :, :1, :1]))),
        "those of different queries are dropped together",
    ),
    "features of the heads": (heads_that(lambda X, drop: drop(X)), "neither dropped nor multiplied by what"),
    "values": (ValuesDropped, "neither dropped nor multiplied by what"),
    "output": (afterwards(lambda self, output: F.dropout(output, 0.25, self.training)), "acts on the output"),
    "scores": (ScoresDropped, "neither dropped nor multiplied by what"),
    "rows sum to 1 again": (
        using(lambda w, p, on: F.normalize(F.dropout(w, p, on), p=1, dim=-1)),
        "neither dropped nor multiplied by what",
    ),
    "noise in training": (
        afterwards(lambda self, output: output + self.training * torch.randn_like(output)),
        "neither dropped",
    ),
}
OTHER_MODES = {  # layer that is right in evaluation without dropout alone → what is said
    "scores in training": (
        variant(scores=lambda self, Q, K: Layer.scores(self, Q, K) * (1 + self.training)),
        "training",
    ),
    "no padding in training": (
        variant(
            masked_softmax=lambda self, s, lens: s.softmax(-1) if self.training else Layer.masked_softmax(self, s, lens)
        ),
        "training",
    ),
    "scaled in evaluation": (using(lambda w, p, on: F.dropout(w, p) if on else w * (1 - p)), "evaluation"),
}
REPORTS = {  # layer → what is said of the weights that it reports, in a note or where they are promised
    "uniform weights": (telling(lambda w: torch.full_like(w, 1 / w.shape[-1])), "not those of the formula"),
    "weights of other examples": (telling(lambda w: w.flip(0)), "not those of the formula"),
    "weights, heads averaged": (telling(lambda w: w.mean(1)), "averaged over the heads"),
    "weights, one head": (telling(lambda w: w[:, :1]), "have the shape"),
    "weights after dropout": (using(lambda w, p, on: F.dropout(w, p, on, inplace=True)), "those after dropout"),
    "additive, uniform weights": (
        telling(lambda w: torch.full_like(w, 1 / w.shape[-1]), AdditiveLayer),
        "not those of the formula",
    ),
    "no weights": (HeadByHead, "reports no weights"),
}
OUTPUTS = {  # layer → what is said of its output, in a note or where it is promised
    "float64": (afterwards(lambda self, output: output.double()), "torch.float64 where the input is torch.float32"),
    "a tuple": (afterwards(lambda self, output: (output,)), "A call returns (a )?tuple"),
}


@pytest.mark.parametrize("name", OTHER_MODES)
def test_a_layer_that_is_another_in_training_or_where_it_is_made_with_dropout_is_wrong(name):
    layer, mode = OTHER_MODES[name]
    verdict = check_layer(layer)
    assert verdict.state == "wrong" and f"The output is right, but not in {mode}" in verdict.text, verdict


PROMISES = {"dropout": DROPS, "weights": REPORTS, "output": OUTPUTS}


@here
@pytest.mark.parametrize(("promise", "name"), [(promise, name) for promise, of in PROMISES.items() for name in of])
def test_what_is_promised_is_missed(promise, name):
    layer, said = PROMISES[promise][name]
    verdict = check_layer(layer, promises=(promise,))
    assert verdict.state == "wrong" and promise in verdict.text.lower() and re.search(said, verdict.text), verdict


@here
@pytest.mark.parametrize("promise", PROMISES)
def test_what_is_not_promised_is_no_mistake_and_a_note(promise):
    layer, said = next(iter(PROMISES[promise].values()))
    verdict = check_layer(layer)
    assert verdict and re.search(said, verdict.text), verdict


WRONG = {  # layer → what is said of it
    "detached weights": (
        using(lambda w, p, on: F.dropout(w.detach(), p, on)),
        "reaches W_q.weight, W_k.weight",
    ),
    "detached keys": (
        variant(scores=lambda self, Q, K: Layer.scores(self, Q, K.detach())),
        "W_k.weight, the keys",
    ),
    "detached input": (
        variant(forward=lambda self, q, *others: Layer.forward(self, q.detach(), *others)),
        "no gradient reaches the queries",
    ),
    "in place": (InPlace, "changes what it is given in place"),
    "additive, unmasked": (
        variant(AdditiveLayer, masked_softmax=lambda self, scores, _: scores.softmax(-1)),
        "The mask has no effect",
    ),
    "softmax over heads": (
        masked_softmax(lambda scores, valid: scores.masked_fill(~valid, -1e9).softmax(1) * valid),
        "runs over the heads",
    ),
    "queries masked": (
        variant(
            masked_softmax=lambda self, scores, lens: scores.masked_fill(by_queries(scores, lens), -1e9).softmax(-1)
        ),
        "it is on the queries",
    ),
    "dropout that stays on": (using(lambda w, p, _: F.dropout(w, p)), "gives another output each time"),
    "noise in evaluation": (
        afterwards(
            lambda self, output: output + 1e-3 * torch.randn_like(output) * (not self.training and self.dropout.p > 0)
        ),
        "gives another output each time",
    ),
    "signs of scores": (variant(scores=lambda self, Q, K: Layer.scores(self, Q, K).abs()), "lose their signs"),
    "dropout in evaluation": (using(lambda w, p, on: F.dropout(w, 0.2)), "gives another output each time"),
    "dropout on the scores": (variant(forward=dropping_scores), "dropout acts before the softmax"),
    "batch and heads": (Fairseqs, "Examples and heads are exchanged"),
    "blocks of 1, not corrected": (variant(Blockwise, corrected=False, block=1), "reads keys in blocks"),
    "blocks of 64, not corrected": (variant(Blockwise, corrected=False, block=64), "reads keys in blocks"),
    "no largest score": (
        masked_softmax(lambda s, valid: s.exp() * valid / (s.exp() * valid).sum(-1, True).clamp(min=1e-30)),
        "overflow",
    ),
}


@here
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layer_is_told_what_is_wrong(name):
    layer, said = WRONG[name]
    verdict = check_layer(layer)
    assert verdict.state == "wrong" and re.search(said, verdict.text, re.IGNORECASE), verdict


class Named(nn.Module):
    """A layer of somebody else's: other names, one stacked matrix with biases, and a bug if it is given."""

    def __init__(self, size, heads, wrong, additive):
        super().__init__()
        self.heads, self.wrong = heads, wrong
        self.in_weight, self.in_bias = nn.Parameter(torch.randn(3 * size, size)), nn.Parameter(torch.randn(3 * size))
        self.out = nn.Linear(size, size)
        self.extra = nn.Parameter(torch.randn(heads, size // heads)) if additive else None

    def forward(self, k, q, v, *, lengths):
        allowed = torch.arange(k.shape[1]) < lengths[:, None, None, None]
        biases = dict(zip(("b_q", "b_k", "b_v"), self.in_bias.chunk(3), strict=True), b_o=self.out.bias, w_v=self.extra)
        return self.wrong(q, k, v, allowed, *self.in_weight.chunk(3), self.out.weight, self.heads, **biases)


def verdict_on(wrong, additive=False, promises=()):
    return check_layer(
        promises=promises,
        make=lambda size, heads, dropout: Named(size, heads, wrong, additive),
        call=lambda layer, queries, keys, values, valid_lens: layer(keys, queries, values, lengths=valid_lens),
        matrices=lambda layer: (*layer.in_weight.chunk(3), layer.out, *[layer.extra] * additive),
    )


@here
@pytest.mark.parametrize("number", range(len(wrong_attentions())))
def test_a_row_of_the_table_is_named_as_itself(number):
    text, wrong = wrong_attentions()[number]
    verdict = verdict_on(wrong, additive="tanh in" in text or "of tanh" in text)
    if "It raises" in verdict.text:  # it works with one sequence alone: see the layers of all kinds
        assert text.startswith(("Batch and sequence", "The weights are transposed", "Attention runs over the heads"))
        return
    assert verdict.state == "wrong" and (text in verdict.text or alike(wrong, verdict, text)), verdict
    assert verdict.evidence and verdict.inputs is not None


def alike(wrong, verdict, text):
    """Whether another row is named that gives the same everywhere."""
    *inputs, given = verdict.inputs
    others = [other for said, other in wrong_attentions() if said in verdict.text]
    return any(torch.allclose(other(*inputs, **given), wrong(*inputs, **given)) for other in others)


@here
@pytest.mark.parametrize("additive", [False, True])
def test_the_formula_that_names_bugs_is_the_one_that_judges(additive):
    layer = (AdditiveLayer if additive else Layer)(8, 4)
    inputs, lengths = [torch.randn(3, n, 8) for n in (4, 5, 5)], torch.tensor([5, 0, 2])
    matrices = [W.weight for W in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    allowed = torch.arange(5) < lengths[:, None, None, None]
    named = formula(*inputs, allowed, *matrices, 4, {"w_v": layer.w_v if additive else None})
    torch.testing.assert_close(named, by_formula(layer, *inputs, lengths)[0])


@here
def test_an_unknown_bug_is_shown_by_its_example_the_smallest():
    def unknown(*inputs, **given):
        return attention(*inputs, **given) ** 3 + 0.3

    neutral, verdict = verdict_on(unknown), verdict_on(unknown, promises=["formula"])
    assert neutral.state == "other" and "Nothing on the check's list explains it" in neutral.text
    assert verdict.state == "wrong" and verdict.text == "Wrong in every call."
    queries, keys = verdict.inputs[:2]
    assert queries.shape == (1, 2, 2) and keys.shape == (1, 3, 2)
    assert "queries (1, 2, 2), keys (1, 3, 2), valid_lens [3], num_heads 1" in verdict.evidence
    place, got, right = re.search(r"at (\[.*?\]) is (\S+) instead of (\S+)\.", verdict.evidence).groups()
    assert verdict.got[tuple(json.loads(place))].item() == pytest.approx(float(got), rel=1e-3)
    assert verdict.expected[tuple(json.loads(place))].item() == pytest.approx(float(right), rel=1e-3)
    assert "hint" not in verdict.next_step


def sleep(*_):
    time.sleep(60)


def loop(*_):
    while True:
        pass


def leave(*_):
    sys.exit()


def in_training(self, queries, *others):
    return loop() if self.training and len(queries) > 1 else Layer.forward(self, queries, *others)


def in_large_batches(self, queries, *others):
    return loop() if len(queries) > 8 else Layer.forward(self, queries, *others)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"make": variant(forward=in_large_batches)}, "Your code ran for more than 0.3 seconds."),
        ({"make": sleep}, "did not return"),
        ({"make": loop}, "ran for more than 0.3 seconds"),
        ({"make": leave}, "could not be made: SystemExit"),
        ({"call": loop}, "ran for more"),
        ({"matrices": leave}, "SystemExit"),
        ({"make": variant(forward=in_training)}, "ran for more"),
    ],
)
def test_code_that_does_not_come_back_gets_a_verdict(given, said, monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 0.3)
    if given == {"make": sleep}:
        monkeypatch.setattr(running, "PATIENCE", 0.5)
    verdict = check_layer(**{"make": Layer, **given})
    assert not verdict and said in verdict.text, verdict


@here
def test_a_layer_with_too_little_room_for_the_long_call_is_right_and_told_what_it_raises():
    def forward(self, queries, keys, values, valid_lens):
        return Layer.forward(self, queries, keys, values, valid_lens) + 0 * torch.zeros(1, 64, 1)[:, : queries.shape[1]]

    verdict = check_layer(variant(forward=forward))
    assert verdict and "A call with 300 tokens raises RuntimeError" in verdict.text
    assert "many keys" not in verdict.evidence
    wrong = check_layer(variant(forward=forward, scores=lambda self, Q, K: Q @ K.mT))
    assert "not divided by" in wrong.text, wrong


@here
def test_a_layer_that_cannot_be_made_is_wrong_and_the_error_is_told():
    verdict = check_layer(lambda size, heads, dropout: nn.MultiheadAttention(size))
    assert verdict.state == "wrong" and "TypeError" in verdict.text


@here
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"make": lambda *_: Layer}, "`make` must give an nn.Module"),
        (
            {"matrices": lambda layer: [layer.W_q.weight] * 3},
            "`matrices` must give W_q, W_k, W_v and W_o, or these and w_v; this gives 3",
        ),
        ({"matrices": lambda layer: [layer.W_q.weight[0]] * 4}, "W_q from `matrices` must be a matrix or an nn.Linear"),
    ],
)
def test_what_is_handed_over_wrongly_is_named(arguments, said):
    assert said in check_layer(**{"make": Layer, **arguments}).text


@here
def test_a_failing_test_says_which_bug():
    assert_layer(Layer)
    with pytest.raises(AssertionError, match="not divided by"):
        assert_layer(variant(scores=lambda self, Q, K: Q @ K.mT))


@here
def test_the_state_of_the_random_numbers_stays():
    before = torch.get_rng_state()
    check_layer(Layer)
    assert torch.equal(torch.get_rng_state(), before)
