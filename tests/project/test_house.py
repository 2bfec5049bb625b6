"""import mha_lib is light, and its rooms import one another in one direction only."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import mha_lib

PACKAGE = Path(mha_lib.__file__).parent
ROOT = PACKAGE.parent
HEAVY = ["IPython", "anywidget", "d2l", "ipywidgets", "matplotlib", "sklearn", "torchvision", "transformers"]
MAY_IMPORT = {
    "attention": set(),
    "models": {"attention"},
    "heads": {"attention", "models"},
    "pictures": {"attention", "models", "heads"},
    "checking": {"models"},
    "museum": {"attention", "models", "checking"},
    "exercises": {"attention", "models", "heads", "checking", "museum"},
}
ANNEXES = {"research", "classroom", "pages"}  # they import the house, and are never imported by it
FOR_ALL_ROOMS = {"language", "rounding"}
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imported(source: str) -> set[str]:
    """The modules that a source imports, by the first part of their names, as in ``python -c`` scripts, too."""
    return set(re.findall(r"(?m)^ *(?:from|import) (\w+)", source))


def own_imports(source: str) -> set[str]:
    """Rooms of mha_lib that the source imports, anywhere in it; a relative import counts as the room ""."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("mha_lib..")
        elif isinstance(node, ast.ImportFrom) and node.module == "mha_lib":
            found |= {f"mha_lib.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return {name.split(".")[1] for name in found if name.startswith("mha_lib.")} - FOR_ALL_ROOMS


def test_importing_the_package_loads_nothing_heavy():
    script = f"import sys, mha_lib; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


def test_what_the_package_offers_by_name():
    assert all(hasattr(mha_lib, name) for name in mha_lib.__all__)
    assert own_imports((PACKAGE / "__init__.py").read_text(encoding="utf-8")) == {"attention"}


def test_every_file_stands_in_a_room():
    assert {path.parts[0] for path in FILES} == {*MAY_IMPORT, "__init__.py", *(f"{name}.py" for name in FOR_ALL_ROOMS)}


@pytest.mark.parametrize("name", sorted(FOR_ALL_ROOMS))
def test_what_all_rooms_use_imports_none(name):
    assert own_imports((PACKAGE / f"{name}.py").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("path", [path for path in FILES if len(path.parts) > 1], ids=str)
def test_a_room_imports_only_rooms_to_its_left(path):
    room = path.parts[0]
    assert own_imports((PACKAGE / path).read_text(encoding="utf-8")) <= MAY_IMPORT[room] | {room}


def test_the_house_imports_no_annex():
    code = [path for folder in ("mha_lib", "benchmarks", "tools", "golden") for path in ROOT.glob(f"{folder}/**/*.py")]
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


def test_a_small_forward_pass_is_soon_read_and_its_masks_are_joined_once():
    layer, X = mha_lib.MultiHeadAttention(8, 4).eval(), torch.randn(2, 3, 8)
    lengths, bias = torch.tensor([3, 2]), torch.randn(3, 3)
    layer(X, X, X)
    assert len(calls_of_ours(lambda: layer(X, X, X, lengths))) <= 45
    joins = calls_of_ours(lambda: layer(X, X, X, lengths, attn_mask=bias, causal=True)).count("valid_keys")
    assert (joins, calls_of_ours(lambda: layer.attention_weights).count("valid_keys")) == (1, 0)


def calls_of_ours(run: Callable[[], object]) -> list[str]:
    """The functions of mha_lib that are called in order, and each time that a generator goes on."""
    found = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found
