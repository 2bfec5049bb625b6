"""import mha_lib is light, and its modules import one another in one direction only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mha_lib

PACKAGE = Path(mha_lib.__file__).parent
HEAVY = ["IPython", "d2l", "ipywidgets", "matplotlib", "sklearn", "torchvision"]
ORDER = [  # each module, or package of modules, may import those before it
    "inputs",
    "attention",
    "peers",
    "truth_table",
    "shapes",
    "transformer",
    "tasks",
    "progress",
    "training",
    "describe",
    "importance",
    "pruning",
    "planted",
    "comparison",
    "results",
    "exercises",
    "plots",
    "widgets",
]
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOT = FILES.pop("__init__.py")


def own_imports(source: str) -> set[str]:
    """Modules of mha_lib that the source imports, anywhere in it; a relative import counts as the module ""."""
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
    return {name.split(".")[1] for name in found if name.startswith("mha_lib.")}


def test_importing_the_package_loads_nothing_heavy():
    script = f"import sys, mha_lib; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("[]", "")


def test_what_the_package_offers_by_name():
    assert all(hasattr(mha_lib, name) for name in mha_lib.__all__)
    assert own_imports(ROOT.read_text(encoding="utf-8")) == {"attention"}


@pytest.mark.parametrize("name", FILES)
def test_a_module_imports_only_those_before_it(name):
    module = name.removesuffix(".py").split("/")[0]
    assert module in ORDER, f"{module} has no place in ORDER yet"
    before = set(ORDER[: ORDER.index(module)])
    own_parts = {module} if "/" in name else set()
    assert own_imports(FILES[name].read_text(encoding="utf-8")) <= before | own_parts


def test_every_form_of_import_is_seen():
    source = """
import mha_lib.plots
import mha_lib.widgets as w
from mha_lib import exercises, shapes
from mha_lib.peers import load_d2l
from . import tasks
import mha_library, torch.nn
def later():
    from mha_lib.training import fit
"""
    assert own_imports(source) == {"plots", "widgets", "exercises", "shapes", "peers", "", "training"}
