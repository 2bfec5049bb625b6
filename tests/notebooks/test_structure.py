"""Every notebook keeps the house rules, and a notebook that breaks one of them is told so."""

import re
import tomllib

import notebook_checks as checks
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_tools import NOTEBOOKS, ROOT, SOLUTIONS, code, make_notebooks

from mha_course.exercises import COURSE
from tools import main_line, stubs

DOUBLE = "def double(X):\n    ### BEGIN SOLUTION\n    return 2 * X\n    ### END SOLUTION"
PICTURE = '<img alt="weights of head 0" src="data:image/png;base64,AAAA">'
ENDS = "[back](00_before.ipynb) · [on](02_after.ipynb)"
EXERCISE = "### Exercise {} (2 minutes, {}, {})\n\n*Shows that you can* double.\n\nWrite `double`."
BOLD_EXERCISE = "**Exercise {} (2 minutes, a stretch): twice.** Write `double`."
MAX_WIDTH = 120  # of lines in notebooks that are not yet rewritten
CLASS = "# Twice.\nclass Double:\n" + "    pass\n" * 28


def faults(notebook, path, of):
    return [fault for check in of for fault in check(notebook, path)]


def test_every_notebook_with_exercises_has_solutions():
    asking = [path.name for path in NOTEBOOKS if checks.exercises(make_notebooks.read(path))]
    assert asking and asking == [path.name for path in SOLUTIONS]


def test_a_notebook_asks_for_every_exercise():
    cells = [cell.source for path in NOTEBOOKS for cell in code(make_notebooks.read(path))]
    checked = [name for source in cells for name in re.findall(r"\bexercises\.(\w+)\(", source)]
    assert [name for name in COURSE if name not in checked] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path):
    assert faults(make_notebooks.read(path), path, checks.STORY_CHECKS) == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solutions(path):
    assert faults(make_notebooks.read(path), path, checks.SOLUTION_CHECKS) == []


WIDTHS = tomllib.loads((ROOT / "notebooks" / "ruff.toml").read_text(encoding="utf-8"))["lint"]
IGNORED = WIDTHS["extend-per-file-ignores"]
NOT_YET_SHORT = sorted(name for name, rules in IGNORED.items() if name.endswith(".ipynb") and "E501" in rules)


@pytest.mark.parametrize("name", NOT_YET_SHORT)
def test_a_notebook_that_may_have_long_lines_has_some_and_none_too_long(name):
    """Otherwise ruff holds it to short ones: take it off the list in notebooks/ruff.toml."""
    read = [make_notebooks.read(path) for path in (ROOT / "notebooks").rglob(name)]
    widest = max(len(line) for notebook in read for cell in code(notebook) for line in cell.source.splitlines())
    assert WIDTHS["pycodestyle"]["max-line-length"] < widest <= MAX_WIDTH


def plain(text):
    return new_output("execute_result", data={"text/plain": text})


def display(**data):
    return new_output("display_data", data={name.replace("_", "/"): value for name, value in data.items()})


def numbered(cells):
    """A notebook of these cells, as it is after ``make notebooks``."""
    notebook = new_notebook(cells=cells)
    for number, cell in enumerate(code(notebook), start=2):  # after the one that installs
        cell.execution_count = number
    for number, cell in enumerate(cells, start=1):
        cell.id = f"01_sample-{number:02d}"
    return notebook


@pytest.fixture
def story(tmp_path):
    """A notebook without a fault between two others, and its path."""
    for name in ("00_before.ipynb", "01_sample.ipynb", "02_after.ipynb", "three heads.svg"):
        (tmp_path / name).touch()
    cells = [
        new_markdown_cell(f"# Sample\n\n**Goal:** see heads.\n\n**Time:** about 5 minutes\n\n{ENDS}"),
        new_code_cell("heads = 2\nheads", outputs=[plain("2")]),
        new_markdown_cell("![heads](three%20heads.svg), [a page](https://example.org), `a[0](b)`, $a[0](b)$"),
        new_code_cell("print(heads)", outputs=[plain("(2, 4)/(8,), https://example.org/x\n")]),
        new_markdown_cell('<img src="three heads.svg" alt="three heads">'),
        new_code_cell("show(heads)", outputs=[display(text_html=PICTURE, text_plain="weights of head 0")]),
        new_markdown_cell("## Summary\n\nHeads differ.\n\n## Exercises"),
    ]
    for number, kind, hard in ((1, "debug", "easy"), (2, "write", "easy"), (3, "write", "hard")):
        cells += [
            new_markdown_cell(EXERCISE.format(number, kind, hard)),
            new_code_cell(stubs.stub_from(new_code_cell(DOUBLE))),
        ]
        cells += [new_code_cell("exercises.double(double)", outputs=[plain("… Not yet. Write it.")])]
    return numbered([*cells, new_markdown_cell(ENDS)]), tmp_path / "01_sample.ipynb"


def test_a_sample_without_a_fault(story):
    assert faults(*story, checks.STORY_CHECKS) == []


def test_a_picture_may_come_before_the_goal_but_no_section(story):
    notebook, _ = story
    opening = notebook.cells[0].source.partition("\n\n")[2]
    change(notebook, 0, {"source": "# Sample\n\nHeads differ."})
    change(notebook, 2, {"source": f"{opening}\n\n## 1. Heads"})
    assert faults(*story, [checks.framed]) == []
    change(notebook, 2, {"source": f"## 1. Heads\n\n{opening}"})
    assert faults(*story, [checks.framed]) == []
    change(notebook, 0, {"source": "# Sample\n\n## 1. Heads"})
    found = "\n".join(faults(*story, [checks.framed]))
    assert "no line '**Goal:**" in found and "before the first section does not link 00_before.ipynb" in found


def test_an_exercise_may_be_bold_and_none_is_needed(story):
    change(story[0], 7, {"source": BOLD_EXERCISE.format(1)})
    assert faults(*story, [checks.exercises_checked]) == []
    story[0].cells = story[0].cells[:7]
    assert faults(*story, [checks.exercises_checked]) == []


def test_a_cell_that_is_one_class_may_be_longer(story):
    for source, right in ((CLASS, True), (CLASS + "    pass\n", False), (CLASS + "heads = 2", False)):
        change(story[0], 3, {"source": source})
        assert (faults(*story, [checks.in_small_steps]) == []) is right


def deeper(story, source, **metadata):
    """The sample with a cell of code and a text behind its first picture, the text's ``metadata``."""
    notebook, path = story
    notebook.cells[4:4] = [new_markdown_cell(source, metadata=metadata)]
    notebook.cells[6:6] = [new_markdown_cell("## 2. Three")]
    return numbered(notebook.cells), path


FOLDS = {make_notebooks.FOLDS: True}


def test_a_part_of_the_story_may_be_folded(story):
    notebook, path = deeper(story, "## Deeper: three\n\n### Of four", **FOLDS)
    assert faults(notebook, path, checks.STORY_CHECKS) == []
    assert main_line.is_folded(notebook) == [4 <= number < 6 for number in range(len(notebook.cells))]


@pytest.mark.parametrize(
    ("source", "metadata", "message"),
    [
        ("## Deeper: three", {}, "01_sample-05 has a heading 'Deeper' that does not fold"),
        ("Four.\n\n## Deeper: three", FOLDS, "01_sample-05 folds, but does not begin with a heading"),
        ("## Three", FOLDS, "01_sample-05 folds, but does not begin with a heading"),
        ("## Deeper: three\n\n## Four", FOLDS, "01_sample-05 ends what is folded by a heading that does not stand"),
    ],
)
def test_a_part_that_folds_otherwise_is_named(story, source, metadata, message):
    assert message in "\n".join(faults(*deeper(story, source, **metadata), checks.STORY_CHECKS))


def test_after_the_summary_any_number_of_parts_may_be_folded(story):
    notebook, path = story
    change(notebook, -1, {"source": f"## Sources\n\n{ENDS}"})
    notebook.cells[-1:-1] = [new_markdown_cell(f"## Deeper: {number}", metadata=FOLDS) for number in range(4)]
    assert faults(notebook, path, [checks.framed, checks.folds_where_it_says]) == []


error = new_output("error", ename="KeyError", evalue="7", traceback=["KeyError: 7"])
STORY_FAULTS = {  # what an author may do to a cell: its number, what changes, and what is said of it
    "no line '**Goal:**": (0, {"source": f"# Sample\n\nSee heads.\n\n**Time:** about 5 minutes\n\n{ENDS}"}),
    "the last cell does not link 02_after.ipynb": (-1, {"source": "[back](00_before.ipynb)"}),
    "'## Summary' is not among": (6, {"source": "The end."}),
    "01_sample-03 links four.svg": (2, {"source": "![heads](four.svg)"}),
    "01_sample-05 has a picture without alt": (4, {"source": '<img src="three heads.svg" alt=" ">'}),
    "01_sample-04 has 13 lines": (3, {"source": "print(heads)\n\n" * 13}),
    "only 5 of 6 code cells show a result; not: 01_sample-04": (3, {"outputs": []}),
    "only 3 of 6 code cells have compared text": ((1, 5, 9), {"metadata": {"tags": ["nbval-ignore-output"]}}),
    "01_sample-04 has execution count 7, not 3": (3, {"execution_count": 7}),
    "cell id 4f1c is not": (3, {"id": "4f1c"}),
    "01_sample-04 failed with KeyError": (3, {"outputs": [error]}),
    "01_sample-04 wrote to stderr": (3, {"outputs": [new_output("stream", name="stderr", text="0%| | 0/9")]}),
    "01_sample-04 saves a widget view": (3, {"outputs": [display(**{make_notebooks.WIDGET_VIEW: {}})]}),
    "01_sample-06 shows an <img>": (5, {"outputs": [display(text_html=f"{PICTURE}<img src='x'>")]}),
    "01_sample-06 shows a bare image": (5, {"outputs": [display(image_png="AAAA")]}),
    "01_sample-04 shows np.float64(": (3, {"outputs": [plain("[np.float64(0.5)]")]}),
    "01_sample-04 shows /home/ada/x.py": (3, {"outputs": [plain("'/home/ada/x.py'")]}),
    "numbered [2, 3], not from 1 to at most 5": (7, {"source": "Write `double`."}),
    "01_sample-09 is a stub without a check": (9, {"source": "double"}),
    "01_sample-10 does not say 'Not yet'": (9, {"outputs": [plain("✓ Right. Twice.")]}),
    "3 exercises, but 2 stubs": (8, {"source": "def double(X):\n    return 2 * X"}),
    "01_sample-09 has metadata for nbgrader": (8, {"metadata": {"nbgrader": checks.SOLUTION}}),
    "a task begins otherwise": (7, {"source": "### Exercise 1 (2 minutes)\n\nWrite `double`."}),
    "a task begins otherwise than": (7, {"source": "### Exercise 1 (2 minutes, debug, easy)\n\nWrite `double`."}),
    "3 tasks ask to write": (7, {"source": EXERCISE.format(1, "write", "easy")}),
    "one should be to debug": (7, {"source": EXERCISE.format(1, "write", "easy")}),
    "the tasks are hard, easy, hard": (7, {"source": EXERCISE.format(1, "debug", "hard")}),
    "the notebook has more than": (3, {"outputs": [plain("2" * checks.MAX_BYTES)]}),
}


def change(notebook, numbers, fields):
    for number in [numbers] if isinstance(numbers, int) else numbers:
        notebook.cells[number].update(fields)


@pytest.mark.parametrize("message", STORY_FAULTS)
def test_a_fault_is_named(story, message):
    change(story[0], *STORY_FAULTS[message])
    assert message in "\n".join(faults(*story, checks.STORY_CHECKS))


def test_one_check_may_give_points_for_all_solutions():
    answer = new_code_cell("### BEGIN SOLUTION\n2\n### END SOLUTION", id="01_sample-01")
    answer.metadata["nbgrader"] = checks.SOLUTION | {"grade_id": "answer"}
    check = new_code_cell("marks = 2\nmarks.total", id="01_sample-03")
    check.metadata["nbgrader"] = checks.GRADED | {"grade_id": "marks", "points": 30}
    cells = [answer, new_code_cell("2", id="01_sample-02"), check]
    assert list(checks.gradable(new_notebook(cells=cells), None)) == []
    answer.metadata["nbgrader"] = checks.WRITTEN | {"grade_id": "answer", "points": 15}
    assert list(checks.gradable(new_notebook(cells=cells), None)) == []
    check.source = "marks = 2"
    assert len(list(checks.gradable(new_notebook(cells=cells), None))) == 4


@pytest.mark.parametrize("missing", ["schema_version", "grade", "locked", "points", "grade_id"])
def test_an_answer_in_words_needs_all_that_nbgrader_must_know(missing):
    known = checks.WRITTEN | {"grade_id": "words", "points": 2}
    cell = new_markdown_cell("Because.", id="01_sample-01", metadata={"nbgrader": known})
    assert list(checks.gradable(new_notebook(cells=[cell]), None)) == []
    del cell.metadata.nbgrader[missing]
    assert any("01_sample-01 needs" in fault for fault in checks.gradable(new_notebook(cells=[cell]), None))


def test_an_assert_counts_as_compared_and_an_expected_error_is_allowed(story):
    notebook, _ = story
    change(notebook, (1, 3, 5), {"metadata": {"tags": ["nbval-ignore-output", "raises-exception"]}, "outputs": [error]})
    change(notebook, (1, 3), {"source": "assert heads == 2"})
    assert faults(*story, checks.STORY_CHECKS) == []
