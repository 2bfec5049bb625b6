"""Bugs found in published teaching code, planted by overriding: the reference checks catch every one.

For contrast: a check of shapes misses them all, and a check on all-ones input misses some.
"""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from references import all_ones, assert_same_shape, hold_against_the_formula, random_numbers
from torch import Tensor, nn

from mha_lib import attention


def planted(
    softmax: Callable = lambda scores, mask: attention.masked_softmax(scores, attn_mask=mask),
    dot_product: Callable = attention.DotProductAttention.scores,
    additive: Callable = attention.AdditiveAttention.scores,
    multi_head: type = attention.MultiHeadAttention,
    mixin: type = object,
) -> SimpleNamespace:
    """The library with some parts replaced: the softmax of scores and a mask or None, scores as methods, the layer."""

    class Weights:
        def weights(self, queries, keys, mask=None):
            return softmax(self.scores(queries, keys), mask)

    class Change(mixin):
        """What comes before the methods of both attentions."""

    class DotProduct(Change, Weights, attention.DotProductAttention):
        scores = dot_product

    class Additive(Change, Weights, attention.AdditiveAttention):
        scores = additive

    class MultiHead(multi_head):
        def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False, **sizes):
            super().__init__(num_hiddens, num_heads, bias=bias, attention=DotProduct(dropout), **sizes)

    def masked_softmax(scores: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        return softmax(scores, None if valid_lens is None else attention.valid_keys(valid_lens, scores.shape[-1]))

    return SimpleNamespace(
        DotProductAttention=DotProduct, FusedAttention=DotProduct, AdditiveAttention=Additive,
        MultiHeadAttention=MultiHead, masked_softmax=masked_softmax,
    )  # fmt: skip


def softmax_by(change: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """A softmax that treats invalid scores in its own way."""
    return lambda scores, mask: torch.softmax(scores if mask is None else change(scores, mask), dim=-1)


class WrongReshape(attention.MultiHeadAttention):
    """Splits without the permute, and merges without it."""

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        pairs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        heads = self.attention(*(self.split(W(X)) for W, X in pairs), valid_lens)  # (b, h, q, d)
        if head_mask is not None:
            heads = heads * head_mask[..., None, None]
        return self.W_o(heads.reshape(*queries.shape[:2], self.num_hiddens))

    def split(self, X):
        return X.reshape(len(X), self.num_heads, X.shape[1], self.head_size)


def heads_folded_into_the_batch(repeat: Callable[[Tensor, int], Tensor]) -> type:
    """Attention as the book's layer calls it: heads folded into the batch, lengths repeated once for each head."""

    class Folded:
        def forward(self, queries, keys, values, valid_lens=None, **masks):
            if queries.dim() == 3:
                return super().forward(queries, keys, values, valid_lens)
            h = queries.shape[1]
            lengths = None if valid_lens is None else repeat(valid_lens, h)
            folded = (X.flatten(0, 1) for X in (queries, keys, values))  # (b, h, n, d) -> (b · h, n, d)
            return super().forward(*folded, lengths).unflatten(0, (-1, h))

    return Folded


class DropoutLeftOut:
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.dropout = nn.Dropout()


class KeptAfterDropout:
    def attend(self, queries, keys, values, valid_lens=None, **masks):
        mask = None if valid_lens is None else attention.valid_keys(valid_lens, keys.shape[-2])
        mask = mask if mask is None or queries.dim() == 3 else mask[:, None]
        weights = self.dropout(self.weights(queries, keys, mask))
        return weights @ values, weights


def additive_without_tanh(self, queries, keys):
    return self.w_v(self.W_q(queries).unsqueeze(-2) + self.W_k(keys).unsqueeze(-3)).squeeze(-1)


def mask_inverted(scores, mask):
    return attention.masked_softmax(scores, attn_mask=None if mask is None else ~mask)


MINUS_A_MILLION = softmax_by(lambda scores, mask: torch.where(mask, scores, -1e6))
# What is replaced in ``planted``.
BUGS = {
    "1: reshape without permute": {"multi_head": WrongReshape},
    "2: masked scores set to 0": {"softmax": softmax_by(lambda scores, mask: scores * mask)},
    "3: additive scores without tanh": {"additive": additive_without_tanh},
    "4: repeat for repeat_interleave": {
        "mixin": heads_folded_into_the_batch(lambda lengths, h: lengths.repeat(h, *[1] * (lengths.dim() - 1)))
    },
    "5: the dropout rate left out": {"mixin": DropoutLeftOut},
    "6: weights kept after dropout": {"mixin": KeptAfterDropout},
    "7: softmax over the queries": {
        "softmax": lambda scores, mask: torch.softmax(
            scores if mask is None else scores.masked_fill(~mask, -math.inf), dim=-2
        ).nan_to_num(0.0)
    },
    "7: scaled by the size of all heads together": {
        "dot_product": lambda self, q, k: q @ k.mT / math.sqrt(q.shape[-1] * q.shape[1 : q.dim() - 2].numel())
    },
    "7: mask inverted": {"softmax": mask_inverted},
    "7: mask after softmax": {
        "softmax": lambda scores, mask: torch.softmax(scores, dim=-1) * (1 if mask is None else mask)
    },
    "8: −∞ in a row without valid keys": {
        "softmax": softmax_by(lambda scores, mask: scores.masked_fill(~mask, -math.inf))
    },
    "8: −1e6 for −∞": {"softmax": MINUS_A_MILLION},
}
UNSEEN_ON_ONES = ("3: additive scores without tanh", "7: scaled by the size of all heads together")


def caught(library: SimpleNamespace, **how) -> bool:
    try:
        hold_against_the_formula(library, **how)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("bug", BUGS)
def test_the_reference_catches_the_bug(bug):
    library = planted(**BUGS[bug])
    assert caught(library)
    assert not caught(library, same=assert_same_shape)
    assert caught(library, numbers=all_ones) == (bug not in UNSEEN_ON_ONES)


@pytest.mark.parametrize(
    "parts",
    [{}, {"mixin": heads_folded_into_the_batch(lambda lengths, h: lengths.repeat_interleave(h, dim=0))}],
    ids=["formula", "heads folded into the batch"],
)
def test_overriding_without_a_bug_passes(parts):
    assert not caught(planted(**parts))


def test_neither_a_round_trip_nor_ones_show_the_wrong_split():
    wrong = WrongReshape(8, 4)
    X, ones = random_numbers(3, 6, 8), all_ones(3, 6, 8)
    assert torch.equal(wrong.split(X).reshape(3, 6, 8), X)
    assert torch.equal(wrong.split(ones), attention.split_heads(ones, 4))
    assert not torch.equal(wrong.split(X), attention.split_heads(X, 4))


def test_in_half_precision_the_fill_of_minus_a_million_is_nan():
    wrong = planted(softmax=MINUS_A_MILLION).masked_softmax
    scores, nothing_valid = torch.zeros(1, 2, 3), torch.tensor([0])
    assert (wrong(scores, nothing_valid) == 1 / 3).all()
    assert wrong(scores.half(), nothing_valid).isnan().all()
    assert (attention.masked_softmax(scores.half(), nothing_valid) == 0).all()
