"""Drawings that explain, shown from the package: a notebook that was copied alone still has them."""

from pathlib import Path
from xml.etree import ElementTree

from mha_lib.pictures.picture import figure

DRAWINGS = Path(__file__).with_name("drawings")


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
        title, description = ("".join(root[place].itertext()) for place in (0, 1))
        self.width, self.alt = int(root.get("width", 0)), f"{title}. {description}"

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return figure(self.alt, self.width, "svg+xml", self.svg, self.caption)
