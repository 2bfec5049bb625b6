"""Variants of multi-head attention, as changes of a test call: positions, norms, biases and what stands around it.

A test call is a tuple of arguments of ``layer_calls.formula``. A variant is a row of one of the lists below: words, and
what it does to queries and keys (``TURNS``, ``NORMS``), to scores (``BIASES``), or before and after the layer
(``around``). All are combined, and any known mistake can be made in any of them. Words are a message and the words that
are put in its braces, each translated for itself.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from mha_course.checking.edits import mistakes_of
from mha_course.language import tr
from mha_course.museum.rotary_positions import (
    BACKWARDS,
    BASES,
    PAIRS,
    PARTIAL,
    ROTARY,
    SHARES,
    SLOWED,
    TURNS,
    WRONG_TURNS,
    Named,
    Words,
    of_neighbours,
    partly,
    rotated,
    same,
    turned,
)
from mha_course.museum.wrong_attention import back
from mha_lib.attention import merge_heads, split_heads


class Variant(NamedTuple):
    """A change of a test call, the words for what it adds to the formula, what is wrong in it, or (), and its change by
    what stands around the layer alone.
    """

    words: tuple[Words, ...]
    mistake: Words
    change: Callable
    around: Callable

    @property
    def is_rare(self) -> bool:
        """Whether no mistakes are known in it."""
        return any(RARE & {*word} for word in self.words)

    @property
    def turns(self) -> str:
        """The message of its rotary positions, or ""."""
        return next((word[0] for word in self.words if word[0] in (ROTARY, BACKWARDS, SLOWED, PARTIAL)), "")


def in_words(words: Words) -> str:
    """Return a variant's words in the chosen language."""
    return tr(words[0], *map(tr, words[1:]))


def all_words() -> list[str]:
    """Return every message, and every word put into one, that can name a right or a wrong variant."""
    said = dict.fromkeys(
        [TIMES, FIXED, COSINES, BACKWARDS, PARTIAL, ANGLES, UNSCALED, OF_EACH, BY_STEP, BY_PAIR, SINK, GATED]
    )
    for row in variants(residual=True) + variants(residual=False):
        said |= dict.fromkeys(part for words in (*row.words, row.mistake) for part in words)
    return [part for part in said if not part[0].isdigit() and part not in NAMES]


@functools.cache
def variants(residual: bool) -> list[Variant]:
    """Return the right variants and the mistakes in variants by what stands around the layer, those of fewest words
    first, behind no variant at all. ``residual`` is whether the input is taken off again.
    """
    found: list[Variant] = []
    for name, before, after in around(residual):
        own: tuple[Words, ...] = (name,) * bool(name)
        within = functools.partial(varied, before=before, after=after)
        rows: list[tuple] = [(words, (), turn, bias) for words, turn, bias in right_heads()]
        rows += [(words, text, turn, None) for words, text, turn in wrong_heads()]
        rows += [((), text, None, bias) for text, bias in WRONG_BIASES]
        changes = [functools.partial(within, turn=turn, bias=bias) for *_, turn, bias in rows]
        found += [Variant((*w, *own), text, of, within) for (w, text, *_), of in zip(rows, changes, strict=True)]
        if before:
            found.append(Variant((), UNEVEN, lambda trial, of=within: (trial[0], *of(trial)[1:]), within))
        found += wrong_around(own, before, after, residual)
        if not name:
            for _, of in OF_TOKENS:
                found.append(Variant((), ALONE, lambda trial, of=of: (of(trial[0]), *trial[1:]), within))
    return found


def wrong_around(
    own: tuple[Words, ...], before: Callable | None, after: Callable | None, residual: bool
) -> list[Variant]:
    """Return mistakes in what is done with a layer's input and output, with what variants have in the heads."""
    mistakes: list[tuple[tuple[Words, ...], Words, Any, Any]] = []
    if residual and not after:
        mistakes += [(own, text, before, of) for text, of in ADDED.items()]
    if before:
        mistakes += [((), OVER_TOKENS, functools.partial(before, dim=1), after)]
        mistakes += [((), NORM_ADDED, before, functools.partial(norm_added, before))] * residual
    return [
        Variant((*words, *more), text, functools.partial(within, turn=turn, bias=bias), within)
        for more, text, *of in mistakes
        for within in [functools.partial(varied, before=of[0], after=of[1])]
        for words, turn, bias in right_heads()
    ]


def around(residual: bool) -> list[tuple[Words, Callable | None, Callable | None]]:
    """Return what can stand around a layer: words, what changes its input, and what its input and output become."""
    rows: list[tuple[Words, Callable | None, Callable | None]] = [((), None, None)]
    for name, norm in OF_TOKENS:
        rows += [((BEFORE, name), norm, None)]
        rows += [((BEFORE_ADDED, name), norm, torch.add)] * (not residual)  # declared, its input is taken off already
        rows += [((AFTER, name), None, functools.partial(norm_of_sum, norm, residual))]
    for name, norm in OF_TOKENS[:3]:
        added = functools.partial(sum_with_norm, norm, residual)
        rows += [((BEHIND_ADDED, name), None, added), ((AROUND_ADDED, name), norm, added)]
    return rows


def varied(trial, before=None, after=None, turn=None, bias=None):
    """Return a test call of a variant: what changes the input, the heads, the scores, and the input and output."""
    queries, keys, values, *others, given = trial
    inputs = [before(X) for X in (queries, keys, values)] if before else [queries, keys, values]
    after = functools.partial(after, queries) if after else None
    return *inputs, *others, {**given, "turn": turn, "bias": bias, "after": after}


def normed(Q, K, V, norm):
    """Normalise queries and keys."""
    return norm(Q), norm(K), V


def heads(Q, K, V, norm=same, turn=same, other=same, normed=normed, rotated=rotated):
    """Normalise the heads' queries and keys, and turn them by their positions; the last three make mistakes."""
    return rotated(*normed(Q, K, V, norm), turn, other)


def sloped(scores, steps, sign=-1):
    """Add to scores a number for each step between key and query, with a slope for each head.
    Source: Press, Smith, Lewis 2022, section 3 (ALiBi).
    """
    return scores + sign * torch.tensor(steps(scores.shape[1]))[:, None, None] * back(scores).abs()


def slopes(num_heads):
    """Return the slopes of ALiBi's authors, one for each head, who take others where their number is no power of 2."""
    power = 2 ** int(math.log2(num_heads))
    return even_slopes(power) + even_slopes(2 * power)[::2][: num_heads - power]


def even_slopes(num_heads):
    """Return slopes that fall by the same factor from head to head."""
    return [2 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)]


def layer_norm(X, dim=-1, eps=1e-5):
    """Normalise an axis to mean 0 and variance 1."""
    return (X - X.mean(dim, keepdim=True)) * torch.rsqrt(X.var(dim, correction=0, keepdim=True) + eps)


def rms_norm(X, dim=-1, eps=1e-6):
    """Normalise an axis to a mean square of 1."""
    return X * torch.rsqrt(X.square().mean(dim, keepdim=True) + eps)


def of_all_heads(X, norm):
    """Normalise the features of all heads together, (batch, heads, number, head size)."""
    return split_heads(norm(merge_heads(X)), X.shape[1])


def norm_of_sum(norm, residual, X, Y):
    """Normalise the sum of a layer's input and output, and take the input off again where the check does so."""
    return norm(X + Y) - X if residual else norm(X + Y)


def norm_added(norm, X, Y):
    """Add the norm of a layer's input in place of the input, which the check takes off again: a mistake."""
    return norm(X) + Y - X


def sum_with_norm(norm, residual, X, Y):
    """Add a layer's normalised output to its input, as OLMo 2 does, and Gemma 2 behind a norm of the input; take the
    input off again where the check does so.
    """
    return norm(Y) if residual else X + norm(Y)


def with_angles(row: Variant, pairs: str, angles: Sequence[float]) -> Iterator[Variant]:
    """Yield variants that also turn ``pairs`` of features by these ``angles`` of a step: for each share of the
    features, and θ to two digits, that gives these angles.
    """
    number = 2 * len(angles)
    for (name, share), even in itertools.product(SHARES.items(), (True, False)):
        size, sign = int(share * number) // 2 * 2 if even else int(share * number), math.copysign(1, angles[0])
        base = float(f"{max(abs(angles[1]), 1e-3) ** (-size / 2):.2g}") if size > 2 else 1e4  # one pair tells no θ
        due = [sign * base ** (-2 * i / size) if 2 * i < size else 0 for i in range(len(angles))]
        off = max(abs(one - two) for one, two in zip(due, angles, strict=True))
        if off < 5e-4 and (even if not name else sign > 0):
            message = (PARTIAL, name) if name else (ROTARY,) if sign > 0 else (BACKWARDS,)
            turn = functools.partial(partly, share=share, even=even, base=base, sign=sign, halves=PAIRS[pairs])
            change = functools.partial(turned_too, row.change, turn)
            yield Variant(((*message, pairs, f"{base:,.0f}"), *row.words), (), change, row.around)


def turned_too(change, turn, trial):
    """Return a test call that is changed, and whose heads' queries and keys are then turned by ``turn``."""
    *others, given = change(trial)

    def turned_again(*X):
        Q, K, V = given["turn"](*X)
        return turn(Q), turn(K), V

    return *others, {**given, "turn": turned_again}


def with_factor(factor, power, trial):
    """Return a test call with its scores times a constant and a power of the heads' size, before any bias."""
    *others, given = trial
    bias, size = given.get("bias") or (lambda scores: scores), trial[7].shape[1] // trial[8]
    return *others, {**given, "bias": lambda scores: bias(factor * size**power * scores)}


@functools.cache
def right_heads() -> list[tuple[tuple[Words, ...], Callable, Callable | None]]:
    """Return what variants have in the heads, that of fewest words first: these, what is done to queries, keys and
    values, and to scores.
    """
    found = []
    for parts in itertools.product([NONE, *TURNS], [NONE, *NORMS], [((), None), *BIASES]):
        words, (turn, norm, bias) = tuple(word for word, _ in parts if word), (part for _, part in parts)
        if len(words) < 2 or not bias:
            found.append((words, functools.partial(heads, norm=norm, turn=turn), bias))
    return sorted(found, key=lambda row: len(row[0]))


@functools.cache
def wrong_heads() -> list[tuple[tuple[Words, ...], Words, Callable]]:
    """Return mistakes in rotary positions, alone or with a norm of heads, and in such a norm, alone or with rotary
    positions: the words for what is right, those for the mistake, and a change of queries, keys and values by it.
    """
    found: list[tuple] = []
    of_norms, of_turns = [NONE, *NORMS[: len(OF_A_HEAD)]], [NONE, *TURNS[: 2 * len(BASES)]]
    of_rows = itertools.product(BASES, of_norms, mistakes_of(rotated, WRONG_TURNS), (1, -1))
    for base, (right, norm), (text, wrong), step in of_rows:
        turn, other = [functools.partial(of, base=base) for of in (turned, of_neighbours)][::step]
        words = (text, *[*PAIRS][::step])[: 1 + text.count("{}")]
        mistaken = functools.partial(heads, norm=norm, turn=turn, other=other, rotated=wrong)
        found.append(((right,) * bool(right), words, mistaken))
    of_rows = itertools.product(of_turns, OF_A_HEAD, mistakes_of(normed, WRONG_NORMS))
    for (right, turn), (name, norm), (text, wrong) in of_rows:
        mistaken = functools.partial(heads, norm=norm, turn=turn, normed=wrong)
        found.append(((right,) * bool(right), (text, name), mistaken))
    return found


NONE: tuple[Words, Callable] = ((), same)  # no turn, or no norm
OF_TOKENS: list[tuple[str, Callable]] = [
    ("RMSNorm", rms_norm),
    ("RMSNorm", functools.partial(rms_norm, eps=1e-5)),  # as in Llama; Qwen takes 1e-6
    ("LayerNorm", layer_norm),
    ("LayerNorm", functools.partial(layer_norm, eps=1e-6)),  # as in vision transformers
    ("LayerNorm", functools.partial(layer_norm, eps=1e-12)),  # as in BERT, around the layer
]
OF_A_HEAD = OF_TOKENS[:4]
NAMES = ("RMSNorm", "LayerNorm", "Llama 3.1", "Llama 3.2", "Gemma 3", "modded-nanogpt")  # the same in each language
OF_HEADS, OF_ALL = "{} of each head's queries and keys", "{} of all heads' queries and keys"
NORMS: Named = [
    *(((OF_HEADS, name), norm) for name, norm in OF_A_HEAD),
    *(((OF_ALL, name), functools.partial(of_all_heads, norm=norm)) for name, norm in (OF_TOKENS[0], OF_TOKENS[2])),
    # as cosines have it, and as PyTorch by default
    *(((OF_HEADS, "RMSNorm"), functools.partial(rms_norm, eps=eps)) for eps in (0, 1.2e-7)),
]
FALLING = ("a bias that falls with the distance of query and key (ALiBi)",)
BIASES: Named = [(FALLING, functools.partial(sloped, steps=steps)) for steps in (slopes, even_slopes)]
BEFORE, BEFORE_ADDED = "{} of its input", "{} of its input, which is added"
AFTER = "{} of the sum of input and output"
BEHIND_ADDED = "{} of its output, to which its input is added"
AROUND_ADDED = "{} of its input and of its output, to which its input is added"
RARE = {SLOWED, OF_ALL, BEHIND_ADDED, AROUND_ADDED}  # words of what has no known mistakes
TIMES, FIXED, COSINES = (  # the factor is fitted
    "scores times {}", "scores times {} in place of 1/√d", "scores times {}/√d",
)  # fmt: skip
# Angles and what follows are read from weights.
ANGLES = "rotary positions by other angles (pairs of {}, {} in one step)"
UNSCALED, OF_EACH = "scores that are not divided by √d", "scores times a number of each head"
BY_STEP, BY_PAIR = "a bias that depends on i − j", "a bias for each pair of positions"
SINK = "a sink: one more number for each head in the denominator of the softmax"
GATED = "a number for each head, or for each of its queries, that multiplies its output"
WRONG_BIASES: Named = [
    ((text,), functools.partial(sloped, steps=of_heads, sign=sign))
    for steps in (slopes, even_slopes)
    for text, of_heads, sign in (
        ("The bias grows with the distance of query and key, but should fall (ALiBi).", steps, 1),
        ("The slopes of the bias are in reverse order (ALiBi).", lambda heads, of=steps: of(heads)[::-1], -1),
    )
]
OVER_TOKENS = ("The norm of the input runs over the tokens.",)
NORM_ADDED = ("The norm of the input is added to the output in place of the input.",)
UNEVEN = ("The norm is on keys and values, but not on the queries.",)
ADDED = {  # mistakes of a layer that is to add its input
    ("The input is added to the output twice.",): torch.add,
    ("`residual=True` says that the input is added to the output, but it is not.",): lambda X, Y: Y - X,
}
ALONE = ("The norm is on the queries, but not on the keys and values.",)
WRONG_NORMS = """
    norm(K) -> K => The {} of heads is only on the queries.
    norm(Q) -> Q => The {} of heads is only on the keys.
    norm(K), V -> norm(K), norm(V) => The {} of heads is on the values as well.
    norm(Q), norm(K) -> norm(Q, dim=2), norm(K, dim=2) => The {} of heads runs over the tokens.
    norm(Q), norm(K) -> norm(Q, dim=1), norm(K, dim=1) => The {} of heads runs over the heads.
    """
