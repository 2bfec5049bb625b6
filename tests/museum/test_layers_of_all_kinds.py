"""Layers of all kinds, right and wrong in ways that public ones are: each gets its verdict, and the notes are true."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_course.exercises import check_layer

pytestmark = [pytest.mark.usefixtures("in_this_process"), pytest.mark.quarter]


def valid(lengths, keys):
    return (torch.arange(keys)[None] < lengths[:, None])[:, None, None]


class Right(nn.Module):
    """A right layer in steps that can be replaced."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, size, bias=False) for _ in range(4))

    def split(self, X):
        return X.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, q, k, v):
        return self.W_q(q), self.W_k(k), self.W_v(v)

    def scores(self, Q, K):
        return Q @ K.mT / math.sqrt(Q.shape[-1])

    def mask(self, scores, lengths):
        return scores.masked_fill(~valid(lengths, scores.shape[-1]), -1e9)

    def soft(self, scores):
        return scores.softmax(-1)

    def forward(self, q, k, v, lengths):
        Q, K, V = map(self.split, self.project(q, k, v))
        weights = self.soft(self.mask(self.scores(Q, K), lengths))
        return self.W_o((self.drop(weights) @ V).transpose(1, 2).flatten(2))


def variant(**parts):
    return type("Variant", (Right,), parts)


class KeepsFirstMask(Right):
    kept = None

    def mask(self, scores, lengths):
        shape = (len(lengths), 1, 1, scores.shape[-1])
        if self.kept is None or self.kept.shape != shape:
            self.kept = valid(lengths, scores.shape[-1])
        return scores.masked_fill(~self.kept, -1e9)


class KeepsKeys(Right):
    kept = None

    def project(self, q, k, v):
        before = k if self.kept is None or self.kept.shape != k.shape else self.kept
        self.kept = k
        return super().project(q, (k + before) / 2, v)


def averaged(self, X):
    """The average with what an earlier call has kept, if there was one of this shape."""
    before, self.kept = getattr(self, "kept", X), X.detach()
    return (X + before) / 2 if before.shape == X.shape else X


def first(self, number):
    """The number of the first call."""
    self.__dict__.setdefault("kept", number)
    return self.kept


def most(self, number):
    """The largest number of all calls."""
    self.kept = max(number, first(self, number))
    return self.kept


def of_first_examples(self, scores, lengths):
    keeps = torch.arange(len(lengths)) < first(self, len(lengths))
    return Right.mask(self, scores, torch.where(keeps, lengths, scores.shape[-1]))


class CacheHandedIn(Right):
    def forward(self, q, k, v, lengths, cache=None):
        cache = (k, v) if cache is None else [torch.cat(pair, 1) for pair in zip(cache, (k, v), strict=True)]
        return super().forward(q, *cache, lengths), cache


class MaskThatGrows(Right):
    kept = torch.ones(0, 0, dtype=torch.bool)

    def mask(self, scores, lengths):
        n = scores.shape[-1]
        if n > len(self.kept):
            self.kept = torch.ones(n, n, dtype=torch.bool).tril()
        return super().mask(scores, lengths).masked_fill(~self.kept[:n, :n], -math.inf)


class CausalWhenSquare(Right):
    def mask(self, scores, lengths):
        scores, (q, k) = super().mask(scores, lengths), scores.shape[-2:]
        return scores if q != k else scores.masked_fill(~torch.ones(q, k, dtype=torch.bool).tril(), -1e9)


class OtherPathForOneTensor(Right):
    def project(self, q, k, v):
        return super().project(q, k, v) if q is not k else (self.W_q(q), self.W_k(k), self.W_k(v))


class WithBiases(Right):
    def __init__(self, size, heads, dropout):
        super().__init__(size, heads, dropout)
        for W in (self.W_q, self.W_k, self.W_v, self.W_o):
            W.bias = nn.Parameter(torch.zeros(size))


class DeadBiases(WithBiases):
    def project(self, q, k, v):
        return q @ self.W_q.weight.T, k @ self.W_k.weight.T, v @ self.W_v.weight.T


def over_heads(self, queries, keys, values, valid_lens):
    Q, K, V = (X.unflatten(-1, (self.heads, -1)) for X in self.project(queries, keys, values))
    return self.W_o(F.scaled_dot_product_attention(Q, K, V, is_causal=True).flatten(2))


class ByHeads(nn.Module):
    """Right, with maps of heads as Flax has them: (features, heads, size) and biases (heads, size)."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0):
        super().__init__()
        shape, self.rate = (num_hiddens, num_heads, num_hiddens // num_heads), dropout
        self.kernels = nn.ParameterList(torch.empty(shape) for _ in range(4))
        self.biases = nn.ParameterList([*(torch.empty(shape[1:]) for _ in range(3)), torch.empty(num_hiddens)])

    def forward(self, queries, keys, values, valid_lens):
        parts = zip((queries, keys, values), self.kernels, self.biases, strict=False)
        Q, K, V = (torch.einsum("bnf,fhd->bhnd", X, W) + b[:, None] for X, W, b in parts)
        keep = (torch.arange(keys.shape[1]) < valid_lens[:, None])[:, None, None]
        rate = self.rate if self.training else 0.0
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=keep, dropout_p=rate)
        return torch.einsum("bhnd,fhd->bnf", heads, self.kernels[3]) + self.biases[3]

    def matrices(self):
        pairs = [(W.flatten(1).T, b.flatten()) for W, b in zip(self.kernels, self.biases, strict=True)]
        return [*pairs[:3], (self.kernels[3].flatten(1), self.biases[3])]


class Wide(nn.Module):
    """Right, with heads of a size of their own, and with fewer heads of keys and values if asked."""

    def __init__(self, num_hiddens, num_heads, dropout=0.0, times=2.0, groups=1, scale=None):
        super().__init__()
        self.heads, self.groups = num_heads, math.gcd(groups, num_heads)
        size = int(times * num_hiddens / num_heads)
        sizes = [num_heads * size, self.groups * size, self.groups * size]
        self.W_q, self.W_k, self.W_v = (nn.Linear(num_hiddens, of) for of in sizes)
        self.W_o = nn.Linear(sizes[0], num_hiddens)
        self.rate, self.scale = dropout, scale

    def forward(self, queries, keys, values, valid_lens):
        parts = ((self.W_q, queries, self.heads), (self.W_k, keys, self.groups), (self.W_v, values, self.groups))
        Q, K, V = (W(X).unflatten(-1, (heads, -1)).transpose(1, 2) for W, X, heads in parts)
        K, V = (X.repeat_interleave(self.heads // self.groups, 1) for X in (K, V))
        rate = self.rate if self.training else 0.0
        heads = F.scaled_dot_product_attention(Q, K, V, valid(valid_lens, K.shape[2]), rate, scale=self.scale)
        return self.W_o(heads.transpose(1, 2).flatten(2))


class NoDropout(Right):
    def __init__(self, size, heads, dropout):
        super().__init__(size, heads, 0.0)


class DropoutBehind(Right):
    def __init__(self, size, heads, dropout):
        super().__init__(size, heads, dropout)
        self.behind = nn.Dropout(dropout)

    def forward(self, *given):
        return self.behind(super().forward(*given))


class ScaleBehind(Right):
    def scores(self, Q, K):
        return Q @ K.mT

    def forward(self, q, k, v, n):
        return super().forward(q, k, v / math.sqrt(q.shape[-1] // self.heads), n)


class Packed(nn.Module):
    """One map for queries, keys and values, causal or not, as in GPT-2 and in vision transformers."""

    causal = True

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x):
        q, k, v = (X.unflatten(-1, (self.heads, -1)).transpose(1, 2) for X in self.all(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def parts(self):
        return *self.all.weight.chunk(3), self.out


class Grouped(nn.Module):
    """Two heads for keys and values, repeated for the queries' heads in the right order or not."""

    repeat = "repeat_interleave"

    def __init__(self, size, heads, dropout):
        super().__init__()
        if heads % 2:
            raise ValueError("heads must be even")
        self.heads, self.W_q, self.W_o = heads, nn.Linear(size, size), nn.Linear(size, size)
        self.W_k, self.W_v = (nn.Linear(size, 2 * size // heads) for _ in range(2))

    def forward(self, queries, keys, values, valid_lens):
        Q = self.W_q(queries).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        K, V = (W(X).unflatten(-1, (2, -1)).transpose(1, 2) for W, X in ((self.W_k, keys), (self.W_v, values)))
        times = self.heads // 2
        if self.repeat == "repeat_interleave":
            K, V = K.repeat_interleave(times, 1), V.repeat_interleave(times, 1)
        else:
            K, V = K.repeat(1, times, 1, 1), V.repeat(1, times, 1, 1)
        scores = (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(~valid(valid_lens, keys.shape[1]), -math.inf)
        return self.W_o((scores.softmax(-1) @ V).transpose(1, 2).flatten(2))


class InOut(nn.Module):
    """Matrices (input, output), each with its bias."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.W = heads, nn.ParameterList(nn.Parameter(torch.randn(size, size)) for _ in range(4))
        self.b = nn.ParameterList(nn.Parameter(torch.randn(size)) for _ in range(4))

    def forward(self, x, memory, n):
        Q, K, V = (
            (X @ W + b).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for X, W, b in zip((x, memory, memory), self.W, self.b, strict=False)
        )
        scores = (Q @ K.mT / math.sqrt(Q.shape[-1])).masked_fill(~valid(n, memory.shape[1]), -math.inf)
        return {"out": (scores.softmax(-1) @ V).transpose(1, 2).flatten(2) @ self.W[3] + self.b[3]}


def filled(number):
    return variant(mask=lambda self, s, n: s.masked_fill(~valid(n, s.shape[-1]), number))


def half_detached(X, heads):
    first, others = X[..., : X.shape[-1] // heads], X[..., X.shape[-1] // heads :]
    return torch.cat([first, others.detach()], dim=-1)


def of_first(X, layer):
    return X[..., : X.shape[-1] // layer.heads].repeat(1, 1, layer.heads)


def with_many_biases(self, *given):
    return Right.forward(self, *given) + (self.heads - 1) * self.W_o.bias


def masked_behind(self, q, k, v, lengths):
    Q, K, V = map(self.split, self.project(q, k, v))
    weights = self.scores(Q, K).softmax(-1) * valid(lengths, K.shape[2])
    return self.W_o((self.drop(weights / weights.sum(-1, keepdim=True)) @ V).transpose(1, 2).flatten(2))


def packed_matrices(layer):
    return layer.parts()


def of_two(layer, x, memory, valid_lens):
    return layer(x, memory, memory, valid_lens)


LOW = "low, but not low enough"
SQUARE_SOFTMAX = variant(soft=lambda self, s: s.softmax(-1 if s.shape[-1] != s.shape[-2] else -2))
WRONG = {  # what is handed over, and what is said of it
    "softmax over queries if square": (
        [SQUARE_SOFTMAX],
        "Right with more keys than queries, one query; wrong with one head",
    ),
    "causal if square": ([CausalWhenSquare], "Right with more keys than queries"),
    "one tensor": ([OtherPathForOneTensor], "In some calls, but not in all, it looks like this"),
    "state": ([KeepsFirstMask], "The layer keeps something from an earlier call"),
    "dead biases": ([DeadBiases], "The biases of W_q, W_k and W_v are missing."),
    "mask added": ([variant(mask=lambda self, s, n: s + valid(n, s.shape[-1]).float())], "mask's 0 and 1 are added"),
    "first length": (
        [variant(mask=lambda self, s, n: Right.mask(self, s, n[:1].expand(len(n))))],
        "All examples get the mask of the first one.",
    ),
    "sorted": (
        [variant(mask=lambda self, s, n: Right.mask(self, s, n.sort(descending=True).values))],
        "sorted by length",
    ),
    "-10": ([filled(-10.0)], LOW),
    "-100": ([filled(-100.0)], LOW),
    "-1e4": ([filled(-1e4)], LOW),
    "√ of heads": ([variant(scores=lambda self, Q, K: Q @ K.mT / math.sqrt(self.heads))], "root of a size"),
    "√ of queries": ([variant(scores=lambda self, Q, K: Q @ K.mT / math.sqrt(Q.shape[-2]))], "root of a size"),
    "scale behind": ([ScaleBehind], "The scale comes after the softmax"),
    "times √": ([variant(scores=lambda self, Q, K: Q @ K.mT * math.sqrt(Q.shape[-1]))], "multiplied by √(head size)"),
    "heads and size": (
        [variant(split=lambda self, X: X.unflatten(-1, (-1, self.heads)).transpose(1, 2))],
        "number of heads and the head size have changed places",
    ),
    "relu": (
        [variant(project=lambda self, *given: [X.relu() for X in Right.project(self, *given)])],
        "A ReLU follows the projections",
    ),
    "in, out": (
        [variant(project=lambda self, q, k, v: (q @ self.W_q.weight, k @ self.W_k.weight, v @ self.W_v.weight))],
        "used transposed, as (input, output)",
    ),
    "no W_v": ([variant(project=lambda self, q, k, v: (self.W_q(q), self.W_k(k), v))], "W_v has no effect."),
    "residual": (
        [variant(forward=lambda self, q, k, v, lengths: Right.forward(self, q, k, v, lengths) + q)],
        "The input is added to the output",
    ),
    "repeat": ([type("Repeated", (Grouped,), {"repeat": "repeat"})], "repeated in the wrong order (`repeat`"),
    "memory with three": (
        [Right, lambda layer, queries, keys, values, valid_lens: layer(queries, keys, keys, valid_lens)],
        "The values are made from the keys.",
    ),
    "detached sum": (
        [variant(soft=lambda self, s: (s - s.logsumexp(-1, keepdim=True).detach()).exp())],
        "The output is right, but the gradient of W_q.weight, W_k.weight, the queries, the keys is not",
    ),
    "detached head": (
        [variant(project=lambda self, q, k, v: (self.W_q(q), half_detached(self.W_k(k), self.heads), self.W_v(v)))],
        "The output is right, but the gradient of W_k.weight, the keys is not",
    ),
    "more queries than keys": (
        [variant(soft=lambda self, s: s.softmax(-1 if s.shape[-2] <= s.shape[-1] else -2))],
        "but not with queries (2, 5, 8) and keys (2, 3, 8)",
    ),
    "more than 512 keys": (
        [variant(mask=lambda self, s, n: Right.mask(self, s, n.clamp(max=512)))],
        "but not with queries (1, 2, 8) and keys (1, 1030, 8)",
    ),
    "many examples": (
        [variant(mask=lambda self, s, n: Right.mask(self, s, n) if len(n) < 9 else s.flip(0))],
        "but not with queries (16, 3, 8) and keys (16, 3, 8)",
    ),
    "mask of few examples": (
        [variant(mask=lambda self, s, n: Right.mask(self, s, n.where(torch.arange(len(n)) < 3, s.shape[-1])))],
        "but not with queries (16, 3, 8) and keys (16, 3, 8)",
    ),
    "keys of the last call": (
        [KeepsKeys, lambda layer, q, k, v: layer(q, k, v, torch.full((len(q),), k.shape[1]))],
        "The layer keeps something from an earlier call",
    ),
    "single examples": (
        [variant(split=lambda self, X: Right.split(self, X if len(X) > 1 else X.flip(1)))],
        "Right with several examples",
    ),
    "root of some heads' size": (
        [variant(scores=lambda self, Q, K: Q @ K.mT / math.sqrt(Q.shape[-1] * (2 if self.heads > 2 else 1)))],
        "times 0.707 with 4 heads, but not with fewer",
    ),
    "first head of keys": (
        [
            variant(
                project=lambda self, q, k, v: (self.W_q(q), of_first(self.W_k(k), self), of_first(self.W_v(v), self))
            )
        ],
        "All heads use the keys and values of one head.",
    ),
    "bias of W_o for each head": (
        [type("Biased", (WithBiases,), {"forward": with_many_biases})],
        "W_o's bias is added more than once.",
    ),
    "masked behind": (
        [variant(forward=masked_behind)],
        "The mask comes after the softmax, and rows are divided by their sum",
    ),
    "wide heads, not scaled": (
        [lambda *given: Wide(*given, scale=1.0)],
        "The scores are not divided by √(head size).",
    ),
    "transposed weights": (
        [
            variant(soft=lambda self, s: s.softmax(-1).mT),
            lambda layer, x, valid_lens: layer(x, x, x, valid_lens),
        ],
        "The weights are transposed where they multiply the values.",
    ),
    "heads of tokens": (
        [variant(forward=over_heads), lambda layer, x: layer(x, x, x, None)],
        "Attention runs over the heads of each token",
    ),
    "batch second": (
        [
            lambda size, heads, dropout: nn.MultiheadAttention(size, heads, dropout),
            lambda layer, x: layer(x, x, x)[0],
            lambda layer: [*layer.in_proj_weight.chunk(3), layer.out_proj],
        ],
        "Batch and sequence are exchanged",
    ),
}
RIGHT = {  # what is handed over, and notes that are due
    "wide heads": ([Wide], ["Its dropout was not examined.", "in groups"]),
    "wide heads, as many keys as features": (
        [lambda *given: Wide(*given, groups=2), None, lambda layer: [layer.W_q, layer.W_k, layer.W_v, layer.W_o]],
        ["in groups"],
    ),
    "narrow heads": ([lambda *given: Wide(*given, times=0.5, groups=12)], ["with biases"]),
    "biases of any shape": ([ByHeads, None, ByHeads.matrices], ["with biases"]),
    "no dropout": ([NoDropout], ["`dropout` has no effect."]),
    "dropout twice": ([DropoutBehind], ["Dropout acts on the output and on the weights."]),
    "biases": ([WithBiases], ["with biases", "average of its padding"]),
    "causal": ([Packed, None, packed_matrices], ["computes causal self-attention", "The check did not cover padding"]),
    "packed": (
        [type("Vision", (Packed,), {"causal": False}), None, packed_matrices],
        ["computes self-attention, with biases."],
    ),
    "grouped": ([Grouped], ["Heads share keys and values", "gets NaN", "The check did not cover one head."]),
    "memory": ([Right, of_two], ["The layer computes attention to a memory."]),
    "in, out": (
        [
            InOut,
            lambda layer, x, memory, n: tuple(layer(x, memory, n).values()),
            lambda layer: list(zip(layer.W, layer.b, strict=True)),
        ],
        ["(input, output)", "with biases"],
    ),
    "residual": ([WRONG["residual"][0][0]], []),
    "cache that is handed in": ([CacheHandedIn], []),
    "mask that grows": ([MaskThatGrows, lambda layer, x, n: layer(x, x, x, n)], ["computes causal self-attention"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layer_is_refused_by_its_name_or_the_border(name):
    given, said = WRONG[name]
    verdict = check_layer(*given)
    assert verdict.state == "wrong" and said in verdict.text, verdict


KEPT = {  # layers in which something of an earlier call changes the output of a later one
    "keys": variant(scores=lambda self, Q, K: Right.scores(self, Q, averaged(self, K))),
    "keys in training": variant(
        scores=lambda self, Q, K: Right.scores(self, Q, averaged(self, K) if self.training else K)
    ),
    "output": variant(forward=lambda self, *given: averaged(self, Right.forward(self, *given))),
    "mask of the first number of keys": variant(
        mask=lambda self, s, n: Right.mask(self, s, n.clamp(max=first(self, s.shape[-1])))
    ),
    "mask of the largest number of keys": variant(
        mask=lambda self, s, n: Right.mask(self, s, n if s.shape[-1] == most(self, s.shape[-1]) else n + 9)
    ),
    "mask of the first examples": variant(mask=of_first_examples),
    "mask that fits the first call alone": variant(
        mask=lambda self, s, n: Right.mask(self, s + torch.zeros(first(self, s.shape[-1])), n)
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_layer_that_an_earlier_call_changes_is_told_so_whatever_it_keeps(name):
    verdict = check_layer(KEPT[name])
    assert verdict.state == "wrong" and "keeps something from an earlier call" in verdict.text, verdict


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_layer_is_right_with_true_notes(name):
    given, notes = RIGHT[name]
    verdict = check_layer(*given, residual=name == "residual")
    assert verdict and all(note in verdict.text for note in notes), verdict


def test_a_layer_that_is_right_for_shared_sequences_is_told_how_to_hand_it_over():
    three = check_layer(Packed, lambda layer, queries, keys, values, valid_lens: layer(queries), packed_matrices)
    memory = check_layer(*WRONG["memory with three"][0])
    assert not three and "`call=lambda layer, x, valid_lens: …`" in three.next_step
    assert not memory and "`call=lambda layer, x, memory, valid_lens: …`" in memory.next_step


def test_a_layer_that_raises_with_several_heads_is_not_yet_and_the_border_is_said():
    broken = variant(split=lambda self, X: X.view(len(X), self.heads, X.shape[1], X.shape[2]))
    verdict = check_layer(broken)
    assert verdict.state == "wrong" and "Right with one head; wrong with several heads" in verdict.text
    assert "RuntimeError" in verdict.text and verdict.next_step.startswith("Check how the features are split")
