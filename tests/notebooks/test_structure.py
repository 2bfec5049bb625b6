"""Every notebook keeps the house rules, and every rule's check goes red on a notebook that breaks it."""

import re

import nbformat
import notebook_checks as checks
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_tools import NOTEBOOKS, SOLUTIONS, code, make_notebooks, stubs

DOUBLE = "def double(X):\n    ### BEGIN SOLUTION\n    return 2 * X\n    ### END SOLUTION"
PICTURE = '<img alt="weights of head 0" src="data:image/png;base64,AAAA">'


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_every_notebook_with_exercises_has_solutions():
    asking = [path.name for path in NOTEBOOKS if path.stem[:2] not in checks.WITHOUT_EXERCISES]
    assert asking == [path.name for path in SOLUTIONS]


@pytest.mark.parametrize("check", checks.STORY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, check):
    assert list(check(make_notebooks.read(path), path)) == []


@pytest.mark.parametrize("check", checks.SOLUTION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solutions(path, check):
    assert list(check(make_notebooks.read(path), path)) == []


@pytest.fixture
def path(tmp_path):
    """Where the sample notebook would stand: between two others, beside a picture."""
    for name in ("00_before.ipynb", "01_sample.ipynb", "02_after.ipynb", "three heads.svg"):
        (tmp_path / name).touch()
    return tmp_path / "01_sample.ipynb"


@pytest.fixture
def sample():
    """A notebook without a fault: text and code in turn, three code cells, numbered ids."""
    navigation = "[back](00_before.ipynb) · [on](02_after.ipynb)"
    cells = [
        new_markdown_cell(f"# Sample\n\n**Goal:** see heads.\n\n**Time:** about 5 minutes\n\n{navigation}"),
        new_code_cell("heads = 2\nheads", outputs=[plain("2")]),
        new_markdown_cell("![heads](three%20heads.svg), [a page](https://example.org), `a[0](b)`, $a[0](b)$"),
        new_code_cell("print(heads)", outputs=[stream("stdout", "(2, 4)/(8,), https://example.org/x\n")]),
        new_markdown_cell('<img src="three heads.svg" alt="three heads">'),
        new_code_cell("show(heads)", outputs=[html(PICTURE)]),
        new_markdown_cell("## Summary\n\nHeads differ.\n\n## Exercises"),
    ]
    for number in (1, 2, 3):
        cells += [new_markdown_cell(f"**Exercise {number} (2 minutes).** Write `double`."), new_code_cell(stub())]
        cells += [new_code_cell("exercises.double(double)", outputs=[plain("… Not yet. Write it.")])]
    return numbered([*cells, new_markdown_cell(navigation)])


@pytest.fixture
def solutions_path(path, sample):
    """Where the sample's solutions stand."""
    nbformat.write(sample, path)
    (path.parent / "solutions").mkdir()
    return path.parent / "solutions" / path.name


@pytest.fixture
def solutions():
    """The sample's solutions, without a fault."""
    cells = [
        new_markdown_cell("# Sample: solutions\n\nFor [Sample](../01_sample.ipynb)."),
        new_code_cell("import torch"),
    ]
    for number in (1, 2, 3):
        cells += [new_markdown_cell(f"**Exercise {number} (2 minutes).** Write `double`."), new_code_cell(DOUBLE)]
        cells[-1].metadata = {"nbgrader": checks.SOLUTION | {"grade_id": f"double-{number}"}}
        source = "verdict = exercises.double(double)\nprint(verdict)\nassert verdict"
        cells += [new_code_cell(source, outputs=[stream("stdout", "✓ Right: twice.\n")])]
        cells[-1].metadata = {"nbgrader": checks.GRADED | {"grade_id": f"double-{number}-check", "points": 1}}
        cells += [new_markdown_cell("Twice.", metadata={"tags": ["reason"]})]
    return numbered(cells)


def numbered(cells):
    """A notebook of these cells, as it is after ``make notebooks``."""
    notebook = new_notebook(cells=cells)
    for number, cell in enumerate(code(notebook), start=1):
        cell.execution_count = number
    for number, cell in enumerate(cells, start=1):
        cell.id = f"01_sample-{number:02d}"
    return notebook


def stub():
    return stubs.stub_from(new_code_cell(DOUBLE))


def html(text):
    return new_output("display_data", data={"text/html": text, "text/plain": "weights of head 0"})


def plain(text):
    return new_output("execute_result", data={"text/plain": text})


def bare(mime):
    return new_output("display_data", data={mime: "AAAA", "text/plain": "a picture"})


def stream(name, text):
    return new_output("stream", name=name, text=text)


@pytest.mark.parametrize("check", checks.STORY_CHECKS, ids=lambda check: check.__name__)
def test_sample_is_good(sample, path, check):
    assert list(check(sample, path)) == []


@pytest.mark.parametrize("check", checks.SOLUTION_CHECKS, ids=lambda check: check.__name__)
def test_solutions_of_the_sample_are_good(solutions, solutions_path, check):
    assert list(check(solutions, solutions_path)) == []


@pytest.mark.parametrize("name", ["00_sample", "07_sample"])
def test_the_first_and_the_last_notebook_have_no_exercises(sample, path, name):
    assert list(checks.exercises_checked(sample, path.with_stem(name))) == ["3 exercises, not 0 to 0"]
    assert list(checks.exercises_checked(new_notebook(), path.with_stem(name))) == []


def edit(index, old, new):
    """A fault: other text in one cell."""

    def apply(notebook):
        assert old in notebook.cells[index].source
        notebook.cells[index].source = notebook.cells[index].source.replace(old, new)

    return apply


def show(index, *outputs):
    """A fault: other outputs in one cell."""

    def apply(notebook):
        notebook.cells[index].outputs = list(outputs)

    return apply


def label(index, **fields):
    """A fault: another id, execution count or metadata in one cell."""

    def apply(notebook):
        notebook.cells[index].update(fields)

    return apply


def tag(name, *indices):
    """A fault: some cells tagged."""

    def apply(notebook):
        for index in indices:
            notebook.cells[index].metadata = {"tags": [name]}

    return apply


def leave_out(index):
    """A fault: one cell is gone."""
    return lambda notebook: notebook.cells.pop(index)


def save_widgets(notebook):
    """A fault: the state of the widgets is saved."""
    notebook.metadata["widgets"] = {}


def lengthen(notebook):
    """A fault: most code cells are a little too long."""
    for index in (1, 3, 5, 9, 12):
        notebook.cells[index].source += "\n\nheads" * 5


def more_exercises(notebook):
    """A fault: twice as many exercises."""
    notebook.cells[7:7] = [new_markdown_cell(f"**Exercise {number} (2 minutes).**") for number in (4, 5, 6)]


def grade(index, **fields):
    """A fault: other grading in one cell."""

    def apply(notebook):
        notebook.cells[index].metadata["nbgrader"] |= fields

    return apply


error = new_output("error", ename="KeyError", evalue="7", traceback=["KeyError: 7"])
FAULTS = [
    (checks.opening, edit(0, "# Sample", "Sample"), "# Title"),
    (checks.opening, edit(0, "**Goal:** see heads.", "See heads."), "Goal"),
    (checks.opening, edit(0, "about 5 minutes", "a while"), "minutes"),
    (checks.opening, leave_out(0), "# Title"),
    (checks.closing, edit(6, "## Summary", "Summary"), "Summary"),
    (checks.closing, edit(6, "## Exercises", "## A\n\n## B\n\n## C"), "Summary"),
    (checks.navigation, edit(0, "00_before", "00_other"), "the first cell does not link 00_before.ipynb"),
    (checks.navigation, edit(0, "02_after", "03_other"), "the first cell does not link 02_after.ipynb"),
    (checks.navigation, edit(-1, "02_after", "03_other"), "the last cell does not link 02_after.ipynb"),
    (checks.links_resolve, edit(2, "three%20heads.svg", "four.svg"), "01_sample-03 links four.svg"),
    (checks.links_resolve, edit(4, "three heads.svg", "four.svg"), "01_sample-05 links four.svg"),
    (checks.links_resolve, edit(-1, "02_after.ipynb", "05_gone.ipynb#part"), "links 05_gone.ipynb"),
    (checks.text_pictures_described, edit(2, "![heads]", "![]"), "01_sample-03"),
    (checks.text_pictures_described, edit(4, 'alt="three heads"', ""), "01_sample-05"),
    (checks.text_pictures_described, edit(4, 'alt="three heads"', 'alt=" "'), "01_sample-05"),
    (checks.output_pictures_described, show(5, html("<p><img src='x'></p>")), "without alt text"),
    (checks.output_pictures_described, show(5, html(PICTURE + "<img src='x'>")), "without alt text"),
    (checks.output_pictures_described, show(5, bare("image/png")), "bare image"),
    (checks.output_pictures_described, show(5, bare("image/svg+xml")), "bare image"),
    (checks.code_introduced, leave_out(2), "01_sample-04"),
    (checks.code_introduced, leave_out(10), "01_sample-12"),
    (checks.code_introduced, edit(8, stubs.PLACEHOLDER, "return 2 * X"), "01_sample-10"),
    (checks.code_short, edit(3, "print(heads)", "print(heads)\n\n" * 13), "01_sample-04 has 13 lines"),
    (checks.code_short, lengthen, "the median code cell has 6 lines, more than 5"),
    (checks.results_shown, show(3), "only 5 of 6 code cells show a result; not: 01_sample-04"),
    (
        checks.results_compared,
        tag("nbval-ignore-output", 1, 5, 9),
        "3 of 6 .* not: 01_sample-02, 01_sample-06, 01_sample-10",
    ),
    (checks.results_compared, tag("nbval-skip", 1, 5, 9), "only 3 of 6"),
    (checks.executed_in_order, label(3, execution_count=None), "01_sample-04 has execution count None"),
    (checks.executed_in_order, label(3, execution_count=7), "01_sample-04 has execution count 7, not 2"),
    (checks.no_errors, show(3, error), "01_sample-04 failed with KeyError"),
    (checks.no_stderr, show(3, stream("stderr", "0%| | 0/9")), "01_sample-04 wrote to stderr"),
    (checks.no_widget_state, save_widgets, "metadata.widgets"),
    (checks.no_widget_state, show(5, bare(checks.WIDGET_VIEW)), "01_sample-06 saves a widget"),
    (checks.ids_stable, label(3, id="4f1c"), "4f1c is not of the form 01_sample-NN"),
    (checks.ids_stable, label(3, id="01_sample-01"), "01_sample-01 is used twice"),
    (checks.plain_numbers, show(3, plain("[np.float64(0.5)]")), r"01_sample-04 .* np\.float64\("),
    (checks.plain_numbers, show(3, plain("np.int64(5)")), r"np\.int64\("),
    (checks.plain_numbers, show(3, plain("np.True_")), "np.True_"),
    (checks.no_machine_paths, show(3, plain("'/home/ada/x.py'")), "01_sample-04 .* /home/ada/x.py"),
    (checks.no_machine_paths, show(3, plain("C:\\Users\\ada")), "C:"),
    (
        checks.exercises_checked,
        leave_out(7),
        "2 exercises, not 3 to 5\n.*numbered \\[2, 3\\]\n2 exercises, but 3 stubs",
    ),
    (checks.exercises_checked, edit(7, " (2 minutes)", ""), "2 exercises, not 3 to 5"),
    (checks.exercises_checked, edit(8, stubs.PLACEHOLDER, "return 2 * X"), "3 exercises, but 2 stubs"),
    (checks.exercises_checked, edit(9, "exercises.double", "double"), "01_sample-09 is a stub without a check"),
    (checks.exercises_checked, show(9, plain("✓ Right. Twice.")), "01_sample-10 does not say 'Not yet'"),
    (checks.exercises_checked, more_exercises, "6 exercises, not 3 to 5"),
    (checks.no_grading, label(8, metadata={"nbgrader": checks.SOLUTION}), "01_sample-09 has metadata for nbgrader"),
    (checks.small, show(3, plain("2" * 1_500_000)), "bytes, more than 1500000"),
]


SOLUTION_FAULTS = [
    (checks.titled, edit(0, "# Sample", "Sample"), "# Title"),
    (checks.titled, edit(0, "../01_sample", "../02_after"), "does not link ../01_sample.ipynb"),
    (checks.same_exercises, edit(2, "Exercise 1", "Exercise 4"), r"exercises \[4, 2, 3\], asked are \[1, 2, 3\]"),
    (checks.same_exercises, leave_out(3), "2 solution cells for 3 exercises"),
    (checks.gradable, leave_out(4), "01_sample-04 is a solution without a graded check after it"),
    (checks.gradable, leave_out(-2), "01_sample-12 is a solution without a graded check after it"),
    (checks.gradable, grade(4, grade=False), "01_sample-04 is a solution without .*\n01_sample-05 needs the metadata"),
    (checks.gradable, label(3, metadata={}), "01_sample-04 needs the metadata of a solution"),
    (checks.gradable, grade(3, solution=False), "01_sample-04 needs the metadata of a solution"),
    (checks.gradable, grade(3, schema_version=2), "01_sample-04 needs the metadata of a solution"),
    (checks.gradable, grade(4, locked=False), "01_sample-05 needs the metadata of a graded check"),
    (checks.gradable, grade(4, points=0), "01_sample-05 needs the metadata of a graded check.* and points"),
    (checks.gradable, edit(4, "assert verdict", "verdict"), "01_sample-05 is graded, but asserts nothing"),
    (checks.gradable, grade(7, grade_id="double-1"), "01_sample-08 needs a grade_id of its own"),
    (checks.gradable, grade(7, grade_id=None), "01_sample-08 needs a grade_id of its own"),
    (checks.reasons_marked, leave_out(5), "01_sample-05 is graded, but no text tagged 'reason' follows"),
    (checks.reasons_marked, leave_out(-1), "01_sample-13 is graded, but"),
    (checks.reasons_marked, label(5, metadata={}), "01_sample-05 is graded, but"),
    (checks.reasons_marked, tag("reason", 2), "01_sample-03 is tagged 'reason', but follows no graded cell"),
]


@pytest.mark.parametrize(("check", "fault", "message"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_check_sees_fault(sample, path, check, fault, message):
    fault(sample)
    assert re.search(message, "\n".join(check(sample, path)))


@pytest.mark.parametrize(
    ("check", "fault", "message"), SOLUTION_FAULTS, ids=[fault[0].__name__ for fault in SOLUTION_FAULTS]
)
def test_check_sees_fault_in_solutions(solutions, solutions_path, check, fault, message):
    fault(solutions)
    assert re.search(message, "\n".join(check(solutions, solutions_path)))


def test_every_check_has_been_seen_red():
    seen = {check for check, _, _ in FAULTS + SOLUTION_FAULTS}
    assert seen == set(checks.STORY_CHECKS) | set(checks.SOLUTION_CHECKS)


def test_an_assert_counts_as_compared(sample, path):
    tag("nbval-ignore-output", 1, 3, 5)(sample)
    edit(1, "heads = 2", "assert heads == 2")(sample)
    edit(3, "print(heads)", "torch.testing.assert_close(heads, 2)")(sample)
    assert list(checks.results_compared(sample, path)) == []


def test_an_expected_error_is_allowed(sample, path):
    show(3, error)(sample)
    tag("raises-exception", 3)(sample)
    assert list(checks.no_errors(sample, path)) == []
