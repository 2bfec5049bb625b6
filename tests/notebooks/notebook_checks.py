"""What a committed notebook must look like: each check takes a notebook and its path and yields faults."""

import ast
import re
from html.parser import HTMLParser
from itertools import zip_longest
from statistics import median
from urllib.parse import unquote, urlsplit

import nbformat
from notebook_tools import code, first_cell, make_notebooks, output_of, text_of_output

from tools import main_line, stubs

MAX_LINES = 12
MAX_LINES_OF_A_CLASS = 30
MAX_MEDIAN_LINES = 5
MIN_SHARE_SHOWN = 0.85
MAX_BYTES = 1_500_000
MAX_EXERCISES = 5
HARD = ("easy", "medium", "hard")
TASK = (
    r"### Exercise \d+ \(\d+ minutes, (?P<kind>write|debug|derive|design), (?P<hard>easy|medium|hard)\)\n\n"
    r"\*Shows that you can\* "
)
OTHER_TASKS = ("00", "08")  # the core and the capstone
UNORDERED_TASKS = ("07",)  # the second is the exercise of the book, and hard

SOLUTION = {"schema_version": 3, "task": False, "solution": True, "grade": False, "locked": False}
GRADED = {"schema_version": 3, "task": False, "solution": False, "grade": True, "locked": True}
WRITTEN = {"schema_version": 3, "task": False, "solution": True, "grade": True, "locked": False}
OPENING = {
    r"\A# \S": "# Title",
    r"(?m)^\*\*Goal:\*\* \S": "**Goal:** …",
    r"(?m)^\*\*Time:\*\* about \d+ minutes": "**Time:** about N minutes",
}
NUMPY_SCALAR = r"\bnp\.(?:(?:float|int|uint|bool|str)\w*\(|True_|False_)"
PATH_OF_A_MACHINE = r"(?<![\w.:/])(?:/[\w.-]+){2,}|\b[A-Z]:\\\w+"


def framed(notebook, path):
    """Title, goal and minutes come first, a summary last; both ends link the notebooks before and after this one."""
    begins = [place for place, cell in enumerate(notebook.cells) if re.search(r"(?m)^## ", prose(cell))]
    opening = notebook.cells[: begins[0] + 1] if begins else notebook.cells
    for pattern, what in OPENING.items():
        if not re.search(pattern, "\n".join(map(prose, opening))):
            yield f"before the first section, there is no line '{what}'"
    headings = re.findall(r"(?m)^## (.+)$", "\n".join(map(prose, main_line.main_line(notebook).cells)))
    if "Summary" not in headings[-3:]:
        yield "'## Summary' is not among the last three headings of the main line"
    notebooks = sorted(path.parent.glob("[0-9][0-9]_*.ipynb"))
    here = notebooks.index(path)
    for where, cells in (("what comes before the first section", opening), ("the last cell", notebook.cells[-1:])):
        for neighbour in notebooks[max(here - 1, 0) : here] + notebooks[here + 1 : here + 2]:
            if not any(neighbour.name in links(cell) for cell in cells):
                yield f"{where} does not link {neighbour.name}"


def in_small_steps(notebook, path):
    """Text stands before every code cell, but for an exercise's check and a prediction's answer; cells are short."""
    introduced = False
    for cell in notebook.cells:
        if cell.cell_type == "code" and not introduced:
            yield f"{cell.id} is a code cell without text before it"
        asks = cell.cell_type == "code" and re.search(r"\b(exercises\.predict|bugs\.guess)\(", cell.source)
        introduced = cell.cell_type == "markdown" or bool(asks) or is_stub(cell) or first_cell.is_first_cell(cell)
    lengths = [len(re.findall(r"(?m)^.*\S", cell.source)) for cell in code(notebook)]
    for cell, lines in zip(code(notebook), lengths, strict=True):
        if lines > (MAX_LINES_OF_A_CLASS if is_one_class(cell) else MAX_LINES):
            yield f"{cell.id} has {lines} lines of code"
    if median(lengths) > MAX_MEDIAN_LINES:
        yield f"the median code cell has {median(lengths)} lines"
    complete = [cell for cell in code(notebook) if not is_stub(cell)]
    silent = [cell.id for cell in complete if not cell.outputs]
    if len(silent) > (1 - MIN_SHARE_SHOWN) * len(complete):
        yield f"of {len(complete)} code cells, too many show no result: {', '.join(silent)}"


def folds_where_it_says(notebook, path):
    """A heading folds if it begins with *Deeper*; it and the heading that ends its part stand first in their cells."""
    depth = None
    for cell, folded in zip(notebook.cells, main_line.is_folded(notebook), strict=True):
        found = [(len(signs), words) for signs, words in re.findall(r"(?m)^(#+) (.*)", prose(cell))]
        if cell.metadata.get(make_notebooks.FOLDS):
            depth = found[0][0] if found else None
            if not re.match(r"#+ Deeper: \S", prose(cell)):
                yield f"{cell.id} folds, but does not begin with a heading '## Deeper: …'"
        elif any(words.startswith("Deeper") for _, words in found):
            yield f"{cell.id} has a heading 'Deeper' that does not fold"
        if folded and depth and any(each <= depth for each, _ in found[1:]):
            yield f"{cell.id} ends what is folded by a heading that does not stand first in its cell"


def links_resolve(notebook, path):
    """Every relative link and picture in the text leads to a file, and the picture has alt text."""
    for cell in notebook.cells:
        for link in links(cell):
            if not (path.parent / unquote(urlsplit(link).path)).exists():
                yield f"{cell.id} links {link}, which does not exist"
        markdown = [{"alt": alt} for alt in re.findall(r"!\[(.*?)\]\(", prose(cell))]
        if not described(markdown + tags(prose(cell), "img")):
            yield f"{cell.id} has a picture without alt text"


def saved_by_make(notebook, path):
    """The outputs come from one run of all cells, top to bottom; the file is quick to load and to review."""
    for number, cell in enumerate(code(notebook), start=2):  # after the one that installs
        if cell.execution_count != number:
            yield f"{cell.id} has execution count {cell.execution_count}, not {number}"
    for cell in notebook.cells:
        if not re.fullmatch(rf"{re.escape(path.stem)}-\d\d+", cell.id):
            yield f"cell id {cell.id} is not of the form {path.stem}-NN"
    if "widgets" in notebook.metadata:
        yield "metadata.widgets is saved, which makes GitHub refuse the notebook"
    if len(nbformat.writes(notebook).encode()) > MAX_BYTES:
        yield f"the notebook has more than {MAX_BYTES} bytes"


def outputs_good_everywhere(notebook, path):
    """No output is an accident, depends on a machine or on numpy's version, or is a picture that not all can see."""
    for cell in code(notebook):
        for output in cell.outputs:
            data = output.get("data", {})
            images = tags(data.get("text/html", ""), "img")
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                yield f"{cell.id} failed with {output.ename}"
            if output.get("name") == "stderr":
                yield f"{cell.id} wrote to stderr"
            if make_notebooks.WIDGET_VIEW in data:
                yield f"{cell.id} saves a widget view, which shows nothing without a kernel"
            if not described(images):
                yield f"{cell.id} shows an <img> without alt text"
            if not images and any(mime.startswith("image/") for mime in data):
                yield f"{cell.id} shows a bare image, which cannot have alt text"
            for pattern in (NUMPY_SCALAR, PATH_OF_A_MACHINE):
                yield from (f"{cell.id} shows {found}" for found in re.findall(pattern, text_of_output(output)))


def exercises_checked(notebook, path):
    """At most five exercises, numbered from 1, each with a stub and its check after it, unless words are asked for."""
    numbers = exercises(notebook)
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) > MAX_EXERCISES:
        yield f"the exercises are numbered {numbers}, not from 1 to at most {MAX_EXERCISES}"
    unsolved = [cell for cell in notebook.cells if is_stub(cell)]
    if len(unsolved) != len(numbers):
        yield f"{len(numbers)} exercises, but {len(unsolved)} stubs"
    for stub, following in pairs(notebook):
        if is_stub(stub) and not (following and re.search(r"\b(exercises|capstone)\.\w+\(", following.source)):
            yield f"{stub.id} is a stub without a check after it"
        elif is_stub(stub) and "Not yet" not in output_of(following):
            yield f"{following.id} does not say 'Not yet'"
    for cell in notebook.cells:
        if "nbgrader" in cell.metadata:
            yield f"{cell.id} has metadata for nbgrader, which belong in the solutions"


def solves_the_exercises(notebook, path):
    """Solutions have a title, a link to the notebook that they belong to, and its exercises."""
    if not re.search(r"\A# \S", prose(notebook.cells[0])) or f"../{path.name}" not in links(notebook.cells[0]):
        yield f"the first cell needs a line '# Title' and a link to ../{path.name}"
    asked = exercises(make_notebooks.read(path.parents[1] / path.name))
    if exercises(notebook) != asked or len(stubs.stubs_from(notebook)) != len(asked):
        yield f"{len(stubs.stubs_from(notebook))} solutions of the exercises {exercises(notebook)}, asked are {asked}"


def gradable(notebook, path):
    """Every solution is followed by a check with points, this by its reason, and nbgrader is told which is which.

    Where one check gives points for the whole notebook, no other is needed, and a solution may also wait for a reader.
    """
    seen, reasons, whole = set(), set(), any(map(gives_points, notebook.cells))
    for cell, following in pairs(notebook):
        grading = cell.metadata.get("nbgrader", {})
        if stubs.is_solution(cell):
            if not whole and not (following and is_graded(following)):
                yield f"{cell.id} is a solution without a graded check after it"
            if grading != grading | (WRITTEN if whole and is_graded(cell) else SOLUTION):
                yield f"{cell.id} needs the metadata of a solution: {SOLUTION}"
        elif grading:
            if grading != grading | GRADED or not grading.get("points", 0) > 0:
                yield f"{cell.id} needs the metadata of a graded check: {GRADED}, and points"
            if not gives_points(cell) and not re.search(r"(?m)^assert \w", cell.source):
                yield f"{cell.id} is graded, but asserts nothing"
            reasons.add(following.id if following else None)
        if grading and grading.get("grade_id") in seen | {None}:
            yield f"{cell.id} needs a grade_id of its own"
        seen.add(grading.get("grade_id"))
    for cell in filter(stubs.is_written, notebook.cells):
        grading = cell.metadata.nbgrader
        if grading != grading | WRITTEN or not grading.get("points", 0) > 0:
            yield f"{cell.id} needs the metadata of an answer in words: {WRITTEN}, and points"
        if grading.get("grade_id") in seen | {None}:
            yield f"{cell.id} needs a grade_id of its own"
        seen.add(grading.get("grade_id"))
    tagged = {cell.id for cell in notebook.cells if "reason" in cell.metadata.get("tags", [])}
    if not whole and tagged != reasons:
        yield f"texts tagged 'reason' are {tagged}, those after graded checks {reasons}"


def tasks_of_kinds(notebook, path):
    """A task says how long, of which kind and how hard it is, and what it shows; one is not *write*, two may be."""
    if path.stem[:2] in OTHER_TASKS:
        return
    tasks = [text for cell in notebook.cells for text in re.findall(r"(?m)^### Exercise .*(?:\n.*)*", prose(cell))]
    kinds, hard = [], []
    for text in tasks:
        found = re.match(TASK, text)
        if not found:
            yield f"a task begins otherwise than CONTRIBUTING says: {text.splitlines()[0]}"
            continue
        kinds.append(found["kind"])
        hard.append(HARD.index(found["hard"]))
    if kinds.count("write") > 2:
        yield f"{kinds.count('write')} tasks ask to write, two may"
    if tasks and not {*kinds} - {"write"}:
        yield "all tasks ask to write; one should be to debug, derive or design"
    if path.stem[:2] not in UNORDERED_TASKS and hard != sorted(hard):
        yield f"the tasks are {', '.join(HARD[each] for each in hard)}, and should get harder"


FILE_CHECKS = (links_resolve, saved_by_make, outputs_good_everywhere)
STORY_CHECKS = (framed, in_small_steps, folds_where_it_says, exercises_checked, tasks_of_kinds, *FILE_CHECKS)
SOLUTION_CHECKS = (solves_the_exercises, gradable, *FILE_CHECKS)


def is_stub(cell):
    """Whether a cell waits for a learner's code or words."""
    return (stubs.PLACEHOLDER if cell.cell_type == "code" else stubs.WRITTEN_PLACEHOLDER) in cell.source


def is_one_class(cell):
    """Whether a code cell is the definition of one class, and nothing else."""
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:  # a magic of IPython's
        return False
    return len(body) == 1 and isinstance(body[0], ast.ClassDef)


def is_graded(cell):
    """Whether nbgrader gives points for a cell."""
    return cell.metadata.get("nbgrader", {}).get("grade", False)


def gives_points(cell):
    """Whether a graded check ends with a number, which nbgrader takes for its points."""
    return is_graded(cell) and re.search(r"(?m)^\w+\.total\Z", cell.source) is not None


def pairs(notebook):
    """Every code cell and the cell after it, None after the last."""
    return [pair for pair in zip_longest(notebook.cells, notebook.cells[1:]) if pair[0].cell_type == "code"]


def exercises(notebook):
    """The numbers of the exercises, as they come."""
    return [
        int(found["number"]) for cell in notebook.cells for found in main_line.NUMBERED_EXERCISE.finditer(prose(cell))
    ]


def prose(cell):
    """A text cell's markdown without code and formulas, whose brackets are no links; "" for a code cell."""
    if cell.cell_type != "markdown":
        return ""
    return re.sub(r"(?s)```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$", "`", cell.source)


def links(cell):
    """Targets of a text cell's links and pictures, those with a host or within the page left out."""
    markdown = re.findall(r"\]\(<?([^)\s>]+)", prose(cell))
    html = [tag.get("href") or tag.get("src", "") for tag in tags(prose(cell), "a", "img")]
    return [link for link in markdown + html if not urlsplit(link).scheme and urlsplit(link).path]


def tags(html, *names):
    """Attributes of every start tag in ``html`` that has one of the names."""
    reader = TagReader()
    reader.feed(html)
    return [attributes for name, attributes in reader.tags if name in names]


class TagReader(HTMLParser):
    """Collects the start tags of what it is fed, as (name, attributes)."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def described(images):
    return all((image.get("alt") or "").strip() for image in images)
