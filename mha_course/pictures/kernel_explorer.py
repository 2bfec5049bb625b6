"""Kernel regression (Nadaraya–Watson) as attention, live: drag the query, choose the bandwidth."""

from collections.abc import Callable
from typing import Any

import torch
import traitlets
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from mha_course.pictures.live import LivePicture, choice, pack, refuse
from mha_course.pictures.picture import Canvas, signed
from mha_course.pictures.shared_with_js import bound, weight_colours
from mha_course.rounding import rounded
from mha_lib.attention import KernelPooling

TOP = bound("kernel_explorer.js", "TOP")  # the weight where the scale ends
WIDTH, HEIGHT, LEFT = 600, 250, 40  # of the still picture, in pixels: the chart, and what is in front of it


class KernelExplorer(LivePicture):
    """Show kernel regression in a widget with movable query and bandwidth: the curve, kernel and attention weights.

    For learners who want to see what a bandwidth does before they learn one.

    Args:
        x_train, y_train: (number of points,), the keys and the values.
        truth: the function that the points scatter around; it can then be shown.
        x_unit, y_unit: what x and y are counted in, such as "h" and "m".
        x_range: from where to where the curve is drawn; left out, over the points.
        first: first values of the attributes.

    Attributes:
        bandwidth: width of the kernel in units of x, above 0.
        query: the x whose value is asked for, within ``x_range``.
        show_truth: whether the truth is drawn.

    Raises:
        ValueError: the points are not two vectors of one length with two different x, or ``x_range`` leaves points out.
    """

    module = "kernel_explorer"

    bandwidth, query = choice(traitlets.Float(1.0)), choice(traitlets.Float(0.0))
    show_truth = choice(traitlets.Bool(False))

    def __init__(
        self,
        x_train: Tensor,
        y_train: Tensor,
        *,
        truth: Callable[[Tensor], Tensor] | None = None,
        x_unit: str = "",
        y_unit: str = "",
        x_range: tuple[float, float] | None = None,
        **first: Any,
    ):
        if x_train.dim() != 1 or x_train.shape != y_train.shape:
            shapes = f"{tuple(x_train.shape)} and {tuple(y_train.shape)}"
            raise ValueError(f"x_train and y_train must both have shape (number of points,), got {shapes}")
        low, high = x_train.min().item(), x_train.max().item()
        if not low < high:
            raise ValueError(f"x_train must hold at least two different numbers, got {x_train.tolist()}")
        first_x, last_x = (low, high) if x_range is None else map(float, x_range)
        if not first_x <= low < high <= last_x:
            raise ValueError(f"x_range must hold all points, from {low:g} to {high:g}, got {x_range}")
        self.x_range = low, high = first_x, last_x
        self.x, order = x_train.detach().float().sort()
        self.y = y_train.detach().float()[order]
        tensors = {"x": self.x, "y": self.y}
        if truth is not None:
            tensors["truth_x"] = torch.linspace(low, high, 200)
            tensors["truth_y"] = truth(tensors["truth_x"])
        self.units = {"x": f" {x_unit}".rstrip(), "y": f" {y_unit}".rstrip()}
        data = pack(tensors) | {"units": self.units, "x_range": [low, high]}
        first = {"bandwidth": (high - low) / 10, "query": low + 0.4 * (high - low), **first}
        super().__init__("Kernel regression as attention", data, **first)

    @traitlets.validate("bandwidth")
    def _validate_bandwidth(self, proposal):
        if not proposal["value"] > 0:
            refuse("bandwidth", "above 0", proposal["value"])
        return proposal["value"]

    @traitlets.validate("query")
    def _validate_query(self, proposal):
        (low, high), slack = self.x_range, 1e-6
        if not low - slack <= proposal["value"] <= high + slack:
            refuse("query", f"between {low:g} and {high:g}", proposal["value"])
        return proposal["value"]

    def pool(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return what torch makes of queries (n,): their values (n,), and their weights (n, number of points)."""
        pool = KernelPooling(self.bandwidth)
        with torch.no_grad():
            values = pool(queries[None, :, None], self.x[None, :, None], self.y[None, :, None])
        return values.flatten(), pool.attention_weights[0]

    def draw(self) -> tuple[Canvas, str, str]:
        (value,), (weights,) = self.pool(torch.tensor([self.query]))
        at, value_there = f"{self.query:.2f}{self.units['x']}", f"{signed(value.item())}{self.units['y']}"
        state = f"At {at} with width {self.bandwidth:.2f}{self.units['x']} the value is {value_there}"
        told = rounded(weights, 2)
        most, *others = (told == told.max()).nonzero()[0].tolist()
        heaviest = f"of {len(others) + 1} points" if others else f"at {self.x[most]:.2f}{self.units['x']}"
        caption = f"{state}. The strip is the attention row over all points."
        alt = f"{state}; the largest weight is {told[most]:.2f}, {heaviest}."
        return self._chart(weights), alt, caption

    def _chart(self, weights: Tensor) -> Canvas:
        """Draw the points coloured by these weights, the curve, and the weights as a strip."""
        (low, high), bottom, top = self.x_range, self.y.min().item(), self.y.max().item()
        canvas = Canvas(LEFT + WIDTH, HEIGHT + 62)

        def place(x: float, y: float) -> tuple[float, float]:
            across = LEFT + (x - low) / (high - low) * WIDTH
            return across, HEIGHT - (y - bottom) / ((top - bottom) or 1) * HEIGHT

        for x in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)[1:-1]:
            canvas.text(place(x, 0)[0], HEIGHT + 44, f"{x:g}{self.units['x']}".replace("-", "−"), size=11, anchor="ma")
        for y in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(bottom, top)[1:-1]:
            canvas.line([place(low, y), place(high, y)], colour="edge", thickness=0.5)
            canvas.text(LEFT - 6, place(0, y)[1], f"{y:g}{self.units['y']}".replace("-", "−"), size=11, anchor="rm")
        fills = weight_colours((weights / TOP).clamp(max=1).numpy())
        for x, y, weight, fill in zip(self.x.tolist(), self.y.tolist(), weights.tolist(), fills, strict=True):
            (across, up), size = place(x, y), 5 + 14 * weight**0.5
            box = across - size / 2, up - size / 2, size, size
            canvas.box(*box, fill=tuple(fill), line="soft", radius=size / 2)
            canvas.box(across - 3, HEIGHT + 14, 6, 22, fill=tuple(fill))
        grid = torch.linspace(low, high, 120)
        through = [place(x, y) for x, y in zip(grid.tolist(), self.pool(grid)[0].tolist(), strict=True)]
        canvas.line(through, colour="value", thickness=3)
        canvas.line([place(self.query, bottom), place(self.query, top)], colour="query", thickness=2)
        return canvas
