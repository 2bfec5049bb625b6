"""``cell_definitions`` returns what a notebook defines, not what it imports, and runs nothing else."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_tools import cell_definitions

CELLS = """
import math
raise RuntimeError("only definitions and imports may run")
---
%matplotlib inline
def area(radius):
    return math.pi * square(radius)

area(undefined)
---
def square(x):
    return x * x
---
from operator import neg as square
---
class Ring:
    radius = 2
---
from operator import neg as area
"""


@pytest.fixture
def path(tmp_path):
    cells = [new_markdown_cell("def text(): is no code")]
    cells += [new_code_cell(source.strip()) for source in CELLS.split("---")]
    nbformat.write(new_notebook(cells=cells), tmp_path / "sample.ipynb")
    return tmp_path / "sample.ipynb"


def test_names_come_from_the_cells(path):
    defined = cell_definitions(path, ["area", "square"])
    assert set(defined) == {"area", "square"}
    assert all(function.__module__ == "sample" for function in defined.values())
    assert defined["square"](3) == 9
    assert defined["area"](1) == pytest.approx(3.14159, abs=1e-5)


def test_a_later_import_does_not_replace_a_definition(path):
    defined = cell_definitions(path, ["square", "Ring"])
    assert defined["square"](3) == 9
    assert defined["Ring"].radius == 2 and defined["Ring"].__module__ == "sample"


def test_what_is_not_named_is_not_defined(path):
    with pytest.raises(NameError, match="square"):
        cell_definitions(path, ["area"])["area"](1)


def test_a_missing_name_is_reported(path):
    with pytest.raises(ValueError, match=r"sample.ipynb defines no perimeter"):
        cell_definitions(path, ["area", "perimeter"])
