"""Every notebook gives what is saved in it, run as someone has it who got that one file: see tools.alone."""

import random
import tempfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_tools import NOTEBOOKS, REPORTS, SOLUTIONS, TRANSLATED, make_notebooks
from turns import EVERYDAY, LONG

from tools import alone, executions, reached

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
PROGRESS = "from mha_lib.heads.progress_bar import progress_bar; _ = list(progress_bar('abc', 3, 'letters'))"
LOOK_ROUND = """
import importlib.util, os
os.listdir(), os.listdir(os.path.expanduser("~")), importlib.util.find_spec("notebook_tools")
"""
SHOW = """display({{"text/html": '<img alt="head {}" src="data:image/png;base64,{}">'}}, raw=True)"""

pytestmark = pytest.mark.slow


def compare(path, kept=None, folded_too=True, once=False):
    """Whether tools.alone finds the notebook green, and its report."""
    with tempfile.TemporaryFile("w+") as report:
        green = alone.compare(path, kept, folded_too, report, once)
        report.seek(0)
        return green, report.read()


# A translation computes what the English does, and solutions are the library's right answers; other tests hold that.
# What they print is compared in CI alone, and so is what is folded.
OTHERS = [pytest.param(path, marks=pytest.mark.long) for path in (*SOLUTIONS, *TRANSLATED)]
ALL = [*NOTEBOOKS, *REPORTS, *OTHERS]


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_notebook(path):
    green, report = compare(path, executions.file_of(path, LONG), LONG, once=EVERYDAY)
    assert green, report


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
    green, report = compare(tmp_path / "sample.ipynb")
    assert not green and "name 'heads' is not defined" in report


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
    green, report = compare(tmp_path / "sample.ipynb")
    assert green, report


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
    green, report = compare_cells(
        tmp_path,
        (REACH_OUT, None),
        (REACH_IN, None),
        (PROGRESS, None),
        (LOOK_ROUND, shown("(['sample.ipynb'], ['.ipython'], None)")),
        (SHOW.format(0, "iVBORw1+/9=="), picture(0, "iVBORw0+/8=")),
    )
    assert green, report


def test_what_differs_is_red_but_for_pixels(tmp_path):
    green, report = compare_cells(
        tmp_path,
        ("(2, 5, 4)", shown("(2, 4, 5)")),
        (SHOW.format(1, "iVBO"), picture(0, "iVBO")),
        ("1 / 0", None),
        (SHOW.format(0, "iVBP"), picture(0, "iVBO")),
    )
    assert not green
    assert [f"Cell {number}" in report for number in range(4)] == [True, True, True, False]


def counting(folder, text):
    """A notebook that writes a line into a file whenever it runs, and whose code and saved output are these."""
    ran = f"with open({str(folder / 'ran')!r}, 'a') as file: file.write('once\\n')"
    cells = [new_code_cell(ran, execution_count=1), printing("print(3 + 4)", text)]
    nbformat.write(new_notebook(cells=cells), folder / "sample.ipynb")
    return folder / "sample.ipynb"


def test_what_was_kept_is_compared_as_strictly_as_what_runs(tmp_path):
    """Not run again, it is green; with one digit changed in what is saved, it is red, when it has run again, too."""
    kept, runs = tmp_path / "kept.json.gz", tmp_path / "ran"
    assert compare(counting(tmp_path, "7\n"), kept)[0] and compare(counting(tmp_path, "7\n"), kept)[0]
    assert runs.read_text() == "once\n"
    green, report = compare(counting(tmp_path, "8\n"), kept)
    assert not green and report.count("1 failed, 1 passed") == 2 and "mismatch 'stdout'" in report
    assert runs.read_text() == "once\n" * 2
    assert compare(counting(tmp_path, "7\n"), kept)[0] and runs.read_text() == "once\n" * 2


def test_what_was_compared_is_compared_again_when_one_digit_changes_or_where_nothing_is_taken_on_trust(tmp_path):
    kept, ran = tmp_path / "kept.json.gz", " passed"
    path = counting(tmp_path, "7\n")
    assert compare(path, kept, once=True)[1].count(ran) == 1
    assert compare(path, kept, once=True) == (True, "")
    assert compare(path, kept)[1].count(ran) == 1
    assert not compare(counting(tmp_path, "8\n"), kept, once=True)[0]
    assert not compare(counting(tmp_path, "8\n"), kept, once=True)[0]


def test_a_notebook_runs_again_when_its_code_a_module_behind_it_or_a_package_changes(tmp_path, monkeypatch):
    files = {
        "__init__.py": "",
        "room/__init__.py": "from mha_lib.room.used import head\nfrom mha_lib.room.other import tail\n",
        "room/used.py": "from mha_lib.room import numbers\nhead = numbers.one\n",
        "room/numbers.py": "one = 1\n",
        "room/used.json": "{}",
        "room/other.py": "tail = 2\n",
    }
    for name, text in files.items():
        path = tmp_path / "mha_lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sources = ["%matplotlib inline\nfrom mha_lib import room", "room.head"]

    def key(sources=sources):
        for cached in (reached._reached_by, reached._reached_by_file, reached._data_of, reached.data_beside):
            cached.cache_clear()
        return executions.key(sources, tmp_path)

    keys = {"": key()}
    for name in files:
        path = tmp_path / "mha_lib" / name
        path.write_text(f"{files[name]}\n")
        keys[name] = key()
        path.write_text(files[name])
    assert keys["room/other.py"] == keys["room/__init__.py"] == keys[""] == key()
    assert len({keys[name] for name in ("", "room/used.py", "room/numbers.py", "room/used.json")}) == 4
    assert key(["from mha_lib import room", "room.head", "1"]) != keys[""] != key(["from mha_lib import room", "room"])
    (tmp_path / "installed").write_text("other packages")
    monkeypatch.setattr(executions.sys, "prefix", str(tmp_path))
    assert key() != keys[""]
