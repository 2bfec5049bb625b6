"""Two texts in one row, live: where the border is put, which pairs leak, and what each token loses by it."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.pictures.cache_stepper import ALIKE
from mha_course.pictures.live import LivePicture, Place, choice, pack
from mha_course.pictures.picture import Canvas, signed
from mha_lib.attention import DotProductAttention

N, BORDER, SIZE = 12, 5, 16  # tokens of both texts, where the second begins, features
CELL, LEFT, TOP = 30, 52, 30  # of the still picture, in pixels
NAMES = [f"A{i}" for i in range(BORDER)] + [f"B{i}" for i in range(N - BORDER)]
AGAIN, ON = POSITIONS = ["start again", "go on"]


class PackedTextsExplorer(LivePicture):
    """Show in a widget a causal head on two texts packed into one sequence, with a movable border between them.

    For learners who want to see what a wrong border, a missing mask or wrong positions do to the outputs.

    Args:
        features: the tokens and the vectors of their positions, (2, 12, d); left out, random ones of 16 numbers.
        matrices: W_q and W_k, (2, d, d); left out, random ones.
        first: first values of the attributes.

    Attributes:
        border: the token in front of which the program puts the border, 0 to 12; text B begins at token 5.
        masked: whether a token attends to its own text alone, as the border gives it.
        positions: "start again" at the border, or "go on".

    Raises:
        ValueError: ``features`` or ``matrices`` has another shape.
    """

    module = "packed_texts_explorer"

    border, masked = Place(lambda _: N + 1), choice(traitlets.Bool(True))
    positions = choice(traitlets.Enum(POSITIONS, AGAIN))

    def __init__(self, features: Tensor | None = None, matrices: Tensor | None = None, **first: Any):
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(2, N, SIZE, generator=generator) if features is None else features
        if features.dim() != 3 or features.shape[:2] != (2, N) or not features.numel():
            raise ValueError(f"features must have shape (2, {N}, d), d at least 1, got {tuple(features.shape)}")
        size = features.shape[2]
        matrices = torch.randn(2, size, size, generator=generator) / 4 if matrices is None else matrices
        if matrices.shape != (2, size, size):
            raise ValueError(f"matrices must have shape (2, {size}, {size}), got {tuple(matrices.shape)}")
        self.tensors = {
            name: tensor.detach().float()
            for name, tensor in zip(("tokens", "places", "W_q", "W_k"), [*features, *matrices], strict=True)
        }
        data = pack(self.tensors) | {"names": NAMES, "border": BORDER, "alike": ALIKE}
        super().__init__("Two texts in one row", data, **{"border": BORDER, **first})

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (12, 12), outputs (12, d), and how far each output is from its text alone (12,), all by torch."""
        weights, outputs = self._read(self.border, self.masked, self.positions == AGAIN)
        _, alone = self._read(BORDER, masked=True, again=True)
        return weights, outputs, (outputs - alone).abs().amax(dim=1)

    def _read(self, border: int, masked: bool, again: bool) -> tuple[Tensor, Tensor]:
        tokens, places, W_q, W_k = self.tensors.values()
        is_second = torch.arange(N) >= border
        positions = torch.arange(N) - border * (is_second & again)
        X, attention = (tokens + places[positions])[None], DotProductAttention()
        ids = is_second & masked
        outputs = attention(X @ W_q.T, X @ W_k.T, X, causal=True, attn_mask=lambda b, h, i, j: ids[i] == ids[j])
        return attention.attention_weights[0], outputs[0]

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
