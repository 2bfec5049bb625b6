"""``transpose_qkv`` step by step, live: every number carries its own address and travels to its next place."""

import itertools
from typing import Any

import torch
import traitlets

from mha_lib.attention.shape_trace import RIGHT, Step, read_tag, spell_out, tagged_tokens, trace_heads
from mha_lib.pictures.live import LivePicture, Place, choice
from mha_lib.pictures.picture import Canvas
from mha_lib.pictures.shape_tables import draw_tables, tables_of

ORDERS = {", ".join(map(str, axes)): axes for axes in itertools.permutations(range(4))}


class TransposeStepper(LivePicture):
    """The moves of ``transpose_qkv`` and of its inverse, one at a time, with any axes in its ``permute``.

    For learners who want to see where each number goes.

    Args:
        first: first values of the attributes.

    Attributes:
        batch_size, num_tokens, num_heads, head_size: sizes, from 1 to 3, 5, 4 and 4.
        axes: what ``permute`` is given: "0, 2, 1, 3", which is right, or another order.
        follow: the number that is marked on all its ways, which is its own address, or −1.
        step: how many moves have been made, 0 to 6.
    """

    module = "transpose_stepper"

    batch_size, num_tokens = (choice(traitlets.Int(first, min=1, max=most)) for first, most in ((2, 3), (4, 5)))
    num_heads, head_size = (choice(traitlets.Int(first, min=1, max=4)) for first in (2, 3))
    axes = choice(traitlets.Enum(list(ORDERS), ", ".join(map(str, RIGHT))))
    follow = choice(traitlets.Int(10, min=-1, max=9999))
    step = Place(lambda _: 7)

    def __init__(self, **first: Any):
        super().__init__("Numbers on their way through transpose_qkv", {"orders": list(ORDERS)}, **first)

    def steps(self) -> list[Step]:
        """The start and what torch makes of it with every move, there and back."""
        X = tagged_tokens(self.batch_size, self.num_tokens, self.num_heads, self.head_size)
        return trace_heads(X, self.num_heads, ORDERS[self.axes])

    def strangers(self) -> int:
        """How many numbers the layer would take for those of another example, head or token."""
        tables = self.steps()[3].tensor
        where = [
            (*divmod(table, self.num_heads), token) for table, token, _ in torch.ones_like(tables).nonzero().tolist()
        ]
        tags = map(read_tag, tables.flatten().tolist())
        return sum((e, h, t) != place for (e, t, h, _), place in zip(tags, where, strict=True))

    def draw(self) -> tuple[Canvas, str, str]:
        step = self.steps()[self.step]
        state = f"Step {self.step}, {step.operation}: shape {tuple(step.tensor.shape)}"
        tables = tables_of(step)
        rows = [
            " | ".join(" ".join(f"{tag:04d}" for tag in group) for group in row) for _, rows in tables for row in rows
        ]
        wrong = f" With these axes {self.strangers()} numbers end in another's place." if self.strangers() else ""
        caption = f"{state}.{wrong} A colour is a head; {spell_out(tables[-1][1][-1][-1][-1])}."
        return draw_tables(step), f"{state}. Rows: {'; '.join(rows)}.", caption
