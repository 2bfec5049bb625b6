"""Kernel regression (Nadaraya–Watson) as attention, live: drag the query, choose the bandwidth."""

from collections.abc import Callable
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_course.pictures.charts import draw_pooling
from mha_course.pictures.live import LivePicture, choice, pack, refuse
from mha_course.pictures.picture import Canvas, signed
from mha_course.rounding import rounded
from mha_lib.attention import KernelPooling


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
        grid = torch.linspace(*self.x_range, 120)
        (value,), (weights,) = self.pool(torch.tensor([self.query]))
        curve, points = (grid, self.pool(grid)[0]), (self.x, self.y)
        canvas = draw_pooling(points, weights, curve, self.query, (self.units["x"], self.units["y"]))
        at, value_there = f"{self.query:.2f}{self.units['x']}", f"{signed(value.item())}{self.units['y']}"
        state = f"At {at} with width {self.bandwidth:.2f}{self.units['x']} the value is {value_there}"
        told = rounded(weights, 2)
        most, *others = (told == told.max()).nonzero()[0].tolist()
        heaviest = f"of {len(others) + 1} points" if others else f"at {self.x[most]:.2f}{self.units['x']}"
        caption = f"{state}. The strip is the attention row over all points."
        return canvas, f"{state}; the largest weight is {told[most]:.2f}, {heaviest}.", caption
