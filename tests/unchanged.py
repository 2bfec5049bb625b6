"""Which files of tests `make test` need not run again: all was green there, and nothing that they name has changed.

Words decide. A file depends on itself and on the helpers that it imports; on the rooms and on what else of the project
these texts name anywhere; on what such a room may import; on mha_lib, on what all rooms of the course use, on the
packages, and on which of its tests are chosen. A word too many only runs a file once more. Tests of the project, of
notebooks and of pages always run, since they look at everything, and so does what reads ``build/``. CI runs all.
"""

import functools
import hashlib
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from rooms import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[1]
OF_ROOMS = {"attention", "browser", "checking", "exercises", "heads", "models", "museum", "pictures"}
FOR_ALL = ("conftest.py", "pyproject.toml", "tests/rooms.py", "tests/turns.py", "tests/unchanged.py", "mha_lib")


class Unchanged:
    """A plugin that deselects such files, and keeps in ``build`` the keys of those that were green."""

    def __init__(self, root):
        self.root, self.file = root, root / "build" / "green_tests.json"
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.run, self.not_run = {}, 0  # the key and the number of tests of each file that runs
        self.green, self.bad = Counter(), set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        files = {}
        for item in items:
            files.setdefault(item.path.relative_to(self.root).as_posix(), []).append(item)
        same = set()
        for name, tests in files.items():
            if (own := key(self.root / name, [test.nodeid for test in tests], self.root)) is None:
                continue
            if self.kept.get(name) == own:
                same |= {*tests}
                self.not_run += 1
            else:
                self.run[name] = own, len(tests)
        config.hook.pytest_deselected(items=[*same])
        items[:] = [item for item in items if item not in same]

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
        for name, (own, tests) in self.run.items():
            self.kept[name] = own if name not in self.bad and self.green[name] == tests else ""
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps(self.kept, indent=0))
        if self.not_run:
            unchanged = "files of tests were green before, and nothing has changed that they name: not run again"
            terminalreporter.write_line(f"{self.not_run} {unchanged}")


def texts(path, root=ROOT):
    """The text of a file of tests, and those of the helpers that it and its fixtures' file import, by path."""
    helpers, found, new = helpers_in(root), {}, [path, *path.parent.glob("conftest.py")]
    while new:
        file = new.pop()
        if file not in found:
            found[file] = file.read_text(encoding="utf-8")
            imported = re.findall(r"(?m)^ *(?:from|import) (\w+)", found[file])
            new += [helpers[name] for name in imported if name in helpers]
    return found


@functools.cache
def helpers_in(root):
    """What tests import of each other, by name."""
    files = root.glob("tests/**/*.py")
    return {file.stem: file for file in files if not file.name.startswith(("test_", "conftest"))}


def places(path, root=ROOT):
    """The files and folders that decide what a file's tests do; None where that may be anything."""
    read = texts(path, root)
    if path.parent.parent != root / "tests" or path.parent.name not in OF_ROOMS:
        return None
    if any(re.search(r"['\"/]build\b|\bbuild/", text) for text in read.values()):
        return None
    words = {word for text in read.values() for word in re.findall(r"[^\W_]\w*", text)}
    named = {room for room in MAY_IMPORT if room.partition(".")[2] in words}
    named = {room.partition(".")[2] for room in named.union(*(MAY_IMPORT[room] for room in named))}
    rooms = {room.partition(".")[2] for room in MAY_IMPORT if room.startswith("mha_course.")}
    found = {*read, *(root / name for name in FOR_ALL)}
    found |= {each for each in root.glob("mha_course/*") if each.name in named or each.name not in rooms}
    return found | {each for each in root.glob("[!.]*") if each.stem in words - {"tests", "mha_course"}}


@functools.cache
def _digest(place):
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & {*file.parts}:
            digest.update(f"{file}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def key(path, tests, root=ROOT):
    """The hash of all that decides these tests of a file; None for one that always runs."""
    if (found := places(path, root)) is None:
        return None
    stamp = Path(sys.prefix, "installed")
    parts = [sys.version, stamp.read_text() if stamp.exists() else "", *sorted(tests)]
    parts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MHA_")]
    return hashlib.sha256("\n".join([*parts, *map(_digest, sorted(found))]).encode()).hexdigest()
