"""Heat maps of attention weights: on a grid, over an image, beside their scores."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from mha_lib.pictures.picture import IMAGE_COLOURS, WEIGHT_COLOURS, Picture

PAPER = LinearSegmentedColormap.from_list("paper", ["white", "white"])
INK = "0.25"  # the outline of the ink on a map of weights, whose colours belong to the weights alone
LETTER = 0.06  # inches, a letter of a label
MOST_LABELS = 20


def heatmaps(
    weights: Tensor,
    *,
    valid_lens: Tensor | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    caption: str | None = None,
) -> Picture:
    """Attention weights, one panel a head: shared scale 0 to 1, one colour bar, masked cells hatched.

    Args:
        weights: (num_heads, num_queries, num_keys) of one example, or (num_queries, num_keys).
        valid_lens: the example's own: None, a scalar, or (num_queries,); keys beyond it are hatched.
        query_labels, key_labels: names of the tokens; left out, their numbers.
        titles: one a panel; left out, "head 0", "head 1", …
        columns: panels in a row.
        caption: what to notice; left out, the strongest link of each panel, which the alt text says in any case.

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
    return Picture(figure, what, read_strongest(weights, titles, query_labels, key_labels), caption)


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
    """Where each head looks on an image, for one query: the patches' weights in colour, the ink as an outline.

    Args:
        image: (height, width), larger is more ink.
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
        panel.add_collection(LineCollection(ink_outline(ink), colors=INK, linewidths=1))
    add_colour_bar(figure, axes, scale, IMAGE_COLOURS)
    peaks = [divmod(int(grid.argmax()), patch_columns) for grid in weights]
    reading = "Most weight on patch (row, column): " + "; ".join(
        f"{title} {peak}" for title, peak in zip(titles, peaks, strict=True)
    )
    return Picture(figure, f"Attention of {query} over an image, {num_heads} heads", reading + ".")


def ink_outline(ink: Tensor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The line around the dark pixels of an image, those above one half, edge by edge.

    Args:
        ink: (height, width), from 0 to 1.

    Returns:
        ((x, y), (x, y)) of each edge between a dark pixel and one that is not, or the border, in pixels.
    """
    dark = torch.nn.functional.pad((ink > 0.5).int(), (1, 1, 1, 1))  # (height + 2, width + 2)
    upright = dark.diff(dim=1)[1:-1].nonzero().tolist()  # between left and right neighbours
    lying = dark.diff(dim=0)[:, 1:-1].nonzero().tolist()  # between upper and lower ones
    return [((x, y), (x, y + 1)) for y, x in upright] + [((x, y), (x + 1, y)) for y, x in lying]


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
