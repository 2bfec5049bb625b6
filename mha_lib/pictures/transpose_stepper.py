"""``transpose_qkv`` step by step, live: every number carries its own address and travels to its next place."""

import traitlets

from mha_lib.attention.shape_trace import (
    FOLDED,
    Step,
    read_tag,
    spell_out,
    tagged_tokens,
    trace_transpose_output,
    trace_transpose_qkv,
)
from mha_lib.pictures.live import LivePicture, check_place, refuse
from mha_lib.pictures.shape_tables import tables_of
from mha_lib.pictures.still import Canvas, Still

LIMITS = {"batch_size": 3, "num_tokens": 5, "num_heads": 4, "head_size": 4}
HEAD_COLOURS = ("#f2c14e", "#8ecae6", "#a3d9a5", "#e5b3d0")  # under black figures, as in live.css
CELL, LINE, GAP, TITLE = 40, 26, 10, 18  # pixels: a number's width, a row's height, between pieces, above a table


class TransposeStepper(LivePicture):
    """The moves of ``transpose_qkv`` and of its inverse, one at a time, or the tempting wrong reshape.

    For learners who want to see where each number goes.

    Args:
        first: first values of the attributes.

    Attributes:
        batch_size, num_tokens, num_heads, head_size: sizes, from 1 to 3, 5, 4 and 4.
        wrong: whether the permute is left out.
        step: how many moves have been made, from 0; with ``wrong`` there are 2, else 6.

    Raises:
        traitlets.TraitError: a choice cannot be; the message names it.
    """

    module, choices = "transpose_stepper", (*LIMITS, "wrong", "step")

    batch_size, num_tokens = traitlets.Int(2).tag(sync=True), traitlets.Int(4).tag(sync=True)
    num_heads, head_size = traitlets.Int(2).tag(sync=True), traitlets.Int(3).tag(sync=True)
    wrong, step = traitlets.Bool(False).tag(sync=True), traitlets.Int(0).tag(sync=True)

    def __init__(self, **first: object):
        super().__init__(title="Numbers on their way through transpose_qkv", **first)

    @traitlets.validate(*LIMITS)
    def _validate_size(self, proposal):
        name, value = proposal["trait"].name, proposal["value"]
        if not 1 <= value <= LIMITS[name]:
            refuse(name, f"between 1 and {LIMITS[name]}", value)
        return value

    @traitlets.validate("step")
    def _validate_step(self, proposal):
        return check_place("step", proposal["value"], 3 if self.wrong else 7)

    @traitlets.observe("wrong")
    def _stay_among_the_steps(self, change):
        self.step = min(self.step, 2 if change["new"] else 6)

    def steps(self) -> list[Step]:
        """The start and what torch makes of it with every move, there and back."""
        X = tagged_tokens(self.batch_size, self.num_tokens, self.num_heads, self.head_size)
        there = trace_transpose_qkv(X, self.num_heads).steps
        if self.wrong:
            mixed = X.reshape(there[-1].tensor.shape)
            return [there[0], Step("reshape", FOLDED, mixed), Step("back: reshape", there[0].axes, X)]
        returning = trace_transpose_output(there[-1].tensor, self.num_heads).steps[1:]
        return [*there, *(Step(f"back: {step.operation}", step.axes, step.tensor) for step in returning)]

    def still(self) -> Still:
        step = self.steps()[self.step]
        tables = tables_of(step)
        width = max(len(row) * GAP + sum(map(len, row)) * CELL for _, rows in tables for row in rows)
        height = sum(TITLE + LINE * len(rows) for _, rows in tables)
        canvas, y = Canvas(max(width, 260), height + 8), 4
        for name, rows in tables:
            canvas.text(0, y, name, size=11)
            y += TITLE
            for row in rows:
                draw_row(canvas, y, row)
                y += LINE
        state = f"Step {self.step}, {step.operation}: shape {tuple(step.tensor.shape)}"
        numbers = "; ".join(
            " | ".join(" ".join(f"{tag:04d}" for tag in group) for group in row) for _, rows in tables for row in rows
        )
        caption = f"{state}. A colour is a head; {spell_out(tables[-1][1][-1][-1][-1])}."
        return Still(canvas.png(), canvas.width, f"{self.title}. {state}. Rows: {numbers}.", caption)


def draw_row(canvas: Canvas, y: float, row: list[list[int]]) -> None:
    """A row of a table; the pieces that it is cut into stand a little apart."""
    x = 0
    for group in row:
        for tag in group:
            canvas.box(x, y, CELL - 2, LINE - 2, fill=HEAD_COLOURS[read_tag(tag)[2]])
            canvas.text(x + CELL / 2 - 1, y + LINE / 2 - 1, f"{tag:04d}", size=11, anchor="mm", colour="#000000")
            x += CELL
        x += GAP
