"""Attention weights as a figure of matplotlib, to save, restyle or put into a paper."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = ["heatmaps"]

INSTALL = 'pip install "mha-lib[plots]"'
# Inches: a panel's longer side; the least for a cell with a name; a letter; a title; what else is beside the panels.
PANEL, NAMED, LETTER, TITLE, BESIDE = 2.0, 0.17, 0.1, 0.35, 0.6


def __dir__() -> list[str]:
    return __all__


def heatmaps(
    weights: Tensor | Mapping[str, Tensor],
    *,
    ax: Axes | Iterable[Axes] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    top: float | None = None,
    cmap: str | Colormap = "Purples",
) -> Figure:
    """Draw attention weights as heat maps, an ``Axes`` for each head, and return the figure of matplotlib.

    All heads share one colour scale, from 0 to ``top``, with one colour bar. A row without any weight, of a fully
    masked query, is hatched; a weight that is NaN is red.

    >>> figure = heatmaps(torch.rand(2, 3, 5).softmax(dim=-1), key_labels=["the", "dog", "saw", "a", "cat"])
    >>> [panel.get_title() for panel in figure.axes[:2]]
    ['head 0', 'head 1']

    Args:
        weights: (num_heads, num_queries, num_keys) of one example, or (num_queries, num_keys) of one head; or by layer,
            as ``heads.of(model, …).maps()`` returns them for one example.
        ax: where to draw: one ``Axes``, or one for each head. Left out, a new figure is made, unknown to pyplot.
        query_labels, key_labels: names of the tokens; left out, their positions.
        titles: one for each head; left out, "head 0", "head 1", …, or "layer 0, head 0", …; none for two axes.
        columns: panels in a row of a new figure.
        top: where the scale ends, above 0; larger weights have its colour. Left out, the largest weight of all heads.
        cmap: colours, as matplotlib takes them.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: ``weights`` has another rank, no entry or one below 0, ``columns`` is below 1, ``top`` is not above
            0, or there are not as many labels, titles or Axes as ``weights`` needs.
    """
    maps = one_example(weights)
    num_heads, num_queries, num_keys = maps.shape
    check_weights(maps)
    sides = ("query_labels", query_labels, num_queries), ("key_labels", key_labels, num_keys)
    names = [given if given is None else labels(name, given, count) for name, given, count in sides]
    if titles is None:
        each = [", ".join(f"{what} {number}" for what, number in numbers.items()) for numbers in head_numbers(weights)]
        titles = [""] if isinstance(weights, Tensor) and weights.dim() == 2 else each
    titles = labels("titles", titles, num_heads)
    rows, columns = grid_shape(num_heads, columns)
    if top is not None and not top > 0:
        raise ValueError(f"top must be above 0, got {top}")
    end = (float(maps.nan_to_num().max()) or 1.0) if top is None else top
    panels = _new_panels(maps, rows, columns, names) if ax is None else _given_panels(ax, num_heads)
    for panel, matrix, title in zip(panels, maps, titles, strict=True):
        _draw_map(panel, matrix, end, cmap)
        panel.set(title=title, xlabel="keys", ylabel="queries")
        for axis, some in zip((panel.yaxis, panel.xaxis), names, strict=True):
            _label_positions(axis, some)
    if ax is None:
        _label_outer(panels, columns)
    figure = panels[0].figure
    figure.colorbar(panels[0].images[-1], ax=panels, label="attention weight")
    return figure.figure  # that of a subfigure, too


def check_weights(maps: Tensor) -> None:
    """Raise a ValueError if there are no weights, or one is below 0, where the scale begins."""
    if not maps.numel():
        raise ValueError(f"weights must hold at least one query and one key, got {tuple(maps.shape)}")
    if (maps < 0).any():
        least = maps.nan_to_num().min().item()
        raise ValueError(f"weights must be at least 0, where the colour scale begins, got {least:.3g}")


def one_example(weights: Tensor | Mapping[str, Tensor]) -> Tensor:
    """Check that ``weights`` are of one example, and return them as (num_heads, num_queries, num_keys) on the CPU.

    Of a mapping, the heads of all layers follow one another.
    """
    if isinstance(weights, Mapping):
        layers = [one_example(X[0] if X.dim() == 4 and len(X) == 1 else X) for X in weights.values()]
        if len({X.shape[1:] for X in layers}) != 1:
            shapes = ", ".join(f"{name}: {tuple(X.shape)}" for name, X in zip(weights, layers, strict=True)) or "none"
            raise ValueError(f"weights must be of layers with as many queries and keys each, got {shapes}")
        return torch.cat(layers)
    if weights.dim() not in (2, 3):
        raise ValueError(
            "weights must be those of one example, (num_heads, num_queries, num_keys) or (num_queries, num_keys), "
            f"got {tuple(weights.shape)}; pick an example first, for example weights[0]"
        )
    if weights.dim() == 3 and not len(weights):
        raise ValueError(f"weights must hold at least one head, got {tuple(weights.shape)}")
    return (weights if weights.dim() == 3 else weights.unsqueeze(0)).detach().float().cpu()


def head_numbers(weights: Tensor | Mapping[str, Tensor]) -> list[dict[str, int]]:
    """Return the number of each head, ``{"head": 0}``; of weights by layer with its layer's, from 0 in each layer."""
    if isinstance(weights, Tensor):
        return [{"head": head} for head in range(len(weights) if weights.dim() == 3 else 1)]
    counts = [X.shape[-3] for X in weights.values()]
    return [{"layer": i, "head": head} for i, count in enumerate(counts) for head in range(count)]


def labels(name: str, given: Sequence[Any] | None, count: int, stem: str = "") -> list[Any]:
    """Return ``given`` as a list of ``count`` labels, or if it is None the default labels ``stem`` + 0, 1, 2, …."""
    if given is not None and len(given) != count:
        raise ValueError(f"{name} must have {count} entries, got {len(given)}: {list(given)}")
    return [f"{stem}{i}" for i in range(count)] if given is None else list(given)


def grid_shape(count: int, most_columns: int) -> tuple[int, int]:
    """Return numbers of rows and columns for a grid of ``count`` panels with at most ``most_columns`` in a row."""
    if most_columns < 1:
        raise ValueError(f"columns must be at least 1, got {most_columns}")
    rows = -(-count // most_columns)
    return rows, -(-count // rows)


def _new_panels(maps: Tensor, rows: int, columns: int, names: Sequence[list[Any] | None]) -> list[Axes]:
    """An Axes for each head, in a new figure that has room for the names of queries and keys."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"heatmaps needs matplotlib, which is not installed. Run `{INSTALL}`.") from error

    if "ipykernel" in sys.modules:  # a notebook shows a figure that pyplot does not know only after this import
        import matplotlib_inline.backend_inline  # noqa: F401
    num_heads, num_queries, num_keys = maps.shape
    left, below = (BESIDE + LETTER * max(len(str(name)) for name in some or ["00"]) for some in names)
    cell = max(PANEL / max(num_queries, num_keys), NAMED if any(names) else 0)
    width = left + columns * (num_keys * cell + TITLE / 2) + 2 * BESIDE
    figure = Figure((width, below + rows * (num_queries * cell + TITLE)), layout="compressed")
    return [figure.add_subplot(rows, columns, number + 1) for number in range(num_heads)]


def _given_panels(ax: Any, num_heads: int) -> list[Axes]:
    """The Axes that were handed in, one for each head, from one Axes or from a sequence or array of them."""
    panels = [ax] if hasattr(ax, "imshow") else list(getattr(ax, "flat", ax))
    if len(panels) != num_heads:
        raise ValueError(f"ax must be one Axes for each head, {num_heads} in all, got {len(panels)}")
    return panels


def _draw_map(panel: Axes, matrix: Tensor, top: float, cmap: str | Colormap) -> None:
    """The weights of one head (num_queries, num_keys) as an image, rows without weight hatched."""
    from matplotlib import colormaps

    colours = colormaps.get_cmap(cmap).with_extremes(bad="red")
    panel.imshow(matrix.numpy(), vmin=0, vmax=top, cmap=colours, interpolation="nearest")
    empty = (matrix.isnan() | (matrix == 0)).all(dim=1)
    for row in empty.nonzero().flatten().tolist():
        panel.axhspan(row - 0.5, row + 0.5, fill=False, hatch="////", edgecolor="grey", linewidth=0)


def _label_positions(axis: Any, names: Sequence[str] | None) -> None:
    """Every name at its position along an axis, upright below the keys; without names, some of the positions."""
    if names is None:
        axis.get_major_locator().set_params(integer=True)
    else:
        is_long = axis.axis_name == "x" and max(map(len, map(str, names))) > 1
        axis.set_ticks(range(len(names)), names, rotation=90 if is_long else 0)


def _label_outer(panels: Sequence[Axes], columns: int) -> None:
    """Keep names of queries at the left of the grid only, and names of keys where no panel is below."""
    for number, panel in enumerate(panels):
        if number % columns:
            panel.set_ylabel("")
            panel.tick_params(labelleft=False)
        if number + columns < len(panels):
            panel.set_xlabel("")
            panel.tick_params(labelbottom=False)
