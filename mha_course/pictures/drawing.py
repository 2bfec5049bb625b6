"""Drawings that explain, shown from the package: a notebook that was copied alone still has them."""

import re
from pathlib import Path
from xml.etree import ElementTree

from mha_course.language import ENGLISH, chosen, sentences, tr
from mha_course.pictures.picture import figure

DRAWINGS = Path(__file__).with_name("drawings")


def written_parts(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the text elements of an SVG tree that contain words, and not only code names or formulas."""
    return [
        part for part in root.iter() if part.tag.endswith(("text", "tspan")) and re.search("[a-z]{3}", part.text or "")
    ]


def words(name: str) -> list[str]:
    """Return all texts of the SVG drawing ``name``: its title, its description, then the words in it."""
    root = ElementTree.parse(DRAWINGS / f"{name}.svg").getroot()
    return [*("".join(root[place].itertext()) for place in (0, 1)), *(part.text or "" for part in written_parts(root))]


class Drawing:
    """Show an SVG drawing of this package in a notebook, with its alt text and a caption.

    Args:
        name: that of a file in ``mha_course/pictures/drawings``.
        caption: what to notice.

    Raises:
        ValueError: there is no such drawing.
    """

    def __init__(self, name: str, caption: str = ""):
        names = sorted(path.stem for path in DRAWINGS.glob("*.svg"))
        if name not in names:
            raise ValueError(f"name must be one of {', '.join(names)}, got {name!r}")
        self.svg, self.caption = (DRAWINGS / f"{name}.svg").read_bytes(), caption
        root = ElementTree.fromstring(self.svg)
        title, description = (tr("".join(root[place].itertext())) for place in (0, 1))
        self.width, self.alt = int(root.get("width", 0)), sentences([tr("{sentence}.", sentence=title), description])
        if chosen() != ENGLISH:
            for part in written_parts(root):
                part.text = tr(part.text or "")
            self.svg = ElementTree.tostring(root)

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return figure(self.alt, self.width, "svg+xml", self.svg, self.caption)
