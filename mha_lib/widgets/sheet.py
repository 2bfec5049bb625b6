"""A sheet of pixels to paint on: what a picture needs that is painted anew, in a few milliseconds, at every move.

Matplotlib draws the same in some hundred milliseconds, most of them for text, which is kept here once rendered.
"""

import functools
import struct
import zlib

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

PLACES = {"l": 0.0, "m": 0.5, "r": 1.0, "a": 0.0, "d": 1.0}


class Sheet:
    """White paper of so many pixels. All places are pixels from its left and upper edge.

    Attributes:
        pixels: (height, width, 3), uint8.
    """

    def __init__(self, width: int, height: int):
        self.pixels = np.full((height, width, 3), 255, np.uint8)

    def copy(self) -> "Sheet":
        """Another sheet with the same on it."""
        height, width, _ = self.pixels.shape
        sheet = Sheet(width, height)
        sheet.paste(0, 0, self.pixels)
        return sheet

    def paste(self, left: int, top: int, pixels: np.ndarray) -> None:
        """Lay pixels (height, width, 3) on the sheet."""
        height, width, _ = pixels.shape
        self.pixels[top : top + height, left : left + width] = pixels

    def fill(self, left: int, top: int, width: int, height: int, colour: str) -> None:
        """Fill a rectangle."""
        self.pixels[top : top + height, left : left + width] = rgb(colour)

    def outline(self, left: int, top: int, width: int, height: int, colour: str, thickness: int = 1) -> None:
        """Draw a line around a rectangle, outside of it."""
        wide, tall = width + 2 * thickness, height + 2 * thickness
        self.fill(left - thickness, top - thickness, wide, thickness, colour)
        self.fill(left - thickness, top + height, wide, thickness, colour)
        self.fill(left - thickness, top, thickness, height, colour)
        self.fill(left + width, top - thickness, thickness, tall, colour)

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "la",
        size: int = 12,
        colour: str = "black",
        upwards: bool = False,
    ) -> None:
        """Write a line of text; what does not fit on the sheet is cut off.

        Args:
            x, y: where the anchor stands.
            anchor: which point of the text's box that is, as in Pillow: left, middle or right (l, m, r), then
                upper edge, middle or lower edge (a, m, d).
            size: height of the letters' square in pixels.
            upwards: turn the text by a quarter, to be read from below.
        """
        ink = lettering(text, size)
        ink = np.rot90(ink) if upwards else ink
        height, width = ink.shape
        left, top = round(x - PLACES[anchor[0]] * width), round(y - PLACES[anchor[1]] * height)
        ink = ink[max(-top, 0) :, max(-left, 0) :]
        room = self.pixels[max(top, 0) :, max(left, 0) :][: ink.shape[0], : ink.shape[1]]
        share = ink[: room.shape[0], : room.shape[1], None] / np.float32(255)
        room[:] = np.rint(room + share * (rgb(colour) - room))

    def png(self) -> bytes:
        """The sheet as a PNG file.

        Every row is stored as its difference from the row above, which for these pictures is mostly 0. Pillow would
        try five ways for each row, and takes three times as long.
        """
        height, width, _ = self.pixels.shape
        rows = np.empty((height, 1 + 3 * width), np.uint8)
        rows[:, 0] = 2  # the PNG filter "up"
        rows[:, 1:] = self.pixels.reshape(height, -1)
        rows[1:, 1:] -= self.pixels.reshape(height, -1)[:-1]
        header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
        chunks = {b"IHDR": header, b"IDAT": zlib.compress(rows, 1), b"IEND": b""}
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks.items()
        )


@functools.lru_cache(maxsize=64)
def rgb(colour: str) -> np.ndarray:
    """Red, green and blue of a colour that matplotlib knows, 0 to 255."""
    return np.rint(255 * np.array(to_rgb(colour), np.float32))


def tint(colour: str) -> str:
    """A light shade of a colour, on which black text can be read."""
    return to_hex((0.55 * rgb(colour) + 0.45 * 255) / 255)


@functools.lru_cache(maxsize=1024)
def lettering(text: str, size: int) -> np.ndarray:
    """How far each pixel of a line of text is inked: (height, width), uint8, from 0 to 255."""
    face = font(size)
    image = Image.new("L", (round(face.getlength(text)) + 1, sum(face.getmetrics())))
    ImageDraw.Draw(image).text((0, 0), text, fill=255, font=face)
    return np.asarray(image)


@functools.lru_cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along."""
    return ImageFont.truetype(findfont("DejaVu Sans"), size)


def coloured(values: np.ndarray, colours: str) -> np.ndarray:
    """Values from 0 to 1 in a colour map of matplotlib: (…, 3), uint8."""
    return colour_table(colours)[np.rint(255 * values).astype(np.uint8)]


@functools.lru_cache
def colour_table(colours: str) -> np.ndarray:
    """A colour map of matplotlib in 256 steps: (256, 3), uint8."""
    return matplotlib.colormaps[colours](np.linspace(0, 1, 256), bytes=True)[:, :3]


def enlarged(cells: np.ndarray, height: int, width: int) -> np.ndarray:
    """Every cell as a block of ``height`` × ``width`` pixels."""
    return cells.repeat(height, axis=0).repeat(width, axis=1)
