"""What live pictures and still ones share stands once, in ``js/``: colours in palette.css, bounds in the modules."""

import functools
import re
from pathlib import Path

import numpy as np

MODULES = Path(__file__).with_name("js")
PALETTE, STYLE = MODULES / "palette.css", MODULES / "live.css"

# Linear sRGB -> cone responses. Source: Ottosson 2020, "A perceptual color space".
TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                     [0.2119034982, 0.6806995451, 0.1073969566],
                     [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip


def style() -> str:
    """Return the CSS of the interactive figures, without comments and the spaces that it does not need."""
    text = PALETTE.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*|(?<=:)\s+", r"\1", text)


@functools.cache
def colours(dark: bool = False) -> dict[str, str]:
    """Return the colour palette as a dictionary name → hex code, for a light or (``dark``) a dark background."""
    named = re.findall(r"--([\w-]+): (?:light-dark\()?(#\w{6})(?:, (#\w{6})\))?;", PALETTE.read_text(encoding="utf-8"))
    return {name: on_dark if dark and on_dark else on_light for name, on_light, on_dark in named}


def bound(module: str, name: str) -> float:
    """Return the numeric constant ``name`` that the JavaScript file ``module`` defines."""
    found = re.search(rf"^const {name} = ([\d.]+);", (MODULES / module).read_text(encoding="utf-8"), re.MULTILINE)
    assert found, (module, name)
    return float(found[1])


def head_colour(head: int) -> str:
    """Return the colour of a head as a hex code, the same in every figure; colours repeat after eight heads."""
    return colours()[f"head-{head % 8}"]


def rgb(colour: str) -> np.ndarray:
    """Convert a colour code ``#rrggbb`` to an array of red, green and blue from 0 to 255."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], np.float64)


def weight_colours(weights: np.ndarray, dark: bool = False) -> np.ndarray:
    """Map weights from 0 to 1 to RGB colours on the common colour scale: (…) → (…, 3), uint8.

    Between its named colours the scale is straight in OKLab, where equal steps look equal, as ``color-mix(in oklab)``
    is in the browser. OKLab is a matrix times the cube roots of cone responses: what is straight in these is so there.
    """
    named, places = colours(dark), np.clip(np.asarray(weights, np.float64), 0, 1)
    stops = np.cbrt(_linear(np.stack([rgb(named[name]) for name in ("low", "mid", "high")])) @ TO_CONES.T)
    roots = np.stack([np.interp(places, [0, 0.5, 1], stops[:, cone]) for cone in range(3)], axis=-1)
    light = np.clip(roots**3 @ np.linalg.inv(TO_CONES).T, 0, 1)
    share = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.rint(255 * share).astype(np.uint8)


def is_dark(colour: np.ndarray) -> np.ndarray:
    """Return whether white text has more contrast than black on a background colour (…, 3), by WCAG 2."""
    return _linear(colour) @ np.array([0.2126, 0.7152, 0.0722]) < 0.179


def _linear(colour: np.ndarray) -> np.ndarray:
    share = np.asarray(colour, np.float64) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
