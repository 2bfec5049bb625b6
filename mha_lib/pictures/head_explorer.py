"""The heads of a small model, live: look at each, switch it off, draw a digit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from mha_lib.models.tasks import Batch, Digits, Task, find_task, to_images, to_patches
from mha_lib.models.transformer import Transformer
from mha_lib.pictures.live import LivePicture, check_place, integers, pack, refuse
from mha_lib.pictures.still import Canvas, Still, colour

TOP = 0.4  # the weight where the scale of the digits ends, as in digit_stage.js


class HeadExplorer(LivePicture):
    """Every head of a trained model, with a switch; the browser computes the answers and the held-out accuracy.

    For learners who want to see where heads look and what they are worth. A model of the task "digits" shows its
    image, and a digit can be drawn; other models show their tokens.

    Args:
        model: a model of ``task``.
        task: the task or its name; its held-out examples are shown.
        presets: head masks (num_blocks, num_heads) by name, offered as buttons.
        choices: first values of the attributes.

    Attributes:
        example: which held-out example is shown.
        query: the token that looks: for digits 0 is the class token, 1 to 16 are the patches, row by row.
        gates: a gate on every head, (num_blocks, num_heads), from 0 to 1; a tensor will do, it reads as lists.
        drawn: for digits, 64 numbers from 0 to 1 instead of the example, or None.
        layer, head: the head that is shown in large.

    Raises:
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: the model's blocks have different numbers of heads.
    """

    module, choices = "head_explorer", ("example", "query", "gates", "drawn", "layer", "head")

    parameters, shapes = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    blocks, task = traitlets.List[Any]().tag(sync=True), traitlets.Dict().tag(sync=True)
    inputs, targets = traitlets.Bytes().tag(sync=True), traitlets.Bytes().tag(sync=True)
    lengths, labels = traitlets.Bytes().tag(sync=True), traitlets.Bytes().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    example, query = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    layer, head = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    gates = traitlets.Any().tag(sync=True)
    drawn = traitlets.Any(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        model: Transformer,
        task: Task | str = "digits",
        *,
        presets: Mapping[str, Tensor] | None = None,
        **choices: object,
    ):
        sizes = {len(weights[0]) for weights in _weights_of_one(model, find(task))}
        if len(sizes) > 1:
            raise ValueError(f"model must have equally many heads in every block, got {sorted(sizes)}")
        self.model, self.learned = model, find(task)
        self._shape = len(model.blocks), sizes.pop()
        masks = {name: self._checked_gates(f"presets: {name!r}", mask) for name, mask in (presets or {}).items()}
        super().__init__(
            title=f"Heads of a model of the task {self.learned.name}",
            **pack(model.state_dict()),
            **_examples(model, self.learned),
            presets=masks,
            blocks=list(model.blocks),
            **{"gates": torch.ones(self._shape), **choices},
        )

    @traitlets.validate("gates")
    def _validate_gates(self, proposal):
        return self._checked_gates("gates", proposal["value"])

    def _checked_gates(self, name: str, value: object) -> list[list[float]]:
        need = f"numbers from 0 to 1 of shape {self._shape}"
        try:
            gates = torch.as_tensor(value).double()
        except (TypeError, ValueError, RuntimeError):
            refuse(name, need, value)
        if gates.shape != self._shape or not ((gates >= 0) & (gates <= 1)).all():
            refuse(name, need, value)
        return gates.tolist()

    @traitlets.validate("drawn")
    def _validate_drawn(self, proposal):
        value = proposal["value"]
        if value is None:
            return None
        if not isinstance(self.learned, Digits):
            refuse("drawn", "None for a model that reads no digits", value)
        image = torch.as_tensor(value).double().flatten()
        if len(image) != 64 or not ((image >= 0) & (image <= 1)).all():
            refuse("drawn", "None or 64 numbers from 0 to 1", value)
        return image.tolist()

    @traitlets.validate("example", "query", "layer", "head")
    def _validate_place(self, proposal):
        name = proposal["trait"].name
        queries = max(size[0] for size in self.task["sizes"])
        counts = {"example": self.task["count"], "query": queries, "layer": self._shape[0], "head": self._shape[1]}
        return check_place(name, proposal["value"], counts[name])

    def batch(self) -> Batch:
        """The example that is shown, as a batch of one."""
        batch = self.learned.held_out[self.example : self.example + 1]
        if self.drawn is None:
            return batch
        return Batch(to_patches(torch.tensor(self.drawn).reshape(1, 8, 8)), None, batch.targets)

    def answer(self) -> tuple[Tensor, list[Tensor]]:
        """What torch makes of the present state.

        Returns:
            The logits in the shape (*targets.shape, number of classes), and for each block the weights
            (num_heads, num_queries, num_keys).
        """
        batch = self.batch()
        with torch.no_grad():
            output = self.model(batch.inputs, batch.valid_lens, torch.tensor(self.gates).float())
        return self.learned.logits(output)[0], [weights[0] for weights in self.model.attention_weights]

    def still(self) -> Still:
        logits, weights = self.answer()
        target = self.learned.held_out.targets[self.example]
        right = int((logits.argmax(dim=-1) == target).sum())
        off = sum(gate == 0 for row in self.gates for gate in row)
        if isinstance(self.learned, Digits):
            answer = f"{'Your drawing' if self.drawn else f'A {target}'} is read as {logits.argmax()}"
            canvas, name = self._draw_digit(weights), "the class token" if self.query == 0 else f"patch {self.query}"
        else:
            answer = f"{right} of {target.numel()} answers are right"
            canvas, name = self._draw_tokens(weights), f"token {self.query}"
        caption = f"{answer}. Where each head looks from {name}; run the cell to switch heads off."
        largest = "; ".join(
            f"{block} {', '.join(f'{row[min(self.query, row.shape[0] - 1)].max():.2f}' for row in layer)}"
            for block, layer in zip(self.blocks, weights, strict=True)
        )
        alt = f"{self.title}. {answer}; {off} heads are off. Largest weight of each head from {name}: {largest}."
        return Still(canvas.png(), canvas.width, alt, caption)

    def _draw_digit(self, weights: list[Tensor]) -> Canvas:
        """The image, and every head's weights on the patches with the query outlined."""
        inputs = self.batch().inputs
        assert isinstance(inputs, Tensor)  # of digits, not a pair of sequences
        num_heads, image = self._shape[1], to_images(inputs)[0].numpy()
        canvas = Canvas(200 + 100 * num_heads, 24 + 124 * len(weights))
        for (row, column), darkness in np.ndenumerate(image):
            grey = round(245 - 225 * float(darkness))
            canvas.box(4 + 20 * column, 24 + 20 * row, 20, 20, fill=(grey, grey, grey))
        self._outline_query(canvas, 4, 24, 40)
        canvas.scale(4, 196, 160, {0: "0", 0.5: ".2", 1: "≥ .4"})
        for layer, heads in enumerate(weights):
            for head, rows in enumerate(heads):
                x, y = 196 + 100 * head, 24 + 124 * layer
                on_patches = rows[self.query, 1:].reshape(4, 4).numpy() / TOP
                canvas.text(x, y - 16, f"{self.blocks[layer]}, head {head}", size=10)
                canvas.heat_map(x, y, 22, on_patches)
                self._outline_query(canvas, x, y, 22)
        return canvas

    def _outline_query(self, canvas: Canvas, x: float, y: float, patch: float) -> None:
        if self.query:
            row, column = divmod(self.query - 1, 4)
            canvas.box(x + column * patch, y + row * patch, patch - 1, patch - 1, line=colour("query"), thickness=2)

    def _draw_tokens(self, weights: list[Tensor]) -> Canvas:
        """Every head's map, block by block."""
        cells = [96 / max(heads.shape[1:]) for heads in weights]
        canvas = Canvas(8 + 112 * self._shape[1], 8 + 124 * len(weights))
        for layer, (heads, cell) in enumerate(zip(weights, cells, strict=True)):
            for head, rows in enumerate(heads.numpy()):
                x, y = 4 + 112 * head, 22 + 124 * layer
                canvas.text(x, y - 16, f"{self.blocks[layer]}, head {head}", size=10)
                canvas.heat_map(x, y, cell, rows)
        return canvas


def find(task: Task | str) -> Task:
    """A task by itself or by its name."""
    return find_task(task) if isinstance(task, str) else task


def _weights_of_one(model: Transformer, task: Task) -> list[Tensor]:
    batch = task.held_out[:1]
    with torch.no_grad():
        model(batch.inputs, batch.valid_lens)
    return model.attention_weights


def _examples(model: Transformer, task: Task) -> dict[str, object]:
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
    with torch.no_grad():
        one = task.held_out[:1]
        num_classes = task.logits(model(one.inputs, one.valid_lens)).shape[-1]
    sizes = [list(weights.shape[-2:]) for weights in model.attention_weights]
    description = {
        "kind": "digits" if is_digits else "tokens",
        "count": len(batch),
        "sizes": sizes,
        "questions": list(getattr(task, "questions", ["answer"])),
        "answers": list(getattr(task, "target_characters", map(str, range(num_classes)))),
        "fields": parts[0].shape[2] if parts[0].dim() == 3 else 1,
        "source_length": parts[0].shape[1] if len(parts) == 2 else 0,
        "words": list(words),
    }
    return {
        "task": description,
        "inputs": integers(torch.cat([part.flatten(1) for part in parts], dim=1)),
        "targets": integers(batch.targets),
        "lengths": integers([] if batch.valid_lens is None else batch.valid_lens),
        "labels": integers(labels),
    }
