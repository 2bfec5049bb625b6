"""Choose a patch of a digit, and see where every head looks from there, on the image itself."""

from collections.abc import Mapping

import numpy as np
import torch
from ipywidgets import Button, GridBox, IntSlider, SelectionSlider, ValueWidget
from torch import Tensor

from mha_lib.models.tasks import TASKS, to_patches
from mha_lib.models.transformer import Transformer
from mha_lib.pictures.heat_maps import INK, ink_outline
from mha_lib.pictures.picture import IMAGE_COLOURS
from mha_lib.widgets.explorer import Explorer, bound, slider
from mha_lib.widgets.sheet import Sheet, coloured, enlarged

PATCHES = [f"r{row}c{column}" for row in range(1, 5) for column in range(1, 5)]
TOKENS = ["class", *PATCHES]
WIDTH, LEFT, TOP, PITCH = 840, 226, 40, 98
PIXEL, SMALL_PIXEL = 24, 11  # how large a pixel of the image is drawn, alone and under the weights
CHOSEN = "#0072B2"


def image_explorer(model: Transformer, images: Tensor, *, targets: Tensor | None = None) -> Explorer:
    """Where every head of a digits model looks, from the patch or the class token that one chooses.

    Args:
        model: a model of the task "digits".
        images: (batch, 8, 8), from 0 to 1.
        targets: (batch,), what the images show, if it is to be told.

    Raises:
        ValueError: the images have another shape.
    """
    if images.dim() != 3 or images.shape[1:] != (8, 8) or not len(images):
        raise ValueError(f"images must have shape (batch, 8, 8), got {tuple(images.shape)}")
    with torch.no_grad():
        answers = TASKS["digits"].logits(model(to_patches(images))).argmax(dim=-1).tolist()
    weights = dict(zip(model.blocks, model.attention_weights, strict=True))

    def paint(example: int, query: str) -> tuple[Sheet, str]:
        rows = {name: layer[example, :, TOKENS.index(query)] for name, layer in weights.items()}
        shown = "" if targets is None else f", shows a {targets[example]}"
        title = f"Example {example}{shown}, read as a {answers[example]}"
        return paint_rows(images[example], query, rows, title), f"{title}. From {query}: {read_rows(rows)}."

    def limit(controls: Mapping[str, ValueWidget]) -> None:
        for button in pad.children:
            button.button_style = "warning" if button.description == controls["query"].value else ""

    def choose(button: Button) -> None:
        controls["query"].value = button.description

    pad = GridBox([Button(description=name, layout={"width": "60px"}) for name in PATCHES])
    pad.layout.grid_template_columns = "repeat(4, 64px)"
    for button in pad.children:
        button.tooltip = f"the patch in row {button.description[1]}, column {button.description[3]}"
        button.on_click(choose)
    controls = {
        "example": slider(IntSlider, "example", tooltip="which image"),
        "query": slider(SelectionSlider, "query", options=TOKENS, value="r2c2", tooltip="who looks"),
    }
    bound(controls["example"], len(images) - 1)
    return Explorer("Where the heads look on a digit", controls, paint, limit, [pad])


def paint_rows(image: Tensor, query: str, rows: Mapping[str, Tensor], title: str) -> Sheet:
    """The image with the query outlined, and each head's weights (num_heads, 17) in colour, layer by layer."""
    side = 8 * SMALL_PIXEL
    sheet = Sheet(WIDTH, TOP + max(len(rows) * (side + 54), 300))
    sheet.write(8, 4, title, size=13)
    outline = ink_outline(image)
    sheet.paste(8, TOP, enlarged(greys(image.numpy()), PIXEL, PIXEL))
    sheet.outline(8, TOP, 8 * PIXEL, 8 * PIXEL, "0.6")
    outline_query(sheet, 8, TOP, PIXEL, query, 3)
    text = f"query: patch {query}" if query in PATCHES else "query: class token, beside the image"
    sheet.write(8, TOP + 8 * PIXEL + 4, text, size=11, colour=CHOSEN)
    for row, (name, weights) in enumerate(rows.items()):
        top = TOP + row * (side + 54)
        for head, (on_class, *on_patches) in enumerate(weights.tolist()):
            left = LEFT + head * PITCH
            paint_weights(sheet, left, top, np.array(on_patches).reshape(4, 4))
            paint_ink(sheet, left, top, outline)
            outline_query(sheet, left, top, SMALL_PIXEL, query, 2)
            sheet.write(left, top - 3, f"{name}, head {head}", anchor="ld", size=11)
            sheet.paste(left, top + side + 5, enlarged(shades(np.array([[on_class]])), 14, 14))
            sheet.outline(left, top + side + 5, 14, 14, "0.6")
            sheet.write(left + 19, top + side + 12, f"class {on_class:.2f}", anchor="lm", size=11)
    paint_colours(sheet, 8, TOP + 8 * PIXEL + 50, 8 * PIXEL)
    return sheet


def outline_query(sheet: Sheet, left: int, top: int, pixel: int, query: str, thickness: int) -> None:
    """Outline the query's patch on an image whose pixels are ``pixel`` large; the class token is on none."""
    if query in PATCHES:
        row, column = divmod(PATCHES.index(query), 4)
        size = 2 * pixel - 2 * thickness
        sheet.outline(
            left + 2 * pixel * column + thickness, top + 2 * pixel * row + thickness, size, size, CHOSEN, thickness
        )


def paint_weights(sheet: Sheet, left: int, top: int, weights: np.ndarray) -> None:
    """Weights on the patches (4, 4) in colour."""
    sheet.paste(left, top, enlarged(shades(weights), 2 * SMALL_PIXEL, 2 * SMALL_PIXEL))
    sheet.outline(left, top, 8 * SMALL_PIXEL, 8 * SMALL_PIXEL, "0.6")


def paint_ink(sheet: Sheet, left: int, top: int, outline: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    """The outline of the ink, one pixel thin, so that the patches keep the colours of their weights."""
    for (x0, y0), (x1, y1) in outline:
        size = (x1 - x0) * SMALL_PIXEL + 1, (y1 - y0) * SMALL_PIXEL + 1
        sheet.fill(left + x0 * SMALL_PIXEL, top + y0 * SMALL_PIXEL, *size, INK)


def paint_colours(sheet: Sheet, left: int, top: int, width: int) -> None:
    """The colours' scale."""
    sheet.paste(left, top, enlarged(shades(np.linspace(0, 1, width)[None] ** 2), 12, 1))
    sheet.outline(left, top, width, 12, "0.6")
    for value in (0, 0.1, 0.3, 1):
        anchor = {0: "la", 1: "ra"}.get(value, "ma")
        sheet.write(left + value**0.5 * width, top + 14, f"{value:g}", anchor=anchor, size=11)
    sheet.write(left, top - 3, "attention weight", anchor="ld", size=11, colour="0.3")


def shades(weights: np.ndarray) -> np.ndarray:
    """Weights in colour; small ones, the rule among 17 tokens, take up more of the scale than large ones."""
    return coloured(np.sqrt(weights), IMAGE_COLOURS)


def greys(darkness: np.ndarray) -> np.ndarray:
    """An image from 0 to 1, ink dark on white paper: (…, 3), uint8."""
    return coloured(darkness, "gray_r")


def read_rows(rows: Mapping[str, Tensor]) -> str:
    """Where each head looks most, layer by layer."""
    parts = []
    for name, weights in rows.items():
        most = [f"head {head} {TOKENS[row.argmax()]} {row.max():.2f}" for head, row in enumerate(weights)]
        parts.append(f"{name}: {', '.join(most)}")
    return "; ".join(parts)
