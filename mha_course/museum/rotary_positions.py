"""Rotary positions of queries and keys, and their mistakes: what is said of them, and what they do.

Words are a message and the words that are put in its braces, each translated for itself.
"""

import functools
import math
from typing import Any

import torch

from mha_lib.attention import merge_heads, split_heads

Words = tuple[str, ...]
Named = list[tuple[Words, Any]]  # what is said → what is done


def same(X):
    """Return what is given."""
    return X


def turned(X, halves=True, base=1e4, slowed=same, sign=1, start=0, minus=-1, swapped=False, of=None):
    """Turn pairs of features by angles that grow with the position, (batch, heads, number, head size), as RoPE does.

    Pairs are of one half with the other, or of neighbours. ``slowed`` changes the angles of one step, which fall as in
    heads with ``of`` features. ``minus`` and ``swapped``, angles as the other pairs have them, make mistakes.
    Source: Su et al. 2021, section 3.2.2.
    """
    cosines, sines = waves(X.shape[2], X.shape[-1], of or X.shape[-1], base, slowed, sign, start, halves is not swapped)
    A, B = X.chunk(2, dim=-1) if halves else (X[..., ::2], X[..., 1::2])
    other = torch.cat([minus * B, A], dim=-1) if halves else torch.stack([minus * B, A], dim=-1).flatten(-2)
    return X * cosines + other * sines


@functools.lru_cache(1000)
def waves(number, size, of, base, slowed, sign, start, halves):
    """Return cosines and sines of the angles of positions and features, (number, size)."""
    powers = torch.arange(0, size, 2) / of
    angles = sign * (torch.arange(number) + start)[:, None] * slowed(base**-powers)
    angles = angles.repeat(1, 2) if halves else angles.repeat_interleave(2, dim=-1)
    return angles.cos(), angles.sin()


def slow_ones_slowed(by, angles):
    """Divide the angles that make less than a turn in 8,192 tokens, and none that make more than four.
    Source: Llama 3.1.
    """
    kept = ((8192 * angles / (2 * math.pi) - 1) / 3).clamp(0, 1)
    return angles * (kept + (1 - kept) / by)


def half_still(angles):
    """Turn the first half of the pairs alone, by angles from 1 down to 1/1,024. Source: modded-nanogpt."""
    number = max(1, len(angles) // 2)
    return torch.cat([1024.0 ** -torch.linspace(0, 1, number), angles.new_zeros(len(angles) - number)])


def partly(X, share, even=True, **options):
    """Turn the first features alone, this share of them, in pairs: if not ``even``, one more where they are odd."""
    size = int(share * X.shape[-1])
    size, of = (size // 2 * 2, None) if even else (size + size % 2, size)
    return torch.cat([turned(X[..., :size], of=of, **options), X[..., size:]], dim=-1) if size else X


def rotated(Q, K, V, turn, other):
    """Turn queries and keys by their positions; ``other``, which turns other pairs, makes a mistake."""
    return turn(Q), turn(K), V


def before_split(turn, X):
    """Apply ``turn`` to the features of all heads together, a mistake."""
    return split_heads(turn(merge_heads(X)[:, None])[:, 0], X.shape[1])


of_neighbours = functools.partial(turned, halves=False)
PAIRS = {"halves": True, "neighbours": False}
BASES = (1e4, 5e5, 1e6)  # tried with mistakes as well; others are read from weights, see ``with_angles``
ROTARY, BACKWARDS = "rotary positions (pairs of {}, θ {})", "rotary positions (pairs of {}, θ {}, backwards)"
SLOWED = "rotary positions slowed as in {} (pairs of {}, θ {})"
PARTIAL = "rotary positions on {} of the features (pairs of {}, θ {})"
SHARES = {"": 1.0, "3/4": 0.75, "1/2": 0.5, "1/4": 0.25}
ROWS: Named = [  # turns: words without the pairs, which come last but one, and what is done with either
    *(((ROTARY, f"{base:,.0f}"), functools.partial(turned, base=base)) for base in BASES),
    *(
        ((SLOWED, name, "500,000"), functools.partial(turned, base=5e5, slowed=functools.partial(slow_ones_slowed, by)))
        for name, by in (("Llama 3.1", 8), ("Llama 3.2", 32))
    ),
    ((SLOWED, "Gemma 3", "1,000,000"), functools.partial(turned, base=1e6, slowed=lambda angles: angles / 8)),
    ((SLOWED, "modded-nanogpt", "1,024"), functools.partial(turned, slowed=half_still, sign=-1)),
]
TURNS: Named = [
    ((*words, name, base), functools.partial(turn, halves=halves))
    for (*words, base), turn in ROWS
    for name, halves in PAIRS.items()
]
WRONG_TURNS = """
    turn(K) -> other(K) => Rotary positions: {} are paired in the queries, {} in the keys.
    turn(K) -> K => Rotary positions rotate only the queries.
    turn(Q) -> Q => Rotary positions rotate only the keys.
    turn(K), V -> turn(K), turn(V) => Rotary positions also rotate the values.
    turn(K) -> turn(K, sign=-1) => Rotary positions rotate queries and keys in opposite directions.
    turn(Q), turn(K) -> turn(turn(Q)), turn(turn(K)) => Rotary positions rotate queries and keys twice.
    turn(Q) -> turn(Q, start=1) || turn(Q, start=-1) => Rotary positions: the positions of queries and keys differ by
        one.
    turn(Q), turn(K) -> turn(Q, minus=1), turn(K, minus=1) => Rotary positions: the minus is missing, so the pairs are
        not rotated.
    turn(Q), turn(K) -> turn(Q, swapped=True), turn(K, swapped=True) => Rotary positions: features are paired in one way
        and their angles in another.
    turn(Q), turn(K) -> before_split(turn, Q), before_split(turn, K) => Rotary positions are applied before the split,
        to the features of all heads together.
    """
