"""Drag the bandwidth and the query of kernel regression (Nadaraya–Watson)."""

import math

import numpy as np
import torch
from ipywidgets import FloatLogSlider, FloatSlider
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from mha_lib.attention import KernelPooling
from mha_lib.pictures.picture import LINES, WEIGHT_COLOURS
from mha_lib.widgets.explorer import Explorer, slider
from mha_lib.widgets.sheet import Sheet

DPI, WIDTH = 96, 840
POINTS, QUERY = "0.35", "#D55E00"
CURVE = LINES[0][0]
SCALE = PowerNorm(0.5, 0, 1)  # stretches small weights, which are the rule where many points share 1


def kernel_pooling(x_train: Tensor, y_train: Tensor, *, learned_bandwidth: float | Tensor | None = None) -> Explorer:
    """Kernel regression by hand: bandwidth and query move the fitted curve, the kernel and the attention row.

    Args:
        x_train, y_train: (number of points,), the keys and the values.
        learned_bandwidth: shown beside the one of the slider; None shows the slider's alone.

    Raises:
        ValueError: the points are not two vectors of one length with at least two different x, or the bandwidth is
            not positive.
    """
    if x_train.dim() != 1 or x_train.shape != y_train.shape:
        raise ValueError(
            "x_train and y_train must both have shape (number of points,), "
            f"got {tuple(x_train.shape)} and {tuple(y_train.shape)}"
        )
    low, high = x_train.min().item(), x_train.max().item()
    if not low < high:
        raise ValueError(f"x_train must hold at least two different numbers, got {x_train.tolist()}")
    x_train, order = x_train.detach().sort()
    y_train = y_train.detach()[order]
    learned = [] if learned_bandwidth is None else [float(learned_bandwidth)]
    figure = KernelFigure(x_train, y_train, columns=1 + len(learned))

    def paint(bandwidth: float, query: float) -> tuple[Sheet, str]:
        poolings = [Pooling(x_train, y_train, width, query) for width in (bandwidth, *learned)]
        readings = [f"{name}, {pooling.read()}" for name, pooling in zip(("Slider", "learned"), poolings, strict=False)]
        return figure.paint(poolings), f"Query x = {query:.2f}. {'; '.join(readings)}."

    middle = round(math.log10((high - low) / 10), 1)
    controls = {
        "bandwidth": slider(
            FloatLogSlider,
            "bandwidth",
            min=middle - 1.3,
            max=middle + 1.3,
            step=0.05,
            value=10**middle,
            readout_format=".2f",
            tooltip="width of the kernel, in units of x; the scale is logarithmic",
        ),
        "query": slider(
            FloatSlider,
            "query",
            min=low,
            max=high,
            step=(high - low) / 100,
            value=low + 0.4 * (high - low),
            tooltip="the x whose y is asked for",
        ),
    }
    return Explorer("Kernel regression as attention", controls, paint)


class Pooling:
    """What attention pooling makes of the training points at one bandwidth, for one query and along a grid.

    Attributes:
        grid, curve: (200,), places and the fitted values there.
        prediction: the fitted value at the query.
        weights: (number of points,), the query's attention row.
        kernel: (number of points,), the kernel's height at each point, 1 at the query.
    """

    def __init__(self, x_train: Tensor, y_train: Tensor, bandwidth: float, query: float):
        self.x_train, self.bandwidth, self.query = x_train, bandwidth, query
        self.grid = torch.linspace(x_train[0].item(), x_train[-1].item(), 200, dtype=x_train.dtype)
        queries = torch.cat([self.grid, x_train.new_tensor([query])])
        pool = KernelPooling(bandwidth)
        with torch.no_grad():
            fitted = pool(queries[None, :, None], x_train[None, :, None], y_train[None, :, None]).flatten()
        self.curve, self.prediction = fitted[:-1], fitted[-1].item()
        self.weights = pool.attention_weights[0, -1]
        self.kernel = self.bell(x_train)

    def bell(self, x: Tensor) -> Tensor:
        """The Gaussian kernel around the query, 1 at its peak."""
        return torch.exp(-((x - self.query) ** 2) / (2 * self.bandwidth**2))

    def read(self) -> str:
        """The bandwidth, the prediction, and how the weights are shared."""
        needed = int((self.weights.sort(descending=True).values.cumsum(dim=0) < 0.9).sum()) + 1
        largest = self.weights.argmax()
        return (
            f"bandwidth {self.bandwidth:.2f}: prediction {self.prediction:.2f}; largest weight "
            f"{self.weights[largest]:.2f}, at x = {self.x_train[largest]:.2f}; "
            f"{needed} of {len(self.weights)} points carry 90% of the weight"
        )


class KernelFigure:
    """One matplotlib figure, of which only the curves are drawn again.

    Args:
        x_train, y_train: (number of points,), x sorted.
        columns: how many bandwidths stand side by side.
    """

    def __init__(self, x_train: Tensor, y_train: Tensor, columns: int):
        self.width, self.height = WIDTH if columns > 1 else 640, 470
        self.figure = Figure(figsize=(self.width / DPI, self.height / DPI), dpi=DPI, facecolor="white")
        self.columns = [
            KernelColumn(self, x_train, y_train, 70 + 390 * column, 560 if columns == 1 else 355)
            for column in range(columns)
        ]
        first = self.columns[0]
        for panel, name in ((first.fit, "y"), (first.bell, "kernel"), (first.row, "attention\nrow")):
            panel.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        scale = self.panel(self.width - 320, 440, 300, 10)
        bar = self.figure.colorbar(ScalarMappable(SCALE, WEIGHT_COLOURS), cax=scale, orientation="horizontal")
        bar.set_ticks([0, 0.01, 0.1, 0.3, 1], labels=["0", "0.01", "0.1", "0.3", "1"], fontsize=7)
        bar.set_ticks([], minor=True)
        self.canvas = FigureCanvasAgg(self.figure)
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(self.figure.bbox)
        self.moving = sorted(self.figure.findobj(Artist.get_animated), key=Artist.get_zorder)

    def panel(self, left: int, top: int, width: int, height: int) -> Axes:
        """Axes at a place in pixels from the left and upper edge."""
        bottom = self.height - top - height
        place = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        panel = self.figure.add_axes(place)
        panel.tick_params(labelsize=7)
        return panel

    def paint(self, poolings: list[Pooling]) -> Sheet:
        """The picture for one pooling a column."""
        for column, pooling in zip(self.columns, poolings, strict=True):
            column.show(pooling)
        self.canvas.restore_region(self.background)
        for artist in self.moving:
            self.figure.draw_artist(artist)
        sheet = Sheet(self.width, self.height)
        sheet.paste(0, 0, np.asarray(self.canvas.buffer_rgba())[..., :3])
        for column, pooling, name in zip(self.columns, poolings, ("", "learned "), strict=False):
            sheet.write(column.left, 4, f"{name}bandwidth {pooling.bandwidth:.2f}", size=14)
        sheet.write(self.width - 330, 445, "attention weight", anchor="rm", size=11, colour="0.3")
        return sheet


class KernelColumn:
    """One bandwidth: the fit, the kernel around the query, and the attention row, above one another."""

    def __init__(self, figure: KernelFigure, x_train: Tensor, y_train: Tensor, left: int, width: int):
        self.left, self.x_train, self.y_train = left, x_train.numpy(), y_train.numpy()
        middles = (self.x_train[1:] + self.x_train[:-1]) / 2
        edges = np.concatenate([self.x_train[:1], middles, self.x_train[-1:]])
        margin = 0.03 * (self.x_train[-1] - self.x_train[0])
        self.fit = figure.panel(left, 30, width, 200)
        self.bell = figure.panel(left, 250, width, 90)
        self.row = figure.panel(left, 360, width, 30)
        lines = []
        for panel in (self.fit, self.bell, self.row):
            panel.set_xlim(self.x_train[0] - margin, self.x_train[-1] + margin)
            lines.append(panel.axvline(0, color=QUERY, linewidth=1, animated=True))
        for panel in (self.fit, self.bell):
            panel.tick_params(labelbottom=False)
        self.lines = lines
        height = 0.1 * (self.y_train.max() - self.y_train.min()) or 1
        self.fit.set_ylim(self.y_train.min() - height, self.y_train.max() + height)
        self.points = self.fit.scatter(self.x_train, self.y_train, color=POINTS, alpha=0.6, lw=0, animated=True)
        (self.curve,) = self.fit.plot([], [], color=CURVE, linewidth=2, animated=True)
        (self.answer,) = self.fit.plot([], [], "o", color=QUERY, markersize=8, animated=True)
        self.bell.set_ylim(0, 1.08)
        (self.kernel,) = self.bell.plot([], [], color=CURVE, linewidth=1.5, animated=True)
        self.stems = self.bell.vlines(self.x_train, 0, 1, color=POINTS, linewidth=1.5, animated=True)
        self.row.set_ylim(0, 1)
        self.row.set_yticks([])
        self.weights = self.row.pcolormesh(
            edges, [0, 1], np.zeros((1, len(self.x_train))), cmap=WEIGHT_COLOURS, norm=SCALE, animated=True, zorder=1
        )
        for spine in self.row.spines.values():
            spine.set_animated(True)  # painted over the weights, not under them
        self.row.set_xlabel("x", fontsize=8, labelpad=1)

    def show(self, pooling: Pooling) -> None:
        """Bring all curves to a pooling."""
        for line in self.lines:
            line.set_xdata([pooling.query, pooling.query])
        self.points.set_sizes(10 + 300 * pooling.weights.numpy())
        self.curve.set_data(pooling.grid, pooling.curve)
        self.answer.set_data([pooling.query], [pooling.prediction])
        self.kernel.set_data(pooling.grid, pooling.bell(pooling.grid))
        kernel = pooling.kernel.numpy()
        feet = np.zeros_like(kernel)
        self.stems.set_segments(np.stack([self.x_train, feet, self.x_train, kernel], axis=1).reshape(-1, 2, 2))
        self.weights.set_array(pooling.weights.numpy()[None])
