"""What is said of an answer: in colour where there is a browser, in plain text for terminals and screen readers."""

import html
import re
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

SIGNS = {"right": "✓ Right", "wrong": "✗ Not right", "not yet": "… Not yet"}
COLOURS = {  # the theme's own where there is one, so that light and dark are followed
    "right": "var(--jp-success-color1, #2e7d32)",
    "wrong": "var(--jp-warn-color1, #b26a00)",
    "not yet": "var(--jp-border-color1, #888)",
}
LARGEST = 8  # rows and columns of a table that is shown


@dataclass(frozen=True)
class Verdict:
    """True if the answer is right; shown, what a learner reads.

    Attributes:
        state: "right", "wrong" or "not yet".
        text: what the result does, or what is good about it; code stands between backticks.
        evidence: a call that shows it; "" if the text says it all.
        next_step: what to do now.
        inputs, got, expected: arguments of that call, what the answer gave and what it should; None without a call.
    """

    state: str
    text: str
    evidence: str = ""
    next_step: str = ""
    inputs: tuple | None = field(default=None, repr=False)
    got: Any = field(default=None, repr=False)
    expected: Any = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        lines = [f"{SIGNS[self.state]}: {one_line(self.text)}", one_line(self.evidence), self.next_step]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        colour = COLOURS[self.state]
        evidence = f"<p style='margin:.3em 0'>{marked_up(self.evidence)}</p>{self.tables()}"
        folded = f"<details><summary>What was seen</summary>{evidence}</details>" if self.evidence else ""
        step = f"<div style='opacity:.8;font-size:90%'>{marked_up(self.next_step)}</div>" if self.next_step else ""
        return (
            f"<div role='status' style='border-left:4px solid {colour};padding:.5em .8em;max-width:46em;"
            f"background:color-mix(in srgb, {colour} 12%, transparent)'>"
            f"<div><b>{SIGNS[self.state]}.</b> {marked_up(self.text)}</div>{folded}{step}</div>"
        )

    def tables(self) -> str:
        """Yours beside what was expected, where both are tables small enough to be read."""
        if not all(isinstance(X, Tensor) and X.dim() and not X.is_complex() for X in (self.got, self.expected)):
            return ""
        got, expected = (
            X.detach().reshape(-1, X.shape[-1])[:LARGEST, :LARGEST].tolist() for X in (self.got, self.expected)
        )
        numbers = [abs(x) for row in got + expected for x in row if x == x and abs(x) != float("inf")]
        top = max(numbers, default=0) or 1
        return f"<div style='display:flex;gap:2em'>{table('yours', got, top)}{table('expected', expected, top)}</div>"


def table(title: str, rows: list[list[float]], top: float) -> str:
    """A table of numbers, shaded by their size."""
    style = "padding:.1em .5em;text-align:right"
    lines = ("".join(f"<td style='{style};{shade(x, top)}'>{x:.3g}</td>" for x in row) for row in rows)
    cells = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table style='border-collapse:collapse'><caption>{title}</caption>{cells}</table>"


def shade(number: float, top: float) -> str:
    """The more of a number, the darker its cell; what is not a number stays white."""
    share = min(abs(number) / top, 1) if number == number else 0
    return f"background:color-mix(in srgb, var(--jp-info-color1, #1976d2) {share * 45:.0f}%, transparent)"


def marked_up(text: str) -> str:
    """A text as HTML, with code between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())
