"""A still picture with its text twin, for where no program runs, and the sheet that most of them are drawn on.

Pictures have few colours, so that notebooks with many of them stay small. They have a light ground; where a theme is
dark, light and dark change places and the hues stay.
"""

import base64
import functools
import html
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.text import Text
from PIL import Image, ImageDraw, ImageFont

from mha_course.language import chosen, lang, sentences, tr
from mha_course.pictures.shared_with_js import colours, is_dark, weight_colours
from mha_course.rounding import rounded

SCALE = 2  # pixels of the image to one on the page, for screens that are as fine
FINER = 2  # lines are drawn this many times larger and then made smaller, which smooths their edges
PAD = 12  # around a drawing, in pixels of the page
PAGE = 735  # the widest drawing that no page makes smaller, and its letters with it
LARGE = 15  # letters of a title
INCH = 96  # pixels of the page
MOST_COLOURS, REST = 64, 24  # of an image, and of these for its rarer colours
FONTS = Path(__file__).with_name("fonts")  # of languages whose letters matplotlib's font lacks
FIRST_HAN = "\u2e80"
# What a line may be broken before: a word, or one Chinese letter, with the signs that end it.
WORD_OR_HAN = re.compile(rf"\s*(?:[{FIRST_HAN}-\uffff]|[^\s{FIRST_HAN}-\uffff]+)[，。、：；？！）」』]*")
GROUND = "white"
STILL = "mha-still"  # the class of all images
# JupyterLab, VS Code, Sphinx themes and Colab say which theme is dark.
THEMES = ('[data-jp-theme-light="false"]', ".vscode-dark", '[data-theme="dark"]', '[theme="dark"]')
IN_THE_DARK = f"<style>:is({', '.join(THEMES)}) .{STILL} {{ filter: invert(.92) hue-rotate(180deg) }}</style>"
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels of the page
Colour = str | tuple[int, ...]  # as Pillow takes them; in drawings also a name of the palette


class Picture:
    """Hold a finished figure with its title, alt text and caption, and display it as an image in a notebook.

    In a notebook it shows as an image with alt text and a caption below it: what to notice, or, left out, the reading.
    ``print`` gives the text alone. The image travels inside the HTML, which is the one form whose alt text JupyterLab
    and nbconvert both keep.

    Attributes:
        title: what is seen, written above the image; empty until ``titled`` sets it.
        drawing: a ``Canvas`` or a figure of matplotlib.
        png: the image, ``SCALE`` times as large as it is shown.
        width: how wide it is shown, in pixels of the page.
    """

    def __init__(self, drawing: "Figure | Canvas", what: str, reading: str, caption: str | None = None):
        self.drawing, self.what, self.reading, self.title = drawing, what, reading, ""
        self.caption = reading if caption is None else caption
        if isinstance(drawing, Figure):
            write_han(drawing)
            buffer = io.BytesIO()
            drawing.savefig(buffer, format="png", dpi=SCALE * INCH, facecolor=GROUND)
            self.png, self.width = few_colours(Image.open(buffer)), round(drawing.get_figwidth() * INCH)
        else:
            self.png, self.width = few_colours(drawing.image.reduce(FINER)), drawing.width

    @property
    def alt(self) -> str:
        """The text for those who cannot see the image."""
        asks = ("?", "？")
        ended = [
            one if one.endswith(asks) else tr("{sentence}.", sentence=one) for one in (self.title, self.what) if one
        ]
        return sentences([*ended, self.reading])

    def titled(self, title: str) -> Self:
        """Write a title above the image, in as many lines as it needs, and return the picture."""
        image, own, edge = Image.open(io.BytesIO(self.png)).convert("RGB"), font(SCALE * LARGE, title), SCALE * PAD
        lines = [""]
        for word in WORD_OR_HAN.findall(title):
            longer = lines[-1] + word
            lines[-1:] = [longer] if own.getlength(longer) <= image.width - 2 * edge else [lines[-1], word.lstrip()]
        line = SCALE * LARGE * 4 // 3
        sheet = Image.new("RGB", (image.width, image.height + edge + line * len(lines)), GROUND)
        sheet.paste(image, (0, sheet.height - image.height))
        for number, words in enumerate(lines):
            place = edge, edge + number * line
            ImageDraw.Draw(sheet).text(place, words, fill=_named("text"), font=own)
        self.title, self.png = title, few_colours(sheet)
        return self

    def __repr__(self) -> str:
        return self.alt

    def save(self, path: str | Path) -> None:
        """Write the image to ``path``, as PNG with its title, ``SCALE`` times as large as it is shown.

        Raises:
            ValueError: the name ends neither in ".png" nor without an ending. ``mha_lib.heatmaps`` draws heat maps as a
                figure of matplotlib, which can be saved in other formats.
        """
        if Path(path).suffix.lower() not in ("", ".png"):
            raise ValueError(
                f"path must end in .png, got {str(path)!r}; mha_lib.heatmaps makes a figure for SVG and PDF"
            )
        Path(path).write_bytes(self.png)

    def html(self, key: str = "") -> str:
        """Return a figure; ``key`` is the name under which a page may hold the live picture's state."""
        return figure(self.alt, self.width, "png", self.png, self.caption, key)

    def _repr_html_(self) -> str:
        return self.html()


def figure(alt: str, width: int, kind: str, image: bytes, caption: str, key: str = "") -> str:
    """Return an HTML figure element with the bytes ``image`` of format ``kind`` in it, its alt text and a caption."""
    source = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    live = f' data-mha-live="{html.escape(key)}"' if key else ""
    return (
        f'<figure{live}{lang()} style="margin:0">{IN_THE_DARK}'
        f'<img alt="{html.escape(alt)}" class="{STILL}" width="{width}" '
        f'style="max-width:100%;height:auto;border-radius:8px" src="{source}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def few_colours(image: Image.Image) -> bytes:
    """Reduce an image to a small colour palette, and return it as PNG bytes."""
    image, buffer = image.convert("RGB"), io.BytesIO()
    codes = np.asarray(image, np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    every, place, counts = np.unique(codes.ravel(), return_inverse=True, return_counts=True)
    rest = np.array(image.quantize(REST, Image.Quantize.MAXCOVERAGE).getpalette()[: 3 * REST], np.int32)  # type: ignore[index]
    all_colours = np.stack([every >> 16, every >> 8 & 255, every & 255], axis=1)
    chosen = np.concatenate([all_colours[counts.argsort()[::-1][: MOST_COLOURS - REST]], rest.reshape(-1, 3)])
    nearest = np.square(all_colours[:, None] - chosen).sum(axis=-1).argmin(axis=1).astype(np.uint8)
    few = Image.fromarray(nearest[place].reshape(codes.shape))
    few.putpalette(chosen.astype(np.uint8).tobytes())
    few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


class Canvas:
    """Provide a blank image on which to draw text, boxes, lines and heat maps, at pixels from the upper left corner.

    Attributes:
        written: all words with their boxes, in order.
        shapes: the boxes of all rectangles and lines, in order.
        maps: heat maps by their corner: a cell's size, and the weights.
        smallest: the size of the smallest letters, in pixels of the page; infinite while nothing is written.
    """

    def __init__(self, width: float, height: float):
        self.width, self.height = round(width) + 2 * PAD, round(height) + 2 * PAD
        self.image = Image.new("RGB", (SCALE * FINER * self.width, SCALE * FINER * self.height), GROUND)
        self._draw = ImageDraw.Draw(self.image)
        self.written: list[tuple[str, Box]] = []
        self.shapes: list[Box] = []
        self.maps: dict[tuple[float, float], tuple[float, np.ndarray]] = {}
        self.smallest = math.inf

    @property
    def words(self) -> list[str]:
        """All that is written."""
        return [word for word, _ in self.written]

    def text(self, x: float, y: float, text: str, *, size: int = 12, anchor: str = "la", colour: Colour = "soft"):
        """Write a line; ``anchor`` is Pillow's: left, middle, right (l, m, r), then top, middle, baseline (a, m, s)."""
        self.smallest = min(self.smallest, size)
        (place,), own = _fine((x, y)), font(SCALE * FINER * size, text)
        self.written.append((text, _coarse(self._draw.textbbox(place, text, own, anchor))))
        self._draw.text(place, text, fill=_named(colour), font=own, anchor=anchor)

    def upright(self, x: float, y: float, text: str, *, size: int = 10, colour: Colour = "soft") -> None:
        """Write a line that stands upright and ends at the top, with its middle at x."""
        self.smallest = min(self.smallest, size)
        own = font(SCALE * FINER * size, text)
        left, top, right, bottom = own.getbbox(text)
        mask = Image.new("L", (round(right - left), round(bottom - top)))
        ImageDraw.Draw(mask).text((-left, -top), text, fill=255, font=own)
        mask = mask.rotate(90, expand=True)
        ((across, down),) = _fine((x, y))
        corner = across - mask.width // 2, down
        self.written.append((text, _coarse((*corner, corner[0] + mask.width, down + mask.height))))
        self.image.paste(Image.new("RGB", mask.size, _named(colour)), corner, mask)

    def box(self, x: float, y: float, width: float, height: float, *, fill=None, line=None, thickness=1, radius=0):
        """Draw a rectangle, its line inside."""
        ((left, top),), ((right, bottom),) = _fine((x, y)), _fine((x + width, y + height))
        corners, one = (left, top, max(right - 1, left), max(bottom - 1, top)), SCALE * FINER
        self.shapes.append(_coarse(corners))
        if radius:
            self._draw.rounded_rectangle(corners, one * radius, _named(fill), _named(line), one * thickness)
        else:
            self._draw.rectangle(corners, _named(fill), _named(line), one * thickness)

    def line(self, points, *, colour: Colour = "soft", thickness: float = 1) -> None:
        """Draw a line through points (x, y)."""
        places = _fine(*points)
        ends = [pick(numbers) for pick in (min, max) for numbers in zip(*places, strict=True)]
        self.shapes.append(_coarse(ends))
        self._draw.line(places, _named(colour), max(round(SCALE * FINER * thickness), 1), joint="curve")

    def hatch(self, x: float, y: float, side: float, *, colour: Colour = "soft") -> None:
        """Draw two thin strokes across a square."""
        for share in (0.5, 1.0):
            self.line([(x, y + share * side), (x + share * side, y)], colour=colour, thickness=0.5)

    def bow(
        self, start: tuple[float, float], end: tuple[float, float], height: float, *, colour: Colour, thickness: float
    ) -> None:
        """Draw a bow from ``start`` to ``end``, both (x, y), that rises ``height`` above the line between them."""
        shares, (x, y), (to, end_y) = np.linspace(0, 1, 60), start, end
        across = x + (to - x) * (3 * shares**2 - 2 * shares**3)
        up = y + (end_y - y) * shares - 4 * height * shares * (1 - shares)
        self.line(zip(across, up, strict=True), colour=colour, thickness=thickness)

    def heat_map(self, x: float, y: float, cell: float, weights, *, title="", masked=None, numbers=False) -> None:
        """Draw weights (rows, columns) from 0 to 1 as cells of one size below a title.

        Masked ones are hatched, with a blue edge in front of those that end a row, and NaN is a cross.
        """
        weights = np.asarray(weights)
        self.maps[x, y] = cell, weights
        fills, gap = weight_colours(np.nan_to_num(weights).clip(max=1)), min(1.0, cell / 12)
        self.text(x, y - 6, title, size=10, anchor="ls")
        for (row, column), weight in np.ndenumerate(weights):
            left, upper = x + column * cell, y + row * cell
            if masked is not None and bool(masked[row, column]):
                self.hatch(left, upper, cell)
                continue
            if np.isnan(weight):
                right, bottom = left + cell - gap, upper + cell - gap
                self.line([(left, upper), (right, bottom)], colour="wrong")
                self.line([(left, bottom), (right, upper)], colour="wrong")
                continue
            self.box(left, upper, cell - gap, cell - gap, fill=tuple(fills[row, column]))
            if numbers:
                ink = "white" if is_dark(fills[row, column]) else "black"
                self.text(left + cell / 2, upper + cell / 2, short(weight), size=11, anchor="mm", colour=ink)

        for row, hidden in enumerate(() if masked is None else np.asarray(masked)):
            if len(hidden) and hidden[-1]:
                length = len(hidden) - hidden[::-1].argmin() if not hidden.all() else 0
                at, upper = x + length * cell - gap / 2, y + row * cell
                self.line([(at, upper), (at, upper + cell)], colour="key", thickness=2)

    def scale(self, x: float, y: float, width: float = 160, marks: Sequence[tuple[float, str]] = ()) -> None:
        """Draw the scale of weights; ``marks`` are names by place, 0 to 1."""
        for step in range(round(width)):
            self.box(x + step, y, 1, 8, fill=tuple(weight_colours(np.array(step / width))))
        for place, name in marks or ((0, "0"), (0.5, ".5"), (1, "1")):
            self.text(
                x + place * width, y + 11, name, size=10, anchor="la" if place == 0 else "ra" if place == 1 else "ma"
            )


def short(weight: float) -> str:
    """Format a weight from 0 to 1 for a table cell: two decimals without the leading zero, such as .25."""
    told = rounded(weight, 2)
    return "1" if told >= 1 else "0" if told <= 0 else f"{told:.2f}"[1:]


def signed(number: float, digits: int = 2) -> str:
    """Format a number with ``digits`` decimals and a true minus sign (−), and without a sign if it rounds to 0."""
    text = f"{rounded(number, digits):.{digits}f}".replace("inf", "∞").replace("nan", "NaN").replace("-", "−")
    return text if text.strip("−0.") else text.lstrip("−")


def font(size: int, text: str = "") -> ImageFont.FreeTypeFont:
    """Return the font of this size: matplotlib's DejaVu Sans, or a Chinese or Japanese one if ``text`` needs it."""
    own = FONTS / f"{chosen()}.otf"
    is_han = any(letter >= FIRST_HAN for letter in text) and own.exists()
    return _face(str(own) if is_han else "", size)


@functools.lru_cache
def _face(path: str, size: int) -> ImageFont.FreeTypeFont:
    """The font of a file; without a path, matplotlib's."""
    return ImageFont.truetype(path or findfont("DejaVu Sans"), size)


def write_han(figure: Figure) -> None:
    """Set a font with Chinese characters for all texts of a matplotlib figure, if the chosen language has one."""
    own = FONTS / f"{chosen()}.otf"
    if own.exists():
        fontManager.addfont(own)
        for words in figure.findobj(Text):
            words.set_fontfamily(["DejaVu Sans", FontProperties(fname=own).get_name()])


def _fine(*places: tuple[float, float]) -> list[tuple[int, int]]:
    """Places on the page as places in the image."""
    one = SCALE * FINER
    return [(round(one * (x + PAD)), round(one * (y + PAD))) for x, y in places]


def _coarse(box: Sequence[float]) -> Box:
    """A box of the image as one of the page."""
    left, top, right, bottom = (number / SCALE / FINER - PAD for number in box)
    return left, top, right, bottom


def _named(colour: Any) -> Any:
    """A colour by its name in the palette, or the colour itself."""
    return colours().get(colour, colour) if isinstance(colour, str) else colour
