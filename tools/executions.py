"""Keep what a notebook's kernel said, so that one execution serves nbval and the site, and the next `make test`.

nbval runs a notebook and hears what its kernel says. A kernel that records keeps all of it in ``build/executions``; a
kernel that repeats says it again, and nbval compares as strictly as before. What was said holds as long as all that
decides it: the cells' code in its order, the files of the library that it reaches, the packages. In these the doors
of rooms do not count, but the modules whose names are used. CI starts without kept executions.
"""

import ast
import base64
import contextlib
import functools
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path
from queue import Empty

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from nbval.kernel import RunningKernel

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
    found += [path.read_bytes() for path in (*tools, *sorted(files_behind(sources, root)))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in found)).hexdigest()


def files_behind(sources, root=ROOT):
    """The library's files that code reaches: modules whose names it uses, what these reach, and their data."""
    reached, new = set(), _reached_by("\n".join(map(_without_magics, sources)), root)
    while new:
        reached |= new
        new = set().union(*(_reached_by_file(path, root) for path in new)) - reached
    return reached | set().union(*(_data_of(path) for path in reached))


def _without_magics(source):
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())


@functools.cache
def _reached_by_file(path, root):
    return _reached_by(path.read_text(encoding="utf-8"), root)


@functools.cache
def _reached_by(source, root):
    """The modules whose names this code uses."""
    tree = ast.parse(source)
    names: dict[str, set[str]] = {}  # of what is read of a name: its attributes, and "" where it is used as a whole
    attributes = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.setdefault(node.id, set()).add(attributes.get(id(node), ""))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (place := _place(alias.name, root)) is not None:
                    used = names.get(alias.asname or alias.name, {""})
                    found |= _whole(place) if "" in used else set().union(*(_named(place, name, root) for name in used))
        elif isinstance(node, ast.ImportFrom) and (place := _place(node.module or "", root)) is not None:
            for alias in node.names:
                room = place / alias.name
                used = names.get(alias.asname or alias.name, {""})
                if room.is_dir() and "" not in used:
                    found = found.union(*(_named(room, name, root) for name in used))
                else:
                    found |= _named(place, alias.name, root)
    return found


def _place(module, root):
    """Where a module of the library is, without its ending; None for others' modules."""
    first = module.partition(".")[0]
    return root.joinpath(*module.split(".")) if first.startswith("mha_") and (root / first).is_dir() else None


def _whole(place):
    return set(place.rglob("*.py")) if place.is_dir() else {place.with_suffix(".py")}


def _named(place, name, root):
    """The modules that a name of a room or a module stands for; of a name that no line defines, all of the room."""
    if not place.is_dir():
        return {place.with_suffix(".py")}
    if (place / name).is_dir() or (place / f"{name}.py").exists():
        return _whole(place / name)
    for node in ast.walk(ast.parse((place / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            there = _place(node.module or "", root)
            return (
                _named(there, next(a.name for a in node.names if name in (a.asname, a.name)), root) if there else set()
            )
    rest = set(place.glob("*.py")) - {place / "__init__.py"}
    return {path for path in rest if re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))} or rest


@functools.cache
def _data_of(path):
    """The data of a module: files of its own name, and, scripts of other pictures aside, folders that it names."""
    text = path.read_text(encoding="utf-8")
    others = [file for file in path.parent.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")]
    return {
        file
        for file in others
        if file.stem == path.stem or (file.suffix != ".js" and re.search(rf"['\"/]{file.parent.name}\b", text))
    }
