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


def test_definitions_come_from_the_cells_and_nothing_else_runs(path):
    defined = cell_definitions(path, ["area", "square", "Ring"])
    assert all(found.__module__ == "sample" for found in defined.values())
    assert (defined["square"](3), defined["Ring"].radius) == (9, 2)
    assert cell_definitions(path, ["area", "square"])["area"](1) == pytest.approx(3.14159, abs=1e-5)


def test_what_is_missing_is_told(path):
    with pytest.raises(NameError, match="square"):
        cell_definitions(path, ["area"])["area"](1)
    with pytest.raises(ValueError, match=r"sample.ipynb defines no perimeter"):
        cell_definitions(path, ["area", "perimeter"])
