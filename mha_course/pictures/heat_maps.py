"""Heat maps of attention weights: on a grid, over an image, over words, beside their scores.

They are drawn with Pillow, since a notebook holds many: four maps of 6 × 6 take 0.1 s of a processor and 7 kB. As a
figure of matplotlib (``mha_lib.heatmaps``) in the same ``Picture`` they take 0.6 s and 17 kB.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mha_course.language import listed, tr
from mha_course.pictures.picture import PAD, PAGE, Canvas, Picture, font, signed
from mha_course.pictures.shared_with_js import is_dark, weight_colours
from mha_course.rounding import first_largest
from mha_lib.figures import grid_shape, head_numbers, labels, one_example

MOST_LABELS = 20
TITLE, GAP, SCALE_HEIGHT = 18, 18, 30  # pixels above a map, between maps, and for the scale below them
WORD, LINE = 14, 48  # letters of a word in a box, and from one line of boxes to the next


def heatmaps(
    weights: Tensor | Mapping[str, Tensor],
    *,
    valid_lens: Tensor | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
    numbers: bool = False,
    scale: str = "attention weight",
    caption: str | None = None,
) -> Picture:
    """Draw attention weights as heat maps, one for each head, with one scale from 0 to 1 and masked cells hatched.

    >>> heatmaps(torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
    Heat maps of attention weights, 1 × (2 queries × 2 keys). head 0: query 0 puts most weight, 0.90, on key 0.

    Args:
        weights: (num_heads, num_queries, num_keys) of one example, or (num_queries, num_keys); or of several layers, as
            ``mha_lib.heads.of(model, …).maps()`` gives those of one example.
        valid_lens: the example's own: None, a scalar, or (num_queries,); keys beyond it are hatched.
        query_labels, key_labels: names of the tokens; left out, their numbers.
        titles: one a panel; left out, "head 0", "head 1", …
        columns: panels in a row.
        numbers: whether each weight is written into its cell, with two digits.
        scale: what the colours show, a noun in the singular: "mask" for a drawn mask.
        caption: what to notice; left out, the largest weight of each panel, which the alt text says in any case.

    Raises:
        ValueError: ``weights`` has another rank or no head, ``valid_lens`` another shape, ``columns`` is below 1, or
            there are not as many labels or titles as they name.
    """
    numbered = [
        tr("layer {layer}, head {head}", **numbers) if "layer" in numbers else tr("head {head}", **numbers)
        for numbers in head_numbers(weights)
    ]
    weights = one_example(weights)
    num_heads, num_queries, num_keys = weights.shape
    query_labels = labels("query_labels", query_labels, num_queries)
    key_labels = labels("key_labels", key_labels, num_keys)
    titles = labels("titles", numbered if titles is None else titles, num_heads)
    masked = masked_keys(valid_lens, num_queries, num_keys)
    _, columns = grid_shape(num_heads, columns)
    widest_side = max(room_for(columns, beside(query_labels)), MOST_LABELS) * max(num_queries / max(num_keys, 1), 1)
    longest = max(num_queries, num_keys)
    # Pixels: a lone map is up to 640 wide, the page, 420 high; a cell has 20, or 38 for its number; a title needs 150.
    largest = 250 if num_heads > 1 else max(250, min(640, 420 * longest / max(num_queries, 1)))
    side = min(largest, widest_side, max(150, (38 if numbers else 20) * longest))
    names, masks = (query_labels, key_labels), [masked] * num_heads
    canvas = draw_maps(list(weights), titles, columns, side, masks, names, numbers=numbers, scale=scale)
    sizes = {"heads": num_heads, "queries": num_queries, "keys": num_keys}
    what = (
        tr("Heat maps of attention weights, {heads} × ({queries} queries × {keys} keys)", **sizes)
        if scale == "attention weight"
        else f"Heat maps of {scale}s, {num_heads} × ({num_queries} queries × {num_keys} keys)"
    )
    return Picture(canvas, what, read_strongest(weights, titles, query_labels, key_labels), caption)


def masked_keys(valid_lens: Tensor | None, num_queries: int, num_keys: int) -> Tensor:
    """Return a Boolean tensor (num_queries, num_keys), True where a key is beyond its query's valid length."""
    lengths = torch.as_tensor(num_keys if valid_lens is None else valid_lens).cpu()
    if lengths.shape not in ((), (1,), (num_queries,)):
        raise ValueError(
            f"valid_lens must be those of one example, a scalar or ({num_queries},), got {tuple(lengths.shape)}; "
            "pick an example first, for example valid_lens[0]"
        )
    return torch.arange(num_keys) >= lengths.expand(num_queries)[:, None]


def draw_maps(
    maps: Sequence[Tensor],
    titles: Sequence[str],
    columns: int,
    side: float,
    masks: Sequence[Tensor | None] = (),
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
    *,
    numbers: bool = False,
    scale: str = "attention weight",
) -> Canvas:
    """Draw attention maps as heat maps on one canvas, ``columns`` in a row, each with a longer side of ``side`` pixels.

    ``names`` are those of queries and keys, written beside the outer maps; ``numbers`` are written into the
    cells, ``scale`` beside the scale.
    """
    masks, (queries, keys) = masks or [None] * len(maps), names
    cells = [side / max(*one.shape, 1) for one in maps]
    left = beside(queries)
    longest = max((font(40, name).getlength(name) / 4 for name in keys), default=0)
    step = -(-max(len(queries), len(keys), 1) // MOST_LABELS)  # of so many names, one is written
    is_upright = bool(keys) and longest + 3 > cells[0] * step
    below = (longest + 8 if is_upright else 16) if keys else 0
    widths = [one.shape[1] * cell for one, cell in zip(maps, cells, strict=True)]
    pitch = max(*widths, *(font(40, title).getlength(title) / 4 for title in titles)) + GAP
    heights = [one.shape[0] * cell for one, cell in zip(maps, cells, strict=True)]
    rows = [max(heights[start : start + columns]) for start in range(0, len(maps), columns)]
    width = max(left + min(columns, len(maps)) * pitch - GAP, left + 340 if keys else 300)
    canvas = Canvas(width, sum(rows) + TITLE * len(rows) + (len(rows) - 1) * GAP / 2 + below + SCALE_HEIGHT + 8)
    for number, (one, title, cell, masked) in enumerate(zip(maps, titles, cells, masks, strict=True)):
        row, column = divmod(number, columns)
        x, y = left + column * pitch, sum(rows[:row]) + TITLE * (row + 1) + row * GAP / 2
        canvas.heat_map(x, y, cell, one, title=title, masked=masked, numbers=numbers)
        if column == 0:
            for i in range(0, len(queries), step):
                canvas.text(left - 6, y + (i + 0.5) * cell, queries[i], size=10, anchor="rm", colour="query")
        for i in range(0, len(keys) if number + columns >= len(maps) else 0, step):
            write = canvas.upright if is_upright else partial(canvas.text, anchor="ma")
            write(x + (i + 0.5) * cell, y + heights[number] + 4, keys[i], size=10, colour="key")
    y = canvas.height - 2 * PAD - SCALE_HEIGHT + 6
    canvas.scale(left, y)
    name = tr("attention weight") if scale == "attention weight" else scale
    canvas.text(left + 176, y + 4, name, size=10, anchor="lm")
    if keys:
        canvas.text(left + 176, y + 18, tr("rows: queries"), size=10, anchor="lm", colour="query")
        canvas.text(left + 256, y + 18, tr("columns: keys"), size=10, anchor="lm", colour="key")
    return canvas


def beside(queries: Sequence[str]) -> float:
    """Return the width in pixels of the query names beside a heat map, with the gap after them."""
    return max((font(40, name).getlength(name) / 4 for name in queries), default=-8) + 8


def room_for(columns: int, left: float = 0) -> float:
    """Return how wide a map may be so that ``columns`` of them, ``left`` pixels from the left, fit a page."""
    return (PAGE - 2 * PAD - left + GAP) / columns - GAP


def read_strongest(weights: Tensor, titles: Sequence[str], queries: Sequence[str], keys: Sequence[str]) -> str:
    """Return a description of attention maps: the query and key of the largest weight in each of the first four.

    Of weights that are told alike, the first one, row by row, is named.
    """
    if not weights.numel():
        return tr("There are no weights.")
    parts, queries, keys = [], told_apart(queries), told_apart(keys)
    for title, matrix in list(zip(titles, weights, strict=True))[:4]:
        query, key = divmod(first_largest(matrix), matrix.shape[1])
        crossed = int(matrix.isnan().sum())
        holes = tr(" ({count} of {total} weights are NaN)", count=crossed, total=matrix.numel()) if crossed else ""
        told = {"title": title, "query": queries[query], "key": keys[key], "weight": signed(matrix[query, key].item())}
        most = (
            tr("{title}: query {query} puts most weight, {weight}, on key {key}", **told)
            if title
            else tr("Query {query} puts most weight, {weight}, on key {key}", **told)
        )
        parts.append(listed([most, holes], ""))
    links = listed([*parts, "…"] if len(weights) > 4 else parts, "; ")
    return links if len(weights) > 4 else tr("{sentence}.", sentence=links)


def told_apart(names: Sequence[str]) -> list[str]:
    """Return the names in quotes, each that occurs more than once with its position; a position itself stays bare."""
    every = [str(name) for name in names]
    return [
        name
        if name == str(at)
        else tr("“{name}”", name=name)
        if every.count(name) == 1
        else tr("“{name}” (position {at})", name=name, at=at)
        for at, name in enumerate(every)
    ]


def word_width(word: str) -> float:
    """Return the width in pixels of the box that is drawn around a word."""
    return font(2 * WORD).getlength(word) / 2 + 14


def in_lines(widths: Sequence[float], y: float, *, gap: float = 4, pitch: float = LINE) -> list[tuple[float, float]]:
    """Return the upper left corners (x, y) of boxes in lines no wider than a page.

    The first line is at ``y``; ``gap`` stands between two boxes, ``pitch`` is from one line to the next.
    """
    corners: list[tuple[float, float]] = []
    x = 0.0
    for width in widths:
        if x and x + width > PAGE - 2 * PAD:
            x, y = 0.0, y + pitch
        corners.append((x, y))
        x += width + gap
    return corners


def write_words(
    canvas: Canvas, words: Sequence[str], shades: np.ndarray, corners: Sequence[tuple[float, float]], query: int
) -> None:
    """Draw words in boxes with the colours ``shades`` and these corners, with a frame around word ``query``."""
    for i, (word, (x, y)) in enumerate(zip(words, corners, strict=True)):
        frame, width = "query" if i == query else None, word_width(word)
        canvas.box(x, y, width, 30, fill=tuple(shades[i]), line=frame, thickness=2, radius=6)
        ink = "white" if is_dark(shades[i]) else "black"
        canvas.text(x + width / 2, y + 15, word, size=WORD, anchor="mm", colour=ink)


def draw_numbers(
    canvas: Canvas,
    x: float,
    y: float,
    cell: float,
    numbers: Tensor,
    title: str,
    *,
    masked: Tensor | None = None,
    are_weights: bool = False,
    colour: str = "soft",
) -> None:
    """Draw a matrix on ``canvas`` under a title, as cells with the numbers written in them, masked cells hatched."""
    canvas.text(x, y - 6, title, size=10, anchor="ls", colour=colour)
    digits = next((n for n in (2, 1) if widest(numbers, n) <= cell - 4), 0)
    for row, cells in enumerate(numbers.tolist()):
        for column, value in enumerate(cells):
            left, top = x + cell * column, y + cell * row
            fill = tuple(weight_colours(np.nan_to_num(value))) if are_weights else "card"
            canvas.box(left, top, cell - 2, cell - 2, fill=fill, radius=3)
            dark = are_weights and is_dark(np.array(fill))
            if masked is not None and masked[row, column]:
                canvas.hatch(left, top, cell - 2, colour="edge" if dark else "soft")
            middle, ink = (left + cell / 2 - 1, top + cell / 2 - 1), "white" if dark else "black"
            canvas.text(*middle, signed(value, digits), size=11, anchor="mm", colour=ink)


def widest(numbers: Tensor, digits: int) -> float:
    """Return the width in pixels of the longest of ``numbers`` when written with ``digits`` decimals."""
    return max((font(44).getlength(signed(value, digits)) / 4 for value in numbers.flatten().tolist()), default=0)
