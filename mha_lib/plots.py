"""Static pictures, one look for all. Each function returns a ``Picture``, which a notebook shows by itself.

Needs matplotlib: ``pip install mha-lib[plots]``.
"""

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from mha_lib.importance import mean_ranks
from mha_lib.shapes import ShapeTrace, Step, read_tag

# Okabe and Ito 2008: told apart with every common kind of colour vision. One colour a head, in this order.
HEAD_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2", "#999999")
WEIGHT_COLOURS = "Blues"
IMAGE_COLOURS = "Oranges"
PAPER = LinearSegmentedColormap.from_list("paper", ["white", "white"])
# Colour and dash of the lines in one chart, told apart without colour too.
LINES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"))
INK = LinearSegmentedColormap.from_list("ink", [(0, 0, 0, 0), (0, 0, 0, 1)])
DPI = 120
LETTER = 0.06  # inches, a letter of a label
MOST_LABELS = 20


class Picture:
    """A finished figure with its text twin: what it is, and a one-line reading of what it shows.

    In a notebook it shows as an image with alt text and the reading below it; ``print`` gives the text alone. The
    image travels inside the HTML, which is the one form whose alt text JupyterLab and nbconvert both keep.
    """

    def __init__(self, figure: Figure, what: str, reading: str):
        self.figure, self.what, self.reading = figure, what, reading
        self.width = round(figure.get_figwidth() * 96)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
        self.png = buffer.getvalue()

    @property
    def alt(self) -> str:
        """The text for those who cannot see the image."""
        return f"{self.what}. {self.reading}"

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return (
            f'<figure style="margin:0"><img alt="{html.escape(self.alt)}" width="{self.width}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(self.png).decode()}">'
            f"<figcaption>{html.escape(self.reading)}</figcaption></figure>"
        )


def tagged_numbers(trace: ShapeTrace) -> Picture:
    """Where every number of ``tagged_tokens`` stands at each step of a trace; the colour is the number's head.

    Args:
        trace: steps of ``transpose_qkv``, of its inverse, or of the wrong reshape, on tagged tokens.

    Raises:
        ValueError: the trace has no steps.
    """
    if not trace.steps:
        raise ValueError("trace must have at least one step, got none")
    tables = [tables_of(step) for step in trace.steps]
    heights = [max(len(rows) for _, rows in group) + 1.7 for group in tables]
    width = max(sum(table_width(rows) + 1 for _, rows in group) for group in tables)
    figure = Figure(figsize=(max(0.42 * width, 6.2), 0.42 * sum(heights) + 0.4), layout="constrained")
    axes = figure.subplots(len(tables), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, step, group, height in zip(axes, trace.steps, tables, heights, strict=True):
        panel.set(xlim=(0, width), ylim=(height - 1.6, -0.9), aspect="equal", anchor="W")
        panel.axis("off")
        title = f"{step.operation}: {tuple(step.tensor.shape)}  ({', '.join(step.axes)})"
        panel.set_title(title, loc="left", fontsize=9, pad=3)
        x = 0.0
        for name, rows in group:
            draw_table(panel, x, name, rows)
            x += table_width(rows) + 1
    heads = sorted({read_tag(tag)[2] for tag in trace.steps[0].tensor.flatten().tolist()})
    handles = [Rectangle((0, 0), 1, 1, color=head_colour(head), alpha=0.55, label=f"head {head}") for head in heads]
    handles.append(Rectangle((0, 0), 0, 0, alpha=0, label="0213 = example 0, token 2, head 1, feature 3"))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=8, frameon=False)
    what = "Tagged numbers at each step: " + " → ".join(str(tuple(step.tensor.shape)) for step in trace.steps)
    return Picture(figure, what, read_rooms(trace.steps[-1]))


def tables_of(step: Step) -> list[tuple[str, list[list[list[int]]]]]:
    """A step's tensor as named tables; a table is a list of rows, a row a list of groups of numbers side by side."""
    X = step.tensor
    if X.dim() == 3:
        return [(f"[{i}]", [[row] for row in table]) for i, table in enumerate(X.tolist())]
    if step.axes[1] == "heads":
        return [
            (f"[{i}, {h}]", [[row] for row in table])
            for i, example in enumerate(X.tolist())
            for h, table in enumerate(example)
        ]
    return [(f"[{i}]", example) for i, example in enumerate(X.tolist())]


def table_width(rows: list[list[list[int]]]) -> float:
    """Width of a table in cells; groups within a row stand a little apart."""
    return sum(len(group) for group in rows[0]) + 0.3 * (len(rows[0]) - 1)


def draw_table(panel: Axes, x: float, name: str, rows: list[list[list[int]]]) -> None:
    """Draw a table of tagged numbers with its left upper corner at (x, 0)."""
    panel.text(x, -0.25, name, fontsize=8, color="0.35")
    for y, row in enumerate(rows):
        left = x
        for group in row:
            for tag in group:
                colour = head_colour(read_tag(tag)[2])
                panel.add_patch(Rectangle((left, y), 1, 1, facecolor=colour, alpha=0.55, edgecolor="white"))
                panel.text(left + 0.5, y + 0.52, f"{tag:04d}", ha="center", va="center", fontsize=7)
                left += 1
            left += 0.3


def head_colour(head: int) -> str:
    """The colour of a head, the same in every picture."""
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]


def read_rooms(step: Step) -> str:
    """One line on where the heads' numbers ended up, counted from the tensor."""
    if step.axes[-1] != "features":
        return "Every token holds all its heads side by side."
    rooms = step.tensor.reshape(-1, *step.tensor.shape[-2:])
    mixed = sum(len({read_tag(tag)[2] for tag in room.flatten().tolist()}) > 1 for room in rooms)
    if mixed:
        return f"{mixed} of {len(rooms)} tables mix numbers of different heads."
    return f"Each of the {len(rooms)} tables holds the numbers of one head of one example."


def heatmaps(
    weights: Tensor,
    *,
    valid_lens: Tensor | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
) -> Picture:
    """Attention weights, one panel a head: shared scale 0 to 1, one colour bar, masked cells hatched.

    Args:
        weights: (num_heads, num_queries, num_keys) of one example, or (num_queries, num_keys).
        valid_lens: the example's own: None, a scalar, or (num_queries,); keys beyond it are hatched.
        query_labels, key_labels: names of the tokens; left out, their numbers.
        titles: one a panel; left out, "head 0", "head 1", …
        columns: panels in a row.

    Raises:
        ValueError: ``weights`` has another rank, or there are not as many labels or titles as they name.
    """
    weights = one_example(weights)
    num_heads, num_queries, num_keys = weights.shape
    query_labels = labels("query_labels", query_labels, num_queries, [str(i) for i in range(num_queries)])
    key_labels = labels("key_labels", key_labels, num_keys, [str(i) for i in range(num_keys)])
    titles = labels("titles", titles, num_heads, [f"head {h}" for h in range(num_heads)])
    lengths = torch.as_tensor(num_keys if valid_lens is None else valid_lens).expand(num_queries)
    rows, columns = grid_shape(num_heads, columns)
    longest = max(num_queries, num_keys)
    side = min(2.6, max(1.7, 0.2 * longest))
    width, height = side * num_keys / longest, side * num_queries / longest
    upright = upright_height(key_labels, width)
    figure = Figure(figsize=(width * columns + 1.1, height * rows + upright + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel, title, matrix in zip(axes.flat, titles, weights.tolist(), strict=False):
        panel.imshow(matrix, cmap=WEIGHT_COLOURS, vmin=0, vmax=1)
        panel.set_title(title, fontsize=9)
        hatch_masked(panel, lengths, num_keys)
    for number, panel in enumerate(axes.flat[:num_heads]):
        tick(panel.xaxis, key_labels, "keys" if number + columns >= num_heads else None, upright > 0)
        tick(panel.yaxis, query_labels, "queries" if number % columns == 0 else None)
    for panel in axes.flat[num_heads:]:
        panel.axis("off")
    add_colour_bar(figure, axes, Normalize(0, 1), WEIGHT_COLOURS)
    what = f"Heat maps of attention weights, {num_heads} × ({num_queries} queries × {num_keys} keys)"
    return Picture(figure, what, read_strongest(weights, titles, query_labels, key_labels))


def add_colour_bar(figure: Figure, axes: Iterable[Axes], scale: Normalize, colours: str) -> None:
    """One colour bar for all panels."""
    bar = figure.colorbar(ScalarMappable(scale, colours), ax=axes)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def read_strongest(weights: Tensor, titles: Sequence[str], queries: Sequence[str], keys: Sequence[str]) -> str:
    """One line: the strongest link of each panel (of the first four)."""
    if not weights.numel():
        return "There are no weights."
    parts = []
    for title, matrix in list(zip(titles, weights, strict=True))[:4]:
        query, key = divmod(int(matrix.argmax()), matrix.shape[1])
        parts.append(f"{title}: {queries[query]} → {keys[key]} {matrix[query, key]:.2f}")
    return "Strongest link, query → key: " + "; ".join(parts) + ("; …" if len(weights) > 4 else ".")


def hatch_masked(panel: Axes, lengths: Tensor, num_keys: int) -> None:
    """Hatch the cells of keys beyond each query's valid length."""
    for query, length in enumerate(lengths.tolist()):
        if length < num_keys:
            corner = (length - 0.5, query - 0.5)
            panel.add_patch(
                Rectangle(corner, num_keys - length, 1, hatch="////", fill=False, edgecolor="0.6", linewidth=0)
            )


def weights_over_image(
    image: Tensor,
    weights: Tensor,
    *,
    query: str,
    query_patch: tuple[int, int] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
) -> Picture:
    """Where each head looks on an image, for one query: the patches' weights drawn over the pixels.

    Args:
        image: (height, width), larger is brighter.
        weights: (num_heads, patch_rows, patch_columns), the query's weight on each patch.
        query: what the query is, for example "patch 5" or "class token".
        query_patch: (row, column) of the query, outlined on the image; None if it is not on the image.
        titles: one a panel; left out, "head 0", "head 1", …

    All panels share one scale, from 0 to the largest weight shown.

    Raises:
        ValueError: the image does not divide into the patches, or there are not as many titles as heads.
    """
    num_heads, patch_rows, patch_columns = weights.shape
    height, width = image.shape
    if height % patch_rows or width % patch_columns:
        raise ValueError(
            f"image must divide into {patch_rows} × {patch_columns} patches, got {height} × {width} pixels"
        )
    titles = labels("titles", titles, num_heads, [f"head {h}" for h in range(num_heads)])
    rows, columns = grid_shape(num_heads + 1, columns)
    scale = Normalize(0, float(weights.max()))
    extent = (0, width, height, 0)
    ink = image / image.max()
    figure = Figure(figsize=(1.7 * columns + 0.9, 1.85 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.axis("off")
    axes.flat[0].imshow(ink.tolist(), cmap="gray_r", extent=extent)
    axes.flat[0].set_title(f"query: {query}", fontsize=9)
    if query_patch is not None:
        patch_height, patch_width = height / patch_rows, width / patch_columns
        corner = (query_patch[1] * patch_width, query_patch[0] * patch_height)
        outline = Rectangle(corner, patch_width, patch_height, fill=False, edgecolor="#D55E00", linewidth=3)
        axes.flat[0].add_patch(outline)
    for panel, title, grid in zip(axes.flat[1:], titles, weights.tolist(), strict=False):
        panel.set_title(title, fontsize=9)
        panel.imshow(grid, cmap=IMAGE_COLOURS, norm=scale, extent=extent)
        panel.imshow((0.45 * ink).tolist(), cmap=INK, vmin=0, vmax=1, extent=extent)
    add_colour_bar(figure, axes, scale, IMAGE_COLOURS)
    peaks = [divmod(int(grid.argmax()), patch_columns) for grid in weights]
    reading = "Most weight on patch (row, column): " + "; ".join(
        f"{title} {peak}" for title, peak in zip(titles, peaks, strict=True)
    )
    return Picture(figure, f"Attention of {query} over an image, {num_heads} heads", reading + ".")


def one_example(weights: Tensor) -> Tensor:
    """The weights of one example as (num_heads, num_queries, num_keys), detached."""
    if weights.dim() not in (2, 3):
        raise ValueError(
            "weights must be those of one example, (num_heads, num_queries, num_keys) or (num_queries, num_keys), "
            f"got {tuple(weights.shape)}; pick an example first, for example weights[0]"
        )
    return (weights if weights.dim() == 3 else weights.unsqueeze(0)).detach()


def labels(name: str, given: Sequence[str] | None, count: int, default: Sequence[str]) -> Sequence[str]:
    """The labels to use: the given ones, checked, or the default."""
    if given is None:
        return default
    if len(given) != count:
        raise ValueError(f"{name} must name {count}, got {len(given)}: {list(given)}")
    return given


def grid_shape(count: int, most_columns: int) -> tuple[int, int]:
    """Rows and columns for so many panels, as even as they can be."""
    rows = -(-count // most_columns)
    return rows, -(-count // rows)


def tick(axis: Axis, names: Sequence[str], title: str | None, upright: bool = False) -> None:
    """Name the ticks of an outer axis of a heat map (of many, as many as fit); without a title, leave them out."""
    step = -(-len(names) // MOST_LABELS)
    shown = names[::step] if title else [""] * len(names[::step])
    axis.set_ticks(range(0, len(names), step), shown, fontsize=7, rotation=90 if upright else 0)
    axis.set_label_text(title or "", fontsize=8)


def upright_height(names: Sequence[str], width: float) -> float:
    """Inches below a heat map so many inches wide that its key labels need to stand upright; 0 if they fit lying."""
    longest = max(map(len, names), default=0)
    fits = (longest + 1) * LETTER * min(len(names), MOST_LABELS) <= width
    return 0.0 if fits else longest * LETTER


def regression_curves(
    x_train: Tensor,
    y_train: Tensor,
    x: Tensor,
    truth: Tensor,
    curves: Mapping[str, Tensor],
    *,
    x_label: str = "x",
    y_label: str = "y",
) -> Picture:
    """Training points, the function behind them, and predictions of it, each with its distance from the truth.

    Args:
        x_train, y_train: (n,), the points.
        x: (m,), where the curves are known.
        truth: (m,), the function without noise.
        curves: name → (m,), at most four; NaN leaves a hole.
        x_label, y_label: what the axes show, with units.

    The distance is the root mean square over all x that have a prediction.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    check_curves("x", x, {"truth": truth, **curves})
    check_curves("x_train", x_train, {"y_train": y_train})
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    panel = figure.subplots()
    panel.plot(x.tolist(), truth.tolist(), color="0.75", linewidth=5, label="truth")
    panel.plot(x_train.tolist(), y_train.tolist(), "o", color="0.35", markersize=4, label="training points")
    for name, curve, colour, style in styled(curves):
        panel.plot(x.tolist(), curve.tolist(), color=colour, linestyle=style, linewidth=2, label=name)
    finish_axes(panel, x_label, y_label)
    what = f"Curves through {len(x_train)} training points: {', '.join(['truth', *curves])}"
    return Picture(figure, what, read_distances(truth, curves))


def read_distances(truth: Tensor, curves: Mapping[str, Tensor]) -> str:
    """One line: how far each curve lies from the truth, and where it has holes."""
    parts = []
    for name, curve in curves.items():
        known = ~curve.isnan()
        distance = (curve - truth)[known].square().mean().sqrt().item()
        holes = "" if known.all() else f" (no prediction at {(~known).sum().item()} of {len(known)} points)"
        parts.append(f"{name} {distance:.2f}{holes}")
    return "Distance from the truth (root mean square): " + "; ".join(parts) + "." if parts else "No prediction yet."


def parameter_sweep(x: Tensor, curves: Mapping[str, Tensor], *, x_label: str, y_label: str) -> Picture:
    """How something changes with a positive parameter, on a log axis; a dot marks each curve's lowest point.

    Args:
        x: (n,), values of the parameter, positive.
        curves: name → (n,), at most four.
        x_label, y_label: what the axes show, with units.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    check_curves("x", x, curves)
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    panel = figure.subplots()
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    lowest = []
    for name, curve, colour, style in styled(curves):
        panel.plot(x.tolist(), curve.tolist(), color=colour, linestyle=style, linewidth=2, label=name)
        where = int(curve.argmin())
        panel.plot([x[where].item()], [curve[where].item()], "o", color=colour, markersize=7)
        lowest.append(f"{name} {curve[where]:.2f} at {x[where]:.2g}")
    finish_axes(panel, x_label, y_label)
    what = f"{y_label} for {x_label} from {x.min():.2g} to {x.max():.2g}: {', '.join(curves)}"
    return Picture(figure, what, "Lowest points: " + "; ".join(lowest) + ".")


def pruning_curves(curves: Mapping[str, Tensor], best: Tensor, random: Tensor, worst: Tensor) -> Picture:
    """Accuracy against the number of heads kept, for several orders of heads, inside what is possible at all.

    Args:
        curves: name of the order → (N + 1,), accuracy with 0, 1, …, N heads kept; at most four.
        best, random, worst: (N + 1,), accuracy of the best sets of that size, of all sets on average, of the worst.

    Raises:
        ValueError: lengths do not match, or there are more than four curves.
    """
    check_curves("best", best, {"random": random, "worst": worst, **curves})
    sizes = list(range(len(best)))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    panel = figure.subplots()
    ends = worst.tolist(), best.tolist()
    panel.fill_between(sizes, *ends, facecolor="0.9", edgecolor="0.45", label="worst to best sets")
    panel.plot(sizes, random.tolist(), color="0.45", linestyle=(0, (1, 2)), linewidth=2, label="random sets, mean")
    for name, curve, colour, style in styled(curves):
        panel.plot(sizes, curve.tolist(), color=colour, linestyle=style, linewidth=2, marker=".", label=name)
    panel.set_xticks(sizes)
    panel.set_ylim(0, 1.03)
    finish_axes(panel, "heads kept", "accuracy")
    means = {"best sets": best, **curves, "random sets": random, "worst sets": worst}
    what = f"Accuracy with 0 to {sizes[-1]} heads kept, by {', '.join(curves)}, between the best and the worst sets"
    reading = "; ".join(f"{name} {curve.mean():.2f}" for name, curve in means.items())
    return Picture(figure, what, f"Mean over 0 to {sizes[-1]} heads kept: {reading}.")


def head_ranks(importances: Mapping[str, Tensor], block_names: Sequence[str], *, columns: int = 3) -> Picture:
    """Who comes first: for each measure of importance every head's rank, 1 for the most important; darker is higher.

    Args:
        importances: name of the measure → (num_blocks, num_heads). Equals share the mean of their ranks.
        block_names: one a block.

    Raises:
        ValueError: the measures differ in shape, or there are not as many names as blocks.
    """
    num_blocks, num_heads = shape = next(iter(importances.values())).shape
    for name, importance in importances.items():
        if importance.shape != shape:
            raise ValueError(f"{name} must have the shape of the others, {tuple(shape)}, got {tuple(importance.shape)}")
    names = labels("block_names", block_names, num_blocks, block_names)
    rows, columns = grid_shape(len(importances), columns)
    width, height = 0.36 * num_heads * columns + 1.2, (0.36 * num_blocks + 0.4) * rows + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    first = []
    for number, (panel, (name, importance)) in enumerate(zip(axes.flat, importances.items(), strict=False)):
        places = mean_ranks(importance)
        panel.imshow(places.tolist(), cmap=f"{WEIGHT_COLOURS}_r", vmin=1, vmax=places.numel())
        panel.set_title(name, fontsize=9)
        for block, row in enumerate(places.tolist()):
            for head, place in enumerate(row):
                colour = "white" if place <= places.numel() / 2 else "black"
                panel.text(head, block, f"{place:g}", color=colour, ha="center", va="center", fontsize=8)
        heads = [str(head) for head in range(num_heads)]
        tick(panel.xaxis, heads, "heads" if number + columns >= len(importances) else None)
        tick(panel.yaxis, names, None if number % columns else "blocks")
        (block, head), *others = (places == places.min()).nonzero().tolist()
        leader = f"{1 + len(others)} heads alike" if others else f"{names[block]}, head {head}"
        first.append(f"{name}: {leader}")
    for panel in axes.flat[len(importances) :]:
        panel.axis("off")
    what = f"Ranks of {num_blocks} × {num_heads} heads by {len(importances)} measures of importance"
    return Picture(figure, what, "In the first place, by " + "; ".join(first) + ".")


def check_curves(name: str, x: Tensor, curves: Mapping[str, Tensor]) -> None:
    """Refuse curves that do not have one value for each x."""
    for curve_name, curve in curves.items():
        if curve.shape != x.shape:
            raise ValueError(
                f"{curve_name} must have one value for each of {name}, which is {tuple(x.shape)}; "
                f"got {tuple(curve.shape)}"
            )


def styled(curves: Mapping[str, Tensor]) -> list[tuple[str, Tensor, str, str]]:
    """Each curve as (name, values, colour, line style)."""
    if len(curves) > len(LINES):
        raise ValueError(f"curves must be at most {len(LINES)}, got {len(curves)}: {list(curves)}")
    return [(name, curve, *style) for (name, curve), style in zip(curves.items(), LINES, strict=False)]


def finish_axes(panel: Axes, x_label: str, y_label: str) -> None:
    """Name the axes of a line chart, thin its frame out, put the legend beside it."""
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)


def scores_to_weights(
    scores: Tensor,
    weights: Mapping[str, Tensor],
    *,
    valid_lens: Tensor | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Picture:
    """Scores, and the attention weights that different rules make of them, with the numbers written in.

    Each row's sum stands to the right of the weights; cells of masked keys are hatched.

    Args:
        scores: (num_queries, num_keys).
        weights: name of the rule → (num_queries, num_keys).
        valid_lens: None, a scalar, or (num_queries,); keys beyond it are hatched.
        query_labels, key_labels: names of the tokens; left out, q0, q1, … and k0, k1, …

    Raises:
        ValueError: shapes do not match, or there are not as many labels as they name.
    """
    if scores.dim() != 2:
        raise ValueError(f"scores must have shape (num_queries, num_keys), got {tuple(scores.shape)}")
    for name, matrix in weights.items():
        if matrix.shape != scores.shape:
            raise ValueError(f"{name} must have the shape of scores, {tuple(scores.shape)}, got {tuple(matrix.shape)}")
    num_queries, num_keys = scores.shape
    query_labels = labels("query_labels", query_labels, num_queries, [f"q{i}" for i in range(num_queries)])
    key_labels = labels("key_labels", key_labels, num_keys, [f"k{i}" for i in range(num_keys)])
    lengths = torch.as_tensor(num_keys if valid_lens is None else valid_lens).expand(num_queries)
    count, width = 1 + len(weights), 0.44 * num_keys
    upright = upright_height(key_labels, width)
    figure = Figure(figsize=((width + 0.7) * count, 0.36 * num_queries + upright + 0.9), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for panel, name, matrix in zip(axes, ["scores", *weights], [scores, *weights.values()], strict=True):
        is_weights = name != "scores"
        panel.imshow(matrix.tolist(), cmap=WEIGHT_COLOURS if is_weights else PAPER, vmin=0, vmax=1, aspect="auto")
        panel.set_title(name, fontsize=9)
        hatch_masked(panel, lengths, num_keys)
        write_numbers(panel, matrix, row_sums=is_weights)
        tick(panel.xaxis, key_labels, "keys", upright > 0)
        tick(panel.yaxis, query_labels, None if is_weights else "queries")
    what = f"Scores, queries × keys {num_queries} × {num_keys}, and the weights made of them: {', '.join(weights)}"
    return Picture(figure, what, read_leaks(weights, lengths, num_keys))


def write_numbers(panel: Axes, matrix: Tensor, row_sums: bool) -> None:
    """Write every number into its cell, and the sum of each row to the right."""
    for query, row in enumerate(matrix.tolist()):
        for key, number in enumerate(row):
            ink, halo = ("white", "none") if row_sums and number > 0.6 else ("black", "white")
            text = panel.text(key, query, f"{number:.2f}".replace("-", "−"), ha="center", va="center", fontsize=8)
            text.set(color=ink, path_effects=[withStroke(linewidth=2.5, foreground=halo)])
        if row_sums:
            panel.text(len(row) - 0.4, query, f"Σ {sum(row):.2f}", va="center", fontsize=8, color="0.35")


def read_leaks(weights: Mapping[str, Tensor], lengths: Tensor, num_keys: int) -> str:
    """One line: what masked keys get under each rule or, where none is masked, each rule's largest weight."""
    masked = torch.arange(num_keys) >= lengths[:, None]
    if not masked.any():
        largest = [f"{name} {matrix.max():.2f}" for name, matrix in weights.items()]
        return f"Largest weight: {'; '.join(largest)}."
    leaks = {name: matrix.masked_fill(~masked, 0).sum(dim=1).tolist() for name, matrix in weights.items()}
    rows = [f"{name} {', '.join(f'{leak:.2f}' for leak in row)}" for name, row in leaks.items()]
    return f"Weight on masked keys, query by query: {'; '.join(rows)}."
