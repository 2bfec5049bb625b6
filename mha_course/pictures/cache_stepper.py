"""A causal mask and a cache of keys and values, live, piece by piece, with three mistakes that people make."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.pictures.live import LivePicture, OneOf, Place, choice, pack
from mha_course.pictures.picture import Canvas, signed
from mha_lib.attention import DotProductAttention

TOKENS = "we keep what we have read so far".split()
N, CELL, LEFT, TOP = len(TOKENS), 38, 52, 30  # the last three of the still picture, in pixels
VECTORS = torch.randn(3, N, 16, generator=torch.Generator().manual_seed(0))
ALIKE = 1e-5  # outputs that differ by less are the same but for rounding
ENDS = {"one by one": list(range(N + 1)), "the whole at once": [0, N], "4, 3, 1": [0, 4, 7, 8]}  # of pieces
MISTAKES = ["none", "masked only at first", "aligned at the top left", "new keys before old ones"]
NONE, AT_FIRST, TOP_LEFT, BEFORE = MISTAKES


def read_in_pieces(ends: Sequence[int], mistake: str = NONE) -> tuple[Tensor, Tensor, list[int]]:
    """Return what a head makes of a text in pieces: weights (read, 8), outputs (read, d), and the cache's tokens.

    Weights are 0 where the mask hides a key, and NaN where it is not in the cache. ``ends`` are those of the pieces.
    """
    (Q, K, V), attention, kept = VECTORS, DotProductAttention(), list[int]()
    weights, outputs = torch.full((ends[-1], N), torch.nan), torch.zeros(ends[-1], V.shape[1])
    for old, end in pairwise(ends):
        kept = [*range(old, end), *kept] if mistake == BEFORE else list(range(end))
        earlier = {AT_FIRST: old and end, TOP_LEFT: 0}.get(mistake, old)
        lengths = (earlier + torch.arange(1, 1 + end - old)).clamp(max=end)
        outputs[old:end] = attention(Q[None, old:end], K[None, kept], V[None, kept], lengths[None])[0]
        weights[old:end, kept] = attention.attention_weights[0]
    return weights, outputs, kept


def distances(outputs: Tensor) -> Tensor:
    """Return how far each output is from that of the full causal pass."""
    return (outputs - read_in_pieces([0, N])[1][: len(outputs)]).abs().amax(dim=1)


class CacheStepper(LivePicture):
    """Show in a widget, step by step, how a causal head with a key-value cache reads eight tokens, rightly or wrongly.

    For learners who want to see which cut of a text shows which mistake.

    Args:
        mistakes: which mistakes its menu offers beside "none"; left out, all three.
        first: first values of the attributes.

    Attributes:
        pieces: how the text is cut: "one by one", "the whole at once" or "4, 3, 1".
        mistake: "none", "masked only at first", "aligned at the top left" or "new keys before old ones", as offered.
        step: how many tokens have been read, 0 to 8; a piece that has begun is read to its end.

    Raises:
        ValueError: there is no such mistake in ``mistakes``.
    """

    module = "cache_stepper"

    pieces, mistake = choice(traitlets.Enum(list(ENDS), "one by one")), OneOf(lambda self: self.offered)
    step = Place(lambda _: N + 1)

    def __init__(self, *, mistakes: Sequence[str] = MISTAKES[1:], **first: Any):
        if not set(mistakes) <= set(MISTAKES[1:]):
            raise ValueError(f"mistakes must be some of {MISTAKES[1:]}, got {list(mistakes)}")
        self.offered = [NONE, *mistakes]
        weights, outputs, _ = zip(*(read_in_pieces(*one) for one in product(ENDS.values(), self.offered)), strict=True)
        data = pack({"weights": torch.stack(weights), "far": torch.stack([distances(own) for own in outputs])})
        data |= {"tokens": TOKENS, "ends": ENDS, "alike": ALIKE, "mistakes": self.offered}
        super().__init__("A causal mask and a cache", data, **{"mistake": NONE, "step": 5, **first})

    def result(self) -> tuple[Tensor, Tensor, list[int]]:
        """Return weights, outputs and the cache's tokens after the pieces that have been read, all by torch."""
        ends = ENDS[self.pieces]
        return read_in_pieces(ends[: bisect_left(ends, self.step) + 1], self.mistake)

    def draw(self) -> tuple[Canvas, str, str]:
        weights, outputs, kept = self.result()
        off, side = distances(outputs).tolist(), N * CELL
        canvas, state = Canvas(LEFT + side + 60, TOP + side + 44), f"{self.pieces}; mistake: {self.mistake}"
        for i, name in enumerate(TOKENS):
            canvas.text(LEFT - 6, TOP + (i + 0.5) * CELL, f"{name} {i}", size=10, anchor="rm", colour="query")
            canvas.text(LEFT + (i + 0.5) * CELL, TOP + side + 4, f"k{i}", size=10, anchor="ma", colour="key")
        for i, far in enumerate(off):
            row, y = weights[i : i + 1, : int(weights[i].isfinite().sum())], TOP + i * CELL
            canvas.heat_map(LEFT, y, CELL, row, masked=row == 0, numbers=True)
            text, colour = (f"✗ {signed(far)}", "wrong") if far > ALIKE else ("✓", "soft")
            canvas.text(LEFT + side + 6, y + CELL / 2, text, anchor="lm", colour=colour)
        cache = " ".join(f"k{i}" for i in kept) or "empty"
        canvas.text(LEFT, TOP + side + 26, f"cache: {cache}")
        canvas.text(0, 0, state, colour="text")
        wrong = int(((weights > 0) != torch.ones_like(weights).tril().bool()).any(dim=1).sum())
        verdict = f"Queries that attend to the wrong keys: {wrong} of {len(off)}."
        if wrong:
            verdict += f" Their outputs are off by up to {signed(max(off))}."
        return canvas, f"{state}; {len(off)} of {N} tokens read; cache: {cache}. {verdict}", verdict
