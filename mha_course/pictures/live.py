"""What all live pictures share: a module for the browser, choices that Python sees and sets, a still picture.

A live picture is computed in the reader's browser, so it moves in JupyterLab, in VS Code, in Colab and on a page
without any kernel alike. Python and the browser share its choices alone; the data travel once.
"""

import base64
import functools
import html
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import numpy as np
import torch
import traitlets
from IPython import get_ipython
from torch import Tensor

from mha_course.language import Said, english, lang_code, words_in
from mha_course.pictures.picture import Canvas, Picture
from mha_course.pictures.shared_with_js import MODULES, style

IMPORT = re.compile(r'^import [^;]*? from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)
INDENTATION = re.compile(r"^ +", re.MULTILINE)  # of code: no text of a module has more than one line
COMMENT = re.compile(r"^ *(?:/\*(?:(?!\*/).)*\*/|//[^\n]*)\n| // [^\n]*", re.MULTILINE | re.DOTALL)

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ margin: 16px auto; padding: 0 12px; max-width: 980px; font: 14px/1.4 system-ui, sans-serif }}
{style}</style>
<main>{still}
{state}</main>
<script>
{script}</script>
</html>
"""


@functools.cache
def bundle(entry: str) -> str:
    """Join the JavaScript module ``entry`` and all modules that it imports into one text, without comments.

    A front end gets a module as text, and a page may be opened from disk: neither could import its neighbours.
    """
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = (MODULES / name).read_text(encoding="utf-8")
        for neighbour in IMPORT.findall(text):
            if neighbour not in texts:
                add(neighbour)
        texts[name] = COMMENT.sub("", IMPORT.sub("", text))

    add(entry)
    *neighbours, last = texts.values()
    return "\n".join([*(EXPORT.sub("", text) for text in neighbours), last])


def without_stars(message: str) -> str:
    """Return a message without the stars around what the page writes in bold."""
    return Said(message.replace("*", ""), english(message).replace("*", ""))


def pack(tensors: dict[str, Tensor], *, halves: bool = False) -> dict[str, Any]:
    """Pack named tensors into one bytes object with a list of names and shapes, as float32 or (``halves``) float16.

    ``unpack`` in attention.js undoes it. With ``halves`` they have three decimal digits and take half the room.
    """
    arrays = {name: np.asarray(tensor.detach().cpu(), "<f2" if halves else "<f4") for name, tensor in tensors.items()}
    return {
        "halves": halves,
        "parameters": b"".join(array.tobytes() for array in arrays.values()),
        "shapes": [[name, list(array.shape)] for name, array in arrays.items()],
    }


def pack_uint16(numbers: Any) -> bytes:
    """Encode whole numbers from 0 to 65,535 as bytes, two for each number."""
    return np.asarray(numbers, "<u2").tobytes()


def pack_uint8(weights: Tensor) -> bytes:
    """Encode weights from 0 to 1 as bytes, one for each weight, with 255 for 1."""
    return (255 * weights).round().numpy().astype(np.uint8).tobytes()


CHOICE = {"sync": True, "choice": True}  # marks a trait that the reader of a picture sets, too


def choice(trait: traitlets.TraitType) -> Any:
    """Mark a traitlet as a setting that the user of a widget can change in the browser, and return it."""
    return trait.tag(**CHOICE)


class Place(traitlets.Int):
    """Define a widget setting (a traitlet) that is an index from ``first`` to ``count(widget)`` − 1."""

    metadata = CHOICE

    def __init__(self, count: Callable[[Any], int], first: int = 0):
        super().__init__(first)
        self.count, self.first = count, first

    def validate(self, obj: Any, value: Any) -> int:
        place, end = super().validate(obj, value), self.count(obj)
        if not self.first <= place < end:
            refuse(self.name or "place", f"between {self.first} and {end - 1}", place)
        return place


class OneOf(traitlets.Any):
    """Define a widget setting (a traitlet) that is one of ``options(widget)``, and of its type."""

    metadata = CHOICE

    def __init__(self, options: Callable[[Any], Iterable[Any]]):
        super().__init__()
        self.options = options

    def validate(self, obj: Any, value: Any) -> Any:
        options = list(self.options(obj))
        if not any(type(value) is type(one) and value == one for one in options):
            refuse(self.name or "choice", f"one of {options}", value)
        return value


class Heads(traitlets.Any):
    """Define a widget setting (a traitlet) that is a list of heads, pairs (layer, head), of the widget's model."""

    metadata = CHOICE

    def validate(self, obj: Any, value: Any) -> list[list[int]]:
        every = [list(place) for place in itertools.product(*map(range, obj.shape))]
        try:
            heads = [list(place) for place in value]
        except TypeError:
            heads = [[]]
        if any(place not in every for place in heads):
            refuse(self.name or "heads", f"a list of (layer, head), each below {obj.shape}", value)
        return [place for place in every if place in heads]


class Numbers(traitlets.Dict):
    """Define a widget setting (a traitlet) that holds tensors by name, as nested lists of fixed shapes."""

    metadata = CHOICE

    def validate(self, obj: Any, value: Any) -> dict[str, list]:
        need = f"finite numbers of the shapes {obj.shapes}"
        try:
            numbers = {name: torch.as_tensor(own, dtype=torch.float32) for name, own in value.items()}
        except (AttributeError, TypeError, ValueError, RuntimeError):
            refuse("numbers", need, value)
        fits = {name: tuple(X.shape) for name, X in numbers.items()} == obj.shapes
        if not fits or not all(X.isfinite().all() for X in numbers.values()):
            refuse("numbers", need, value)
        return {name: X.tolist() for name, X in numbers.items()}


class OwnText(traitlets.Unicode):
    """Define a widget setting (a traitlet): a text typed by the user that the widget's method ``read`` accepts."""

    metadata = CHOICE

    def validate(self, obj: Any, value: Any) -> str:
        text = super().validate(obj, value)
        try:
            if text:
                obj.read(text)
        except (ImportError, ValueError) as error:
            refuse("text", f"one that the model can read ({error})", text)
        return text


class LivePicture(anywidget.AnyWidget):
    """Provide the base class of interactive figures: widgets drawn in the browser, with settings Python can change.

    Args:
        title: what the picture is, for screen readers and alt texts.
        data: what the module reads and nothing changes: JSON, and bytes.
        first: first values of the choices.

    Attributes:
        module: its file in ``js/``, without its extension.
        choices: the traits that a reader moves; ``observe`` and ``ipywidgets.link`` work on them.

    Raises:
        traitlets.TraitError: at once or later: an invalid choice; the message names it, what it needs and what it got.
    """

    module = ""
    choices: tuple[str, ...] = ()
    title = traitlets.Unicode("A live picture").tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    _shown: ClassVar[dict[str, tuple[str, list["LivePicture"]]]] = {}  # by cell: the run, and what it showed

    def __init_subclass__(cls, **kwargs: Any):
        if "module" in vars(cls):  # it is not in the class of its own that each object gets for its traits
            cls._read_module()
            traits = {name: one for name, one in vars(cls).items() if isinstance(one, traitlets.TraitType)}
            cls.choices = tuple(name for name, one in traits.items() if one.metadata.get("choice"))
        super().__init_subclass__(**kwargs)

    @classmethod
    def _read_module(cls) -> None:
        cls._esm, cls._css = bundle(f"{cls.module}.js"), style()

    def __init__(self, title: str, data: dict[str, Any], **first: Any):
        if os.environ.get("MHA_LIVE_JS") == "reload":  # for those who edit js/: each new picture reads it anew
            bundle.cache_clear()
            self._read_module()
        # In the order in which they are declared, since the places of one may depend on another.
        ordered = {name: first.pop(name) for name in self.choices if name in first}
        if words := words_in(self._esm):
            data = data | {"messages": words, "lang": lang_code()}
        super().__init__(title=title, data=data, **ordered, **first)
        self.on_msg(self._hear)

    def reply(self, question: dict[str, Any], share: Callable[[float], None]) -> dict[str, Any]:
        """Return what the page gets that asks for something it does not hold: JSON, and bytes.

        Args:
            question: what it asks, in the picture's own words.
            share: tells the page how much of a long answer is done, from 0 to 1.

        Raises:
            ImportError, ValueError: there is no answer; the page shows the message.
        """
        raise ValueError(f"{type(self).__name__} answers no questions, got {question}")

    def _hear(self, _widget: Any, question: dict[str, Any], _buffers: Any) -> None:
        to = question.pop("to")
        try:
            answer = self.reply(question, lambda share: self.send({"to": to, "bytes": [], "share": share}))
        except (ImportError, ValueError) as error:
            answer = {"error": str(error)}
        parts = {name: value for name, value in answer.items() if isinstance(value, bytes)}
        rest = {name: value for name, value in answer.items() if name not in parts}
        self.send({"to": to, "bytes": list(parts), **rest}, list(parts.values()))

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the present state without a browser: an image, its text alternative, and what to notice."""
        raise NotImplementedError

    def page_data(self) -> dict[str, Any]:
        """Return all that its module reads on a page without a kernel, and its kind."""
        state = {name: getattr(self, name) for name in ("title", "data", *self.choices)}
        return {"kind": self.module, "state": state}

    def still(self) -> Picture:
        """Return the present state as an image with words."""
        canvas, reading, caption = self.draw()
        return Picture(canvas, self.title, reading, caption)

    def __repr__(self) -> str:
        return self.still().alt

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        self._close_what_this_cell_showed()
        shown = super()._repr_mimebundle_(**kwargs)
        assert shown is not None  # only a widget without a view shows nothing
        data, metadata = shown
        still = self.still()
        return data | {"text/plain": still.alt, "text/html": still.html(self.module)}, metadata

    def _close_what_this_cell_showed(self) -> None:
        """Close the pictures of this cell's earlier run; in kernel and page they would live on for ever."""
        try:
            request = get_ipython().kernel.get_parent("shell")
            cell, run = request["metadata"]["cellId"], request["header"]["msg_id"]
        except (AttributeError, KeyError, LookupError):
            return  # no kernel, or a front end that does not say which cell runs
        earlier_run, pictures = self._shown.get(cell, (run, []))
        if earlier_run != run:
            for picture in pictures:
                if picture is not self:
                    picture.layout.close()
                    picture.close()
            pictures = []
        self._shown[cell] = run, [*pictures, self]


def refuse(name: str, need: str, got: Any) -> None:
    """Raise a ``traitlets.TraitError`` which says that ``name`` must be ``need``, and that it got ``got``."""
    raise traitlets.TraitError(f"{name} must be {need}, got {got!r}")


def save_html(picture: LivePicture, path: str | Path) -> Path:
    """Write an interactive figure to one HTML file that works without Python and without network; return the path.

    The page opens in the picture's present state; a file of that name is replaced.
    """
    path, state = Path(path), state_of("picture", picture.page_data())
    parts = {"title": html.escape(picture.title), "style": style(), "script": page_script([picture.module])}
    path.write_text(PAGE.format(still=picture.still().html("picture"), state=state, **parts), encoding="utf-8")
    return path


def page_script(kinds: Iterable[str]) -> str:
    """Return JavaScript that turns the still figures of an HTML page into interactive ones, for these kinds of figures.

    ``kinds`` are the modules of the pictures that the page may show.
    """
    texts = {kind: bundle(f"{kind}.js").replace("export default", "return") for kind in sorted(set(kinds))}
    modules = ", ".join(f"{kind}: (() => {{\n{text}}})()" for kind, text in texts.items())
    script = f"(() => {{\n{EXPORT.sub('', bundle('page.js'))}\nbringToLife({{ {modules} }});\n}})();\n"
    return INDENTATION.sub("", script)


def state_of(key: str, state: dict[str, Any]) -> str:
    """Return an HTML script element that holds the state of the page's figure ``key`` as JSON."""
    return f'<script type="application/json" data-mha-state="{html.escape(key)}">{as_json(state)}</script>'


def as_json(state: dict[str, Any]) -> str:
    """Return the state of a figure as JSON text for an HTML page, with bytes encoded as base64."""
    encoded = json.dumps(state, default=lambda value: {"base64": base64.b64encode(value).decode()})
    return encoded.replace("</", "<\\/")
