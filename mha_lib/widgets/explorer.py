"""What all interactive pictures share: controls, the picture that they move, and a line that reads it."""

import base64
import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from mha_lib.widgets.sheet import Sheet

# What ipywidgets cannot do, the picture does when it arrives, which is after every change. It copies the visible label
# to the slider's handle and number field, which have no name that a screen reader could say; and it keeps JupyterLab
# from taking the arrow keys and letters of lists and sliders for its own shortcuts.
ON_LOAD = (
    "const explorer = this.closest('.mha-explorer'); "
    "for (const label of explorer.querySelectorAll('.widget-slider > label')) "
    "for (const part of label.parentElement.querySelectorAll('[role=slider], [contenteditable]')) { "
    "part.ariaLabel = label.textContent; part.role ??= 'textbox' } "
    "for (const control of explorer.querySelectorAll('select, [role=slider]')) "
    "control.dataset.lmSuppressShortcuts = 'true'"
)


class Explorer(ipywidgets.VBox):
    """Controls above one picture and a line that reads it; every change of a control repaints the picture.

    Where no kernel runs (GitHub, a printout, a page made by nbconvert), the picture of the first state shows, with
    its reading as alt text.

    Args:
        name: what the picture is, in a few words.
        controls: widgets with a value, by name.
        paint: takes the controls' values by name; returns the picture and one line that reads it.
        limit: takes the controls after a change, and takes away from them what can no longer be chosen.
        extras: widgets that only move controls, such as buttons; shown after the controls.
        columns: how the controls are laid out, a value of CSS's ``grid-template-columns``.

    Attributes:
        name, controls: as above.
        sheet, reading: the picture and the line as they are now.
    """

    def __init__(
        self,
        name: str,
        controls: Mapping[str, ipywidgets.ValueWidget],
        paint: Callable[..., tuple[Sheet, str]],
        limit: Callable[[Mapping[str, ipywidgets.ValueWidget]], None] | None = None,
        extras: Sequence[ipywidgets.Widget] = (),
        columns: str = "repeat(auto-fill, 280px)",
    ):
        self.name, self.controls, self.reading = name, dict(controls), ""
        self._paint, self._limit = paint, limit or (lambda controls: None)
        self._adjusting, self._tallest = False, 0
        self._picture, self._status = ipywidgets.HTML(), ipywidgets.HTML()
        bar = ipywidgets.GridBox([*controls.values(), *extras])
        bar.layout.grid_template_columns = columns
        super().__init__([bar, self._picture, self._status])
        self.add_class("mha-explorer")
        for control in controls.values():
            control.observe(self._on_change, "value")
        self.set()

    @property
    def values(self) -> dict[str, Any]:
        """The controls' values by name."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values: Any) -> None:
        """Bring controls to new values, in the order of the controls, and repaint once.

        Raises:
            ValueError: there is no control of such a name.
        """
        if unknown := values.keys() - self.controls.keys():
            raise ValueError(f"controls are {', '.join(self.controls)}; got {', '.join(sorted(unknown))}")
        self._adjusting = True
        try:
            for name in [name for name in self.controls if name in values]:
                self.controls[name].value = values[name]
                self._limit(self.controls)
            self._limit(self.controls)
        finally:
            self._adjusting = False
        self._repaint()

    def _on_change(self, change: object) -> None:
        if not self._adjusting:
            self.set()

    def _repaint(self) -> None:
        self.sheet, self.reading = self._paint(**self.values)
        self._png = base64.b64encode(self.sheet.png()).decode()
        # The box only grows: a lower picture must not pull up what stands below it.
        self._tallest = max(self._tallest, self.sheet.pixels.shape[0])
        self._picture.layout.min_height = f"{self._tallest + 8}px"
        self._picture.value = self._image(f'decoding="sync" onload="{ON_LOAD}"')
        reading = html.escape(self.reading)
        self._status.value = f'<div role="status" style="line-height:1.4;max-width:840px">{reading}</div>'

    def _image(self, attributes: str = "") -> str:
        height, width, _ = self.sheet.pixels.shape
        return (
            f'<img alt="{html.escape(self.alt)}" width="{width}" height="{height}" '
            f'style="max-width:100%;height:auto" {attributes} src="data:image/png;base64,{self._png}">'
        )

    @property
    def alt(self) -> str:
        """The text for those who cannot see the picture."""
        return f"{self.name}. {self.reading}"

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = self.alt
        bundle["text/html"] = (
            f'<figure style="margin:0">{self._image()}<figcaption>{html.escape(self.reading)}</figcaption></figure>'
        )
        return bundle


def slider(kind: type[ipywidgets.Widget], description: str, **traits: Any) -> ipywidgets.Widget:
    """A slider whose whole description can be read."""
    layout = {"width": "274px"}
    return kind(description=description, style={"description_width": "initial"}, layout=layout, **traits)


def choice(description: str, options: Sequence[Any], **traits: Any) -> ipywidgets.Dropdown:
    """A list to choose from, whose whole description can be read."""
    layout = {"width": "max-content"}
    return ipywidgets.Dropdown(
        description=description, options=options, style={"description_width": "initial"}, layout=layout, **traits
    )


def bound(slider: ipywidgets.Widget, maximum: int) -> None:
    """Let an integer slider go up to ``maximum``; one that cannot move is greyed."""
    slider.max = maximum
    slider.disabled = slider.min == maximum


def offer(dropdown: ipywidgets.Dropdown, options: Sequence[Any]) -> None:
    """Let a list offer these options; what was chosen stays chosen if it is still there."""
    if dropdown.options != tuple(options):
        chosen = dropdown.value
        dropdown.options = options
        dropdown.value = chosen if chosen in options else options[0]
