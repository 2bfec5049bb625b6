"""Kernel regression (Nadaraya–Watson) as attention, live: drag the query, choose the bandwidth."""

from collections.abc import Callable
from typing import Any

import torch
import traitlets
from torch import Tensor

from mha_lib.attention import KernelPooling
from mha_lib.pictures.live import LivePicture, pack, refuse
from mha_lib.pictures.palette import weight_colours
from mha_lib.pictures.still import Canvas, Still, colour


class KernelExplorer(LivePicture):
    """Training points as keys and values, a query to drag, and a bandwidth: curve, kernel and attention row.

    For learners who want to see what a bandwidth does before they learn one.

    Args:
        x_train, y_train: (number of points,), the keys and the values.
        truth: the function that the points scatter around; it can then be shown.
        learned_bandwidth: offered as a button.
        x_unit, y_unit: what x and y are counted in, such as "h" and "m".
        x_range: from where to where the curve is drawn; left out, over the points.
        first: first values of the attributes.

    Attributes:
        bandwidth: width of the kernel in units of x, above 0.
        query: the x whose value is asked for, within ``x_range``.
        show_truth: whether the truth is drawn.

    Raises:
        traitlets.TraitError: a choice cannot be; the message names it.
        ValueError: the points are not two vectors of one length with two different x, a width is not positive, or
            ``x_range`` leaves points out.
    """

    module, choices = "kernel_explorer", ("bandwidth", "query", "show_truth")

    parameters, shapes = traitlets.Bytes().tag(sync=True), traitlets.List[Any]().tag(sync=True)
    learned_bandwidth = traitlets.Float(None, allow_none=True).tag(sync=True)
    x_unit, y_unit = traitlets.Unicode("").tag(sync=True), traitlets.Unicode("").tag(sync=True)
    x_range = traitlets.List[Any]().tag(sync=True)
    bandwidth, query = traitlets.Float(1.0).tag(sync=True), traitlets.Float(0.0).tag(sync=True)
    show_truth = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        x_train: Tensor,
        y_train: Tensor,
        *,
        truth: Callable[[Tensor], Tensor] | None = None,
        learned_bandwidth: float | Tensor | None = None,
        x_unit: str = "",
        y_unit: str = "",
        x_range: tuple[float, float] | None = None,
        **first: object,
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
        low, high = first_x, last_x
        learned = None if learned_bandwidth is None else float(learned_bandwidth)
        if learned is not None and not learned > 0:
            raise ValueError(f"learned_bandwidth must be above 0, got {learned}")
        self.x, order = x_train.detach().float().sort()
        self.y = y_train.detach().float()[order]
        tensors = {"x": self.x, "y": self.y}
        if truth is not None:
            tensors["truth_x"] = torch.linspace(low, high, 200)
            tensors["truth_y"] = truth(tensors["truth_x"])
        super().__init__(
            title="Kernel regression as attention",
            **pack(tensors),
            learned_bandwidth=learned,
            x_unit=x_unit,
            y_unit=y_unit,
            x_range=[low, high],
            **{"bandwidth": (high - low) / 10, "query": low + 0.4 * (high - low), **first},
        )

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
        """What torch makes of queries (n,): their values (n,), and their weights (n, number of points)."""
        pool = KernelPooling(self.bandwidth)
        with torch.no_grad():
            values = pool(queries[None, :, None], self.x[None, :, None], self.y[None, :, None])
        return values.flatten(), pool.attention_weights[0]

    def still(self) -> Still:
        width, height, pad = 640, 260, 12
        low, high = self.x_range
        bottom, top = self.y.min().item(), self.y.max().item()
        canvas = Canvas(width, height + 40)

        def place(x: float, y: float) -> tuple[float, float]:
            across = pad + (x - low) / (high - low) * (width - 2 * pad)
            return across, height - pad - (y - bottom) / ((top - bottom) or 1) * (height - 2 * pad)

        grid = torch.linspace(low, high, 120)
        curve, _ = self.pool(grid)
        (value,), (weights,) = self.pool(torch.tensor([self.query]))
        fills = weight_colours(weights.numpy())
        for x, y, weight, fill in zip(self.x.tolist(), self.y.tolist(), weights.tolist(), fills, strict=True):
            across, up = place(x, y)
            size = 4 + 14 * weight**0.5
            canvas.box(across - size / 2, up - size / 2, size, size, fill=tuple(fill), line="#767676")
            canvas.box(across - 3, height + 4, 6, 20, fill=tuple(fill))
        canvas.line([place(x, y) for x, y in zip(grid.tolist(), curve.tolist(), strict=True)], thickness=2)
        canvas.line([place(self.query, bottom), place(self.query, top)], colour=colour("query"), thickness=2)
        in_x, in_y = (f" {unit}" if unit else "" for unit in (self.x_unit, self.y_unit))
        question = f"At {self.query:.2f}{in_x} with width {self.bandwidth:.2f}{in_x}"
        state = f"{question} the value is {value:.2f}{in_y}"
        largest = f"the largest weight is {weights.max():.2f} at {self.x[weights.argmax()]:.2f}{in_x}"
        alt = f"{self.title}. {state}; {largest}."
        return Still(canvas.png(), canvas.width, alt, f"{state}. The strip is the attention row over all points.")
