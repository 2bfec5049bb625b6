"""A learner's half-written class: the check says what to write next, and looks at what later sections need."""

import math

import pytest
import torch
from torch import nn

from mha_course.exercises import check_layer

CORE = {"head_mask": True, "promises": ("weights", "bias", "output", "no_lengths")}
here = pytest.mark.usefixtures("in_this_process")


class Natural(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=bias) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def split(self, X):
        return X.reshape(X.shape[0], X.shape[1], self.num_heads, -1).transpose(1, 2)

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        Q, K, V = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.split(self.W_v(values))
        s = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
        if valid_lens is not None:
            s = s.masked_fill(torch.arange(keys.shape[1])[None].ge(valid_lens[:, None])[:, None, None], -1e9)
        self.attention_weights = s.softmax(-1)
        H = self.dropout(self.attention_weights) @ V
        H = self.gate(H, head_mask)
        return self.W_o(H.transpose(1, 2).flatten(2))

    def gate(self, H, m):
        return H if m is None else H * m[:, None, None]


class EmptyZero(Natural):
    def forward(self, q, k, v, valid_lens=None, head_mask=None):
        out = super().forward(q, k, v, valid_lens, head_mask)
        return out if valid_lens is None else out * (valid_lens > 0)[:, None, None]


class Pass(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        pass

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        pass


class Dots(nn.Module):
    """Doc."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        """Doc."""
        ...

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        """Doc."""
        ...


class Raises(Pass):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        raise NotImplementedError


class OnlyInit(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None): ...


class OnlyForward(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()

    forward = Natural.forward


class Names(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(num_hiddens, num_hiddens) for _ in range(4))

    split = Natural.split

    def forward(self, queries, keys, values, valid_lens):
        Q, K, V = self.split(self.query(queries)), self.split(self.key(keys)), self.split(self.value(values))
        return self.out((torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1) @ V).transpose(1, 2).flatten(2))


class NoDropout(Natural):
    def __init__(self, num_hiddens, num_heads):
        super().__init__(num_hiddens, num_heads, 0.0)


class NoLens(Natural):
    def forward(self, queries, keys, values):
        return super().forward(queries, keys, values)


class NoSuper(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout):
        self.W_q = nn.Linear(num_hiddens, num_hiddens)

    def forward(self, queries, keys, values, valid_lens):
        return queries


class NoReturn(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        super().forward(queries, keys, values, valid_lens)


class NotModule:
    def __init__(self, num_hiddens, num_heads, dropout):
        pass

    def forward(self, queries, keys, values, valid_lens):
        return queries


class OneHead(Natural):
    def split(self, X):
        return X[:, None]


class ReturnsHeads(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        Q, K, V = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.split(self.W_v(values))
        return (Q @ K.mT).softmax(-1) @ V


class SplitV(Natural):
    def split(self, X):
        self.n = getattr(self, "n", -1) + 1
        return super().split(X) if self.n % 3 < 2 else X.reshape(X.shape[0], self.num_heads, X.shape[1], -1)


class MatmulError(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        Q, K, _V = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.split(self.W_v(values))
        return Q @ K


class NoMaskYet(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return super().forward(queries, keys, values, None, head_mask)


class GateRepeat(Natural):
    def gate(self, H, m):
        if m is None:
            return H
        X = H.transpose(1, 2).flatten(2)
        return (X * m.repeat(X.shape[-1] // len(m))).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class GateIgnored(Natural):
    def gate(self, H, m):
        return H


class GateNone(Natural):
    def forward(self, queries, keys, values, valid_lens=None):
        return super().forward(queries, keys, values, valid_lens)


class GateInit(Natural):
    def gate(self, H, m):
        return H * m[:, None, None]


class NoBias(Natural):
    def __init__(self, num_hiddens, num_heads, dropout):
        super().__init__(num_hiddens, num_heads, dropout)


class BiasNotO(Natural):
    def __init__(self, n, h, d=0.0, bias=False):
        super().__init__(n, h, d, bias)
        self.W_o = nn.Linear(n, n, bias=False)


class NoWeights(Natural):
    def forward(self, *a, **k):
        out = super().forward(*a, **k)
        del self.attention_weights
        return out


class Tuple(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return super().forward(queries, keys, values, valid_lens, head_mask), self.attention_weights


class LensNeeded(Natural):
    def forward(self, queries, keys, values, valid_lens, head_mask=None):
        valid_lens = 1 * valid_lens
        return super().forward(queries, keys, values, valid_lens, head_mask)


class Typo(Natural):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return self.W_o(hedas)  # noqa: F821


class InitTypo(Natural):
    def __init__(self, num_hiddens, num_heads, dropout):
        super().__init__(num_hiddens, num_head, dropout)  # noqa: F821


SAID = {  # class → what is said of it
    Pass: "`forward` of `Pass` is still empty",
    Dots: "`__init__` of `Dots` is still empty",
    Raises: "`forward` of `Raises` is still empty",
    OnlyInit: "`forward` of `OnlyInit` is still empty",
    OnlyForward: "The layer has no W_q, W_k, W_v, W_o.",
    Names: "`matrices=lambda layer: (layer.query, layer.key, layer.value, layer.out)`",
    NoDropout: "is called with (num_hiddens, num_heads, dropout), and it takes (num_hiddens, num_heads)",
    NoLens: "`forward` takes no valid_lens",
    NoSuper: "`super().__init__()` is missing",
    NoReturn: "`forward` returns nothing so far",
    NotModule: "write `class NotModule(nn.Module):`",
    OneHead: "There is only one head, which compares all features",
    ReturnsHeads: "Merge the heads, and apply W_o.",
    SplitV: "Only the values are split by a reshape without a transpose.",
    MatmulError: "transpose the last two axes of the keys",
    NoMaskYet: "The mask has no effect.",
    GateRepeat: "`head_mask` is repeated in the wrong order",
    GateIgnored: "`head_mask` has no effect.",
    GateNone: "The output is right. It cannot be called with head_mask",
    GateInit: "An argument that is left out is None.",
    NoBias: "The output is right. With `bias=True` ",
    BiasNotO: "With `bias=True`, W_o has no bias.",
    NoWeights: "The output is right. It reports no weights",
    Tuple: "The output is right. A call returns a tuple of 2",
    LensNeeded: "A call without valid_lens raises",
    Typo: "NameError: name 'hedas' is not defined",
    InitTypo: "The layer could not be made: NameError",
}
UNWRITTEN = (Pass, Dots, Raises, OnlyInit, OnlyForward, Names, NoDropout, NoLens, NoReturn, NotModule)
MISSING = (NoBias, BiasNotO, NoWeights, Tuple, LensNeeded)


@here
@pytest.mark.parametrize("unfinished", SAID, ids=lambda layer: layer.__name__)
def test_a_half_written_class_is_told_what_to_write_next(unfinished):
    verdict = check_layer(unfinished, **CORE)
    assert SAID[unfinished] in verdict.text, verdict
    assert verdict.state == ("not yet" if unfinished in UNWRITTEN else "wrong"), verdict


@here
@pytest.mark.parametrize("finished", [Natural, EmptyZero])
def test_a_finished_class_passes(finished):
    assert check_layer(finished, **CORE)


@here
@pytest.mark.parametrize("unfinished", MISSING)
def test_what_is_not_promised_is_not_asked_for(unfinished):
    assert check_layer(unfinished)


@here
def test_an_instance_a_function_and_an_unknown_promise_are_refused():
    assert "Give the class itself, `Natural`" in check_layer(Natural(4, 2, 0.0)).text
    assert "it takes (self, X)" in check_layer(Natural.split).text
    with pytest.raises(ValueError, match=r"promises must be of weights, .*; got mask"):
        check_layer(Natural, promises=("mask",))


@here
def test_a_failure_of_the_check_is_not_the_layers(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("by accident")

    monkeypatch.setattr("mha_course.museum.layer_check.wrong_stages", fail)
    verdict = check_layer(Natural)
    assert verdict.state == "not yet" and "says nothing about the layer: RuntimeError: by accident" in verdict.text
