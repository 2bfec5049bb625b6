"""What a learner reads: in colour where there is a browser, in plain text for terminals and screen readers."""

import html
import re
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mha_course.language import lang, sentences, tr

SIGNS = {
    "right": "✓ Right.",
    "passes": "✓ All tests pass.",
    "wrong": "✗ Not right.",
    "not yet": "… Not yet.",
    "other": "≠ Different from the formula.",
}
COLOURS = {  # JupyterLab's own where there is one, so that its light and dark themes are followed
    "right": "var(--jp-success-color1, #2e7d32)",
    "passes": "var(--jp-success-color1, #2e7d32)",
    "wrong": "var(--jp-warn-color1, #b26a00)",
    "not yet": "var(--jp-border-color1, #888)",
    "other": "var(--jp-info-color1, #1976d2)",
}
SHADE = "color-mix(in srgb, var(--jp-info-color1, #1976d2) {:.0f}%, transparent)"
LARGEST = 8  # rows and columns of a table that is shown


@dataclass(frozen=True)
class Page:
    """Hold a text for a learner that notebooks show as HTML and terminals as plain text."""

    text: str
    html: str = ""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html or "<br>".join(html.escape(line) for line in self.text.splitlines())


@dataclass(frozen=True)
class Verdict:
    """Hold the feedback on a learner's answer, shown as text or HTML; it is true if the answer is right, or passes.

    Attributes:
        state: "right", "wrong", "not yet", "passes" (some tests find no fault), or "other", neither right nor wrong.
        text: what the result does, or what is good about it; code stands between backticks.
        evidence: a call that shows it; "" if the text says it all.
        next_step: what to do now.
        inputs, got, expected: arguments of that call, what the answer gave and what it should; None without a call.
        about: the part of the answer that the text is about; "" if it is not known.
    """

    state: str
    text: str
    evidence: str = ""
    next_step: str = ""
    inputs: tuple | None = field(default=None, repr=False)
    got: Any = field(default=None, repr=False)
    expected: Any = field(default=None, repr=False)
    about: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return self.state in ("right", "passes")

    def __repr__(self) -> str:
        lines = sentences([tr(SIGNS[self.state]), self.text]), self.evidence, self.next_step
        return "\n".join(" ".join(line.split()) for line in lines if line)

    def _repr_html_(self) -> str:
        colour = COLOURS[self.state]
        evidence = f"<p style='margin:.3em 0'>{marked_up(self.evidence)}</p>{self.tables()}"
        folded = f"<details><summary>{tr('What was seen')}</summary>{evidence}</details>" if self.evidence else ""
        step = f"<div style='opacity:.8;font-size:90%'>{marked_up(self.next_step)}</div>" if self.next_step else ""
        return (
            f"<div role='status'{lang()} style='border-left:4px solid {colour};padding:.5em .8em;max-width:46em;"
            f"background:color-mix(in srgb, {colour} 12%, transparent)'>"
            f"<div><b>{tr(SIGNS[self.state])}</b>{tr(' ')}{marked_up(self.text)}</div>{folded}{step}</div>"
        )

    def tables(self) -> str:
        """Return the answer's table beside the expected one, larger numbers darker; "" unless both are tables."""
        pair = {tr("yours"): self.got, tr("expected"): self.expected}
        if not all(isinstance(X, Tensor) and X.dim() and X.numel() and not X.is_complex() for X in pair.values()):
            return ""
        corners = {title: X.reshape(-1, X.shape[-1])[:LARGEST, :LARGEST].double() for title, X in pair.items()}
        top = max(corner.nan_to_num(0, 0, 0).abs().max().item() for corner in corners.values()) or 1.0
        tables = ""
        for title, corner in corners.items():
            shares = (corner.abs() / top).nan_to_num(0, 0, 0)  # what is no finite number has no shade
            tables += f"<table style='border-collapse:collapse;margin:0'><caption>{title}</caption>"
            for numbers, row in zip(corner.tolist(), (45 * shares).tolist(), strict=True):
                cells = (
                    f"<td style='padding:.1em .5em;text-align:right;background:{SHADE.format(p)}'>{x:.3g}</td>"
                    for x, p in zip(numbers, row, strict=True)
                )
                tables += f"<tr>{''.join(cells)}</tr>"
            tables += "</table>"
        return f"<div style='display:flex;gap:2em;flex-wrap:wrap'>{tables}</div>"


def marked_up(text: str) -> str:
    """Escape a text for HTML, with code between backticks in ``<code>`` elements."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
