"""``transpose_qkv`` step by step, live: tiles that move from one shape to the next, and the order of reading them."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.language import listed, sentences, tr
from mha_course.models.shape_trace import AXES, RIGHT, Step, read_tag, tagged_tokens, trace_heads
from mha_course.pictures.heat_maps import in_lines
from mha_course.pictures.live import LivePicture, Place, choice
from mha_course.pictures.picture import PAD, Canvas
from mha_course.pictures.shared_with_js import head_colour, rgb

ORDERS = {", ".join(map(str, axes)): axes for axes in itertools.permutations(range(4))}
# Where a token's row is cut into its heads' pieces, in cells: between the pieces, and between the tokens.
PIECE_GAP, TOKEN_GAP = 0.3, 0.3
CELL, STRIP = 40, 18  # pixels: the width of a number, and from one strip of all numbers to the next


class TransposeStepper(LivePicture):
    """Show in a widget, step by step, how ``reshape`` and ``permute`` split features into heads and merge them again.

    A strip shows all numbers as they are read, row by row: ``reshape`` never changes their order, ``permute`` does.

    Args:
        first: first values of the attributes.

    Attributes:
        batch_size, num_tokens, num_heads, head_size: sizes, from 1 to 3, 5, 4 and 4.
        axes: what ``permute`` is given: "0, 2, 1, 3", which is right, or another order.
        follow: the number that is marked on all its ways, which is its own address, or −1.
        step: how many moves have been made, 0 to 6; at first 2, after ``permute``.
    """

    module = "transpose_stepper"

    batch_size, num_tokens = (choice(traitlets.Int(first, min=1, max=most)) for first, most in ((2, 3), (4, 5)))
    num_heads, head_size = (choice(traitlets.Int(first, min=1, max=4)) for first in (2, 3))
    axes = choice(traitlets.Enum(list(ORDERS), ", ".join(map(str, RIGHT))))
    follow = choice(traitlets.Int(1201, min=-1, max=9999))
    step = Place(lambda _: 7)

    def __init__(self, **first: Any):
        title = tr("Numbers on their way through transpose_qkv")
        super().__init__(title, {"orders": list(ORDERS)}, **{"step": 2, **first})

    def steps(self) -> list[Step]:
        """Return the start and what torch makes of it with every move, there and back."""
        X = tagged_tokens(self.batch_size, self.num_tokens, self.num_heads, self.head_size)
        return trace_heads(X, self.num_heads, ORDERS[self.axes])

    def strangers(self) -> int:
        """Return how many numbers the layer would take for those of another example, head or token."""
        tables = self.steps()[3].tensor
        where = [
            (*divmod(table, self.num_heads), token) for table, token, _ in torch.ones_like(tables).nonzero().tolist()
        ]
        tags = map(read_tag, tables.flatten().tolist())
        return sum((e, h, t) != place for (e, t, h, _), place in zip(tags, where, strict=True))

    def draw(self) -> tuple[Canvas, str, str]:
        step = self.steps()[self.step]
        operation = tr("start") if step.operation == "start" else step.operation
        words = {"step": self.step, "operation": operation, "shape": tuple(step.tensor.shape)}
        state = tr("Step {step}, {operation}: shape {shape}.", **words)
        tables = tables_of(step)
        rows = [
            " | ".join(" ".join(f"{tag:04d}" for tag in group) for group in row) for _, rows in tables for row in rows
        ]
        count = self.strangers()
        wrong = tr("With these axes {count} numbers end in another's place.", count=count)
        address = tr("A colour is a head; {address}.", address=spell_out(tables[-1][1][-1][-1][-1]))
        caption = sentences([state, wrong if count else "", address])
        orders = {"X": self.steps()[0].tensor, tr("now"): step.tensor}
        return draw_tables(step, orders), sentences([state, tr("Rows: {rows}.", rows=listed(rows, "; "))]), caption


def draw_tables(step: Step, orders: Mapping[str, Tensor] | None = None) -> Canvas:
    """Draw a tensor at one step of splitting features into heads, as tables of numbers coloured by their head.

    ``orders`` are tensors by name whose numbers are drawn below as a strip each, in the order in which they are read.
    """
    tables = tables_of(step)
    _, rows = tables[0]  # the others are as large
    gaps, pitch = len(rows[0]) - 1, CELL * (0.7 + TOKEN_GAP * (len(rows[0]) > 1))
    wide, high = CELL * (sum(map(len, rows[0])) + PIECE_GAP * gaps), (len(rows) - 1) * pitch + 0.7 * CELL
    corners = in_lines([wide] * len(tables), 36, gap=CELL, pitch=high + 28)
    height, right = corners[-1][1] + high + 18, max(x for x, _ in corners) + wide
    canvas = Canvas(max(right + 4, 420), height + 24 + STRIP * len(orders or ()))
    canvas.text(0, 0, f"{step.operation}: {tuple(step.tensor.shape)}  ({', '.join(step.axes)})", colour="text")
    for (name, rows), (x, y) in zip(tables, corners, strict=True):
        canvas.text(x, y - 6, name, size=10, anchor="ls")
        for number, row in enumerate(rows):
            left, top = x, y + number * pitch
            if gaps:
                canvas.box(x - 4, top - 4, wide + 7, CELL * 0.66 + 8, line="soft", radius=5)
            for group in row:
                for tag in group:
                    canvas.box(left, top, CELL - 2, CELL * 0.66, fill=head_colour(read_tag(tag)[2]), radius=3)
                    middle = left + CELL / 2 - 1, top + CELL * 0.33
                    canvas.text(*middle, f"{tag:04d}", size=10, anchor="mm", colour="black")
                    left += CELL
                left += PIECE_GAP * CELL
    tags = step.tensor.flatten().tolist()
    heads = sorted({read_tag(tag)[2] for tag in tags})
    for place, head in enumerate(heads):
        canvas.box(62 * place, height + 2, 12, 12, fill=head_colour(head), radius=3)
        canvas.text(62 * place + 16, height + 8, tr("head {head}", head=head), size=10, anchor="lm")
    canvas.text(62 * len(heads) + 8, height + 8, spell_out(int(tags[-1])), size=10, anchor="lm")
    part = (canvas.width - 2 * PAD - 46) / len(tags)
    for line, (name, tensor) in enumerate((orders or {}).items()):
        y = height + 28 + STRIP * line
        canvas.text(38, y + 6, name, size=10, anchor="rm")
        for place, tag in enumerate(tensor.flatten().tolist()):  # a later token is darker
            _, token, head, _ = read_tag(tag)
            fill = tuple((rgb(head_colour(head)) * (1 - 0.09 * token)).round().astype(int).tolist())
            canvas.box(46 + place * part, y, max(part - 1, 1), 13, fill=fill)
    return canvas


def tables_of(step: Step) -> list[tuple[str, list[list[list[int]]]]]:
    """Split the tensor of a reshaping step, of 3 or 4 axes, into named tables: lists of rows of groups of numbers."""
    X = step.tensor
    if X.dim() == 3:
        return [(f"[{i}]", [[row] for row in table]) for i, table in enumerate(X.tolist())]
    if step.axes == AXES:  # a token's row is cut into its heads' pieces
        return [(f"[{i}]", example) for i, example in enumerate(X.tolist())]
    pairs = itertools.product(range(X.shape[0]), range(X.shape[1]))
    return [(f"[{i}, {j}]", [[row] for row in X[i, j].tolist()]) for i, j in pairs]


def spell_out(tag: int) -> str:
    """Describe in words the example, token, head and feature of a number made by ``tagged_tokens``."""
    example, token, head, feature = read_tag(tag)
    words = {"tag": f"{tag:04d}", "example": example, "token": token, "head": head, "feature": feature}
    return tr("{tag} = example {example}, token {token}, head {head}, feature {feature}", **words)
