"""Which files of tests `make test` need not run again: all was green there, and nothing that decides it has changed.

A file depends on itself and on the helpers that it imports; on the modules of the course whose names these use, on what
those reach (tools/reached.py), and on all data beside them; on rooms and files of the course that a string of theirs
names (see there); and on the code of notebooks that its words name. It depends on mha_lib, on what all rooms of the
course use and on their doors, on which files the course has, and on the packages; where tests go by turns, on the
number of commits. Beyond that, a room's tests depend on what of the project their words name, all others on the whole
project. What reads ``build/`` or asks git for files always runs, and so do tests that compare
notebooks, which keep a record of their own. A word too many only runs a file once more. CI runs all.
"""

import ast
import functools
import hashlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from turns import commits

from tools import reached

ROOT = Path(__file__).resolve().parents[1]
OF_ROOMS = {"attention", "browser", "capstone", "checking", "exercises", "heads", "models", "museum", "pictures"}
FOR_ALL = ("conftest.py", "pyproject.toml", "tests/rooms.py", "tests/turns.py", "tests/unchanged.py")
FOR_ALL += ("tools/reached.py", "mha_lib")
MADE = re.compile(r"\.git|\.venv.*|\..*_cache|\.ipynb_checkpoints|__pycache__|build|screenshots")


class Unchanged:
    """A plugin that collects no such file, and keeps in ``build`` the keys of those that were green."""

    def __init__(self, config):
        self.root, self.file = config.rootpath, config.rootpath / "build" / "green_tests.json"
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        if hasattr(config, "workerinput"):  # one process finds the keys for all
            self.keys = config.workerinput["keys"]
        else:
            chosen = any(config.getoption(name, None) for name in ("keyword", "markexpr", "deselect"))
            chosen = chosen or any("::" in argument for argument in config.args)  # then nothing is left out, nor kept
            files = [*self.root.glob("tests/*/test_*.py"), *self.root.glob("pages/tests/test_*.py")]
            keys = {path.relative_to(self.root).as_posix(): key(path, self.root) for path in files if not chosen}
            self.keys = {name: own for name, own in keys.items() if own is not None}
        self.run, self.not_run = {}, 0  # the number of tests of each file that runs
        self.green, self.bad = Counter(), set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["keys"] = self.keys

    def pytest_ignore_collect(self, collection_path):
        if not collection_path.is_relative_to(self.root):
            return None
        name = collection_path.relative_to(self.root).as_posix()
        if name not in self.keys or self.kept.get(name) != self.keys[name]:
            return None
        self.not_run += 1
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        names = (item.path.relative_to(self.root).as_posix() for item in items)
        self.run = dict(Counter(name for name in names if name in self.keys))  # dict: another process hears of it

    def pytest_runtest_logreport(self, report):
        """Count what was green. What was skipped for want of something, as of a browser, is not; what is long is."""
        name = report.nodeid.partition("::")[0]
        left_out = report.skipped and not hasattr(report, "wasxfail") and "long: " not in str(report.longrepr)
        if report.failed or left_out:
            self.bad.add(name)
        elif report.skipped or (report.when == "call" and report.passed):
            self.green[name] += 1

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["unchanged"] = self.run, self.not_run

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take what a process says that ran tests: each of them has seen all files."""
        self.run, self.not_run = getattr(node, "workeroutput", {}).get("unchanged", (self.run, self.not_run))

    def pytest_terminal_summary(self, terminalreporter):
        for name, tests in self.run.items():
            self.kept[name] = self.keys[name] if name not in self.bad and self.green[name] == tests else ""
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps(self.kept, indent=0))
        if self.not_run:
            unchanged = "files of tests were green before, and nothing has changed that decides them: not run again"
            terminalreporter.write_line(f"{self.not_run} {unchanged}")


def texts(path, root=ROOT):
    """The text of a file of tests, and those of the helpers that it and its fixtures' file import, by path."""
    helpers, found, new = helpers_of(path.parent.parent, root), {}, [path, *path.parent.glob("conftest.py")]
    while new:
        file = new.pop()
        if file not in found:
            found[file] = file.read_text(encoding="utf-8")
            imported = re.findall(r"(?m)^ *(?:from|import) (\w+)", found[file])
            new += [helpers[name] for name in imported if name in helpers]
    return found


@functools.cache
def helpers_of(house, root):
    """What tests import of each other by its bare name, and those of pages of pages."""
    files = (*root.glob("tests/**/*.py"), *(house.glob("**/*.py") if house.name == "pages" else ()))
    return {file.stem: file for file in files if not file.name.startswith(("test_", "conftest"))}


@functools.cache
def named_in_strings(path, root, of_a_room):
    """What of the course a file's strings name, which are paths and programs; where one names none, all of it.

    For tests of a room all of it is what their words name.
    """
    text = path.read_text(encoding="utf-8")
    words = set(re.findall(r"[^\W_]\w*", text))
    children, found = [*root.glob("mha_course/[!_.]*")], set()
    for node in ast.walk(ast.parse(text)):
        said = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.search(r"\bmha_(course|lib|\W|$)|\*\*/", said):
            named = {each for each in children if each.stem in re.findall(r"\w+", said)}
            is_prose = "mha_lib" in said or not re.search(r"^[\w./*-]+$|(import|from) mha_|\*\*/", said)
            found |= named if named or is_prose else {each for each in children if not of_a_room or each.stem in words}
    return found


def places(path, root=ROOT):
    """The files and folders that decide what a file's tests do; None where that may be anything."""
    read = texts(path, root)
    if any(re.search(r"['\"/]build\b|\bbuild/|alone\.compare", text) for text in read.values()):
        return None
    course, of_a_room = root / "mha_course", path.parent.parent == root / "tests" and path.parent.name in OF_ROOMS
    words = {word for text in read.values() for word in re.findall(r"[^\W_]\w*", text)}
    programs = [*read.values(), *(code_of(each) for each in root.glob("notebooks/*.ipynb") if each.stem in words)]
    tools = {file for file in reached.files_behind(programs, root) if file.suffix == ".py"}
    tools -= {file for file in tools if {course, root / "mha_lib"} & {*file.parents}}
    if any("ls-files" in file.read_text(encoding="utf-8") for file in (*read, *tools)):
        return None
    named = set().union(*(named_in_strings(file, root, of_a_room) for file in (*read, *tools)))
    if not of_a_room and "exec(" in read[path]:  # of a notebook's cells, which may use anything
        named |= {*course.glob("[!_.]*")}
    whole = {file for each in named if each.is_dir() for file in each.glob("*.py")}
    behind = reached.files_behind(programs, root, whole)
    rooms = {file.parent for file in behind if file.parent.parent == course}
    found = {*read, *behind, *named, *(root / name for name in FOR_ALL), *course.glob("**/__init__.py")}
    found |= {each for each in course.glob("[!_.]*") if not (each / "__init__.py").exists()}
    found = found.union(*(reached.data_beside(room) for room in rooms))
    others = [each for each in root.iterdir() if each != course and not MADE.fullmatch(each.name)]
    return found | {each for each in others if not of_a_room or each.stem in words - {"tests"}}


@functools.cache
def code_of(notebook):
    """The code of a notebook's cells, without what is not Python."""
    cells = json.loads(notebook.read_text(encoding="utf-8")).get("cells", [])
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"(?m)^\s*[%!].*", "", code)


@functools.cache
def _digest(place):
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & {*file.parts}:
            digest.update(f"{file}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@functools.cache
def _names(root):
    return sorted(str(file) for file in (root / "mha_course").rglob("*") if "__pycache__" not in file.parts)


def key(path, root=ROOT):
    """The hash of all that decides which tests of a file run, and what they do; None for one that always runs."""
    if (found := places(path, root)) is None:
        return None
    stamp = Path(sys.prefix, "installed")
    parts = [sys.version, stamp.read_text() if stamp.exists() else ""]
    if any(re.search(r"mark\.quarter|import .*\bby_turns", text) for text in texts(path, root).values()):
        parts.append(str(commits()))
    parts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MHA_")]
    parts += _names(root)
    return hashlib.sha256("\n".join([*parts, *map(_digest, sorted(found))]).encode()).hexdigest()
