"""Two texts in one row, live: where the border is put, which pairs leak, and what each token loses by it."""

from itertools import product
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.pictures.cache_stepper import ALIKE
from mha_course.pictures.live import LivePicture, Place, choice, pack
from mha_course.pictures.picture import Canvas, signed
from mha_lib.attention import DotProductAttention

N, BORDER, SIZE = 12, 5, 16  # tokens of both texts, where the second begins, features
GENERATOR = torch.Generator().manual_seed(0)
TOKENS, PLACES = torch.randn(2, N, SIZE, generator=GENERATOR)
W_Q, W_K = torch.randn(2, SIZE, SIZE, generator=GENERATOR) / 4
CELL, LEFT, TOP = 30, 52, 30  # of the still picture, in pixels
NAMES = [f"A{i}" for i in range(BORDER)] + [f"B{i}" for i in range(N - BORDER)]
AGAIN, ON = POSITIONS = ["start again", "go on"]


def read_row(border: int, masked: bool, again: bool) -> tuple[Tensor, Tensor]:
    """Return the weights (12, 12) and outputs (12, d) of a head that reads both texts as a program says.

    Args:
        border: where the program begins the second text.
        masked: whether a token attends to its own text alone.
        again: whether positions start again there.
    """
    is_second, attention = torch.arange(N) >= border, DotProductAttention()
    positions = torch.arange(N) - border * (is_second & again)
    X, ids = (TOKENS + PLACES[positions])[None], is_second & masked
    outputs = attention(X @ W_Q.T, X @ W_K.T, X, causal=True, attn_mask=lambda b, h, i, j: ids[i] == ids[j])
    return attention.attention_weights[0], outputs[0]


def distances(outputs: Tensor) -> Tensor:
    """Return how far each output is from that in its text alone, (12,)."""
    return (outputs - read_row(BORDER, masked=True, again=True)[1]).abs().amax(dim=1)


class PackedTextsExplorer(LivePicture):
    """Show in a widget a causal head on two texts packed into one sequence, with a movable border between them.

    For learners who want to see what a wrong border, a missing mask or wrong positions do to the outputs.

    Args:
        first: first values of the attributes.

    Attributes:
        border: the token in front of which the program puts the border, 0 to 12; text B begins at token 5.
        masked: whether a token attends to its own text alone, as the border gives it.
        positions: "start again" at the border, or "go on".
    """

    module = "packed_texts_explorer"

    border, masked = Place(lambda _: N + 1), choice(traitlets.Bool(True))
    positions = choice(traitlets.Enum(POSITIONS, AGAIN))

    def __init__(self, **first: Any):
        every = [read_row(*one) for one in product(range(N + 1), (True, False), (True, False))]
        far = torch.stack([distances(outputs) for _, outputs in every])
        data = pack({"weights": torch.stack([weights for weights, _ in every]), "far": far})
        data |= {"names": NAMES, "border": BORDER, "alike": ALIKE}
        super().__init__("Two texts in one row", data, **{"border": BORDER, **first})

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (12, 12), outputs (12, d), and how far each output is from its text alone (12,), all by torch."""
        weights, outputs = read_row(self.border, self.masked, self.positions == AGAIN)
        return weights, outputs, distances(outputs)

    def draw(self) -> tuple[Canvas, str, str]:
        weights, _, far = self.result()
        side = N * CELL
        canvas = Canvas(LEFT + side + 60, TOP + side + 24)
        state = f"border before token {self.border}; {'mask' if self.masked else 'no mask'} by text"
        state += f"; positions {self.positions}"
        canvas.text(0, 0, state, colour="text")
        canvas.heat_map(LEFT, TOP, CELL, weights, masked=weights == 0)
        for i, name in enumerate(NAMES):
            canvas.text(LEFT - 6, TOP + (i + 0.5) * CELL, name, size=10, anchor="rm", colour="query")
            canvas.text(LEFT + (i + 0.5) * CELL, TOP + side + 4, name, size=10, anchor="ma", colour="key")
            text, colour = (f"✗ {signed(far[i].item())}", "wrong") if far[i] > ALIKE else ("✓", "soft")
            canvas.text(LEFT + side + 6, TOP + (i + 0.5) * CELL, text, anchor="lm", colour=colour)
        most = {"A": signed(far[:BORDER].max().item()), "B": signed(far[BORDER:].max().item())}
        by = [f"{text} differs by up to {distance}" for text, distance in most.items()]
        verdict = f"From each text alone, {' and '.join(by)}."
        return canvas, f"{state}. {verdict}", f"Hatched keys are masked. {verdict}"
