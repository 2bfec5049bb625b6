"""A progress bar that disappears when the work is done: a saved notebook does not show it."""

import html
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

Item = TypeVar("Item")


def progress_bar(items: Iterable[Item], total: int, label: str, after: float = 0.0) -> Generator[Item]:
    """Yield the ``items`` one by one while a progress bar shows how many of ``total`` are done.

    In a notebook the bar is a piece of HTML, on a terminal a line of text; elsewhere ``label`` is printed once, to
    stderr. After two seconds the bar says how much time is left. It appears ``after`` so many seconds.
    """
    start, show = time.monotonic(), None
    with ExitStack() as bar:
        for done, item in enumerate(items):
            spent = time.monotonic() - start
            if show is None and spent >= after:
                show = bar.enter_context((_html_bar if _in_notebook() else _text_bar)(label, total))
            if show is not None and done * 100 // total != (done - 1) * 100 // total:
                show(done, f", {spent * (total - done) / done:.0f} s left" if done and spent > 2 else "")
            yield item


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


@contextmanager
def _html_bar(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar in an output that is empty at first and at the end: what runs notebooks and compares them sees none.

    A widget would leave its name behind when it is closed: in a saved notebook, JupyterLab then shows an error.
    """
    from IPython.display import display

    def bar(done: int, left: str) -> dict[str, str]:
        words = html.escape(label + left)
        return {"text/html": f'<label>{words} <progress value="{done}" max="{total}"></progress></label>'}

    output = display({}, raw=True, display_id=True)
    try:
        yield lambda done, left: output.update(bar(done, left), raw=True)
    finally:
        output.update({"text/html": ""}, raw=True)


@contextmanager
def _text_bar(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    if not sys.stderr.isatty():
        print(label, file=sys.stderr)
        yield lambda done, left: None
        return
    try:
        yield lambda done, left: print(
            f"\r{label}: {done * 100 // total:3d} %{left and left.ljust(14)}", end="", file=sys.stderr, flush=True
        )
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # back to the start of the line, and empty it
