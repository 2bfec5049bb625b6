"""Attention maps over the steps of a training run, live: drag through them, or let them play."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mha_course.heads.key_patterns import KeyPattern, strongest_patterns
from mha_course.pictures.heat_maps import draw_maps
from mha_course.pictures.live import LivePicture, Place, pack_uint16
from mha_course.pictures.picture import Canvas, signed
from mha_course.pictures.shared_with_js import bound
from mha_course.rounding import rounded
from mha_lib.figures import labels

FINEST = bound("scrubber.js", "FINEST")  # what a weight of 1 travels as; with bytes a percentage is off by one
CLEAR = 0.1  # how far above uniform attention a pattern is a clear one


class TrainingScrubber(LivePicture):
    """Show a model's attention maps during training in a widget, with a slider over the stored training steps.

    For learners who want to see a head come into being. Each head is named by the keys that it prefers in its map,
    beside the weight that uniform attention would give them.

    Args:
        maps: attention weights, (num_steps, num_heads, num_queries, num_keys).
        steps: the training step of each, rising.
        losses: the loss at each, if it is to be drawn.
        titles: the heads' names; left out, their numbers.
        queries, keys: the tokens' names; left out, their numbers.
        first: first values of the attributes.

    Attributes:
        step: which of the kept steps is shown, from 0.
        head, query: the head that the headline names, and the query whose row is framed.

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
        names = {"queries": labels("queries", queries, num_queries), "keys": labels("keys", keys, num_keys)}
        self.patterns = strongest_patterns(self.maps, **names)
        told = [[told_of(pattern) for pattern in row] for row in self.patterns]
        weights = pack_uint16((FINEST * self.maps).round())
        data = names | {"weights": weights, "steps": self.steps, "titles": self.titles, "patterns": told}
        data["losses"] = [] if losses is None else [float(loss) for loss in labels("losses", losses, num_steps)]
        super().__init__("Attention over a training run", data, **first)

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the first, the shown and the last step, one below the other."""
        rows = sorted({0, self.step, len(self.steps) - 1})
        titles = [f"step {self.steps[row]}, {title}" for row in rows for title in self.titles]
        canvas = draw_maps(list(self.maps[rows].flatten(0, 1)), titles, len(self.titles), 130)
        shown = zip(self.titles, map(told_of, self.patterns[self.step]), strict=True)
        heads = "; ".join(f"{title}: {one['words']} {one['weight']}, uniform {one['uniform']}" for title, one in shown)
        state = f"Step {self.steps[self.step]} of {self.steps[-1]}"
        return canvas, f"{state}. Preferred keys: {heads}.", f"{state}, between the first and the last."


def told_of(pattern: KeyPattern) -> dict[str, Any]:
    """Return a pattern as the widget shows it: its weights as percentages, and whether it is a clear one."""
    return {
        "words": pattern.words,
        "weight": f"{signed(100 * pattern.weight, 0)} %",
        "uniform": f"{signed(100 * pattern.uniform, 0)} %",
        "clear": bool(rounded(pattern.weight - pattern.uniform, 4) >= CLEAR),
    }
