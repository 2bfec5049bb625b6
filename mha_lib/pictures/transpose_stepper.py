"""``transpose_qkv`` step by step, live: every number carries its own address and travels to its next place."""

from typing import Any

import traitlets

from mha_lib.attention.shape_trace import (
    FOLDED,
    Step,
    spell_out,
    tagged_tokens,
    trace_transpose_output,
    trace_transpose_qkv,
)
from mha_lib.pictures.live import LivePicture, Place, choice
from mha_lib.pictures.picture import Canvas
from mha_lib.pictures.shape_tables import draw_tables, tables_of


class TransposeStepper(LivePicture):
    """The moves of ``transpose_qkv`` and of its inverse, one at a time, or the tempting wrong reshape.

    For learners who want to see where each number goes.

    Args:
        first: first values of the attributes.

    Attributes:
        batch_size, num_tokens, num_heads, head_size: sizes, from 1 to 3, 5, 4 and 4.
        wrong: whether the permute is left out.
        step: how many moves have been made, from 0; with ``wrong`` there are 2, else 6.
    """

    module = "transpose_stepper"

    batch_size, num_tokens = (choice(traitlets.Int(first, min=1, max=most)) for first, most in ((2, 3), (4, 5)))
    num_heads, head_size = (choice(traitlets.Int(first, min=1, max=4)) for first in (2, 3))
    wrong = choice(traitlets.Bool(False))
    step = Place(lambda self: len(self.steps()))

    def __init__(self, **first: Any):
        super().__init__("Numbers on their way through transpose_qkv", {}, **first)

    @traitlets.observe("wrong")
    def _stay_among_the_steps(self, change):
        self.step = min(self.step, len(self.steps()) - 1)

    def steps(self) -> list[Step]:
        """The start and what torch makes of it with every move, there and back."""
        X = tagged_tokens(self.batch_size, self.num_tokens, self.num_heads, self.head_size)
        there = trace_transpose_qkv(X, self.num_heads).steps
        if self.wrong:
            mixed = X.reshape(there[-1].tensor.shape)
            return [there[0], Step("reshape", FOLDED, mixed), Step("back: reshape", there[0].axes, X)]
        returning = trace_transpose_output(there[-1].tensor, self.num_heads).steps[1:]
        return [*there, *(Step(f"back: {step.operation}", step.axes, step.tensor) for step in returning)]

    def draw(self) -> tuple[Canvas, str, str]:
        step = self.steps()[self.step]
        state = f"Step {self.step}, {step.operation}: shape {tuple(step.tensor.shape)}"
        tables = tables_of(step)
        rows = [
            " | ".join(" ".join(f"{tag:04d}" for tag in group) for group in row) for _, rows in tables for row in rows
        ]
        caption = f"{state}. A colour is a head; {spell_out(tables[-1][1][-1][-1][-1])}."
        return draw_tables(step), f"{state}. Rows: {'; '.join(rows)}.", caption
