"""A still picture with its text twin, and the colours that all pictures share."""

import base64
import html
import io

from matplotlib.figure import Figure

# Okabe and Ito 2008: told apart with every common kind of colour vision. One colour a head, in this order.
HEAD_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2", "#999999")
WEIGHT_COLOURS = "Blues"
IMAGE_COLOURS = "Oranges"
# Colour and dash of the lines in one chart, told apart without colour too.
LINES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"))
DPI = 120


class Picture:
    """A finished figure with its text twin: what it is, and a one-line reading of what it shows.

    In a notebook it shows as an image with alt text and a caption below it: what to notice, or, left out, the reading.
    ``print`` gives the text alone. The image travels inside the HTML, which is the one form whose alt text JupyterLab
    and nbconvert both keep.
    """

    def __init__(self, figure: Figure, what: str, reading: str, caption: str | None = None):
        self.figure, self.what, self.reading = figure, what, reading
        self.caption = reading if caption is None else caption
        self.width = round(figure.get_figwidth() * 96)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
        self.png = buffer.getvalue()

    @property
    def alt(self) -> str:
        """The text for those who cannot see the image."""
        return f"{self.what}. {self.reading}"

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return (
            f'<figure style="margin:0"><img alt="{html.escape(self.alt)}" width="{self.width}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(self.png).decode()}">'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )


def head_colour(head: int) -> str:
    """The colour of a head, the same in every picture."""
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]
