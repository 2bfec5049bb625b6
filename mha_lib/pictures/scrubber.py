"""Attention maps over the steps of a training run, live: drag through them, or let them play."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mha_lib.pictures.heat_maps import draw_maps, labels
from mha_lib.pictures.live import LivePicture, Place, pack_uint8
from mha_lib.pictures.picture import Canvas


class TrainingScrubber(LivePicture):
    """Show a model's attention maps during training in a widget, with a slider over the stored training steps.

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
        ValueError: the arguments do not fit together.
    """

    module = "scrubber"

    step = Place(lambda self: self.maps.shape[0])
    head = Place(lambda self: self.maps.shape[1])
    query = Place(lambda self: self.maps.shape[2])

    def __init__(
        self,
        maps: Tensor,
        steps: Sequence[int],
        *,
        losses: Sequence[float] | None = None,
        titles: Sequence[str] | None = None,
        queries: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        **first: Any,
    ):
        if maps.dim() != 4 or not maps.numel():
            raise ValueError(f"maps must have shape (steps, heads, queries, keys), got {tuple(maps.shape)}")
        num_steps, num_heads, num_queries, num_keys = maps.shape
        self.maps, self.steps = maps.detach().float(), labels("steps", [int(step) for step in steps], num_steps)
        self.titles = labels("titles", titles, num_heads, "head ")
        data = {"weights": pack_uint8(self.maps), "steps": self.steps, "titles": self.titles}
        data |= {"queries": labels("queries", queries, num_queries), "keys": labels("keys", keys, num_keys)}
        data["losses"] = [] if losses is None else [float(loss) for loss in labels("losses", losses, num_steps)]
        super().__init__("Attention over a training run", data, **first)

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the first, the shown and the last step, one below the other."""
        rows = sorted({0, self.step, len(self.steps) - 1})
        titles = [f"step {self.steps[row]}, {title}" for row in rows for title in self.titles]
        canvas = draw_maps(list(self.maps[rows].flatten(0, 1)), titles, len(self.titles), 130)
        shown = zip(self.titles, self.maps[self.step].amax(dim=(1, 2)).tolist(), strict=True)
        largest = ", ".join(f"{title} {weight:.2f}" for title, weight in shown)
        state = f"Step {self.steps[self.step]} of {self.steps[-1]}"
        return canvas, f"{state}. Largest weights: {largest}.", f"{state}, between the first and the last."
