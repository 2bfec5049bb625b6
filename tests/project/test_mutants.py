"""``make mutants``: what it breaks, and that it tells a promise that is held from one that is not."""

import ast
import random
import sys
from pathlib import Path

import pytest

from tools import mutants

SOURCE = '''
"""Words are left alone."""

def share(part: float = 0.5, *, of: float | None = None) -> float:
    """So are docstrings, annotations and messages."""
    if part < 0 or of == 0:
        raise ValueError("part must be at least " + "0")
    return part / (of - -1)
'''


def all_broken(source: str) -> list[str]:
    return [mutants.broken(source, *place) for place in mutants.places(ast.parse(source))]


def test_every_broken_source_is_a_program_that_differs_in_one_statement():
    found = all_broken(SOURCE)
    assert len(set(found)) == len(found) and SOURCE not in found
    for source in found:
        assert ast.get_docstring(ast.parse(source)) == "Words are left alone."
        assert "float | None" in source and ('"part must be at least " + "0"' in source or "pass" in source)
    lines = {line.strip() for source in found for line in set(source.splitlines()) - set(SOURCE.splitlines())}
    assert {"if (part <= 0) or of == 0:", "if (part < 0 and of == 0):", "return part / ((of + -1))"} <= lines
    assert "def share(part: float = 1.5, *, of: float | None = None) -> float:" in lines
    assert "pass" in lines


@pytest.fixture
def small_house(tmp_path, monkeypatch):
    """A project with one room of two functions, of which the tests hold one."""
    room, tests = tmp_path / "mha_lib" / "cellar", tmp_path / "tests" / "cellar"
    for folder in (room, tests):
        folder.mkdir(parents=True)
    (tmp_path / "mha_lib" / "__init__.py").touch()
    (room / "__init__.py").touch()
    (room / "held.py").write_text("def twice(x):\n    return x * 2\n")
    (room / "loose.py").write_text("def thrice(x):\n    return x * 3\n")
    (tests / "test_held.py").write_text(
        "from mha_lib.cellar.held import twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n"
    )
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "FOLDER", tmp_path / "build" / "mutants")
    mutants.FOLDER.mkdir(parents=True)
    monkeypatch.setattr(random.Random, "random", lambda self: 1.0)  # of the statements to delete none is drawn
    monkeypatch.setattr(mutants, "QUICK_TESTS", [sys.executable, "-m", "pytest", "-q"])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return room


def test_it_tells_what_no_test_holds_and_goes_on_where_it_stopped(small_house, monkeypatch):
    found = mutants.try_room("cellar", 4, seed=1)
    noticed = {(Path(place["place"]).name.partition(":")[0], place["noticed"] is not None) for place in found}
    assert noticed == {("held.py", True), ("loose.py", False)}
    assert (small_house / "held.py").read_text() == "def twice(x):\n    return x * 2\n"
    monkeypatch.delattr(mutants, "failure")  # nothing is left to be tried
    assert mutants.try_room("cellar", 4, seed=1) == found
