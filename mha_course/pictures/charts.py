"""Charts: curves of a regression, of a parameter, of a training run, of heads cut; ranks of heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from mha_course.heads.coalitions import mean_ranks
from mha_course.pictures.picture import INCH, PAD, Canvas, Picture, font
from mha_lib.figures import grid_shape, labels

MOST_TABLES = 3  # of ranks in a row
LINE = 0.065  # how high a line of letters is in a chart, as a share of it
# Shade and dash of the lines in one chart: the first is the accent. Colours are for queries, keys, values and weights.
LINES = (("#20232b", "-"), ("#5a5e68", "--"), ("#7d818b", "-."), ("#9a9da5", ":"))


def regression_curves(
    x_train: Tensor,
    y_train: Tensor,
    x: Tensor,
    curves: Mapping[str, Tensor],
    *,
    truth: Tensor,
    x_label: str = "x",
    y_label: str = "y",
    points: str = "keys and values",
    caption: str | None = None,
) -> Picture:
    """Draw training points, several fitted regression curves, and the true function, in one chart.

    Args:
        x_train, y_train: (n,), the dots.
        x: (m,), where the curves are known.
        curves: name → (m,), at most four; NaN leaves a hole.
        truth: (m,), the function without noise; each curve's distance from it is measured.
        x_label, y_label: what the axes show, with units.
        points: what the dots are called.
        caption: what to notice; left out, the reading.

    The distance is the root mean square over those x at which every curve has a prediction.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    check_curves("x", x, {"truth": truth, **curves})
    check_curves("x_train", x_train, {"y_train": y_train})
    figure = empty_figure(3.4)
    panel = figure.subplots()
    panel.plot(x.tolist(), truth.tolist(), color="0.75", linewidth=5, label="truth")
    panel.plot(x_train.tolist(), y_train.tolist(), "o", color="0.35", markersize=4, label=points)
    for name, curve, colour, style in styled(curves):
        panel.plot(x.tolist(), curve.tolist(), color=colour, linestyle=style, linewidth=2, label=name)
    finish_axes(panel, x_label, y_label)
    what = ", ".join([f"{len(x_train)} {points}", "truth", *curves])
    return Picture(figure, what, read_distances(truth, curves), caption)


def read_distances(truth: Tensor, curves: Mapping[str, Tensor]) -> str:
    """Return a text description of a chart: each curve's root mean square distance from ``truth``."""
    if not curves:
        return "No curve yet."
    everywhere = ~torch.stack([curve.isnan() for curve in curves.values()]).any(dim=0)
    distances = [f"{name} {(curve - truth)[everywhere].square().mean().sqrt():.2f}" for name, curve in curves.items()]
    where = "" if everywhere.all() else f", at the {everywhere.sum()} of {len(truth)} points where all predict"
    return f"Distance from the truth (root mean square{where}): {'; '.join(distances)}."


def training_curves(
    steps: Sequence[int], curves: Mapping[str, Sequence[float]], *, y_label: str, caption: str | None = None
) -> Picture:
    """Draw curves of one or more numbers, such as losses, over the steps of a training run.

    Args:
        steps: (n,), the steps at which they are known.
        curves: name → n numbers, at most four.
        y_label: what the numbers are, with their unit.
        caption: what to notice; left out, each curve's first and last number, which the alt text says in any case.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    tensors = {name: torch.as_tensor(curve) for name, curve in curves.items()}
    check_curves("steps", torch.as_tensor(steps), tensors)
    figure = empty_figure(2.9)
    panel = figure.subplots()
    for name, curve, colour, style in styled(tensors):
        panel.plot(list(steps), curve.tolist(), color=colour, linestyle=style, linewidth=2, label=name)
    panel.set_ylim(bottom=0)
    finish_axes(panel, "training step", y_label)
    ends = "; ".join(f"{name} {curve[0]:.2f} → {curve[-1]:.2f}" for name, curve in tensors.items())
    what = f"{y_label} from training step {steps[0]} to {steps[-1]}: {', '.join(curves)}"
    return Picture(figure, what, f"First and last: {ends}.", caption)


def head_ranks(importances: Mapping[str, Tensor], block_names: Sequence[str], *, caption: str | None = None) -> Picture:
    """Draw a table for each importance measure, with the rank of every head in its cells; 1 is the most important.

    Args:
        importances: name of the measure → (num_blocks, num_heads). Equals share the mean of their ranks.
        block_names: one a block.
        caption: what to notice; left out, the reading.

    Raises:
        ValueError: the measures differ in shape, or there are not as many names as blocks.
    """
    num_blocks, num_heads = shape = next(iter(importances.values())).shape
    for name, importance in importances.items():
        if importance.shape != shape:
            raise ValueError(f"{name} must have the shape of the others, {tuple(shape)}, got {tuple(importance.shape)}")
    names = labels("block_names", block_names, num_blocks)
    rows, columns = grid_shape(len(importances), MOST_TABLES)
    left, cell, top = max(font(40).getlength(name) / 4 for name in names) + 8, 34, 20
    width, height = cell * num_heads + 20, top + cell * num_blocks + 12
    canvas, first = Canvas(left + columns * width - 20, rows * height + 40), []
    canvas.text(left, rows * height + 22, "1, dark: the most important head", size=11)
    for number, (name, importance) in enumerate(importances.items()):
        places, x, y = mean_ranks(importance), left + number % columns * width, number // columns * height
        canvas.text(x, y + 12, name, size=11, anchor="ls", colour="text")
        for block, row in enumerate(places.tolist()):
            if number % columns == 0:
                canvas.text(left - 6, y + top + (block + 0.5) * cell, names[block], size=10, anchor="rm")
            for head, place in enumerate(row):
                grey = round(40 + 205 * (place - 1) / max(places.numel() - 1, 1))
                corner = x + cell * head, y + top + cell * block
                canvas.box(*corner, cell - 2, cell - 2, fill=(grey, grey, grey), radius=3)
                ink = "white" if grey < 118 else "black"
                canvas.text(corner[0] + 16, corner[1] + 16, f"{place:g}", size=10, anchor="mm", colour=ink)
        for head in range(num_heads if number + columns >= len(importances) else 0):
            middle = x + (head + 0.5) * cell, y + top + num_blocks * cell + 2
            canvas.text(*middle, f"head {head}" if head == 0 else str(head), size=10, anchor="ma")
        (block, head), *others = (places == places.min()).nonzero().tolist()
        leader = f"{1 + len(others)} heads alike" if others else f"{names[block]}, head {head}"
        first.append(f"{name}: {leader}")
    what = f"Ranks of {num_blocks} × {num_heads} heads by {len(importances)} measures of importance"
    return Picture(canvas, what, "In the first place, by " + "; ".join(first) + ".", caption)


def empty_figure(height: float) -> Figure:
    """Return an empty figure of this height in inches, as wide as a page, whose words keep away from its edges."""
    return Figure(figsize=(7.2, height), layout=ConstrainedLayoutEngine(w_pad=PAD / INCH))


def check_curves(name: str, x: Tensor, curves: Mapping[str, Tensor]) -> None:
    """Raise a ``ValueError`` unless every curve has the shape of ``x``, which the message calls ``name``."""
    for curve_name, curve in curves.items():
        if curve.shape != x.shape:
            raise ValueError(
                f"{curve_name} must have one value for each of {name}, which is {tuple(x.shape)}; "
                f"got {tuple(curve.shape)}"
            )


def styled(curves: Mapping[str, Tensor]) -> list[tuple[str, Tensor, str, str]]:
    """Assign a colour and a line style to each curve, and return tuples (name, values, colour, line style)."""
    if len(curves) > len(LINES):
        raise ValueError(f"curves must be at most {len(LINES)}, got {len(curves)}: {list(curves)}")
    return [(name, curve, *style) for (name, curve), style in zip(curves.items(), LINES, strict=False)]


def name_axes(panel: Axes, x_label: str, y_label: str) -> None:
    """Set the axis labels of a matplotlib chart, and hide its top and right frame lines."""
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.spines[["top", "right"]].set_visible(False)


def finish_axes(panel: Axes, x_label: str, y_label: str) -> None:
    """Label the axes of a matplotlib line chart, and write each line's name at its right end instead of a legend."""
    name_axes(panel, x_label, y_label)
    handles, names = panel.get_legend_handles_labels()
    low, high = panel.get_ylim()
    found = [(*_end_of(handle), name) for handle, name in zip(handles, names, strict=True)]
    found.sort(key=lambda end: end[0][1])
    heights = [(y - low) / (high - low) for (_, y), *_ in found]
    for i in range(1, len(found)):  # no name on another: each is pushed up by the one below it
        heights[i] = max(heights[i], heights[i - 1] + LINE)
    for i in reversed(range(len(found))):  # and down again, where the highest stands above the chart
        heights[i] = min(heights[i], 1.02 if i == len(found) - 1 else heights[i + 1] - LINE)
    for (end, colour, name), height in zip(found, heights, strict=True):
        thread = {"arrowstyle": "-", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}
        words = panel.annotate(name, end, (1.04, height), textcoords="axes fraction", va="center", arrowprops=thread)
        words.set(fontsize=9, annotation_clip=False)


def _end_of(handle: Any) -> tuple[tuple[float, float], Any]:
    """Where a line, a line with error bars or a band ends on the right, and its colour."""
    if isinstance(handle, PolyCollection):
        corners = np.asarray(handle.get_paths()[0].vertices)
        last = corners[corners[:, 0] == corners[:, 0].max()]
        return (last[0, 0], last[:, 1].mean()), handle.get_edgecolor()[0]
    line = handle[0] if isinstance(handle, tuple) else handle
    points = np.stack([np.asarray(values, float) for values in line.get_data()], axis=1)
    return tuple(points[~np.isnan(points).any(axis=1)][-1]), line.get_color()
