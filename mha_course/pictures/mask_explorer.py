"""One query, its keys and three ways to write the mask, live: where padding begins is dragged."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.pictures.heat_maps import TITLE, draw_numbers, widest
from mha_course.pictures.live import LivePicture, Place, choice
from mha_course.pictures.picture import Canvas
from mha_lib.attention import masked_softmax

SCORES = (1.9, 0.4, 1.1, 2.6, -0.6, 1.5)
WORDS = ("we", "read", "slowly", "and", "take", "notes")
SHIFTS = (0, -3_000_000)
MOST = 8
FILLS = {"fill −1e6": -1e6, "fill −∞": -torch.inf}
CELL, SPACE = 46, 18  # of the still picture, in pixels: a number, and the space below a row of numbers


class MaskExplorer(LivePicture):
    """Compare in a widget ``masked_softmax`` with masking by −1e6 and by −∞, for one query and any valid length.

    Args:
        scores: (num_keys,), from 1 to 8 keys; left out, six scores of a short sentence.
        first: first values of the attributes.

    Attributes:
        valid_len: how many keys are valid, from 0 to num_keys; at first half of them.
        shift: what is added to all scores, 0 or −3,000,000; it leaves the softmax unchanged.

    Raises:
        ValueError: ``scores`` has another shape.
    """

    module = "mask_explorer"

    valid_len = Place(lambda self: len(self.scores) + 1)
    shift = choice(traitlets.Enum(SHIFTS, 0))

    def __init__(self, scores: Tensor | None = None, **first: Any):
        self.scores = torch.tensor(SCORES) if scores is None else scores.detach()
        if self.scores.dim() != 1 or not 0 < len(self.scores) <= MOST:
            raise ValueError(
                f"scores must have shape (num_keys,) with 1 to {MOST} keys, got {tuple(self.scores.shape)}"
            )
        keys = WORDS if scores is None else [f"k{i}" for i in range(len(scores))]
        data = {"scores": self.scores.tolist(), "keys": list(keys), "noun": "key" if scores is not None else "word"}
        super().__init__("Three ways to mask", data, **{"valid_len": (len(self.scores) + 1) // 2, **first})

    def ways(self) -> dict[str, Tensor]:
        """Return the weights (num_keys,) of the present state, by the name of the way that gives them."""
        scores = self.scores.double() + self.shift
        masked = torch.arange(len(scores)) >= self.valid_len
        weights = masked_softmax(scores[None, None], torch.tensor([self.valid_len]))[0, 0]
        filled = {name: scores.masked_fill(masked, fill).softmax(-1) for name, fill in FILLS.items()}
        return {"masked_softmax": weights} | filled

    def verdict(self, weights: Tensor) -> str:
        """Return what is right or wrong with these weights: a mark and words."""
        if weights.isnan().any():
            return "✗ NaN"
        on_padding = weights[self.valid_len :].sum().item()
        if on_padding < 0.005:
            return "✓ sums to 1" if self.valid_len else "✓ all zeros"
        return "✗ all on padding" if on_padding > 0.995 else f"✗ {100 * on_padding:.0f} % on padding"

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the scores and the weights of the three ways, with the edge of the valid keys."""
        n, ways, cell = len(self.scores), self.ways(), max(CELL, 8 + widest(self.scores, 0))
        verdicts = {name: self.verdict(weights) for name, weights in ways.items()}
        added = f" {self.shift:,}".replace("-", "−") if self.shift else ""
        lanes = {f"scores{added}": self.scores} | {f"{name}:  {verdicts[name]}": own for name, own in ways.items()}
        canvas = Canvas(max(n * cell, 260), 24 + (cell + SPACE) * len(lanes) - 8)
        for i, name in enumerate(self.data["keys"]):
            is_valid = i < self.valid_len
            key = name if is_valid else "pad"
            canvas.text((i + 0.5) * cell, 0, key, size=11, anchor="ma", colour="key" if is_valid else "soft")
        hatched = torch.arange(n)[None] >= self.valid_len
        for row, (title, own) in enumerate(lanes.items()):
            hides, y = hatched if row < 2 else None, 24 + TITLE + row * (cell + SPACE)
            draw_numbers(canvas, 0, y, cell, own[None], title, masked=hides, are_weights=row > 0)
            edge = self.valid_len * cell - 1
            canvas.line([(edge, y), (edge, y + cell - 2)], colour="key", thickness=2)
        told = "; ".join(f"{name} {verdict[2:]}" for name, verdict in verdicts.items())
        rows = "; ".join(f"{name} {', '.join(f'{x:.2f}' for x in own.tolist())}" for name, own in ways.items())
        more = f", {added.strip()} added to each score" if self.shift else ""
        state = f"{self.valid_len} of {n} keys valid{more}"
        return canvas, f"{state}. {told}. Weights: {rows}.", f"{state}: {told}."
