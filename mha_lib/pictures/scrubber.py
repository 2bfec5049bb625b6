"""Attention maps over the steps of a training run, live: drag through them, or let them play."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets
from torch import Tensor

from mha_lib.pictures.live import LivePicture, check_place
from mha_lib.pictures.still import Canvas, Still


class Scrubber(LivePicture):
    """Every head's map at each kept step, with a slider through the steps.

    For learners who want to see a head come into being.

    Args:
        maps: attention weights, (num_steps, num_heads, num_queries, num_keys).
        steps: the training step of each, rising.
        losses: the loss at each, if it is to be drawn.
        titles: the heads' names; left out, their numbers.
        queries, keys: the tokens' names; left out, their numbers.
        first: first values of the attributes.

    Attributes:
        step: which of the kept steps is shown, from 0.
        head, query: the head and the query that the line below reads.

    Raises:
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: the arguments do not fit together.
    """

    module, choices = "scrubber", ("step", "head", "query")

    weights, steps = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    losses, titles = traitlets.List[Any]().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    sizes, tokens = traitlets.List[Any]().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    step, head = traitlets.Int(0).tag(sync=True), traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        maps: Tensor,
        steps: Sequence[int],
        *,
        losses: Sequence[float] | None = None,
        titles: Sequence[str] | None = None,
        queries: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        **first: object,
    ):
        if maps.dim() != 4 or not maps.numel():
            raise ValueError(f"maps must have shape (steps, heads, queries, keys), got {tuple(maps.shape)}")
        num_steps, num_heads, num_queries, num_keys = maps.shape
        titles = [f"head {head}" for head in range(num_heads)] if titles is None else list(titles)
        queries, keys = (
            list(map(str, range(count))) if names is None else list(names)
            for names, count in ((queries, num_queries), (keys, num_keys))
        )
        given: dict[str, tuple[Sequence[object], int]] = {
            "steps": (list(steps), num_steps),
            "titles": (titles, num_heads),
            "queries": (queries, num_queries),
            "keys": (keys, num_keys),
        }
        given |= {} if losses is None else {"losses": (list(losses), num_steps)}
        for name, (values, count) in given.items():
            if len(values) != count:
                raise ValueError(
                    f"{name} must have {count} entries, as maps {tuple(maps.shape)} asks, got {len(values)}"
                )
        self.maps = maps.detach().float()
        super().__init__(
            title="Attention over a training run",
            weights=(255 * self.maps).round().numpy().astype(np.uint8).tobytes(),
            steps=[int(step) for step in steps],
            losses=[] if losses is None else [float(loss) for loss in losses],
            titles=titles,
            sizes=[num_queries, num_keys],
            tokens=[queries, keys],
            **first,
        )

    @traitlets.validate("step", "head", "query")
    def _validate_place(self, proposal):
        name = proposal["trait"].name
        counts = dict(zip(("step", "head", "query"), self.maps.shape[:3], strict=True))
        return check_place(name, proposal["value"], counts[name])

    def still(self) -> Still:
        """The first, the shown and the last step, one below the other."""
        rows, (num_heads, num_queries, num_keys) = sorted({0, self.step, len(self.steps) - 1}), self.maps.shape[1:]
        cell = 84 / max(num_queries, num_keys)
        canvas = Canvas(70 + 96 * num_heads, 20 + 92 * len(rows))
        for head, title in enumerate(self.titles):
            canvas.text(70 + 96 * head, 2, title, size=10)
        for line, step in enumerate(rows):
            canvas.text(0, 20 + 92 * line, f"step {self.steps[step]}", size=11)
            for head in range(num_heads):
                canvas.heat_map(70 + 96 * head, 20 + 92 * line, cell, self.maps[step, head].numpy())
        shown = zip(self.titles, self.maps[self.step].amax(dim=(1, 2)).tolist(), strict=True)
        largest = ", ".join(f"{title} {weight:.2f}" for title, weight in shown)
        state = f"Step {self.steps[self.step]} of {self.steps[-1]}"
        return Still(canvas.png(), canvas.width, f"{self.title}. {state}. Largest weights: {largest}.", f"{state}.")
