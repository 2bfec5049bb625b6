"""Variants of multi-head attention, as changes of a test call: positions, norms, biases and what stands around it.

A test call is a tuple of arguments of ``layer_calls.formula``. A variant is a row of one of the lists below: words, and
what it does to queries and keys (``TURNS``, ``NORMS``), to scores (``BIASES``), or before and after the layer
(``AROUND``). All are combined, and any known mistake can be made in any of them. Words are a message and the words that
are put in its braces, each translated for itself.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from mha_course.language import tr
from mha_course.museum.wrong_attention import back
from mha_lib.attention import merge_heads, split_heads

Words = tuple[str, ...]
Named = list[tuple[Words, Any]]  # what is said → what is done
Wrong = list[tuple[tuple[Words, ...], Words, Callable]]  # the variant, what is wrong in it, and what is done


def in_words(words: Words) -> str:
    """Return a variant's words in the chosen language."""
    return tr(words[0], *map(tr, words[1:]))


def all_words() -> list[str]:
    """Return every message, and every word put into one, that can name a right or a wrong variant."""
    said: dict[str, Any] = {TIMES: None}
    for _, members, wrong in variants(residual=False):
        said |= dict.fromkeys(part for words, _ in members for word in words for part in word)
        said |= dict.fromkeys(part for _, text, _ in wrong for part in text)
    return [part for part in said if not part[0].isdigit() and part not in ("RMSNorm", "LayerNorm")]


def variants(residual: bool) -> list[tuple[Callable, list[tuple[tuple[Words, ...], Callable]], Wrong]]:
    """Return the variants by what stands around the layer: a change of a test call by that alone, pairs (words, change)
    for the right variants, those of fewest words first, and (words, message, change) for mistakes in a variant.
    ``residual`` is whether the input is taken off again.
    """
    groups: list[tuple[Callable, list[tuple[tuple[Words, ...], Callable]], Wrong]] = []
    for name, (before, after) in [((), (None, None)), *AROUND, (ADDED, (None, torch.add))]:
        after = functools.partial(after, residual) if after in (sum_normed, sum_rms, sum_coarse) else after
        within = functools.partial(varied, before=before, after=after)
        found: list[tuple[tuple[Words, ...], Callable]] = []
        for parts in itertools.product([((), None), *TURNS], [((), None), *NORMS], [((), None), *BIASES]):
            words = tuple(word for word in (*(word for word, _ in parts), name) if word)
            turn, norm, bias = (part for _, part in parts)
            if words not in ((), (ADDED,)) and not (bias and (turn or norm)):
                change = one_by_one(norm, turn)
                found.append((words, functools.partial(within, turn=each(change, change), bias=bias)))
        around = (name,) if name else ()
        wrong: Wrong = [((*w, *around), text, functools.partial(within, turn=turn)) for w, text, turn in wrong_turns()]
        wrong += [(around, text, functools.partial(within, bias=bias)) for text, bias in WRONG_BIASES]
        wrong += [((), UNEVEN, lambda trial, within=within: (trial[0], *within(trial)[1:]))] if before else []
        groups.append((within, sorted(found, key=lambda variant: len(variant[0])), wrong))
    return groups


def varied(trial, before=None, after=None, turn=None, bias=None):
    """Return a test call of a variant: what changes the input, the heads, the scores, and the input and output."""
    queries, keys, values, *others, given = trial
    inputs = [before(X) for X in (queries, keys, values)] if before else [queries, keys, values]
    after = functools.partial(after, queries) if after else None
    return *inputs, *others, {**given, "turn": turn, "bias": bias, "after": after}


def one_by_one(*parts):
    """Return a function that applies the functions ``parts`` one after the other; None stands for no change."""
    return functools.partial(functools.reduce, lambda X, part: part(X) if part else X, parts)


def each(of_queries=None, of_keys=None, of_values=None):
    """Return a function that changes the heads' queries, keys and values, each by a function or not at all."""
    parts = of_queries, of_keys, of_values
    return lambda *heads: [part(X) if part else X for part, X in zip(parts, heads, strict=True)]


def turned(X, halves=True, base=1e4, sign=1, start=0, minus=-1, angles_in_halves=None):
    """Turn pairs of features by angles that grow with the position, (batch, heads, number, head size), as RoPE does.

    Pairs are of one half with the other, or of neighbours. ``minus`` and ``angles_in_halves`` make mistakes.
    Source: Su et al. 2021, section 3.2.2.
    """
    powers = torch.arange(0, X.shape[-1], 2) / X.shape[-1]
    angles = sign * (torch.arange(X.shape[2]) + start)[:, None] * base**-powers
    in_halves = halves if angles_in_halves is None else angles_in_halves
    angles = angles.repeat(1, 2) if in_halves else angles.repeat_interleave(2, dim=-1)
    A, B = X.chunk(2, dim=-1) if halves else (X[..., ::2], X[..., 1::2])
    other = torch.cat([minus * B, A], dim=-1) if halves else torch.stack([minus * B, A], dim=-1).flatten(-2)
    return X * angles.cos() + other * angles.sin()


def before_split(turn, Q, K, V):
    """Apply ``turn`` to the features of all heads together, a mistake."""
    return [*(split_heads(turn(merge_heads(X)[:, None])[:, 0], X.shape[1]) for X in (Q, K)), V]


def sloped(scores, steps, is_signed=False, sign=-1):
    """Add to scores a number for each step between key and query, with a slope for each head.
    Source: Press, Smith, Lewis 2022, section 3 (ALiBi).
    """
    distance = back(scores) if is_signed else back(scores).abs()
    return scores + sign * torch.tensor(steps(scores.shape[1]))[:, None, None] * distance


def slopes(num_heads):
    """Return the slopes of ALiBi's authors, one for each head, who take others where their number is no power of 2."""
    power = 2 ** int(math.log2(num_heads))
    return even_slopes(power) + even_slopes(2 * power)[::2][: num_heads - power]


def even_slopes(num_heads):
    """Return slopes that fall by the same factor from head to head."""
    return [2 ** (-8 * (head + 1) / num_heads) for head in range(num_heads)]


def layer_norm(X, dim=-1):
    """Normalise an axis to mean 0 and variance 1."""
    return (X - X.mean(dim, keepdim=True)) * torch.rsqrt(X.var(dim, correction=0, keepdim=True) + 1e-5)


def rms_norm(X, dim=-1, eps=1e-6):
    """Normalise an axis to a mean square of 1."""
    return X * torch.rsqrt(X.square().mean(dim, keepdim=True) + eps)


def of_all_heads(X):
    """Normalise the features of all heads together, (batch, heads, number, head size), to a mean square of 1."""
    return split_heads(rms_norm(merge_heads(X)), X.shape[1])


def norm_of_sum(norm, residual, X, Y):
    """Normalise the sum of a layer's input and output, and take the input off again where the check does so."""
    return norm(X + Y) - X if residual else norm(X + Y)


def with_factor(change, factor, trial):
    """Return a test call changed by ``change``, a variant, with its scores times a constant, before any bias."""
    *others, given = change(trial)
    bias = given.get("bias") or (lambda scores: scores)
    return *others, {**given, "bias": lambda scores: bias(factor * scores)}


coarse = functools.partial(rms_norm, eps=1e-5)  # as in Llama; PyTorch and Qwen take 1e-6 or less
of_neighbours = functools.partial(turned, halves=False)
sum_normed, sum_rms, sum_coarse = (functools.partial(norm_of_sum, norm) for norm in (layer_norm, rms_norm, coarse))
ROTARY, BACKWARDS = "rotary positions (pairs of {}, θ {})", "rotary positions (pairs of {}, θ {}, backwards)"
BASES = (1e4, 5e5, 1e6, 5e4, 1.6e5, 5e6, 1e7, 100.0)  # θ of today's models; the first is tried with mistakes as well
TURNS: Named = [
    ((text, name, f"{base:,.0f}"), functools.partial(turn, base=base, sign=sign))
    for base in BASES
    for name, turn in (("halves", turned), ("neighbours", of_neighbours))
    for text, sign in ((ROTARY, 1), (BACKWARDS, -1))
    if sign > 0 or base == BASES[0]
]
OF_HEADS, OF_ALL = "{} of each head's queries and keys", "{} of all heads' queries and keys"
NORMS: Named = [
    ((OF_HEADS, "RMSNorm"), rms_norm),
    ((OF_HEADS, "RMSNorm"), coarse),
    ((OF_HEADS, "LayerNorm"), layer_norm),
    ((OF_ALL, "RMSNorm"), of_all_heads),
]
FALLING = ("a bias that falls with the distance of query and key (ALiBi)",)
BIASES: Named = [
    (FALLING, functools.partial(sloped, steps=steps, is_signed=is_signed))
    for steps in (slopes, even_slopes)
    for is_signed in (True, False)
]
BEFORE, BEFORE_ADDED = "{} of its input", "{} of its input, which is added"
AFTER = "{} of the sum of input and output"
AROUND: Named = [
    row
    for name, norm, last in (
        ("LayerNorm", layer_norm, sum_normed),
        ("RMSNorm", rms_norm, sum_rms),
        ("RMSNorm", coarse, sum_coarse),
    )
    for row in (
        ((BEFORE, name), (norm, None)),
        ((BEFORE_ADDED, name), (norm, torch.add)),
        ((AFTER, name), (None, last)),
    )
]
ADDED = ("its input added (a residual)",)  # alone it is no variant: ``residual=True`` says so
TIMES = "scores times {}"  # the factor is fitted
WRONG_BIASES: Named = [
    ((text,), functools.partial(sloped, steps=of_heads, sign=sign))
    for steps in (slopes, even_slopes)
    for text, of_heads, sign in (
        ("The bias grows with the distance of query and key, and should fall (ALiBi).", steps, 1),
        ("The slopes of the bias are in reverse order (ALiBi).", lambda heads, of=steps: of(heads)[::-1], -1),
    )
]
UNEVEN = ("The norm is on keys and values, and not on the queries.",)
APART = ("Rotary positions: the positions of queries and keys differ by one.",)
OVER_TOKENS = "The {} of heads runs over the tokens."
WRONG_NORMS = {  # what is said of a norm of heads → what it does to queries, keys and values
    "The {} of heads is on the queries alone.": lambda norm: each(norm),
    "The {} of heads is on the keys alone.": lambda norm: each(None, norm),
    "The {} of heads is on the values as well.": lambda norm: each(norm, norm, norm),
    OVER_TOKENS: lambda norm: each(*[functools.partial(norm, dim=2)] * 2),
    "The {} of heads runs over the heads.": lambda norm: each(*[functools.partial(norm, dim=1)] * 2),
}


def wrong_turns() -> list[tuple[tuple[Words, ...], Words, Callable]]:
    """Return mistakes in rotary positions, alone or with a norm of heads, and in such a norm, alone or with rotary
    positions: the words for what is right, those for the mistake, and a change of queries, keys and values by it.
    """
    turns = [row for row in TURNS if f"{BASES[0]:,.0f}" in row[0] and row[0][0] == ROTARY]
    norms = [((), None), *NORMS[:3]]
    found = [((w,) * bool(w), text, in_turn(each(n, n), turn)) for w, n in norms for text, turn in wrong_rotary()]
    for right, turn in [((), None), *turns]:
        found += [((right,) * bool(right), text, in_turn(norm, each(turn, turn))) for text, norm in wrong_norms()]
    return found


def in_turn(first: Callable, then: Callable) -> Callable:
    """Return a function that changes queries, keys and values by ``first``, and then by ``then``."""
    return lambda *heads: then(*first(*heads))


def wrong_norms() -> Named:
    """Return what is wrong with a norm of heads, and a change of queries, keys and values by it."""
    norms = (("RMSNorm", rms_norm), ("RMSNorm", coarse), ("LayerNorm", layer_norm))
    return [((text, name), made(norm)) for name, norm in norms for text, made in WRONG_NORMS.items()]


def wrong_rotary() -> Named:
    """Return what is wrong with rotary positions, and a change of queries, keys and values by it."""
    mixed = "Rotary positions: {} are paired in the queries, {} in the keys."
    found: Named = [
        ((mixed, "halves", "neighbours"), each(turned, of_neighbours)),
        ((mixed, "neighbours", "halves"), each(of_neighbours, turned)),
    ]
    for turn in (turned, of_neighbours):
        other = functools.partial(turn, angles_in_halves=turn is of_neighbours)
        unsigned, backwards, later, sooner = (
            functools.partial(turn, **more) for more in ({"minus": 1}, {"sign": -1}, {"start": 1}, {"start": -1})
        )
        twice = one_by_one(turn, turn)
        found += [
            (("Rotary positions turn the queries alone.",), each(turn)),
            (("Rotary positions turn the keys alone.",), each(None, turn)),
            (("Rotary positions turn the values as well.",), each(turn, turn, turn)),
            (("Rotary positions turn queries and keys in opposite directions.",), each(turn, backwards)),
            (("Rotary positions turn queries and keys twice.",), each(twice, twice)),
            (APART, each(later, turn)),
            (APART, each(sooner, turn)),
            (
                ("Rotary positions: the minus is missing, so that pairs are not turned.",),
                each(unsigned, unsigned),
            ),
            (
                ("Rotary positions: features are paired in one way and their angles in another.",),
                each(other, other),
            ),
            (
                ("Rotary positions are applied before the split, to the features of all heads together.",),
                functools.partial(before_split, turn),
            ),
        ]
    return found
