"""Bound what an answer does in its own process, and say what is cut off: prints, memory, questions to the user.

What it draws is sent on to the kernel, since a forked process cannot reach the page.
"""

import builtins
import contextlib
import io
import pickle
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

PRINTED = 10_000  # characters that are shown of what an answer prints
PICTURES = 10  # that are shown of what an answer draws
MEMORY = 2 * 2**30  # bytes that an answer may take on top of what the kernel has
WIDGET = "application/vnd.jupyter.widget-view+json"


def bind(sending: Connection) -> None:
    """Limit printing, figures and memory of the current process, and send what it prints and draws through a pipe."""
    sys.stdout, sys.stderr = PassedOn(sending, "stdout"), PassedOn(sending, "stderr")
    builtins.input = refuse_input
    limit_memory()
    with contextlib.suppress(KeyError):  # figures that the kernel has open are not shown again
        sys.modules["matplotlib.pyplot"].close("all")
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell:
        shell.display_pub.publish = PicturesPassedOn(sending)


class PassedOn(io.TextIOBase):
    """Send printed text through a pipe, at most ``PRINTED`` characters: a replacement for stdout or stderr."""

    def __init__(self, sending: Connection, name: str) -> None:
        self.sending, self.name, self.room = sending, name, PRINTED

    def write(self, text: str) -> int:
        if self.room >= 0:
            shown = str(text)[: self.room]
            self.room -= len(str(text))
            cut = f"\n… Your code prints more. {PRINTED:,} characters of it are shown.\n" * (self.room < 0)
            self.sending.send_bytes(pickle.dumps((self.name, shown + cut)))
        return len(text)


class PicturesPassedOn:
    """Send figures that IPython would display through a pipe, so that the parent process shows them."""

    def __init__(self, sending: Connection) -> None:
        self.sending, self.count = sending, 0

    def __call__(self, data: dict[str, Any], *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count > PICTURES + 1:
            return
        if self.count > PICTURES:
            data = {"text/plain": f"Your code draws more. {PICTURES} pictures of it are shown."}
        elif WIDGET in data:
            data = {"text/plain": "A widget that an answer makes cannot be shown while it is checked."}
        self.sending.send_bytes(pickle.dumps(("picture", data)))


def refuse_input(prompt: object = "") -> NoReturn:
    """Raise a RuntimeError in place of reading input: nobody can type while a learner's code is being checked."""
    raise RuntimeError("input() cannot be answered while the check runs")


def limit_memory() -> None:
    """Limit the memory of this process to ``MEMORY`` bytes more than it uses now."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # where the system does not say how much there is
        import resource  # which Windows lacks

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + MEMORY, most))


def show_figures() -> None:
    """Display all open matplotlib figures, as a notebook does at the end of a cell."""
    with contextlib.suppress(Exception):  # no notebook, or a figure that cannot be drawn
        sys.modules["matplotlib_inline.backend_inline"].flush_figures()
