"""The two packages are light to import, and their rooms import one another in one direction only."""

import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from fresh_process import run
from rooms import MAY_IMPORT

import mha_course
import mha_lib

PACKAGE = Path(mha_lib.__file__).parent
ROOT = PACKAGE.parent
HEAVY = ["IPython", "anywidget", "d2l", "ipywidgets", "matplotlib", "torchvision", "transformers"]
# The one file of mha_lib that knows the course: it leads names that have moved there, until the next release.
OLD_NAMES = Path("mha_lib/old_names.py")
ANNEXES = {"research", "classroom", "pages"}  # they import the house, and are never imported by it
FOR_ALL_ROOMS = {"kept_work", "language", "rounding"}  # of the course
FILES = sorted(
    path.relative_to(ROOT) for package in ("mha_lib", "mha_course") for path in ROOT.glob(f"{package}/**/*.py")
)


def imported(source: str) -> set[str]:
    """The modules that a source imports, by the first part of their names, as in ``python -c`` scripts, too."""
    return set(re.findall(r"(?m)^ *(?:from|import) (\w+)", source))


def own_imports(source: str) -> set[str]:
    """Rooms of the two packages that the source imports, anywhere in it; a relative import counts as "relative"."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("mha_lib.relative")
        elif isinstance(node, ast.ImportFrom) and node.module in ("mha_lib", "mha_course"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return {".".join(name.split(".")[:2]) for name in found if re.match(r"mha_(lib|course)\.", name)}


def room_of(path: Path) -> str:
    """The room of a file of the packages: its folder, or the file itself where it is in none."""
    return ".".join(path.with_suffix("").parts[:2])


@pytest.mark.parametrize("package", ["mha_lib", "mha_course"])
def test_importing_a_package_loads_nothing_heavy(package):
    script = f"import sys, {package}; print([name for name in {HEAVY} if name in sys.modules])"
    assert run(script) == ("[]\n", "")


def test_what_the_package_offers_by_name():
    assert all(hasattr(mha_lib, name) for name in mha_lib.__all__)
    source = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert own_imports(source) == {*(f"mha_lib.{room}" for room in mha_lib.ROOMS), "mha_lib.old_names"}


ROOMS = [f"{package.__name__}.{room}" for package in (mha_lib, mha_course) for room in package.ROOMS]


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_is_found_by_its_name_alone_and_shows_what_it_offers(name):
    """In a process of its own, as somebody would who has imported the package and presses tab."""
    package, _, room = name.partition(".")
    script = f"""
import inspect, json, {package}
modules = [each for each in dir({name}) if inspect.ismodule(getattr({name}, each)) and {room != "language"}]
print(json.dumps([dir({package}), dir({name}), getattr({name}, "__all__", None), modules]))
"""
    out, err = run(script)
    assert err == ""
    rooms, shown, offered, modules = json.loads(out)
    assert room in rooms and (offered is None or sorted(offered) == shown) and modules == []


def test_pictures_without_what_they_need_name_it_and_the_command():
    script = "import sys; sys.modules['anywidget'] = sys.modules['PIL'] = None; import mha_course; mha_course.pictures"
    _, err = run(script)
    told = 'ImportError: pictures need PIL, anywidget. Run: pip install "mha-course[notebooks]"'
    assert err.splitlines()[-1] == told


def test_every_file_stands_in_a_room():
    shared = {Path("mha_course", f"{name}.py") for name in FOR_ALL_ROOMS}
    alone = {Path("mha_lib/__init__.py"), OLD_NAMES, Path("mha_course/__init__.py"), *shared}
    assert {room_of(path) for path in FILES if path not in alone} == {*MAY_IMPORT}
    assert alone <= {*FILES}


@pytest.mark.parametrize("name", sorted(FOR_ALL_ROOMS))
def test_what_all_rooms_use_imports_none(name):
    source = Path(mha_course.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    assert own_imports(source) <= {"mha_course.kept_work"}


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in MAY_IMPORT], ids=str)
def test_a_room_imports_only_rooms_above_it(path):
    room, is_door = room_of(path), path.name == "__init__.py"
    shared = {f"mha_course.{name}" for name in FOR_ALL_ROOMS}
    always = shared if room.startswith("mha_course") else {"mha_lib.old_names"} if is_door else set()
    assert own_imports((ROOT / path).read_text(encoding="utf-8")) <= MAY_IMPORT[room] | {room} | always


def test_one_file_of_the_library_knows_the_course():
    library = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES if path.parts[0] == "mha_lib"}
    assert [path for path, text in library.items() if "mha_course" in text] == [OLD_NAMES]


def test_the_house_imports_no_annex():
    code = [path for folder in ("mha_*", "benchmarks", "tools", "golden") for path in ROOT.glob(f"{folder}/**/*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in [*code, *ROOT.glob("tests/**/*.py")]}
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert [path.name for path, text in texts.items() if imported(text) & ANNEXES] == []


def test_benchmarks_need_no_file_of_the_tests():
    of_tests = {path.stem for path in ROOT.glob("tests/**/*.py")}
    needed = {name for path in ROOT.glob("benchmarks/*.py") for name in imported(path.read_text(encoding="utf-8"))}
    assert "tools" in needed and needed & of_tests == set()


def test_no_file_name_is_used_twice():
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_a_small_forward_pass_is_soon_read():
    layer, X = mha_lib.MultiHeadAttention(8, 4).eval(), torch.randn(2, 3, 8)
    layer(X, X, X)
    calls = []  # of functions of mha_lib, and each time that a generator goes on

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        layer(X, X, X, torch.tensor([3, 2]))
    finally:
        sys.setprofile(None)
    assert len(calls) <= 45, calls
