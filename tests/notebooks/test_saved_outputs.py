"""Every notebook gives what is saved in it, run as someone has it who got that one file: see tools.alone."""

import random
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_tools import NOTEBOOKS, REPORTS, ROOT, SOLUTIONS, TRANSLATED, make_notebooks

REACH_OUT = """
import socket, urllib.request
for reach in (
    lambda: socket.create_connection(("192.0.2.1", 80)),
    lambda: socket.socket().connect_ex(("192.0.2.1", 80)),
    lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 80)),
    lambda: socket.getaddrinfo("example.org", 80),
    lambda: socket.gethostbyname("example.org"),
    lambda: urllib.request.urlopen("http://example.org"),
):
    try:
        reach()
    except OSError as error:
        assert "no network here" in str(error)
    else:
        print("another machine was reached")
"""
REACH_IN = """
import socket
server = socket.create_server(("localhost", 0))
socket.create_connection(server.getsockname()).close()
"""
PROGRESS = "from mha_lib.models.progress_bar import progress_bar; _ = list(progress_bar('abc', 3, 'letters'))"
LOOK_ROUND = """
import importlib.util, os
os.listdir(), os.listdir(os.path.expanduser("~")), importlib.util.find_spec("notebook_tools")
"""
SHOW = """display({{"text/html": '<img alt="head {}" src="data:image/png;base64,{}">'}}, raw=True)"""

pytestmark = pytest.mark.slow


def compare(path):
    """Run tools.alone; its exit status and report."""
    command = [sys.executable, "-m", "tools.alone", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    return done.returncode, done.stdout


# A translation computes what the English does, and solutions are the library's right answers; other tests hold that.
# What they print is compared in CI alone.
OTHERS = [pytest.param(path, marks=pytest.mark.long) for path in (*SOLUTIONS, *TRANSLATED)]
ALL = [*NOTEBOOKS, *REPORTS, *OTHERS]


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_notebook(path):
    status, report = compare(path)
    assert status == 0, report


def folding(title):
    return new_markdown_cell(f"## {title}", metadata={make_notebooks.FOLDS: True})


def printing(source, text):
    return new_code_cell(source, outputs=[new_output("stream", text=text)], execution_count=1)


def test_a_main_line_that_needs_what_is_folded_is_red(tmp_path):
    cells = [
        folding("Deeper: two"),
        new_code_cell("heads = 2", execution_count=1),
        new_markdown_cell("## 2. Three"),
        printing("print(heads + 1)", "3\n"),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "sample.ipynb")
    status, report = compare(tmp_path / "sample.ipynb")
    assert status == 1 and "name 'heads' is not defined" in report


def test_a_folded_part_finds_what_stands_at_its_place(tmp_path):
    """Names of the main line and of folded parts before it, the later one of two, and the same random numbers."""
    random.seed(7)
    first, second = random.random(), random.random()
    cells = [
        new_code_cell("import random; random.seed(7); heads = rows = 2", execution_count=1),
        folding("Deeper: one"),
        printing("heads += 1; rows += 2; width = 5; print(heads, rows, random.random())", f"3 4 {first}\n"),
        new_markdown_cell("## On"),
        printing("rows = 7; print(heads, rows, random.random())", f"2 7 {first}\n"),
        folding("Deeper: another"),
        printing("print(heads, rows, width, random.random(), 'late' in dir())", f"3 7 5 {second} False\n"),
        new_markdown_cell("## The end"),
        printing("heads = late = 9; print(heads, 'width' in dir())", "9 False\n"),
    ]
    nbformat.write(new_notebook(cells=cells), tmp_path / "sample.ipynb")
    status, report = compare(tmp_path / "sample.ipynb")
    assert status == 0, report


def shown(text):
    return new_output("execute_result", data={"text/plain": text})


def picture(alt, pixels):
    return new_output(
        "display_data", data={"text/html": f'<img alt="head {alt}" src="data:image/png;base64,{pixels}">'}
    )


def compare_cells(folder, *cells):
    """The same for a notebook of these cells: pairs of a source and its saved output."""
    cells = [
        new_code_cell(source, outputs=[output] if output else [], execution_count=number)
        for number, (source, output) in enumerate(cells, start=1)
    ]
    nbformat.write(new_notebook(cells=cells), folder / "sample.ipynb")
    return compare(folder / "sample.ipynb")


def test_a_notebook_has_this_machine_an_empty_home_and_nothing_else(tmp_path):
    status, report = compare_cells(
        tmp_path,
        (REACH_OUT, None),
        (REACH_IN, None),
        (PROGRESS, None),
        (LOOK_ROUND, shown("(['sample.ipynb'], ['.ipython'], None)")),
        (SHOW.format(0, "iVBORw1+/9=="), picture(0, "iVBORw0+/8=")),
    )
    assert status == 0, report


def test_what_differs_is_red_but_for_pixels(tmp_path):
    status, report = compare_cells(
        tmp_path,
        ("(2, 5, 4)", shown("(2, 4, 5)")),
        (SHOW.format(1, "iVBO"), picture(0, "iVBO")),
        ("1 / 0", None),
        (SHOW.format(0, "iVBP"), picture(0, "iVBO")),
    )
    assert status == 1
    assert [f"Cell {number}" in report for number in range(4)] == [True, True, True, False]
