"""Anybody's layer: the right ones pass, a wrong one is told which bug it looks like, with the smallest example."""

import json
import math
import re
import sys
import time

import pytest
import torch
from changed_layers import AdditiveByLoop, afterwards, infinite_where_padded, using, variant
from torch import nn
from torch.nn import functional as F

from mha_lib import MultiHeadAttention
from mha_lib.attention import converters
from mha_lib.checking import running
from mha_lib.exercises import assert_layer, check_layer
from mha_lib.museum.editable_layer import AdditiveLayer, Layer
from mha_lib.museum.layer_check import KNOWN, attention_output
from mha_lib.museum.layer_tests import by_formula

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


@here
def test_torch_layer_passes_where_every_example_has_a_key():
    assert check_layer(torch_layer, torch_output, torch_matrices, empty_rows=False)
    verdict = check_layer(torch_layer, torch_output, torch_matrices)
    assert "without a valid key gets NaN" in verdict.text


@here
def test_d2l_layer_passes_where_every_example_has_a_key():
    try:
        d2l = converters.load_d2l()
    except ImportError as error:
        pytest.skip(str(error))

    def make(size, heads, dropout):
        return d2l.MultiHeadAttention(size, heads, dropout)

    verdict = check_layer(make, converters.call_d2l, empty_rows=False)
    assert verdict, verdict
    assert "average of its padding" in check_layer(make, converters.call_d2l).text


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


WRONG = {  # layer → what is said of it
    "dropout that stays on": (
        using(lambda w, p, _: F.dropout(w, p)),
        "in evaluation, .*another output each time, as if dropout were on",
    ),
    "no rescaling": (using(lambda w, p, on: w * keep(w.shape, p) if on else w), "multiplied by 1.000 instead of 1.333"),
    "0.2 for 0.25": (
        using(lambda w, p, on: F.dropout(w, 0.8 * p, on)),
        "2[01]% of the weights are dropped|multiplied by 1.250",
    ),
    "0.24 for 0.25": (using(lambda w, p, on: F.dropout(w, 0.96 * p, on)), "multiplied by 1.316 instead of 1.333"),
    "the right factor, too few": (
        using(lambda w, p, on: w * keep(w.shape, 0.8 * p) / (1 - p) if on else w),
        "20% of the weights are dropped",
    ),
    "no dropout": (using(lambda w, p, on: w), "0% of the weights are dropped"),
    "what is kept for what is dropped": (
        using(lambda w, p, on: F.dropout(w, 1 - p, on) if p else w),
        "75% of the weights",
    ),
    "one mask for all heads": (
        using(lambda w, p, on: w * keep(w[:, :1].shape, p) / (1 - p) if on else w),
        "weights of different heads are dropped together",
    ),
    "one mask for all queries": (
        using(lambda w, p, on: w * keep(w[:, :, :1].shape, p) / (1 - p) if on else w),
        "weights of different queries are dropped together",
    ),
    "rows of weights": (
        using(lambda w, p, on: w * keep(w[..., :1].shape, p) / (1 - p) if on else w),
        "weights of different keys are dropped together",
    ),
    "whole heads": (
        heads_that(lambda X, drop: X * drop(torch.ones_like(X[:, :, :1, :1]))),
        "of different queries are dropped together",
    ),
    "features of the heads": (heads_that(lambda X, drop: drop(X)), "neither dropped nor multiplied by what"),
    "values": (ValuesDropped, "neither dropped nor multiplied by what"),
    "output": (afterwards(lambda self, output: F.dropout(output, 0.25, self.training)), "neither dropped nor mult"),
    "scores": (ScoresDropped, "neither dropped nor multiplied by what"),
    "rows sum to 1 again": (
        using(lambda w, p, on: F.normalize(F.dropout(w, p, on), p=1, dim=-1)),
        "neither dropped nor multiplied by what",
    ),
    "detached weights": (using(lambda w, p, on: F.dropout(w.detach(), p, on)), "gradient of W_q is 0: it cannot learn"),
    "detached keys": (variant(scores=lambda self, Q, K: Layer.scores(self, Q, K.detach())), "gradient of W_k is 0"),
    "detached input": (
        variant(forward=lambda self, q, *others: Layer.forward(self, q.detach(), *others)),
        "no gradient reaches the queries",
    ),
    "float64": (afterwards(lambda self, output: output.double()), "must be of torch.float32, .* got torch.float64"),
    "bfloat16": (afterwards(lambda self, output: output.bfloat16()), "must be of torch.float32, .* got torch.bfloat16"),
    "another shape": (
        afterwards(lambda self, output: output.flatten(1)),
        r"of shape \(1, 2, 4\), got a tensor of shape \(1, 8\)|of shape \(1, 1, 2\), got a tensor of shape \(1, 2\)",
    ),
    "nothing": (afterwards(lambda self, output: None), r"must be a tensor of shape \(1, 1, 2\), got None"),
    "a list": (afterwards(lambda self, output: [output]), "got a list"),
    "in place": (InPlace, "changes what it is given in place"),
    "noise in evaluation": (
        afterwards(
            lambda self, output: output + 1e-3 * torch.randn_like(output) * (not self.training and self.dropout.p > 0)
        ),
        "another output each time",
    ),
    "noise in training": (
        afterwards(lambda self, output: output + self.training * torch.randn_like(output)),
        "neither dropped",
    ),
    "uniform weights": (telling(lambda w: torch.full_like(w, 1 / w.shape[-1])), "weights"),
    "weights of other examples": (telling(lambda w: w.flip(0)), "output is right, but attention_weights"),
    "weights, heads averaged": (telling(lambda w: w.mean(1)), r"the weights .* must be a tensor of shape"),
    "weights after dropout": (using(lambda w, p, on: F.dropout(w, p, on, inplace=True)), "not those before dropout"),
    "additive, uniform weights": (
        telling(lambda w: torch.full_like(w, 1 / w.shape[-1]), AdditiveLayer),
        "attention_weights",
    ),
    "additive, NaN in empty rows": (
        variant(AdditiveLayer, masked_softmax=infinite_where_padded),
        "without a valid key gets NaN",
    ),
    "additive, unmasked": (
        variant(AdditiveLayer, masked_softmax=lambda self, scores, _: scores.softmax(-1)),
        "Padding is not masked",
    ),
    "softmax over heads": (
        masked_softmax(lambda scores, valid: scores.masked_fill(~valid, -1e9).softmax(1) * valid),
        "runs over the heads",
    ),
    "queries masked": (
        variant(
            masked_softmax=lambda self, scores, lens: scores.masked_fill(by_queries(scores, lens), -1e9).softmax(-1)
        ),
        "mask lies on the queries",
    ),
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
    """A layer of somebody else's: other names, one stacked matrix, its lengths by keyword, and a bug if it is given."""

    def __init__(self, size, heads, formula, additive):
        super().__init__()
        self.heads, self.formula = heads, formula
        self.wqkv, self.out = nn.Parameter(torch.randn(3 * size, size)), nn.Parameter(torch.randn(size, size))
        self.extra = nn.Parameter(torch.randn(heads, size // heads)) if additive else None

    def forward(self, k, q, v, *, lengths):
        return self.formula(q, k, v, lengths, *self.wqkv.chunk(3), self.out, self.extra, self.heads)


def verdict_on(formula, additive=False):
    return check_layer(
        make=lambda size, heads, dropout: Named(size, heads, formula, additive),
        call=lambda layer, queries, keys, values, valid_lens: layer(keys, queries, values, lengths=valid_lens),
        matrices=lambda layer: (*layer.wqkv.chunk(3), layer.out, *[layer.extra] * additive),
    )


@here
@pytest.mark.parametrize("number", range(len(KNOWN.mistakes)))
def test_a_bug_is_named_with_an_example(number):
    text, wrong = KNOWN.mistakes[number]
    verdict = verdict_on(wrong, additive="tanh" in text)
    assert (verdict.state, verdict.text) == ("wrong", text)
    assert verdict.evidence and verdict.inputs is not None


@here
@pytest.mark.parametrize("additive", [False, True])
def test_the_formula_that_names_bugs_is_the_one_that_judges(additive):
    layer = (AdditiveLayer if additive else Layer)(8, 4)
    inputs = *(torch.randn(3, n, 8) for n in (4, 5, 5)), torch.tensor([5, 0, 2])
    matrices = [W.weight for W in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    named = attention_output(*inputs, *matrices, layer.w_v if additive else None, 4)
    torch.testing.assert_close(named, by_formula(layer, *inputs)[0])


@here
def test_the_example_is_the_smallest_that_shows_it():
    verdict = verdict_on(lambda *inputs: 2 * attention_output(*inputs))
    queries, keys = verdict.inputs[:2]
    assert queries.shape == (1, 1, 2) and keys.shape == (1, 2, 2)
    assert "2 times what it should be" in verdict.text
    assert "queries (1, 1, 2), keys (1, 2, 2), valid_lens [2], num_heads 1" in verdict.evidence


@here
def test_an_unknown_bug_is_shown_by_its_example():
    verdict = verdict_on(lambda *inputs: attention_output(*inputs) ** 3 + 0.3)
    assert "none of the bugs that this check knows" in verdict.text
    place, got, right = re.search(r"at (\[.*?\]) is (\S+) instead of (\S+);", verdict.evidence).groups()
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"make": sleep}, "did not come back"),
        ({"make": loop}, "ran for more than 0.3 seconds"),
        ({"make": leave}, "could not be made or called: SystemExit"),
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
def test_a_layer_that_cannot_be_made_is_no_bug_yet():
    verdict = check_layer(lambda size, heads, dropout: nn.MultiheadAttention(size))
    assert verdict.state == "not yet" and "TypeError" in verdict.text


@here
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"make": lambda *_: Layer}, "`make` must give an nn.Module"),
        (
            {"matrices": lambda layer: [layer.W_q.weight] * 3},
            "`matrices` must give 4 tensors, or 5 with w_v; this gives 3",
        ),
        ({"matrices": lambda layer: [layer.W_q] * 4}, "W_q from `matrices` must be a tensor of shape"),
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
