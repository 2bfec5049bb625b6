"""Bugs found in published teaching code, planted by overriding: the formula catches every one."""

import math

import pytest
import torch
from references import CASES, LENGTHS, SIZES, check, sequences
from torch import nn

from mha_lib.attention import AdditiveAttention, DotProductAttention, MultiHeadAttention, masked_softmax


def softmax_by(change):
    """A layer whose heads treat scores and mask (None, or True at valid keys) in their own way."""

    class Changed(DotProductAttention):
        def weights(self, queries, keys, mask=None):
            return change(self.scores(queries, keys), mask)

    return lambda: MultiHeadAttention(8, 4, bias=True, attention=Changed(), **SIZES)


def filled_by(value):
    return softmax_by(
        lambda scores, mask: torch.softmax(scores if mask is None else scores.masked_fill(~mask, value), -1)
    )


class WrongReshape(MultiHeadAttention):
    def project(self, queries, keys, values):
        projected = self.W_q(queries), self.W_k(keys), self.W_v(values)
        return tuple(X.reshape(len(X), self.num_heads, X.shape[1], self.head_size) for X in projected)


class RepeatedLengths(MultiHeadAttention):
    """Heads folded into the batch as in the book's layer, but lengths in the wrong order."""

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        if valid_lens is not None:
            lengths = valid_lens.repeat(self.num_heads, *[1] * (valid_lens.dim() - 1)).unflatten(
                0, (-1, self.num_heads)
            )
            lengths = lengths[..., None, None] if valid_lens.dim() == 1 else lengths[..., None]
            valid_lens = dict(attn_mask=torch.arange(keys.shape[1]) < lengths)
        return super().forward(queries, keys, values, head_mask=head_mask, **valid_lens or {})


class ScaledByAll(DotProductAttention):
    def scores(self, queries, keys):
        return queries @ keys.mT / math.sqrt(queries.shape[-1] * queries.shape[1])


class NoTanh(AdditiveAttention):
    def scores(self, queries, keys):
        return self.w_v(self.W_q(queries).unsqueeze(-2) + self.W_k(keys).unsqueeze(-3)).squeeze(-1)


class DropoutLeftOut(DotProductAttention):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()


BUGS = {
    "reshape without permute": lambda: WrongReshape(8, 4, bias=True, **SIZES),
    "masked scores set to 0": filled_by(0.0),
    "additive scores without tanh": lambda: NoTanh(8, query_size=7, key_size=9),
    "repeat for repeat_interleave": lambda: RepeatedLengths(8, 4, bias=True, **SIZES),
    "the dropout rate left out": lambda: MultiHeadAttention(8, 4, attention=DropoutLeftOut(), **SIZES),
    "softmax over the queries": softmax_by(lambda scores, mask: masked_softmax(scores, attn_mask=mask).softmax(dim=-2)),
    "scaled by the size of all heads": lambda: MultiHeadAttention(8, 4, attention=ScaledByAll(), **SIZES),
    "mask inverted": softmax_by(lambda scores, mask: masked_softmax(scores, attn_mask=None if mask is None else ~mask)),
    "mask after softmax": softmax_by(lambda scores, mask: scores.softmax(-1) * (1 if mask is None else mask)),
    "−∞ in a row without valid keys": filled_by(-math.inf),
    "−1e6 for −∞": filled_by(-1e6),
}


def caught(make):
    """Whether a check of any case fails."""
    cases = [dict(valid_lens=lens) for lens in LENGTHS.values()] if "NoTanh" in repr(make()) else CASES.values()
    for case in cases:
        torch.manual_seed(0)
        try:
            check(make().double(), *sequences(), **case)
        except AssertionError:
            return True
    return False


@pytest.mark.filterwarnings("ignore:attn_mask is True at the last keys:UserWarning")  # of the inverted mask, rightly
@pytest.mark.parametrize("bug", BUGS)
def test_the_formula_catches_the_bug(bug):
    assert caught(BUGS[bug])


def test_overriding_without_a_bug_passes():
    assert not caught(softmax_by(lambda scores, mask: masked_softmax(scores, attn_mask=mask)))
