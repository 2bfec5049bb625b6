"""The heads of a small model that reads digits, live: look at each, switch it off, draw a digit."""

from typing import Any, cast

import numpy as np
import torch
import traitlets
from torch import Tensor

from mha_course.models.tasks import Batch, Digits, Task, find_task, to_images, to_patches
from mha_course.models.transformer import Transformer
from mha_course.pictures.heat_maps import GAP, SCALE_HEIGHT, TITLE, room_for
from mha_course.pictures.live import LivePicture, Place, choice, pack, pack_uint16, refuse
from mha_course.pictures.picture import Canvas, signed
from mha_course.pictures.shared_with_js import bound
from mha_lib.figures import grid_shape

MOST_COLUMNS = 6  # maps in a row
QUERIES = 17  # the class token and the patches
TOP = bound("digit_stage.js", "TOP")  # the weight where the scale of the digits ends


class HeadExplorer(LivePicture):
    """Show a model of digits in a widget where heads can be switched off: attention maps, answers, held-out accuracy.

    For learners who want to see where heads look and what they are worth, and to draw a digit of their own.

    Args:
        model: a model of the task "digits".
        task: the task, if it holds out other images than those of the course.
        choices: first values of the attributes.

    Attributes:
        example: which held-out example is shown.
        query: the token that looks: 0 is the class token, 1 to 16 are the patches, row by row.
        gates: a gate on every head, (num_blocks, num_heads), from 0 to 1; a tensor will do, it reads as lists.
        drawn: 64 numbers from 0 to 1 instead of the example, or None.
        layer, head: the head that is told about.

    Raises:
        ValueError: the task has other inputs, or the model's blocks have different numbers of heads.
    """

    module = "head_explorer"

    example = Place(lambda self: len(self.learned.held_out))
    query = Place(lambda _: QUERIES)
    gates, drawn = choice(traitlets.Any()), choice(traitlets.Any(None, allow_none=True))
    layer, head = Place(lambda self: self._shape[0]), Place(lambda self: self._shape[1])

    def __init__(self, model: Transformer, task: Task | str = "digits", **choices: Any):
        self.model, self.learned = model, find_task(task) if isinstance(task, str) else task
        if not isinstance(self.learned, Digits):
            raise ValueError(f"task must be one of digits, got {self.learned.name}")
        held_out = self.learned.held_out
        with torch.no_grad():
            model(held_out[:1].inputs)
        sizes = [weights.shape[1] for weights in model.attention_weights]
        if len(set(sizes)) > 1:
            raise ValueError(f"model must have equally many heads in every block, got {sorted(set(sizes))}")
        self._shape = len(sizes), sizes[0]
        images = (to_images(cast(Tensor, held_out.inputs)) * 16).round()
        data = pack(model.state_dict()) | {"blocks": list(model.blocks), "count": len(held_out)}
        data |= {"inputs": pack_uint16(images), "targets": pack_uint16(held_out.targets)}
        title = f"Heads of a model of the task {self.learned.name}"
        super().__init__(title, data, **{"gates": torch.ones(self._shape), **choices})

    @traitlets.validate("gates")
    def _validate_gates(self, proposal):
        need = f"numbers from 0 to 1 of shape {self._shape}"
        return shares("gates", need, proposal["value"], self._shape)

    @traitlets.validate("drawn")
    def _validate_drawn(self, proposal):
        value = proposal["value"]
        return value if value is None else shares("drawn", "None or 64 numbers from 0 to 1", value, (64,))

    def batch(self) -> Batch:
        """Return the example that is shown, as a batch of one."""
        batch = self.learned.held_out[self.example : self.example + 1]
        if self.drawn is None:
            return batch
        return Batch(to_patches(torch.tensor(self.drawn).reshape(1, 8, 8)), None, batch.targets)

    def answer(self) -> tuple[Tensor, list[Tensor]]:
        """Return what torch makes of the present state: logits (10,), each block's weights (num_heads, 17, 17)."""
        with torch.no_grad():
            output = self.model(self.batch().inputs, None, torch.tensor(self.gates).float())
        return self.learned.logits(output)[0], [weights[0] for weights in self.model.attention_weights]

    def draw(self) -> tuple[Canvas, str, str]:
        logits, weights = self.answer()
        target, query = self.learned.held_out.targets[self.example], self.query
        inputs, article = cast(Tensor, self.batch().inputs), "An" if target == 8 else "A"
        answer = f"{'Your drawing' if self.drawn else f'{article} {target}'} is read as {logits.argmax()}"
        answer = answer if inputs.any() else "The sheet is empty"
        name = "patch r{}c{}".format(*divmod(query - 1, 4)) if query else "the class token"
        caption = f"{answer}. Weights of each head from {name}; run the cell to switch heads off."
        largest = "; ".join(
            f"{block} {', '.join(signed(row[query].max().item()) for row in layer)}"
            for block, layer in zip(self.data["blocks"], weights, strict=True)
        )
        off = sum(gate == 0 for row in self.gates for gate in row)
        on = f"{off} {'head is' if off == 1 else 'heads are'} off" if off else "all heads are on"
        canvas = self._sheet(to_images(inputs)[0], weights, f"from {name}")
        return canvas, f"{answer}; {on}. Largest weight of each head from {name}: {largest}.", caption

    def _sheet(self, image: Tensor, weights: list[Tensor], name: str) -> Canvas:
        """Draw the image, and each head's weights on its patches, where the ink is an outline: colour shows weights."""
        query, (_, columns) = self.query, grid_shape(self._shape[1], MOST_COLUMNS)
        titles = [f"{block}, head {head}" for block in self.data["blocks"] for head in range(self._shape[1])]
        side = min(room_for(columns, 2 * GAP) * columns / (columns + 1.5), 84)  # the image is as wide as 1.5 maps
        ink, cell, beside = image / image.max().clamp(min=1e-12), side / 4, 1.5 * side + 2 * GAP
        step, pitch, rows = side + TITLE + GAP / 2, side + GAP, -(-len(titles) // columns)
        canvas = Canvas(beside + columns * pitch - GAP, max(rows * step, TITLE + 1.5 * side + 12 + SCALE_HEIGHT))
        canvas.text(0, 12, name, size=10, anchor="ls")
        for (row, column), darkness in np.ndenumerate(ink.numpy()):
            grey, pixel = round(245 - 225 * float(darkness)), 0.75 * cell
            canvas.box(pixel * column, TITLE + pixel * row, pixel, pixel, fill=(grey, grey, grey))
        places = [(beside + n % columns * pitch, TITLE + n // columns * step, cell) for n in range(len(titles))]
        grids = torch.cat([heads[:, query, 1:].reshape(-1, 4, 4) for heads in weights])
        for title, grid, (x, y, _) in zip(titles, grids, places, strict=True):
            canvas.heat_map(x, y, cell, grid / TOP, title=title)
            for ends in ink_outline(ink):
                along = [(x + cell / 2 * right, y + cell / 2 * down) for right, down in ends]
                canvas.line(along, colour="text", thickness=1.5)
        row, column = divmod(query - 1, 4)
        for x, y, patch in [*places, (0, TITLE, 1.5 * cell)] if query else ():
            canvas.box(x + column * patch, y + row * patch, patch, patch, line="query", thickness=3)
        canvas.scale(0, TITLE + 1.5 * side + 10, 120, ((0, "0"), (1, f"{TOP:.2f}")))
        return canvas


def ink_outline(ink: Tensor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the outline of the dark pixels of an image (height, width), as a list of edges ((x, y), (x, y))."""
    dark = torch.nn.functional.pad((ink > 0.5).int(), (1, 1, 1, 1))  # (height + 2, width + 2)
    upright = dark.diff(dim=1)[1:-1].nonzero().tolist()  # between left and right neighbours
    lying = dark.diff(dim=0)[:, 1:-1].nonzero().tolist()  # between upper and lower ones
    return [((x, y), (x, y + 1)) for y, x in upright] + [((x, y), (x + 1, y)) for y, x in lying]


def shares(name: str, need: str, value: Any, shape: tuple[int, ...]) -> list:
    """Return numbers from 0 to 1 as lists of this shape; raise an error with what ``name`` needs if they are others."""
    try:
        given = torch.as_tensor(value).double()
    except (TypeError, ValueError, RuntimeError):
        refuse(name, need, value)
    numbers = given.flatten() if len(shape) == 1 else given
    if numbers.shape != shape or not ((numbers >= 0) & (numbers <= 1)).all():
        refuse(name, need, value)
    return numbers.tolist()
