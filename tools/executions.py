"""Keep what a notebook's kernel said, so that one execution serves nbval and the site, and the next `make test`.

nbval runs a notebook and hears what its kernel says. A kernel that records keeps all of it in ``build/executions``; a
kernel that repeats says it again, and nbval compares as strictly as before. What was said holds as long as all that
decides it: the cells' code in its order, the files of the library that it reaches (reached.py), the packages. CI starts
without kept executions. Beside an execution stands what nbval has found to be equal to it: `make test` compares
that once, CI each time.
"""

import base64
import contextlib
import functools
import gzip
import hashlib
import json
import sys
from pathlib import Path
from queue import Empty

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from nbval.kernel import RunningKernel

from tools import reached
from tools.notebooks import NOTEBOOKS

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "executions"
RUN_BY = ("alone.py", "executions.py", "main_line.py", "for_kernels/*.py")
LONG = 1000  # characters: a picture's script and style, which the site takes from where they are written


class Recording(RunningKernel):
    """A kernel whose messages are kept, those after each cell in their order, and written when it stops."""

    file: Path
    key: str

    def __init__(self, *args, **kwargs):
        self.said: list[list] = [[]]
        super().__init__(*args, **kwargs)

    def execute_cell_input(self, cell_input, allow_stdin=None):
        self.said.append([])
        self.said[-1].append(super().execute_cell_input(cell_input, allow_stdin))
        return self.said[-1][0]

    def get_message(self, stream, timeout=None):
        message = super().get_message(stream, timeout)
        self.said[-1].append((stream, _without_scripts(message)))
        return message

    def stop(self):
        super().stop()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(self.file, "wt", compresslevel=1, encoding="utf-8") as file:
            file.write(f"{self.key}\n")
            json.dump(self.said[1:], file, default=_plain)


class Repeating(RunningKernel):
    """What stands in for a kernel, and says after each cell what another one has said."""

    file: Path

    def __init__(self, *_args, **_kwargs):
        self.said = iter(messages(self.file))

    def execute_cell_input(self, cell_input, allow_stdin=None):
        number, *self.left = next(self.said)
        return number

    def get_message(self, stream, timeout=None):
        for index, (kept, message) in enumerate(self.left):
            if kept == stream:
                del self.left[index]
                return message
        raise Empty

    def is_alive(self):
        return True

    def stop(self):
        pass


class Keep:
    """A plugin for pytest: nbval's kernel repeats what a file keeps if that is of this key, or else is kept there."""

    def __init__(self, file, key):
        self.kernel = Repeating if holds(file, key) else Recording
        self.kernel.file, self.kernel.key = file, key

    def pytest_sessionstart(self):
        import nbval.plugin  # here, since pytest itself wants to load it first

        nbval.plugin.RunningKernel = self.kernel
        # Sockets in the notebook's folder: two kernels that start at once can be given one port, and wait without end.
        nbval.kernel.KernelManager = functools.partial(KernelManager, transport="ipc", ip="kernel")


def file_of(notebook, folded_too=True):
    """Where the execution of one of the course's notebooks is kept; None for any other notebook."""
    if not notebook.is_relative_to(NOTEBOOKS):
        return None
    name = "-".join(notebook.relative_to(NOTEBOOKS).with_suffix("").parts)
    return KEPT / f"{name}{'' if folded_too else '-main-line'}.json.gz"


def _without_scripts(message):
    """A message without the long texts of a live picture that none of its states holds."""
    state = message["content"].get("data", {}).get("state") if message["msg_type"].startswith("comm") else None
    if not state:
        return message
    short = {k: v for k, v in state.items() if not (k.startswith("_") and isinstance(v, str) and len(v) > LONG)}
    data = message["content"]["data"] | {"state": short}
    return message | {"content": message["content"] | {"data": data}}


def _plain(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else str(value)


def messages(file):
    """What a kernel said, a list for each cell that ran: the execution's number, then (stream, message)."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        next(lines)
        said = json.load(lines)
    for _, *rest in said:
        for _, message in rest:
            message["buffers"] = [base64.b64decode(each) for each in message["buffers"]]
    return said


def holds(file, key):
    """Whether a file keeps an execution of just this."""
    if not file.exists():
        return False
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return next(lines).strip() == key


def proof(notebook, key):
    """The hash of an execution and of all that is compared with it."""
    compared = (notebook, ROOT / "tools" / "nbval_sanitize.cfg", ROOT / "pyproject.toml")
    return hashlib.sha256(b"".join([key.encode(), *(path.read_bytes() for path in compared)])).hexdigest()


def is_proven(file, own):
    """Whether the last comparison that was green with this file's execution is this one."""
    green = file.with_suffix(".green")
    return green.exists() and green.read_text() == own


def code_of(notebook):
    """The code of a notebook's cells, in the order in which they run."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def show(notebook, file):
    """Put into a notebook's cells, which are those that ran, what the kernel said, the states of live pictures too."""
    from nbval.plugin import coalesce_streams

    client = NotebookClient(notebook, store_widget_state=True, record_timing=False)
    client.reset_execution_trackers()
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, (number, *rest) in zip(ran, messages(file), strict=True):
        cell.outputs, index, client.clear_before_next_output = [], notebook.cells.index(cell), False
        for stream, message in rest:
            if stream == "iopub" and message["parent_header"].get("msg_id") == number:
                with contextlib.suppress(CellExecutionComplete):
                    client.process_message(message, cell, index)
        cell.outputs = coalesce_streams(cell.outputs)
    client.set_widgets_metadata()


def key(sources, root=ROOT):
    """The hash of all that decides what these cells say, in this order, run with the packages of this environment."""
    tools = [path for name in RUN_BY for path in sorted((root / "tools").glob(name))]
    stamp = Path(sys.prefix, "installed")
    parts = [sys.version, stamp.read_text() if stamp.exists() else "", *sources]
    found = [part.encode() for part in parts]
    code = "\n".join(map(_without_magics, sources))
    found += [path.read_bytes() for path in (*tools, *sorted(reached.files_behind([code], root)))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in found)).hexdigest()


def _without_magics(source):
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
