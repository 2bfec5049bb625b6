"""What is said of an answer: in colour where there is a browser, in plain text for terminals and screen readers."""

import html
import re
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

SIGNS = {"right": "✓ Right", "wrong": "✗ Not right", "not yet": "… Not yet"}
COLOURS = {  # JupyterLab's own where there is one, so that its light and dark themes are followed
    "right": "var(--jp-success-color1, #2e7d32)",
    "wrong": "var(--jp-warn-color1, #b26a00)",
    "not yet": "var(--jp-border-color1, #888)",
}
SHADE = "var(--jp-info-color1, #1976d2)"
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
        lines = f"{SIGNS[self.state]}. {self.text}", self.evidence, self.next_step
        return "\n".join(" ".join(line.split()) for line in lines if line)

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
        """Yours beside what was expected, shaded by value, where both are tables."""
        pair = self.got, self.expected
        if not all(isinstance(X, Tensor) and X.dim() and X.numel() and not X.is_complex() for X in pair):
            return ""
        corners = [X.reshape(-1, X.shape[-1])[:LARGEST, :LARGEST].double() for X in pair]
        top = max(corner.nan_to_num(0, 0, 0).abs().max().item() for corner in corners) or 1.0
        yours, expected = (corner.tolist() for corner in corners)
        tables = table("yours", yours, top) + table("expected", expected, top)
        return f"<div style='display:flex;gap:2em;flex-wrap:wrap'>{tables}</div>"


def table(title: str, rows: list[list[float]], top: float) -> str:
    """A table of numbers, the darker the larger."""
    lines = ("".join(cell(number, abs(number) / top) for number in row) for row in rows)
    cells = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table style='border-collapse:collapse;margin:0'><caption>{title}</caption>{cells}</table>"


def cell(number: float, share: float) -> str:
    """A number on a ground that is shaded by its share of the largest; what is no finite number has none."""
    percent = f"{45 * share:.0f}" if share <= 1 else "0"
    style = f"padding:.1em .5em;text-align:right;background:color-mix(in srgb, {SHADE} {percent}%, transparent)"
    return f"<td style='{style}'>{number:.3g}</td>"


def marked_up(text: str) -> str:
    """A text as HTML, with code between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
