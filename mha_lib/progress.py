"""A progress bar that is gone when the work is done: nothing of it stays in a saved notebook."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def progress_bar(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """The ``items``, ``total`` of them, while a bar shows how many are done.

    In a notebook the bar is a widget, on a terminal a line of text; elsewhere ``label`` is printed once, to stderr.
    """
    with _bar(label, total) as show:
        for done, item in enumerate(items):
            if done * 100 // total != (done - 1) * 100 // total:
                show(done)
            yield item


def _bar(label: str, total: int):
    if _in_notebook():
        return _widget_bar(label, total)
    return _text_bar(label, total)


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this, and can show widgets."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:
        return False
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _widget_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    from IPython.display import display
    from ipywidgets import IntProgress, Layout

    style, layout = {"description_width": "initial"}, Layout(width="90%")
    bar = IntProgress(max=total, description=label, style=style, layout=layout)
    display(bar)
    try:
        yield lambda done: setattr(bar, "value", done)
    finally:
        bar.close()


@contextmanager
def _text_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        print(label, file=sys.stderr)
        yield lambda done: None
        return
    try:
        yield lambda done: print(f"\r{label}: {done * 100 // total:3d} %", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # back to the start of the line, and empty it
