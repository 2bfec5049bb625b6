"""Still pictures of what moves: one small PNG with alt text, for places where no program runs."""

import base64
import functools
import html
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mha_lib.pictures.palette import colours, is_dark, rgb, weight_colours

SCALE = 2  # pixels of the image to one on the page, for screens that are as fine
Colour = str | tuple[int, ...]  # as Pillow takes them
TEXT: Colour = "#767676"  # 4.5 : 1 on white and on black


@dataclass(frozen=True)
class Still:
    """An image and its words.

    Attributes:
        png: the image, ``SCALE`` times as large as it is shown.
        width: how wide it is shown, in pixels of the page.
        alt: all that the picture says, for those who cannot see it.
        caption: what to notice in it.
    """

    png: bytes
    width: int
    alt: str
    caption: str

    def html(self, key: str) -> str:
        """A figure; ``key`` is the name under which a page may hold the live picture's state."""
        source = base64.b64encode(self.png).decode()
        return (
            f'<figure data-mha-live="{html.escape(key)}" style="margin:0"><img alt="{html.escape(self.alt)}" '
            f'width="{self.width}" style="max-width:100%;height:auto" src="data:image/png;base64,{source}">'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )


class Canvas:
    """A transparent sheet to draw on, readable on white and on black. Places are pixels of the page."""

    def __init__(self, width: float, height: float):
        self.width = round(width)
        self.image = Image.new("RGBA", (SCALE * self.width, SCALE * round(height)))
        self._draw = ImageDraw.Draw(self.image)

    def text(self, x: float, y: float, text: str, *, size: int = 12, anchor: str = "la", colour: Colour = TEXT) -> None:
        """Write a line; ``anchor`` is Pillow's: left, middle, right (l, m, r), then top, middle, baseline (a, m, s)."""
        self._draw.text((SCALE * x, SCALE * y), text, fill=colour, font=font(SCALE * size), anchor=anchor)

    def box(self, x: float, y: float, width: float, height: float, *, fill=None, line=None, thickness: int = 1) -> None:
        """Draw a rectangle, its line inside."""
        corners = [SCALE * x, SCALE * y, SCALE * (x + width) - 1, SCALE * (y + height) - 1]
        self._draw.rectangle(corners, fill, line, SCALE * thickness)

    def line(self, points, *, colour: Colour = TEXT, thickness: float = 1) -> None:
        """Draw a line through points (x, y)."""
        path = [(SCALE * x, SCALE * y) for x, y in points]
        self._draw.line(path, colour, max(round(SCALE * thickness), 1), joint="curve")

    def heat_map(self, x: float, y: float, cell: float, weights, *, masked=None, numbers: bool = False) -> None:
        """Weights (rows, columns) from 0 to 1 as cells of one size; masked ones are hatched."""
        fills = weight_colours(weights)
        for (row, column), weight in np.ndenumerate(np.asarray(weights)):
            left, top = x + column * cell, y + row * cell
            if masked is not None and masked[row, column]:
                self._hatch(left, top, cell)
                continue
            fill = tuple(fills[row, column])
            self.box(left, top, cell - 1, cell - 1, fill=fill)
            if numbers:
                ink = "#ffffff" if is_dark(fills[row, column]) else "#000000"
                self.text(left + cell / 2, top + cell / 2, short(weight), size=11, anchor="mm", colour=ink)

    def _hatch(self, x: float, y: float, cell: float) -> None:
        for share in (0.5, 1.0):
            self.line([(x, y + share * cell), (x + share * cell, y)])

    def scale(self, x: float, y: float, width: float, marks: dict[float, str]) -> None:
        """The scale of weights; ``marks`` are names by place, 0 to 1."""
        for step in range(round(width)):
            self.box(x + step, y, 1, 8, fill=tuple(weight_colours(np.array(step / width))))
        for place, name in marks.items():
            self.text(x + place * width, y + 11, name, size=10, anchor="ra" if place == 1 else "la")

    def png(self) -> bytes:
        """The drawing as a PNG of at most 256 colours."""
        buffer = io.BytesIO()
        self.image.quantize(256, Image.Quantize.FASTOCTREE).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


def short(weight: float) -> str:
    """A weight in a cell: two digits, without the zero in front."""
    return "1" if weight > 0.995 else "0" if weight < 0.005 else f"{weight:.2f}"[1:]


@functools.lru_cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along, which has the signs that pictures need."""
    from matplotlib.font_manager import findfont

    return ImageFont.truetype(findfont("DejaVu Sans"), size)


def colour(name: str) -> Colour:
    """A named colour of the palette on a light ground, as Pillow takes it."""
    return tuple(rgb(colours()[name]).astype(int))
