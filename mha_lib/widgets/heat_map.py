"""Heat maps painted on a sheet."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from mha_lib.pictures.picture import WEIGHT_COLOURS
from mha_lib.widgets.sheet import Sheet, coloured, enlarged, lettering

HATCHING = 170  # the grey of its lines
NOT_A_NUMBER = (240, 170, 140)


def paint_heat_map(
    sheet: Sheet, left: int, top: int, cell: tuple[int, int], values: Tensor, masked: Tensor | None = None
) -> None:
    """Attention weights in the colours of their scale from 0 to 1, masked cells hatched.

    Args:
        left, top: where the map begins on the sheet.
        cell: width and height of a cell, in pixels.
        values: (num_queries, num_keys); NaN has a colour of its own.
        masked: bool, (num_queries, num_keys).
    """
    width, height = cell
    fails = values.isnan()
    colours = coloured(values.masked_fill(fails, 0).numpy(), WEIGHT_COLOURS)
    colours[fails.numpy()] = NOT_A_NUMBER
    pixels = enlarged(colours, height, width)
    if masked is not None and masked.any():
        rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
        pixels[((rows + columns) % 6 == 0) & enlarged(masked.numpy(), height, width)] = HATCHING
    sheet.paste(left, top, pixels)
    sheet.outline(left, top, pixels.shape[1], pixels.shape[0], "0.6")


def paint_numbers(
    sheet: Sheet, left: int, top: int, cell: tuple[int, int], values: Tensor, decimals: int, light: Tensor
) -> None:
    """A number in the middle of every cell.

    Args:
        values: (num_queries, num_keys).
        light: bool, of the same shape, where the number is white.
    """
    width, height = cell
    for row, numbers in enumerate(values.tolist()):
        for column, number in enumerate(numbers):
            rounded = round(number, decimals) + 0.0  # adding 0 turns −0 into 0
            text = "NaN" if math.isnan(number) else f"{rounded:.{decimals}f}".replace("-", "−")
            colour = "white" if light[row, column] else "black"
            x, y = left + (column + 0.5) * width, top + (row + 0.5) * height
            sheet.write(x, y, text, anchor="mm", size=11, colour=colour)


def paint_names(
    sheet: Sheet, left: int, top: int, cell: tuple[int, int], queries: Sequence[str], keys: Sequence[str]
) -> None:
    """Name the rows of a heat map on its left and its columns below it (of many, as many as fit)."""
    width, height = cell
    right, bottom = left + width * len(keys), top + height * len(queries)
    for row in range(0, len(queries), -(-12 // height)):
        sheet.write(left - 5, top + (row + 0.5) * height, shortened(queries[row]), anchor="rm", size=11)
    upwards = is_upwards(keys, width)
    for column in range(0, len(keys), -(-12 // width)):
        x = left + (column + 0.5) * width
        sheet.write(x, bottom + 5, shortened(keys[column]), anchor="ma", size=11, upwards=upwards)
    lowest = bottom + names_height(keys, width)
    sheet.write((left + right) / 2, lowest, "keys", anchor="ma", colour="0.3")
    sheet.write(left - 12 - longest(queries), (top + bottom) / 2, "queries", anchor="rm", colour="0.3", upwards=True)


def names_height(keys: Sequence[str], width: int) -> int:
    """The height that the names of columns take, each ``width`` pixels wide."""
    return 8 + (longest(keys) if is_upwards(keys, width) else 14)


def is_upwards(keys: Sequence[str], width: int) -> bool:
    """Whether the columns are too narrow for their names, so that these are written upwards."""
    return longest(keys) + 4 > max(width, 12)


def longest(names: Sequence[str]) -> int:
    """Width of the widest name."""
    return max(lettering(shortened(name), 11).shape[1] for name in names)


def paint_scale(sheet: Sheet, left: int, top: int, height: int) -> None:
    """The colours' scale, from 0 at the bottom to 1 at the top."""
    shades = np.linspace(1, 0, height)[:, None]
    sheet.paste(left, top, enlarged(coloured(shades, WEIGHT_COLOURS), 1, 12))
    sheet.outline(left, top, 12, height, "0.6")
    for value in (0, 0.5, 1):
        sheet.write(left + 17, top + (1 - value) * height, f"{value:g}", anchor="lm", size=11)
    sheet.write(left + 40, top + height / 2, "attention weight", anchor="lm", colour="0.3", upwards=True)


def shortened(name: str) -> str:
    """A name that fits beside a heat map."""
    return name if len(name) <= 10 else name[:9] + "…"
