"""Masks and scores as functions of example, head, query and key: a loop, formula, kernel and FlexAttention."""

import math

import pytest
import torch
from references import attention, close, masked_softmax, random_numbers
from torch import nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks

from mha_lib import MultiHeadAttention
from mha_lib.attention import DotProductAttention, FusedAttention, ScoredAttention, causal, rule_matrix

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")
B, H, N, D = 2, 3, 7, 4
LENGTHS, TEXTS, WIDTHS = torch.tensor([4, 0]), torch.tensor([0, 0, 0, 1, 1, 2, 2]), torch.tensor([1, 3, 7])
SLOPES = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)


def lengths(b, h, i, j):
    return j < LENGTHS[b]


def same_text(b, h, i, j):
    return TEXTS[i] == TEXTS[j]


def window(size):
    return lambda b, h, i, j: i - j < size


def mask_of_each_head(b, h, i, j):
    return (j <= i) & (i - j < WIDTHS[h])


def alibi(b, h, i, j):
    return -SLOPES[h] * (i - j).abs()


RULES = {  # the rule, and the same in Python's numbers
    "causal": (causal, lambda b, h, i, j: j <= i),
    "lengths, one of them 0": (lengths, lambda b, h, i, j: j < [4, 0][b]),
    "window": (and_masks(causal, window(3)), lambda b, h, i, j: i - 3 < j <= i),
    "prefix": (or_masks(causal, lengths), lambda b, h, i, j: j <= i or j < [4, 0][b]),
    "texts": (same_text, lambda b, h, i, j: (i < 3, i < 5) == (j < 3, j < 5)),
    "texts, causal": (and_masks(causal, same_text), lambda b, h, i, j: j <= i and (i < 3, i < 5) == (j < 3, j < 5)),
    "a mask for each head": (mask_of_each_head, lambda b, h, i, j: i - [1, 3, 7][h] < j <= i),
    "a query alone": (lambda b, h, i, j: i != 2, lambda b, h, i, j: i != 2),
    "ALiBi": (alibi, lambda b, h, i, j: -(2.0 ** -(1 + h)) * abs(i - j)),
}
every_rule = pytest.mark.parametrize("rule, in_numbers", RULES.values(), ids=RULES)


@pytest.mark.real_device  # FlexAttention
@every_rule
def test_a_rule_is_what_a_loop_makes_of_its_numbers(rule, in_numbers):
    Q, K, V = random_numbers(3, B, H, N, D)
    every = torch.cartesian_prod(*map(torch.arange, (B, H, N, N))).tolist()
    mask = torch.tensor([in_numbers(*at) for at in every]).view(B, H, N, N)
    expected = torch.from_numpy(attention(DotProductAttention(), Q, K, V, attn_mask=mask)[0]).to(Q.device)
    with torch.no_grad():  # FlexAttention has no backward pass on the CPU
        if rule is alibi:
            flex = flex_attention(Q, K, V, score_mod=lambda score, *at: score + rule(*at))
        else:
            flex = flex_attention(Q, K, V, block_mask=create_block_mask(rule, B, H, N, N, device=Q.device))
    for found in (DotProductAttention()(Q, K, V, attn_mask=rule), FusedAttention()(Q, K, V, attn_mask=rule), flex):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_rule
def test_on_top_of_a_cache_a_rule_gives_the_last_rows_of_the_whole_pass(rule, in_numbers):
    Q, K, V = random_numbers(3, B, H, N, D)
    whole, attention = FusedAttention()(Q, K, V, attn_mask=rule), FusedAttention()
    close(attention(Q[:, :, -2:], K, V, attn_mask=rule), whole[:, :, -2:])
    last, every = (rule_matrix(rule, (B, H, n, N), Q.device) for n in (1, N))
    assert torch.equal(last, every[:, :, -1:])


@pytest.mark.real_device  # FlexAttention
def test_a_score_is_changed_one_by_one():
    Q, K, V = random_numbers(3, B, H, N, D)

    def capped(score, b, h, i, j):
        return 0.5 * torch.tanh(score / 0.5) - SLOPES[h] * (i - j).abs()

    scores, distances = Q @ K.mT / math.sqrt(D), (torch.arange(N)[:, None] - torch.arange(N)).abs()
    changed = 0.5 * torch.tanh(scores / 0.5) - 2.0 ** -torch.arange(1, 1 + H)[:, None, None] * distances
    expected = torch.from_numpy(masked_softmax(changed)).to(V) @ V
    with torch.no_grad():
        flex = flex_attention(Q, K, V, score_mod=capped)
    for found in (ScoredAttention(capped)(Q, K, V), flex):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    three_axes = ScoredAttention(lambda score, b, h, i, j: score.exp())(Q[:, 0], K[:, 0], V[:, 0])
    close(three_axes, torch.from_numpy(masked_softmax(scores[:, 0].exp())).to(V) @ V[:, 0])


def test_a_layer_takes_a_rule_beside_its_other_masks():
    """With shared keys and values, lengths and ``causal``; the bias of a rule gets gradients."""
    layer = MultiHeadAttention(12, 3, query_size=4, key_size=4, value_size=4, num_key_value_heads=1).double()
    X, bias = random_numbers(B, N, 4), random_numbers(H, 2 * N).requires_grad_()

    def distances(b, h, i, j):
        return bias[h, i - j + N]

    i, j = torch.arange(N)[:, None], torch.arange(N)
    written_out = torch.stack([bias[head][i - j + N] for head in range(H)])[None]
    beside = dict(valid_lens=torch.tensor([5, 7]), causal=True)
    found, expected = (layer(X, X, X, attn_mask=mask, **beside) for mask in (distances, written_out))
    close(found, expected)
    close(*(torch.autograd.grad(output.square().sum(), bias)[0] for output in (found, expected)))


WRONG_RULES = {
    "no tensor": (lambda b, h, i, j: True, TypeError, "rule must return a tensor, bool or a bias, got bool"),
    "and": (lambda b, h, i, j: j <= i and i - j < 2, TypeError, "rule must compare whole tensors: write & for and"),
    "whole numbers": (lambda b, h, i, j: i - j, TypeError, r"attn_mask must be bool, .* got torch.int64"),
}


@pytest.mark.parametrize("rule, error, message", WRONG_RULES.values(), ids=WRONG_RULES)
def test_a_wrong_rule_is_named(rule, error, message):
    with pytest.raises(error, match=message):
        FusedAttention()(*random_numbers(3, B, H, N, D), attn_mask=rule)


def test_a_rule_on_more_queries_than_keys_is_refused():
    """The first of them would have negative positions, which read ids from the end. ``causal=True`` still works."""
    Q, K = random_numbers(B, H, N, D), random_numbers(B, H, N - 1, D)
    with pytest.raises(ValueError, match="rule must not get more queries than keys, got 7 and 6"):
        FusedAttention()(Q, K, K, attn_mask=same_text)
    assert FusedAttention()(Q, K, K, causal=True)[:, :, 0].abs().max() == 0


@pytest.mark.real_device
def test_a_rule_is_exported_with_batch_and_length_left_open():
    class Windowed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = MultiHeadAttention(4, 2, query_size=4, key_size=4, value_size=4).double()

        def forward(self, X):
            return self.layer(X, X, X, attn_mask=and_masks(causal, window(2)))

    layer = Windowed().eval()
    open_sizes = {"X": {number: torch.export.Dim(name, min=2) for number, name in enumerate(("b", "n"))}}
    exported = torch.export.export(layer, (random_numbers(2, 5, 4),), dynamic_shapes=open_sizes).module()
    Y = random_numbers(3, 9, 4)
    close(exported(Y), layer(Y))
