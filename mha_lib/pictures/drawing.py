"""Drawings that explain, shown from the package: a notebook that was copied alone still has them."""

import re
from pathlib import Path
from xml.etree import ElementTree

from mha_lib.language import ENGLISH, chosen, sentences, tr
from mha_lib.pictures.picture import figure

DRAWINGS = Path(__file__).with_name("drawings")


def written_parts(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the parts of a drawing that hold words: names of code and formulas are none."""
    return [
        part for part in root.iter() if part.tag.endswith(("text", "tspan")) and re.search("[a-z]{3}", part.text or "")
    ]


def words(name: str) -> list[str]:
    """Return what a drawing says, its title and description first."""
    root = ElementTree.parse(DRAWINGS / f"{name}.svg").getroot()
    return [*("".join(root[place].itertext()) for place in (0, 1)), *(part.text or "" for part in written_parts(root))]


class Drawing:
    """Show an SVG drawing that ships with the package, with its alt text.

    Args:
        name: that of a file in ``mha_lib/pictures/drawings``.
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
