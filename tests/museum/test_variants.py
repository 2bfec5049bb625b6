"""Each variant and each wrong one is named as itself; what is another attention is no mistake."""

import math

import pytest
import torch
import wrong_by_rule
from changed_layers import variant
from torch import nn
from torch.nn import functional as F
from wrong_by_rule import rms, rotary

from mha_course.checking.edits import mistakes_of
from mha_course.exercises import check_layer
from mha_course.museum import wrong_attention
from mha_course.museum.editable_layer import Layer
from mha_course.museum.layer_trials import formula
from mha_course.museum.variants import in_words, variants
from mha_course.museum.wrong_attention import other_attentions

pytestmark = [pytest.mark.usefixtures("in_this_process"), pytest.mark.quarter]
RIGHT, WRONG = {}, {}  # what is said → a change of a call; of combinations, the first of each
for row in variants(residual=False):
    if row.words and len(row.words) < 2 and not row.mistake:
        RIGHT.setdefault(tuple(map(in_words, row.words)), row.change)
    if row.mistake and not row.words:
        WRONG.setdefault(in_words(row.mistake), row.change)


class Changed(nn.Module):
    """Self-attention by the formula, with a call changed, or by another program."""

    def __init__(self, change, program, size, heads):
        super().__init__()
        self.change, self.program, self.heads = change, program, heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        maps = (self.W_q.weight, self.W_k.weight, self.W_v.weight, self.W_o.weight)
        allowed = torch.ones(len(x), 1, 1, memory.shape[1], dtype=torch.bool)
        trial = (x, memory, memory, allowed, *maps, self.heads, {})
        return self.program(*self.change(trial))


def check(change=lambda trial: trial, program=formula, smallest=1, call=None):
    def make(size, heads, dropout):
        if size // heads < smallest:
            raise ValueError("the heads are too small")
        return Changed(change, program, size, heads)

    return check_layer(make, call)


@pytest.mark.parametrize("words", RIGHT, ids=" ".join)
def test_a_variant_is_right_by_its_words(words):
    verdict = check(RIGHT[words], smallest=8 if "of the features" in words[0] else 1)  # a part of few is no pair
    assert verdict and f"with {words[0]}." in verdict.text, verdict


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_variant_is_named_as_itself(text):
    verdict = check(WRONG[text])
    assert verdict.state == "wrong" and verdict.text == text, verdict


@pytest.mark.parametrize("number", range(len(other_attentions())))
def test_an_attention_that_is_no_mistake_is_named_and_not_accused(number):
    text, other = other_attentions()[number]
    verdict = check(
        program=lambda *trial: formula(*trial, attention=other),
        call=lambda layer, x, memory: layer(x, memory),
    )
    assert verdict.state == "other" and text in verdict.text, verdict
    assert not verdict


def test_a_constant_factor_is_a_variant_and_one_that_changes_with_the_size_a_mistake():
    right = check_layer(variant(scores=lambda self, Q, K: 0.7 * Q @ K.mT / math.sqrt(Q.shape[-1])))
    normed = check_layer(variant(scores=lambda self, Q, K: 0.12 * rms(Q) @ rms(K).mT))
    fixed = check_layer(variant(scores=lambda self, Q, K: Q @ K.mT / 8))
    wrong = check_layer(variant(scores=lambda self, Q, K: Q @ K.mT / Q.shape[-1] ** (1 / 3)))
    assert right and "scores times 0.7" in right.text, right
    assert normed and "RMSNorm of each head's queries and keys, scores times 0.12 in place of 1/√d" in normed.text
    assert fixed.state == "other" and "scores times 0.125 in place of 1/√d." in fixed.text, fixed
    assert wrong.state == "wrong" and "should not change with the size" in wrong.text, wrong


@pytest.mark.parametrize("eps", [None, 1e-6, 1e-8])
def test_a_norm_of_heads_is_a_variant_with_any_small_number_in_it(eps):
    def scores(self, Q, K):
        return F.rms_norm(Q, Q.shape[-1:], eps=eps) @ F.rms_norm(K, K.shape[-1:], eps=eps).mT / math.sqrt(Q.shape[-1])

    verdict = check_layer(variant(scores=scores))
    assert verdict and "RMSNorm of each head's queries and keys" in verdict.text, verdict


def turned_by(base, halves=True, sign=1, share=1.0, norm=lambda X: X, factor=1.0):
    """Scores of queries and keys of which a share of the features is turned by rotary positions."""

    def turn(X):
        size = int(share * X.shape[-1]) // 2 * 2
        first, rest = norm(X).split([size, X.shape[-1] - size], dim=-1)
        pairs = first.unflatten(-1, (2, -1)).mT if halves else first.unflatten(-1, (-1, 2))
        angles = sign * torch.arange(X.shape[2])[:, None] * base ** (-torch.arange(0, size, 2) / max(size, 1))
        pairs = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(angles.shape), angles)
        parts = torch.view_as_real(pairs)
        return torch.cat([(parts.mT if halves else parts).flatten(-2), rest], dim=-1)

    return lambda self, Q, K: factor * turn(Q) @ turn(K).mT / math.sqrt(Q.shape[-1])


def of_tokens(X):
    return F.layer_norm(X, X.shape[-1:])


TURNED = {  # what is said → the scores
    "rotary positions (pairs of halves, θ 30,000)": turned_by(30_000),
    "rotary positions (pairs of halves, θ 130,000, backwards)": turned_by(130_000, sign=-1),
    "rotary positions (pairs of neighbours, θ 75,000,000), LayerNorm of each head's queries and keys": turned_by(
        75e6, halves=False, norm=of_tokens
    ),
    "rotary positions (pairs of neighbours, θ 250,000), RMSNorm of each head's queries and keys, scores times 1.44": (
        turned_by(25e4, halves=False, norm=rms, factor=1.44)
    ),
    "rotary positions on 1/2 of the features (pairs of halves, θ 10,000)": turned_by(1e4, share=0.5),
    "rotary positions on 1/2 of the features (pairs of neighbours, θ 10,000)": turned_by(1e4, halves=False, share=0.5),
    "rotary positions on 3/4 of the features (pairs of halves, θ 200,000)": turned_by(2e5, share=0.75),
}


@pytest.mark.parametrize("words", TURNED)
def test_the_angles_of_rotary_positions_are_read_from_the_weights(words):
    verdict = check_layer(variant(scores=TURNED[words]))
    assert verdict and f"with {words}." in verdict.text, verdict


def test_a_quarter_of_the_features_is_read_in_layers_that_refuse_small_heads():
    class Large(Layer):
        def __init__(self, size, heads, dropout=0.0):
            super().__init__(size, heads, dropout)
            if size // heads < 8:
                raise ValueError("the heads are too small")

        scores = turned_by(1e4, halves=False, share=0.25)

    verdict = check_layer(Large)
    assert verdict and "on 1/4 of the features (pairs of neighbours, θ 10,000)" in verdict.text, verdict


def test_a_mask_that_leaves_later_keys_is_named_with_rotary_positions():
    def scores(self, Q, K):
        earlier = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool).tril(-1)
        return turned_by(1e6)(self, Q, K).masked_fill(earlier, -math.inf)

    verdict = check_layer(
        variant(scores=scores), call=lambda layer, x: layer(x, x, x, torch.tensor([x.shape[1]] * len(x)))
    )
    assert verdict.state == "wrong" and "θ 1,000,000): The mask is transposed" in verdict.text, verdict


@pytest.mark.parametrize("base", [5e5, 1e6])
def test_a_mistake_is_named_in_a_layer_with_another_theta(base):
    verdict = check_layer(variant(scores=turned_by(base), merge_heads=lambda self, X: X.permute(0, 2, 3, 1).flatten(2)))
    assert verdict.state == "wrong" and f"θ {base:,.0f}): The heads are merged with head and feature" in verdict.text


def test_numbers_that_are_rounded_are_told_as_nearly_right():
    half = variant(scores=lambda self, Q, K: (Q.half() @ K.half().mT).float() / math.sqrt(Q.shape[-1]))
    turned = wrong_by_rule.layer("rotary", "a = s.softmax(-1)", "a = s.softmax(-1).bfloat16().float()")
    verdicts = [check_layer(half), check_layer(turned)]
    assert ["other"] * 2 == [verdict.state for verdict in verdicts], verdicts
    assert all("The output is nearly the formula's" in verdict.text for verdict in verdicts), verdicts


def test_a_constant_in_place_of_the_size_is_told_beside_a_soft_cap():
    verdict = check_layer(variant(scores=lambda self, Q, K: capped(Q @ K.mT / 12)))
    assert verdict.state == "other" and "scores times 0.0833 in place of 1/√d" in verdict.text, verdict


def test_the_example_of_a_causal_layer_is_held_against_the_causal_formula():
    def scores(self, Q, K):
        later = torch.ones(Q.shape[2], K.shape[2], dtype=torch.bool).triu(1)
        return (Q @ K.mT).square().masked_fill(later, -math.inf)

    verdict = check_layer(variant(scores=scores), call=lambda layer, x, valid_lens: layer(x, x, x, valid_lens))
    assert not verdict and ", causal," in verdict.evidence, verdict


def test_a_residual_in_a_variant_is_told_how_to_hand_it_over():
    added = wrong_by_rule.layer("rotary", "self.W_o(o)", "x + self.W_o(o)")
    verdict = check_layer(added)
    assert verdict.state == "wrong" and "(a residual)" in verdict.text and "`residual=True`" in verdict.next_step
    twice = wrong_by_rule.layer("normed", "self.W_o(o)", "2 * x + self.W_o(o)")
    assert check_layer(twice, residual=True).state == "wrong"
    assert check_layer(added, residual=True)


BEHIND = "s = s.masked_fill(~keep, -math.inf)\n    a = s.softmax(-1)", "a = s.softmax(-1) * keep"


def test_a_mask_behind_the_softmax_of_normed_heads_is_the_mistake_in_the_variant():
    verdict = check_layer(wrong_by_rule.layer("normed", *BEHIND))
    assert verdict.state == "wrong", verdict
    assert verdict.text.startswith("With RMSNorm of each head's queries and keys: The mask comes after the softmax")


def capped(scores):
    return 50 * torch.tanh(scores / 50)


@pytest.mark.parametrize(
    ("before", "behind", "turn", "cap", "call"),
    [
        (63, 0, rotary, None, None),
        (4, 0, None, None, None),
        (2, 3, None, None, None),
        (1, 1, None, None, None),
        (31, 0, rotary, capped, None),
        (4, 0, None, None, lambda layer, queries, keys, values: layer.attend(queries, keys, values)),
    ],
)
def test_a_window_of_any_size_is_named_and_not_accused(before, behind, turn, cap, call):
    class Local(Plain):
        def scores(self, Q, K):
            last = torch.arange(K.shape[2] - Q.shape[2], K.shape[2])
            back = last[:, None] - torch.arange(K.shape[2])
            scores = super().scores(*(turn(X) if turn else X for X in (Q, K)))
            return (cap or (lambda X: X))(scores).masked_fill((back > before) | (-back > behind), -math.inf)

    verdict = check_layer(Local, call=call)
    said = f"This is a window: a query attends to {before} keys before it and {behind} behind it, and to its own."
    assert verdict.state == "other" and said in verdict.text, verdict
    assert ("rotary" in verdict.text, "soft-cap" in verdict.text) == (turn is rotary, cap is capped)


def test_a_window_of_more_keys_than_most_calls_have_is_told_with_a_right_layer():
    def scores(self, Q, K):
        back = torch.arange(Q.shape[2])[:, None] - torch.arange(K.shape[2])
        return (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill((back < 0) | (back > 511), -math.inf)

    verdict = check_layer(variant(scores=scores), call=lambda layer, x, valid_lens: layer(x, x, x, valid_lens))
    assert verdict and "a query attends to 511 keys before it and 0 behind it" in verdict.text, verdict


def test_a_learned_sink_is_another_attention_and_no_mistake():
    def sunk(self, scores, lengths):
        padding = torch.arange(scores.shape[-1]) >= lengths[:, None, None, None]
        sink = 4.0 + torch.arange(scores.shape[1])[:, None, None] / 8  # it takes nearly all of some rows
        sink = sink.expand(*scores.shape[:3], 1)
        return torch.cat([scores.masked_fill(padding, -math.inf), sink], dim=-1).softmax(-1)[..., :-1]

    verdict = check_layer(variant(masked_softmax=sunk))
    assert verdict.state == "other" and "softmax(QKᵀ / √d), with a sink" in verdict.text, verdict


class Positioned(Layer):
    """A layer with what a model learns beside the matrices: a bias by i − j, one for each pair, a factor of heads."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0):
        super().__init__(num_hiddens, num_heads, dropout)
        self.by_step, self.by_pair = nn.Embedding(799, num_heads), nn.Parameter(torch.zeros(num_heads, 400, 400))
        self.factor, self.gate = nn.Parameter(torch.ones(num_heads, 1, 1)), nn.Linear(num_hiddens, num_hiddens)

    def with_null(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        K, V = (torch.cat([X, X.new_full((len(X), Q.shape[1], 1, Q.shape[3]), n)], 2) for X, n in ((K, 0.5), (V, 2.0)))
        padding = (torch.arange(K.shape[2]) >= valid_lens[:, None]) & (torch.arange(K.shape[2]) < K.shape[2] - 1)
        weights = (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(padding[:, None, None], -math.inf).softmax(-1)
        return self.W_o(self.merge_heads(weights @ V))

    def step(self, Q, K):
        return self.by_step(torch.arange(Q.shape[2])[:, None] - torch.arange(K.shape[2]) + 399).permute(2, 0, 1)

    def gated(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        heads = self.masked_softmax(self.scores(Q, K), valid_lens) @ V
        return self.W_o(self.merge_heads(heads) * self.gate(queries).sigmoid())

    def gated_by_head(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        heads = self.masked_softmax(self.scores(Q, K), valid_lens) @ V
        return self.W_o(self.merge_heads(heads * Q[..., :1].sigmoid()))


def positioned(change):
    return variant(Positioned, scores=lambda self, Q, K: change(self, Q, K, Q @ K.mT / math.sqrt(Q.shape[-1])))


MADE_OF = {  # what a layer's weights are the softmax of → the layer
    "with scores that are not divided by √d, a bias that depends on i − j.": positioned(
        lambda self, Q, K, scores: Q @ K.mT + self.step(Q, K)
    ),
    "/ √d), with a bias that depends on i − j.": positioned(lambda self, Q, K, scores: scores + self.step(Q, K)),
    "with a bias for each pair of positions.": positioned(
        lambda self, Q, K, scores: scores + self.by_pair[:, : Q.shape[2], : K.shape[2]]
    ),
    "/ √d), with scores times a number of each head.": positioned(lambda self, Q, K, scores: self.factor * scores),
    "RMSNorm of each head's queries and keys, scores times a number of each head.": positioned(
        lambda self, Q, K, scores: self.factor * F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT
    ),
    "with a number for each head, or for each of its queries": variant(Positioned, forward=Positioned.gated_by_head),
    "This is a gate": variant(Positioned, forward=Positioned.gated),
    "There is one more key and value, which no token has": variant(Positioned, forward=Positioned.with_null),
}


def slowly(X, slow=3):
    """Turn pairs of halves by angles of which all but the first are so many times smaller than is usual."""
    size = X.shape[-1]
    angles = torch.arange(X.shape[2])[:, None] * torch.tensor([1.0, *[1 / slow] * (size // 2 - 1)])
    angles = angles * 100 ** (-torch.arange(0, size, 2) / size)
    A, B = X.chunk(2, dim=-1)
    return torch.cat([A * angles.cos() - B * angles.sin(), B * angles.cos() + A * angles.sin()], dim=-1)


SLOW = "rotary positions by other angles (pairs of halves, 1, 0.105, 0.033, 0.011 in one step)"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (SLOW, {"scores": lambda self, Q, K: slowly(Q) @ slowly(K).mT / math.sqrt(Q.shape[-1])}),
        (
            f"RMSNorm of each head's queries and keys, scores times 0.3 in place of 1/√d, {SLOW}",
            {"scores": lambda self, Q, K: 0.3 * slowly(rms(Q)) @ slowly(rms(K)).mT},
        ),
        (
            f"{SLOW}, a sink",
            {
                "scores": lambda self, Q, K: slowly(Q) @ slowly(K).mT / math.sqrt(Q.shape[-1]),
                "masked_softmax": lambda self, scores, lengths: F.pad(scores, (0, 1), value=0.7).softmax(-1)[..., :-1],
            },
        ),
    ],
)
def test_rotary_positions_of_unknown_angles_are_read_from_the_weights(words, parts):
    verdict = check_layer(variant(**parts), call=lambda layer, x: layer(x, x, x, torch.full((len(x),), x.shape[1])))
    assert verdict.state == "other" and words in verdict.text, verdict


@pytest.mark.parametrize(
    "twice", [lambda X: slowly(slowly(X)), lambda X: slowly(F.pad(X, (0, 0, 1, 0)))[:, :, 1:]], ids=["twice", "shifted"]
)
def test_queries_that_are_turned_otherwise_than_keys_are_no_rotary_positions(twice):
    def scores(self, Q, K):
        return twice(Q) @ slowly(K).mT / math.sqrt(Q.shape[-1])

    verdict = check_layer(variant(scores=scores), call=lambda layer, x, valid_lens: layer(x, x, x, valid_lens))
    assert not verdict and "rotary" not in verdict.text, verdict


@pytest.mark.parametrize("words", MADE_OF)
def test_what_stands_beside_the_formula_is_told_and_not_accused(words):
    verdict = check_layer(MADE_OF[words])
    assert verdict.state == "other" and words in verdict.text, verdict


def test_an_activation_of_heads_outputs_is_not_taken_for_a_gate():
    def activated(self, queries, keys, values, valid_lens):
        Q, K, V = self.project(queries, keys, values)
        heads = self.merge_heads(self.masked_softmax(self.scores(Q, K), valid_lens) @ V)
        return self.W_o(F.silu(4 * heads) / 4)  # each number times one between 0 and 1, which it alone decides

    verdict = check_layer(variant(forward=activated))
    assert not verdict and "Nothing on the check's list explains it" in verdict.text, verdict
    assert "gate" not in verdict.text, verdict


def test_outputs_of_padding_are_no_mistake_of_self_attention_but_of_attention_to_keys():
    def without_padding(self, queries, keys, values, valid_lens):
        kept = torch.arange(queries.shape[1]) < valid_lens[:, None]
        return Layer.forward(self, queries, keys, values, valid_lens) * kept[..., None]

    zeroed = variant(forward=without_padding)
    alone = check_layer(zeroed, call=lambda layer, x, valid_lens: layer(x, x, x, valid_lens))
    both = check_layer(zeroed)
    assert (alone.state, both.state) == ("other", "wrong"), (alone, both)
    assert all("Rows of padded queries are masked or set to 0" in verdict.text for verdict in (alone, both))


def test_a_norm_of_the_memory_alone_is_no_mistake_and_one_of_its_own_keys_alone_is():
    class Uneven(Layer):
        def forward(self, x, memory):
            memory = of_tokens(memory)
            return super().forward(x, memory, memory, torch.full((len(x),), memory.shape[1]))

    memory = check_layer(Uneven, call=lambda layer, x, memory: layer(x, memory))
    own = check_layer(Uneven, call=lambda layer, x: layer(x, x))
    assert (memory.state, own.state) == ("other", "wrong"), (memory, own)
    assert all("on keys and values, but not on the queries" in verdict.text for verdict in (memory, own))


def test_a_parameter_needs_a_gradient_if_it_has_an_effect():
    class Unused(Layer):
        def __init__(self, size, heads, dropout=0.0):
            super().__init__(size, heads, dropout)
            self.factor = nn.Parameter(torch.ones(()))

    def scores(self, Q, K):
        return self.factor.detach() * Q @ K.mT / math.sqrt(Q.shape[-1])

    assert check_layer(Unused)
    cut = check_layer(variant(Unused, scores=scores))
    assert cut.state == "wrong" and "no gradient reaches factor" in cut.text, cut


def test_a_causal_mask_alone_is_told_as_such():
    def fused(self, queries, keys, values, valid_lens):
        return self.W_o(
            self.merge_heads(F.scaled_dot_product_attention(*self.project(queries, keys, values), is_causal=True))
        )

    verdict = check_layer(variant(forward=fused), call=lambda layer, x, valid_lens: layer(x, x, x, valid_lens))
    assert verdict.state == "wrong" and "valid_lens has no effect" in verdict.text, verdict


@pytest.mark.parametrize("factor", [5, 10])
def test_cosines_times_a_constant_are_normed_heads_and_a_factor(factor):
    def scores(self, Q, K):
        return factor * F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).mT

    cosines = check_layer(variant(scores=scores))
    assert cosines and f"RMSNorm of each head's queries and keys, scores times {factor}/√d." in cosines.text, cosines


def test_weights_that_are_another_attention_are_said_with_what_is_alike():
    def normalised(self, Q, K):
        return (1 + (Q @ K.mT).square()).log()  # the softmax of it is 1 + (qk)², divided by its sum

    verdict = check_layer(variant(scores=normalised))
    assert verdict.state == "other" and "They sum to 1" in verdict.text, verdict
    assert "A mistake that is not on the check's list" in verdict.text and "cos = 1" in verdict.next_step
    promised = check_layer(variant(scores=normalised), promises=["formula"])
    assert promised.state == "wrong", promised


class Recipes(nn.Module):
    """Self-attention that is right, with maps of many kinds: (head, q/k/v, size), convolutions, a mask."""

    def __init__(self, sizes, by_head=True, convolutions=False):
        super().__init__()
        size, self.num_heads = sizes["dim"], sizes["heads"]
        self.by_head, self.convolutions = by_head, None
        if convolutions:
            self.convolutions = nn.ModuleList(nn.Conv1d(size, size, 1, bias=False) for _ in range(4))
        else:
            self.qkv, self.proj = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)

    def forward(self, x, keep=None):
        if self.convolutions:
            Q, K, V = (conv(x.mT).mT for conv in self.convolutions[:3])
            parts = [X.unflatten(-1, (self.num_heads, -1)) for X in (Q, K, V)]
        elif self.by_head:
            parts = self.qkv(x).unflatten(-1, (self.num_heads, 3, -1)).unbind(-2)
        else:
            parts = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        Q, K, V = (X.transpose(1, 2) for X in parts)
        scores = Q @ K.mT / math.sqrt(Q.shape[-1])
        scores = scores if keep is None else scores.masked_fill(~keep[:, None], -math.inf)
        heads = (scores.softmax(-1) @ V).transpose(1, 2).flatten(2)
        return self.convolutions[3](heads.mT).mT if self.convolutions else self.proj(heads)


def sized(**options):
    return lambda num_hiddens, num_heads, dropout: Recipes({"dim": num_hiddens, "heads": num_heads}, **options)


def fused_by_head(layer):
    parts = layer.qkv.weight.unflatten(0, (layer.num_heads, 3, -1)).transpose(0, 1).flatten(1, 2)
    return *parts, layer.proj


RECIPES = {  # as the docstring of the module has them
    "a mask": (
        sized(),
        lambda layer, x, valid_lens: layer(x, torch.arange(x.shape[1]) < valid_lens[:, None, None]),
        fused_by_head,
    ),
    "fused": (
        sized(by_head=False),
        lambda layer, x: layer(x),
        lambda layer: (*layer.qkv.weight.chunk(3), layer.proj),
    ),
    "by head, sizes in an object": (sized(), lambda layer, x: layer(x), fused_by_head),
    "convolutions": (
        sized(convolutions=True),
        lambda layer, x: layer(x),
        lambda layer: [conv.weight[..., 0] for conv in layer.convolutions],
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_the_docstring_hands_a_right_layer_over(name):
    verdict = check_layer(*RECIPES[name])
    assert verdict, verdict


class Plain(nn.Module):
    """Right self-attention, whose subclasses are handed over in other ways."""

    def __init__(self, size, heads, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, size, bias=False) for _ in range(4))

    def attend(self, queries, keys, values, keep=True):
        Q, K, V = (
            W(X).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for W, X in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values))
        )
        scores = self.scores(Q, K).masked_fill(~torch.as_tensor(keep), -1e9)
        return self.W_o((scores.softmax(-1) @ V).transpose(1, 2).flatten(2))

    def scores(self, Q, K):
        return Q @ K.mT / math.sqrt(Q.shape[-1])

    def forward(self, x):
        return self.attend(x, x, x)


def normed(X):
    return F.layer_norm(X, X.shape[-1:])


@pytest.mark.parametrize("before", [torch.clone, normed])
@pytest.mark.parametrize(
    ("after", "said"),
    [
        (lambda x, y: 2 * x + y, "The input is added to the output twice."),
        (lambda x, y: y, "`residual=True` says that the input is added to the output, but it is not."),
        (lambda x, y: x + y, ""),
        (lambda x, y: x + normed(y), ""),
    ],
)
def test_a_residual_that_is_said_to_be_there_is_there_once(before, after, said):
    layer = variant(Plain, forward=lambda self, x: after(x, Plain.forward(self, before(x))))
    verdict = check_layer(layer, residual=True)
    assert bool(verdict) is not bool(said) and said in verdict.text and "residual" not in verdict.next_step, verdict
    assert before is not normed or "LayerNorm of its input" in verdict.text, verdict


class Block(nn.Module):
    """PyTorch's layer behind a norm, with numbers of its own for each ``drawn``."""

    drawn = 0

    def __init__(self, size, heads, dropout):
        super().__init__()
        torch.randn(self.drawn)
        self.ln, self.mha = nn.LayerNorm(size, eps=1e-6), nn.MultiheadAttention(size, heads, dropout, batch_first=True)

    def forward(self, x):
        y = self.ln(x)
        return x + self.mha(y, y, y)[0]

    def matrices(self):
        return *zip(self.mha.in_proj_weight.chunk(3), self.mha.in_proj_bias.chunk(3), strict=True), self.mha.out_proj


@pytest.mark.parametrize("drawn", [0, 1, 10])
def test_a_norm_of_the_input_is_right_whatever_is_drawn(drawn):
    verdict = check_layer(variant(Block, drawn=drawn), residual=True)
    assert verdict and "with LayerNorm of its input." in verdict.text and "ln.bias" not in verdict.text, verdict


class BigHeads(Plain):
    def __init__(self, size, heads, dropout=0.0):
        if size // heads % 8:
            raise ValueError("heads need multiples of 8 features")
        super().__init__(size, heads)


class Swapped(Plain):
    def __init__(self, num_heads, d_model, dropout=0.0):
        super().__init__(d_model, num_heads)


class OtherOrder(Plain):
    def forward(self, values, keys, query, mask):
        return self.attend(query, keys, values, mask)


class Padded(Plain):
    def forward(self, x, key_padding_mask):
        return self.attend(x, x, x, ~key_padding_mask[:, None, None])


class Flag(Plain):
    def forward(self, x, is_causal=False):
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        return self.attend(x, x, x, keep.tril() if is_causal else keep)


class NoProjection(Plain):
    def __init__(self, size, heads, dropout=0.0):
        if heads > 1:
            raise ValueError("one head")
        super().__init__(size, heads)
        self.W_o = nn.Identity()


class Squeezed(Plain):
    def forward(self, x):
        return super().forward(x).squeeze(1)


class CutOff(Plain):
    def forward(self, x):
        return super().forward(x)[:8]


class CacheOfEight(Plain):
    def forward(self, x):
        if len(x) > 8:
            raise RuntimeError("the cache holds 8 examples")
        return super().forward(x)


class View(Plain):
    def forward(self, x):
        return super().forward(x.view(-1, x.shape[2]).view(x.shape))


@pytest.mark.parametrize(
    ("layer", "state", "said"),
    [
        (BigHeads, "right", "8 features or more"),
        (OtherOrder, "right", "`mask` is True where a key takes part"),
        (Padded, "right", "`key_padding_mask` is True where a key is masked, (batch, keys)."),
        (Flag, "right", "computes causal self-attention"),
        (NoProjection, "right", "computes self-attention"),
        (Swapped, "not yet", "(num_heads, num_hiddens, …)"),
        (Squeezed, "wrong", "wrong with one query"),
        (CutOff, "wrong", "and keys (16, 3, 8). The output must be"),
        (CacheOfEight, "right", "A batch of 16 raises RuntimeError: the cache holds 8 examples."),
        (View, "right", "An input that is not contiguous raises RuntimeError"),
    ],
)
def test_sizes_masks_and_orders_are_found_by_name_and_by_trying(layer, state, said):
    verdict = check_layer(layer)
    assert verdict.state == state and said in verdict.text, verdict


ADDED = """
    @ W_o.T + b_o -> @ W_o.T * 2 + b_o => The output is doubled.
    weights @ V -> weights @ V.cumsum(dim=2) => The values are summed up along the sequence.
    Q @ K.mT -> (Q @ K.mT).square() => The scores are squared.
"""


@pytest.fixture
def three_more_rows(monkeypatch):
    cached = wrong_attention.wrong_attentions, wrong_attention.part_of
    monkeypatch.setattr(wrong_attention, "MISTAKES", wrong_attention.MISTAKES.rstrip() + ADDED)
    for function in cached:
        function.cache_clear()
    yield wrong_attention.wrong_attentions()[-3:]
    for function in cached:
        function.cache_clear()


def test_rows_that_another_person_adds_are_named_as_themselves(three_more_rows):
    for text, wrong in three_more_rows:
        verdict = check(program=lambda *trial, wrong=wrong: formula(*trial, attention=wrong))
        assert verdict.state == "wrong" and verdict.text == text, verdict


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("weights @ V => No arrow.", 'a row must read "old -> new => what is said"'),
        ("weights @ U -> V => A part that is not there.", "A part that is not there.*stands there 0 times"),
        ("weights @ V -> (weights @ V => A bracket too many.", "A bracket too many.*makes no Python"),
        ("weights @ V -> K => One row. => And another.", "two rows in one"),
    ],
)
def test_a_row_that_is_wrong_is_told_what_is_wrong_with_it(row, error):
    with pytest.raises(ValueError, match=error):
        list(mistakes_of(wrong_attention.attention, f"{wrong_attention.MISTAKES.rstrip()}\n    {row}"))


@pytest.mark.parametrize("numbers", [68, 139, 202])
def test_a_right_layer_that_rounds_otherwise_is_right_where_large_scores_are_nearly_equal(numbers):
    class InDouble(Plain):
        def __init__(self, size, heads, dropout=0.0):
            super().__init__(size, heads)
            torch.rand(numbers)  # with so many, the first inputs drawn have two large scores that are nearly equal

        def forward(self, x):
            maps = [W.weight.double() for W in (self.W_q, self.W_k, self.W_v, self.W_o)]
            Q, K, V = ((x.double() @ W.T).unflatten(-1, (self.heads, -1)).transpose(1, 2) for W in maps[:3])
            heads = (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-1) @ V
            return (heads.transpose(1, 2).flatten(2) @ maps[3].T).float()

    verdict = check_layer(InDouble)
    assert verdict, verdict
