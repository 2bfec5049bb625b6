"""The heat map of notebook 06 that a learner draws: its figure is read, and what misleads in it is named."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_course.checking.exercise import judged
from mha_course.checking.running import MistakeError, run_safely
from mha_course.checking.wording import as_sentence

SHARP = {None, "none", "nearest", "auto", "antialiased"}  # interpolations that leave cells as they are
CLOSE = 1e-4


def heat_maps_of_heads(weights, queries, keys):
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(weights), squeeze=False, layout="constrained")
    for head, ax in enumerate(axes[0]):
        image = ax.imshow(weights[head], vmin=0, vmax=1, cmap="Purples")
        ax.set_title(f"head {head}")
        ax.set_xticks(range(len(keys)), keys)
        ax.set_yticks(range(len(queries)), queries)
    figure.colorbar(image, ax=axes)
    return figure


@judged(
    right=heat_maps_of_heads,
    idea="A reader compares heads, so equal shades must mean equal weights, and every row and column needs its name.",
    begin="Begin with one Axes for each head, in one row.",
)
def draw_heads(function: Callable) -> str:
    """Check a learner's function that draws the attention heat maps of all heads of one example with matplotlib.

    weights, a NumPy array (num_heads, num_queries, num_keys), queries and keys, lists of names → the figure: for each
    head an Axes, a row for each query, a column for each key, their names, one colour scale for all heads, and titles.
    """
    given = [example(2, 3, 5), example(3, 4, 4)]
    outcomes = run_safely(watched(function), given)
    for (weights, queries, keys), outcome in zip(given, outcomes, strict=True):
        if outcome.error:
            raise MistakeError(as_sentence(outcome.raised()))
        fault = next(faults(outcome.value, weights, queries, keys), None)
        if fault:
            size = f"{len(weights)} heads, {len(queries)} queries and {len(keys)} keys"
            raise MistakeError(f"{fault} Seen with {size}.")
    from_below = any(panel["upwards"] for outcome in outcomes for panel in outcome.value)
    note = " Query 0 is in the lowest row; `ax.invert_yaxis()` puts it at the top, as in this course." * from_below
    return f"Rows are queries, columns are keys, all have names, and one scale holds for all heads.{note}"


def example(num_heads: int, num_queries: int, num_keys: int) -> tuple[Tensor, list[str], list[str]]:
    """Return random attention weights, more concentrated for later heads, and labels for the queries and the keys."""
    scores = torch.randn(num_heads, num_queries, num_keys) * torch.arange(1, num_heads + 1)[:, None, None]
    words = ["the", "dog", "saw", "a", "cat"]
    return scores.softmax(dim=-1), [f"{word}?" for word in words[:num_queries]], words[:num_keys]


def watched(function: Any) -> Any:
    """Wrap a plotting function so that it returns the heat maps it draws as plain data; leave other objects as is."""
    if not callable(function):
        return function

    def draw(weights: Tensor, queries: list[str], keys: list[str]) -> list[dict] | None:
        from matplotlib import pyplot as plt
        from matplotlib.figure import Figure

        before = set(plt.get_fignums())
        try:
            returned = function(weights.numpy(), queries, keys)
            own = [plt.figure(number) for number in plt.get_fignums() if number not in before]
            figures = [returned] if isinstance(returned, Figure) else own
            nothing_yet = returned is None and not figures
            return None if nothing_yet else [panel for figure in figures for panel in panels_of(figure)]
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)

    return draw


def panels_of(figure: Any) -> list[dict]:
    """Return the content of each heat map in a matplotlib figure as a dictionary, leaving out colour bars."""
    figure.canvas.draw()  # names of ticks are known only now
    maps = [
        (ax, drawn) for ax in figure.axes for drawn in [*ax.images, *ax.collections] if drawn.get_array() is not None
    ]
    bars = [drawn.colorbar.ax for _, drawn in maps if drawn.colorbar]
    headline = figure.get_suptitle() if hasattr(figure, "get_suptitle") else getattr(figure._suptitle, "_text", "")
    return [panel(ax, drawn, headline) for ax, drawn in maps if ax not in bars and ax.get_label() != "<colorbar>"]


def panel(ax: Any, drawn: Any, headline: str) -> dict:
    """Return one heat map of matplotlib as a dictionary: its numbers, labels, colour scale, whether it has a title."""
    numbers, x, y = cells_of(drawn)
    low, high = drawn.get_clim()
    bottom, top = ax.get_ylim()
    return {
        "numbers": torch.as_tensor(numbers),
        "rows": names_at(y, [one.yaxis for one in ax.get_shared_y_axes().get_siblings(ax)]),
        "columns": names_at(x, [one.xaxis for one in ax.get_shared_x_axes().get_siblings(ax)]),
        "scale": [float(low), float(high)],
        "colours": drawn.get_cmap().name,
        "sharp": getattr(drawn, "get_interpolation", lambda: None)() in SHARP,
        "title": bool(headline or any(ax.get_title(loc=side) for side in ("left", "center", "right"))),
        "upwards": len(y) > 1 and bool((y[1] > y[0]) == (top > bottom)),
    }


def cells_of(drawn: Any) -> tuple[Any, list[float], list[float]]:
    """Return the numbers (rows, columns) of a matplotlib image or mesh, and the centres of its columns and rows."""
    import numpy as np

    numbers: Any = np.ma.filled(np.ma.asarray(drawn.get_array(), dtype=float), np.nan)
    if hasattr(drawn, "get_extent"):  # an image
        left, right, bottom, top = drawn.get_extent()
        first, last = (top, bottom) if drawn.origin == "upper" else (bottom, top)
        steps = [(np.arange(count) + 0.5) / count for count in numbers.shape[1::-1]]
        return numbers, [*(left + (right - left) * steps[0])], [*(first + (last - first) * steps[1])]
    if hasattr(drawn, "get_coordinates"):  # pcolormesh
        corners = drawn.get_coordinates()
        centres = (corners[:-1, :-1] + corners[1:, 1:]) / 2
        return numbers.reshape(centres.shape[:2]), [*centres[0, :, 0]], [*centres[:, 0, 1]]
    middles = np.array([path.vertices[:4].mean(axis=0) for path in drawn.get_paths()])  # pcolor
    x, y = (sorted(set(middles[:, side].round(6))) for side in (0, 1))
    return numbers.reshape(len(y), len(x)), x, y


def names_at(centres: Sequence[float], axes: Sequence[Any]) -> list[str]:
    """Return, for each cell centre, the tick label of ``axes`` there: "" for none, "|" for one at the edge of the cell.

    Where several heat maps share an axis, the first that has names counts.
    """
    half = abs(centres[1] - centres[0]) / 2 if len(centres) > 1 else 0.5
    found = [""] * len(centres)
    for axis in axes:
        ticks = [*zip(axis.get_majorticklocs(), [text.get_text() for text in axis.get_majorticklabels()], strict=False)]
        for number, centre in enumerate(centres):
            distance, text = min(((abs(at - centre), text) for at, text in ticks if text), default=(9 * half, ""))
            name = text if distance < 0.6 * half else "|" if distance < 1.4 * half else ""
            found[number] = found[number] or name
    return found


def faults(panels: list[dict], weights: Tensor, queries: list[str], keys: list[str]) -> Iterator[str]:
    """Yield a message for each fault of drawn heat maps, compared with ``weights`` and names, the worst first."""
    if not panels:
        yield "There is no heat map. Use `imshow` or `pcolormesh`."
    mean = weights.mean(dim=0)
    if len(panels) == 1 and alike(panels[0]["numbers"], mean):
        yield "The heat map shows the mean over the heads. Draw each head."
    if len(panels) != len(weights):
        yield f"There are {len(panels)} heat maps for {len(weights)} heads. Draw one for each head."
    for head, (shown, right) in enumerate(zip(panels, weights, strict=False)):
        yield from wrong_numbers(head, shown["numbers"], right, weights)
    for head, shown in enumerate(panels):
        yield from wrong_names(head, shown["rows"], shown["columns"], queries, keys)
    yield from wrong_scale(panels, weights)
    if not all(shown["sharp"] for shown in panels):
        yield "The cells are blurred, so weights appear between tokens. Leave out `interpolation`."
    if not all(shown["title"] for shown in panels):
        yield "A heat map has no title. Say which head it shows."


def wrong_numbers(head: int, numbers: Tensor, right: Tensor, weights: Tensor) -> Iterator[str]:
    """Yield a message if a head's map shows other ``numbers`` than ``right``, such as another head's of ``weights``."""
    if numbers.dim() == 3:
        yield f"Heat map {head} holds colours, not weights, so it has no scale. Give `imshow` the weights themselves."
    elif alike(numbers, right):
        return
    elif alike(numbers, right.T):
        yield f"Heat map {head} is transposed: its rows are keys. Rows must be queries, as in `weights`."
    elif other := [number for number, one in enumerate(weights) if alike(numbers, one)]:
        yield f"Heat map {head} shows head {other[0]}. Check the order of the heads."
    elif any(alike(numbers, right.flip(dims)) for dims in ([0], [1], [0, 1])):
        yield f"Heat map {head} has its rows or columns in reverse order. Draw the weights as they are."
    elif alike(numbers, right / right.amax()) or alike(numbers, (right - right.amin()) / (right.amax() - right.amin())):
        yield f"The weights of head {head} are rescaled by their largest one. Heads can then not be compared."
    else:
        yield f"Heat map {head} does not show the weights of head {head}: shape {tuple(numbers.shape)} is drawn."


def wrong_names(head: int, rows: list[str], columns: list[str], queries: list[str], keys: list[str]) -> Iterator[str]:
    """Yield messages if the row and column labels of a head's heat map differ from the names of queries and keys."""
    if rows == queries and columns == keys:
        return
    if set(rows) & set(keys) and set(columns) & set(queries):
        yield f"The names of rows and columns are exchanged in heat map {head}. Rows are queries, columns are keys."
    for what, got, right in (("rows", rows, queries), ("columns", columns, keys)):
        if got == right:
            continue
        if not set(got) & set(right):
            where = (
                "at the edges of its cells. Put the ticks at the centres" if "|" in got else "missing. Set the ticks"
            )
            yield f"In heat map {head}, the names of the {what} are {where}, and give each tick its label."
        elif got == right[::-1]:
            yield f"The names of the {what} are in reverse order in heat map {head}. Compare them with the weights."
        else:
            number = next(i for i, (a, b) in enumerate(zip(got, right, strict=True)) if a != b)
            yield f"In heat map {head}, {what[:-1]} {number} has the name “{got[number]}” instead of “{right[number]}”."


def wrong_scale(panels: list[dict], weights: Tensor) -> Iterator[str]:
    """Yield messages if heat maps have different colour scales or maps, or a scale that does not cover all weights."""
    scales = [shown["scale"] for shown in panels]
    ends = [f"{low:.2f} to {high:.2f}" for low, high in scales]
    if max(abs(a - b) for scale in scales for a, b in zip(scale, scales[0], strict=True)) > CLOSE:
        yield (
            f"Each head has a scale of its own: {', '.join(ends)}. Equal shades mean different weights. Give all heads "
            "the same `vmin` and `vmax`."
        )
    elif scales[0][0] > weights.min() + CLOSE or scales[0][1] < weights.max() - CLOSE:
        yield f"The scale, {ends[0]}, does not reach all weights, so different weights look the same. Use 0 to 1."
    if len({shown["colours"] for shown in panels}) > 1:
        yield "The heads have different colour maps, so they cannot be compared. Use one for all."


def alike(numbers: Tensor, others: Tensor) -> bool:
    """Return whether two tensors have the same shape and, up to a tolerance, the same numbers."""
    return numbers.shape == others.shape and torch.allclose(numbers.double(), others.double(), atol=CLOSE)
