"""What several files of these tests read."""

import contextlib
import io

import pytest
from notebook_tools import ROOT, make_notebooks, run_cells


@pytest.fixture(scope="session")
def museum():
    """What the cells of notebook 09 define, after all of them have run in order; they also print.

    It takes as long as the whole notebook: who uses it is in the group "museum", so that one process runs it, once.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        return run_cells(make_notebooks.read(ROOT / "notebooks" / "09_bug_museum.ipynb"))
