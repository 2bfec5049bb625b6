"""A causal mask and a cache of keys and values, live, piece by piece, with three mistakes that people make."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
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


class CacheStepper(LivePicture):
    """Show in a widget, step by step, how a causal head with a key-value cache reads eight tokens, rightly or wrongly.

    For learners who want to see which cut of a text shows which mistake.

    Args:
        vectors: queries, keys and values of the tokens, (3, 8, d); left out, random ones of 16 numbers.
        mistakes: which mistakes its menu offers beside "none"; left out, all three.
        first: first values of the attributes.

    Attributes:
        pieces: how the text is cut: "one by one", "the whole at once" or "4, 3, 1".
        mistake: "none", "masked only at first", "aligned at the top left" or "new keys before old ones", as offered.
        step: how many tokens have been read, 0 to 8; a piece that has begun is read to its end.

    Raises:
        ValueError: ``vectors`` has another shape, or there is no such mistake in ``mistakes``.
    """

    module = "cache_stepper"

    pieces, mistake = choice(traitlets.Enum(list(ENDS), "one by one")), OneOf(lambda self: self.offered)
    step = Place(lambda _: N + 1)

    def __init__(self, vectors: Tensor = VECTORS, *, mistakes: Sequence[str] = MISTAKES[1:], **first: Any):
        if vectors.dim() != 3 or vectors.shape[:2] != (3, N) or not vectors.numel():
            raise ValueError(f"vectors must have shape (3, {N}, d), d at least 1, got {tuple(vectors.shape)}")
        if not set(mistakes) <= set(MISTAKES[1:]):
            raise ValueError(f"mistakes must be some of {MISTAKES[1:]}, got {list(mistakes)}")
        self.vectors, self.offered = vectors.detach().float(), [NONE, *mistakes]
        data = pack(dict(zip(("queries", "keys", "values"), self.vectors, strict=True)))
        data |= {"tokens": TOKENS, "ends": ENDS, "alike": ALIKE, "mistakes": self.offered}
        super().__init__("A causal mask and a cache", data, **{"mistake": NONE, "step": 5, **first})

    def result(self) -> tuple[Tensor, Tensor, list[int]]:
        """Weights (read, 8), NaN on keys not in the cache, outputs (read, d), and the cache's tokens, all by torch."""
        (Q, K, V), attention, kept = self.vectors, DotProductAttention(), list[int]()
        ends = ENDS[self.pieces][: bisect_left(ENDS[self.pieces], self.step) + 1]
        weights, outputs = torch.full((ends[-1], N), torch.nan), torch.zeros(ends[-1], V.shape[1])
        for old, end in pairwise(ends):
            kept = [*range(old, end), *kept] if self.mistake == BEFORE else list(range(end))
            earlier = {AT_FIRST: old and end, TOP_LEFT: 0}.get(self.mistake, old)
            lengths = (earlier + torch.arange(1, 1 + end - old)).clamp(max=end)
            outputs[old:end] = attention(Q[None, old:end], K[None, kept], V[None, kept], lengths[None])[0]
            weights[old:end, kept] = attention.attention_weights[0]
        return weights, outputs, kept

    def draw(self) -> tuple[Canvas, str, str]:
        weights, outputs, kept = self.result()
        Q, K, V = self.vectors[:, None]
        right = DotProductAttention()(Q, K, V, torch.arange(1, N + 1)[None])[0]  # the full causal pass
        off, side = (outputs - right[: len(outputs)]).abs().amax(dim=1).tolist(), N * CELL
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
