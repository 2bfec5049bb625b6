"""The heads of a small model, live: look at each, switch it off, draw a digit."""

from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.models.tasks import Batch, Digits, Lookups, Task, find_task, to_images, to_patches
from mha_course.models.transformer import Transformer
from mha_course.pictures.heat_maps import GAP, draw_maps, draw_over_image, room_for
from mha_course.pictures.live import LivePicture, Place, choice, pack, pack_uint16, refuse
from mha_course.pictures.picture import Canvas, signed
from mha_course.pictures.shared_with_js import bound
from mha_lib.figures import grid_shape

MOST_COLUMNS = 6  # maps in a row
TOP = bound("digit_stage.js", "TOP")  # the weight where the scale of the digits ends


class HeadExplorer(LivePicture):
    """Show a trained model in a widget where heads can be switched off: attention maps, answers, held-out accuracy.

    For learners who want to see where heads look and what they are worth. A model of the task "digits" shows its
    image, and a digit can be drawn; other models show their tokens.

    Args:
        model: a model of ``task``.
        task: the task or its name; its held-out examples are shown.
        choices: first values of the attributes.

    Attributes:
        example: which held-out example is shown.
        query: the token that looks: for digits 0 is the class token, 1 to 16 are the patches, row by row.
        gates: a gate on every head, (num_blocks, num_heads), from 0 to 1; a tensor will do, it reads as lists.
        drawn: for digits, 64 numbers from 0 to 1 instead of the example, or None.
        layer, head: the head that is shown in large.

    Raises:
        ValueError: the model's blocks have different numbers of heads.
    """

    module = "head_explorer"

    example = Place(lambda self: len(self.learned.held_out))
    query = Place(lambda self: self._num_queries)
    gates, drawn = choice(traitlets.Any()), choice(traitlets.Any(None, allow_none=True))
    layer, head = Place(lambda self: self._shape[0]), Place(lambda self: self._shape[1])

    def __init__(self, model: Transformer, task: Task | str = "digits", **choices: Any):
        self.model, self.learned = model, find_task(task) if isinstance(task, str) else task
        with torch.no_grad():
            one = self.learned.held_out[:1]
            num_classes = self.learned.logits(model(one.inputs, one.valid_lens)).shape[-1]
        sizes = [list(weights.shape[1:]) for weights in model.attention_weights]  # (num_heads, num_queries, num_keys)
        if len({size[0] for size in sizes}) > 1:
            heads = sorted({size[0] for size in sizes})
            raise ValueError(f"model must have equally many heads in every block, got {heads}")
        self._shape, self._num_queries = (len(sizes), sizes[0][0]), max(size[1] for size in sizes)
        data = pack(model.state_dict()) | {
            "blocks": list(model.blocks),
            "sizes": [size[1:] for size in sizes],
            **_examples(self.learned, num_classes),
        }
        title = f"Heads of a model of the task {self.learned.name}"
        super().__init__(title, data, **{"gates": torch.ones(self._shape), **choices})

    @traitlets.validate("gates")
    def _validate_gates(self, proposal):
        need = f"numbers from 0 to 1 of shape {self._shape}"
        return shares("gates", need, proposal["value"], self._shape)

    @traitlets.validate("drawn")
    def _validate_drawn(self, proposal):
        value = proposal["value"]
        if value is not None and not isinstance(self.learned, Digits):
            refuse("drawn", "None for a model that reads no digits", value)
        return value if value is None else shares("drawn", "None or 64 numbers from 0 to 1", value, (64,))

    def batch(self) -> Batch:
        """Return the example that is shown, as a batch of one."""
        batch = self.learned.held_out[self.example : self.example + 1]
        if self.drawn is None:
            return batch
        return Batch(to_patches(torch.tensor(self.drawn).reshape(1, 8, 8)), None, batch.targets)

    def answer(self) -> tuple[Tensor, list[Tensor]]:
        """Return what torch makes of the present state.

        The logits are ``(*targets.shape, number of classes)``, each block's weights (num_heads, num_queries, num_keys).
        """
        batch = self.batch()
        with torch.no_grad():
            output = self.model(batch.inputs, batch.valid_lens, torch.tensor(self.gates).float())
        return self.learned.logits(output)[0], [weights[0] for weights in self.model.attention_weights]

    def draw(self) -> tuple[Canvas, str, str]:
        logits, weights = self.answer()
        target = self.learned.held_out.targets[self.example]
        blocks, num_heads, query = self.data["blocks"], self._shape[1], self.query
        titles = [f"{block}, head {head}" for block in blocks for head in range(num_heads)]
        _, columns = grid_shape(num_heads, MOST_COLUMNS)
        inputs, right = self.batch().inputs, int((logits.argmax(dim=-1) == target).sum())
        if isinstance(self.learned, Digits) and isinstance(inputs, Tensor):
            article = "An" if target == 8 else "A"
            answer = f"{'Your drawing' if self.drawn else f'{article} {target}'} is read as {logits.argmax()}"
            answer = answer if inputs.any() else "The sheet is empty"
            place = divmod(query - 1, 4) if query else None
            name = "patch r{}c{}".format(*place) if place else "the class token"
            on_patches = torch.cat([heads[:, query, 1:].reshape(-1, 4, 4) for heads in weights])
            image, name_above = to_images(inputs)[0], f"from {name}"
            side = room_for(columns, 2 * GAP) * columns / (columns + 1.5)  # the image is as wide as 1.5 maps
            canvas = draw_over_image(image, on_patches, titles, columns, min(side, 84), TOP, name_above, place)
        else:
            answer, name = f"{right} of {target.numel()} answers are right", f"token {query}"
            canvas = draw_maps(
                [head for heads in weights for head in heads], titles, columns, min(room_for(columns), 110)
            )
        caption = f"{answer}. Weights of each head from {name}; run the cell to switch heads off."
        largest = "; ".join(
            f"{block} {', '.join(signed(row[min(query, row.shape[0] - 1)].max().item()) for row in layer)}"
            for block, layer in zip(blocks, weights, strict=True)
        )
        off = sum(gate == 0 for row in self.gates for gate in row)
        on = f"{off} {'head is' if off == 1 else 'heads are'} off" if off else "all heads are on"
        return canvas, f"{answer}; {on}. Largest weight of each head from {name}: {largest}.", caption


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


def _examples(task: Task, num_classes: int) -> dict[str, object]:
    """The held-out examples as whole numbers, with what the browser must know to read them."""
    batch = task.held_out
    parts = [batch.inputs] if isinstance(batch.inputs, Tensor) else list(batch.inputs)
    is_digits = isinstance(task, Digits)
    if is_digits:
        parts = [(to_images(parts[0]) * 16).round()]
    words: dict[str, int] = {}
    labels = []
    for example in range(0 if is_digits else len(batch)):
        names = [name for pair in task.token_labels(batch, example) for side in pair for name in side]
        labels.append([words.setdefault(name, len(words)) for name in names])
    return {
        "kind": "digits" if is_digits else "tokens",
        "count": len(batch),
        "questions": list(getattr(task, "questions", ["answer"])),
        "note": " · value wants or has label" if isinstance(task, Lookups) else "",
        "answers": list(getattr(task, "target_characters", map(str, range(num_classes)))),
        "fields": parts[0].shape[2] if parts[0].dim() == 3 else 1,
        "source_length": parts[0].shape[1] if len(parts) == 2 else 0,
        "words": list(words),
        "inputs": pack_uint16(torch.cat([part.flatten(1) for part in parts], dim=1)),
        "targets": pack_uint16(batch.targets),
        "lengths": pack_uint16([] if batch.valid_lens is None else batch.valid_lens),
        "labels": pack_uint16(labels),
    }
