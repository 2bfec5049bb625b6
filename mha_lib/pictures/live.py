"""What all live pictures share: a module for the browser, choices that Python sees and sets, a still picture.

A live picture is computed in the reader's browser, so it moves in JupyterLab, in VS Code, in Colab and on a page
without any kernel alike. Python and the browser share its choices alone; the data travel once.
"""

import base64
import functools
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import numpy as np
import traitlets
from IPython import get_ipython
from torch import Tensor

from mha_lib.pictures.palette import STYLE
from mha_lib.pictures.still import Still

MODULES = Path(__file__).with_name("js")
IMPORT = re.compile(r'^import [^;]*? from "\./([\w.]+)";\n', re.MULTILINE)

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
    """A module of ``js/`` and all that it imports, as one text without imports.

    A front end gets a module as text, and a page may be opened from disk: neither could import its neighbours.
    """
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = (MODULES / name).read_text()
        for neighbour in IMPORT.findall(text):
            if neighbour not in texts:
                add(neighbour)
        texts[name] = IMPORT.sub("", text)

    add(entry)
    *neighbours, last = texts.values()
    return "\n".join([*map(_without_exports, neighbours), last])


def pack(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Tensors as float32, one after the other, and their names and shapes; ``unpack`` in attention.js undoes it."""
    arrays = {name: np.asarray(tensor.detach().cpu(), "<f4") for name, tensor in tensors.items()}
    return {
        "parameters": b"".join(array.tobytes() for array in arrays.values()),
        "shapes": [[name, list(array.shape)] for name, array in arrays.items()],
    }


def integers(numbers: Any) -> bytes:
    """Whole numbers from 0 to 65,535 as two bytes each."""
    return np.asarray(numbers, "<u2").tobytes()


class LivePicture(anywidget.AnyWidget):
    """A picture that the browser computes and Python can move. A subclass names its module and its choices.

    Attributes:
        title: what the picture is, for screen readers and alt texts.
        module: its file in ``js/``, without the ending.
        choices: the traits that a reader moves; ``observe`` and ``ipywidgets.link`` work on them.
    """

    module = ""
    choices: tuple[str, ...] = ()
    title = traitlets.Unicode("A live picture").tag(sync=True)
    _shown: ClassVar[dict[str, tuple[str, list["LivePicture"]]]] = {}  # by cell: the run, and what it showed

    def __init_subclass__(cls, **kwargs: Any):
        if "module" in vars(cls):  # not so for the class of its own that each object gets with its traits
            cls._esm, cls._css = bundle(f"{cls.module}.js"), STYLE.read_text()
        super().__init_subclass__(**kwargs)

    def still(self) -> Still:
        """The present state as an image with words."""
        raise NotImplementedError

    def page_state(self) -> dict[str, Any]:
        """All that the module reads, by name: what a page without a kernel must hold."""
        inherited = anywidget.AnyWidget.class_trait_names(sync=True)
        names = [name for name in self.trait_names(sync=True) if name not in inherited and not name.startswith("_")]
        return {name: getattr(self, name) for name in names}

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
    """Raise the error of a choice that cannot be.

    Raises:
        traitlets.TraitError: always; the message names the choice, what it needs and what it got.
    """
    raise traitlets.TraitError(f"{name} must be {need}, got {got!r}")


def check_place(name: str, place: int, count: int) -> int:
    """A place among ``count``, counted from 0.

    Raises:
        traitlets.TraitError: there is no such place.
    """
    if not 0 <= place < count:
        refuse(name, f"between 0 and {count - 1}", place)
    return place


def save_html(picture: LivePicture, path: str | Path) -> Path:
    """Write a page that shows the picture, alive, in any browser: one file that needs no kernel and no network.

    Args:
        picture: in the state in which the page shall open.
        path: where to, such as ``"heads.html"``; a file of that name is replaced.

    Returns:
        The path.
    """
    path, state = Path(path), page_data(picture)
    parts = {"title": html.escape(picture.title), "style": STYLE.read_text(), "script": page_script([picture.module])}
    path.write_text(PAGE.format(still=picture.still().html("picture"), state=state_of("picture", state), **parts))
    return path


def page_script(kinds: Iterable[str]) -> str:
    """A program that puts live pictures in place of a page's still ones, wherever the page holds their state.

    Args:
        kinds: the modules of the pictures that the page may show.
    """
    modules = [f"{kind}: {_as_expression(bundle(f'{kind}.js'))}" for kind in sorted(set(kinds))]
    return f"(() => {{\n{_without_exports(bundle('page.js'))}\nbringToLife({{ {', '.join(modules)} }});\n}})();\n"


def state_of(key: str, state: dict[str, Any]) -> str:
    """What a page holds of the picture ``<figure data-mha-live="key">``: JSON, which no browser runs."""
    text = json.dumps(state).replace("</", "<\\/")
    return f'<script type="application/json" data-mha-state="{html.escape(key)}">{text}</script>'


def page_data(picture: LivePicture) -> dict[str, Any]:
    """All that a picture's module reads; bytes as base64."""
    encoded = {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in picture.page_state().items()
    }
    return {"kind": picture.module, "state": encoded}


def _without_exports(module: str) -> str:
    return re.sub(r"^export ", "", module, flags=re.MULTILINE)


def _as_expression(module: str) -> str:
    return f"(() => {{\n{module.replace('export default', 'return')}}})()"
