"""In a notebook, too, a hang is cut short and the learner's own line is quoted."""

import os

import pytest
from nbformat.v4 import new_code_cell, new_notebook
from notebook_tools import make_notebooks

SET_UP = """
from mha_course import exercises
from mha_course.checking import running
running.SECONDS = 2
"""
HANGS = """
def gaussian_pooling(queries, keys, values, sigma):
    print("waiting")
    while True:
        try:
            while True:
                pass
        except:
            pass
"""
FAILS = """
running.SECONDS = 60
def gaussian_pooling(queries, keys, values, sigma):
    height = queries.size_of_head
    return height
"""


@pytest.mark.slow
def test_verdicts_in_a_kernel(tmp_path):
    check = "exercises.gaussian_pooling(gaussian_pooling)"
    sources = [SET_UP, HANGS, check, FAILS, check]
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    make_notebooks.execute(notebook, tmp_path, env=dict(os.environ))
    printed, *_ = notebook.cells[2].outputs
    hang, failure = (notebook.cells[index].outputs[-1].data["text/plain"] for index in (2, 4))
    assert printed.text == "waiting\n"
    assert hang.startswith("✗ Not right. Your code ran for more than 2 seconds")
    assert "raises AttributeError: " in failure and "at “height = queries.size_of_head”" in failure
